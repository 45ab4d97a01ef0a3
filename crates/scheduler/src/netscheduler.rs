//! An order and a channel policy joined: the next segment of one worker.

use crate::channel::{ChannelPolicy, Choice};
use crate::order::{Grant, Next, OrderError, OrderPolicy, Room};
use crate::view::{ChannelId, ChannelView, Class, SocketId, SocketView, TenantId, TenantView};

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this; then call [`NetScheduler::on_sent`].
    Send(Segment),
    /// Sockets have bytes, but the channels they may take are full. Ask again when one has sent, or at the time when caps
    /// release others.
    Full(Option<u64>),
    /// Sockets have bytes, but no channel is up.
    NoChannel,
    /// Caps hold back all that could send, until then.
    Until(u64),
    /// No socket has anything to send.
    Idle,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The socket, and the number of bytes.
    pub grant: Grant,
    /// Index in the list of channels that was shown.
    pub channel: usize,
}

/// The scheduler of one worker: an [`OrderPolicy`], a [`ChannelPolicy`], and the last channel of each socket.
///
/// Both policies can be changed while sockets live.
pub struct NetScheduler {
    order: Box<dyn OrderPolicy>,
    channel: Box<dyn ChannelPolicy>,
    last_channels: Vec<Option<ChannelId>>,
}

impl NetScheduler {
    /// A scheduler of two policies, usually without sockets yet.
    #[must_use]
    pub fn new(order: Box<dyn OrderPolicy>, channel: Box<dyn ChannelPolicy>) -> Self {
        Self {
            order,
            channel,
            last_channels: Vec::new(),
        }
    }

    /// Another channel policy, from the next segment on.
    pub fn set_channel_policy(&mut self, channel: Box<dyn ChannelPolicy>) {
        self.channel = channel;
    }

    /// Another order policy, from the next segment on; it takes over tenants, their tokens and sockets.
    pub fn set_order_policy(&mut self, mut order: Box<dyn OrderPolicy>, now: u64) {
        order.restore(&self.order.snapshot(), now);
        self.order = order;
    }

    /// See [`OrderPolicy::set_tenant`].
    ///
    /// # Errors
    ///
    /// As [`OrderPolicy::set_tenant`].
    pub fn set_tenant(&mut self, tenant: TenantView, now: u64) -> Result<(), OrderError> {
        self.order.set_tenant(tenant, now)
    }

    /// See [`OrderPolicy::remove_tenant`].
    ///
    /// # Errors
    ///
    /// As [`OrderPolicy::remove_tenant`].
    pub fn remove_tenant(&mut self, tenant: TenantId) -> Result<(), OrderError> {
        self.order.remove_tenant(tenant)
    }

    /// See [`OrderPolicy::attach`].
    ///
    /// # Errors
    ///
    /// As [`OrderPolicy::attach`].
    pub fn attach(
        &mut self,
        socket: SocketId,
        tenant: TenantId,
        class: Class,
    ) -> Result<(), OrderError> {
        self.order.attach(socket, tenant, class)?;
        let index = socket.0 as usize;
        if self.last_channels.len() <= index {
            self.last_channels.resize(index + 1, None);
        }
        self.last_channels[index] = None;
        Ok(())
    }

    /// See [`OrderPolicy::detach`].
    pub fn detach(&mut self, socket: SocketId) {
        self.order.detach(socket);
    }

    /// See [`OrderPolicy::set_class`].
    pub fn set_class(&mut self, socket: SocketId, class: Class) {
        self.order.set_class(socket, class);
    }

    /// See [`OrderPolicy::update`].
    pub fn update(&mut self, socket: SocketId, ready: u64, window: u64) {
        self.order.update(socket, ready.min(window));
    }

    /// See [`OrderPolicy::admit`].
    ///
    /// # Errors
    ///
    /// As [`OrderPolicy::admit`].
    pub fn admit(&mut self, tenant: TenantId, now: u64) -> Result<(), u64> {
        self.order.admit(tenant, now)
    }

    /// The next segment, of at most `most` bytes.
    ///
    /// A class whose channels are full does not hold up the other.
    pub fn next(&mut self, channels: &[ChannelView], most: u32, now: u64) -> Step {
        let mut room = Room::both(most);
        let (mut full, mut no_channel) = (false, false);
        loop {
            let grant = match self.order.next(room, now) {
                Next::Grant(grant) => grant,
                _ if no_channel => return Step::NoChannel,
                Next::Until(until) if full => return Step::Full(Some(until)),
                Next::Until(until) => return Step::Until(until),
                Next::Idle if full => return Step::Full(None),
                Next::Idle => return Step::Idle,
            };
            if room.of(grant.class) == 0 {
                // The policy grants a segment that it was told not to: this ends the loop.
                return Step::Full(None);
            }
            let last = self.last_channels.get(grant.socket.0 as usize);
            let socket = SocketView {
                id: grant.socket,
                tenant: grant.tenant,
                class: grant.class,
                ready: u64::from(grant.bytes),
                window: u64::from(grant.bytes),
                last_channel: last.copied().flatten(),
            };
            match self.channel.choose(&socket, grant.bytes, channels, now) {
                Choice::Send(channel) if channel < channels.len() => {
                    return Step::Send(Segment { grant, channel });
                }
                Choice::NoChannel => no_channel = true,
                _ => full = true,
            }
            room = room.without(grant.class);
        }
    }

    /// Charges the sent bytes of a segment, on its channel.
    pub fn on_sent(&mut self, grant: &Grant, bytes: u32, channel: ChannelId, now: u64) {
        if let Some(last) = self.last_channels.get_mut(grant.socket.0 as usize) {
            *last = Some(channel);
        }
        self.order.on_sent(grant, bytes, now);
    }
}

#[cfg(test)]
#[path = "netscheduler_tests.rs"]
mod tests;
