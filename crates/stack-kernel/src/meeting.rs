//! A connection from lane to lane: between two tenants that meet, or between a tenant and another host over channels.

use crate::served::TenantNumber;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::relayed::Relayed;
use std::net::SocketAddr;

/// A link and a slot.
pub type Place = (Key, u32);

/// A destination of kernel TCP.
#[derive(Clone, Copy, Debug)]
pub struct Otherwise {
    /// The address.
    pub to: SocketAddr,
    /// What the program has asked of the network.
    pub dscp: u8,
}

/// A connection.
#[derive(Debug)]
pub struct Meeting {
    /// Tells it from others of its number.
    pub stamp: u64,
    /// Who connected, and whose listener it is; none for the end on another host.
    pub tenants: [Option<TenantNumber>; 2],
    /// Where kernel TCP takes over a connect over channels that leads nowhere.
    pub otherwise: Option<Otherwise>,
    /// Where the lanes of both are. The server's tenant counts the connection as long as it has one.
    pub places: [Option<Place>; 2],
    /// Whether it waits for its turn.
    pub queued: bool,
    /// How far it has come.
    pub state: Relayed,
}

impl Meeting {
    /// One whose lane comes next.
    pub const fn new(stamp: u64, tenants: [Option<TenantNumber>; 2]) -> Self {
        Self {
            stamp,
            tenants,
            otherwise: None,
            places: [None; 2],
            queued: false,
            state: Relayed::Changing,
        }
    }

    /// Whether it goes over channels.
    pub const fn crosses(&self) -> bool {
        matches!(self.tenants, [_, None])
    }

    /// Whether it came over channels.
    pub const fn enters(&self) -> bool {
        matches!(self.tenants, [None, _])
    }

    /// Whether both programs are of one tenant.
    pub fn is_within(&self) -> bool {
        matches!(self.tenants, [Some(client), Some(server)] if client == server)
    }

    /// The other tenant, whose listener it is.
    pub fn other(&self) -> Option<TenantNumber> {
        let [_, server] = self.tenants;
        server.filter(|_| !self.is_within())
    }

    /// CoreEngine could not offer it: its lane towards the listener, which is still watched.
    pub fn take_back(&mut self) -> Option<(Lane, Key)> {
        let [_, place] = self.places;
        let (key, _) = place?;
        Some((self.state.take_back()?, key))
    }
}
