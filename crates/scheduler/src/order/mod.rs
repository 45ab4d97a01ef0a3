//! The next socket, and its number of bytes.

mod fair;

#[cfg(test)]
mod tests;

pub use fair::{Fair, FairParameters, Shares};

use core::fmt;

use crate::rate::Allowance;
use crate::view::{Class, SocketId, TenantId, TenantView};

/// Sockets that one policy orders, at most.
pub const MOST_SOCKETS: u32 = 1 << 20;

/// Tenants that one policy knows, at most.
pub const MOST_TENANTS: u32 = 1 << 16;

/// Bytes that each class may send now; 0 leaves the class out (its channels are full).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// By [`Class::index`].
    pub bytes: [u32; 2],
}

impl Room {
    /// As much for each class.
    #[must_use]
    pub const fn both(bytes: u32) -> Self {
        Self { bytes: [bytes; 2] }
    }

    /// The room of one class.
    #[must_use]
    pub const fn of(self, class: Class) -> u32 {
        self.bytes[class.index()]
    }

    /// Without one class.
    #[must_use]
    pub const fn without(mut self, class: Class) -> Self {
        self.bytes[class.index()] = 0;
        self
    }
}

/// The permission of a socket to send now. Nothing is charged before [`OrderPolicy::on_sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The socket.
    pub socket: SocketId,
    /// The tenant.
    pub tenant: TenantId,
    /// On channels of this class.
    pub class: Class,
    /// The number of bytes, at least 1.
    pub bytes: u32,
}

/// The answer of [`OrderPolicy::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This one.
    Grant(Grant),
    /// All that could send is held back by caps until then.
    Until(u64),
    /// No socket has anything to send, or the room is 0.
    Idle,
}

/// Why a socket or tenant could not be added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The number is at or beyond [`MOST_SOCKETS`] or [`MOST_TENANTS`].
    TooMany,
    /// A socket has that number.
    Taken,
    /// The tenant was never set.
    UnknownTenant,
    /// The tenant has sockets.
    HasSockets,
}

impl fmt::Display for OrderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooMany => "more sockets or tenants than a scheduler takes",
            Self::Taken => "a socket has that number",
            Self::UnknownTenant => "no tenant has that number",
            Self::HasSockets => "the tenant still has sockets",
        })
    }
}

impl std::error::Error for OrderError {}

/// Orders the sockets of one worker.
///
/// ```text
///   attach --> update(bytes it may send) --> next --> (a segment goes to a channel) --> on_sent
///                     ^                       |                                            |
///                     +--- more bytes, or a wider window                 next, ... <-------+
/// ```
///
/// Calls about a number that is not attached do nothing, so that news which comes late is no fault.
pub trait OrderPolicy: Send {
    /// Adds a tenant, or changes its weight and caps. Tokens in hand stay.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`].
    fn set_tenant(&mut self, tenant: TenantView, now: u64) -> Result<(), OrderError>;

    /// Takes a tenant away.
    ///
    /// # Errors
    ///
    /// [`OrderError::UnknownTenant`], [`OrderError::HasSockets`].
    fn remove_tenant(&mut self, tenant: TenantId) -> Result<(), OrderError>;

    /// Adds a socket with nothing to send. May allocate, when the number is larger than any before.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`], [`OrderError::Taken`], [`OrderError::UnknownTenant`].
    fn attach(
        &mut self,
        socket: SocketId,
        tenant: TenantId,
        class: Class,
    ) -> Result<(), OrderError>;

    /// Takes a socket away.
    fn detach(&mut self, socket: SocketId);

    /// Changes a socket's class.
    fn set_class(&mut self, socket: SocketId, class: Class);

    /// Sets how many bytes a socket may send from now on: the lesser of the bytes in its ring and the receiver's
    /// window. 0 takes the socket out of the order.
    fn update(&mut self, socket: SocketId, sendable: u64);

    /// The next grant. A second call without [`Self::on_sent`] gives the same answer, unless something changed.
    fn next(&mut self, room: Room, now: u64) -> Next;

    /// Charges the sent bytes of a grant, at most its number.
    fn on_sent(&mut self, grant: &Grant, bytes: u32, now: u64);

    /// Asks for one operation of a tenant that is no segment (a connect).
    ///
    /// # Errors
    ///
    /// The time from which it is worth asking again.
    fn admit(&mut self, tenant: TenantId, now: u64) -> Result<(), u64>;

    /// All tenants and sockets, to go on with another policy. Allocates.
    fn snapshot(&self) -> Snapshot;

    /// Takes over what another policy held; meant for a new policy.
    fn restore(&mut self, snapshot: &Snapshot, now: u64);
}

/// The state of an [`OrderPolicy`], so that policies can be changed while sockets live. Tokens are included: a change
/// of the policy is no way around a cap.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Each tenant and its tokens.
    pub tenants: Vec<(TenantView, Allowance)>,
    /// Each socket.
    pub sockets: Vec<SocketState>,
}

/// One socket of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketState {
    /// Its number.
    pub id: SocketId,
    /// The tenant.
    pub tenant: TenantId,
    /// Its class.
    pub class: Class,
    /// Bytes that it may send.
    pub sendable: u64,
}
