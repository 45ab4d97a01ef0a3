//! Another acceptor for a connection of a peer whose acceptor was killed before it accepted it.

use super::connection::{Acceptance, Connection, Handover, Next};
use super::worker::ChannelWorker;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::routing::Router;
use netchannel_wire::NcSyn;
use std::sync::Arc;
use std::time::Duration;

impl ChannelWorker {
    /// (first worker, which has the connections that nobody has accepted) Looks for another acceptor.
    pub(super) fn seek_acceptor(&mut self, connection: &Arc<Connection>) {
        let Some(handle) = connection.lock().peer_handle else {
            return;
        };
        let syn = NcSyn {
            handle,
            client: connection.wanted.client,
            server: connection.wanted.server,
            limit: 0,
            listener: connection.wanted.listener,
            class: None,
        };
        let since = self.shared.epoch + Duration::from_nanos(self.now);
        let ticket = self.acceptor.add(&connection.peer, &syn, since);
        if let Some(pending) = self.acceptor.get_mut(ticket) {
            pending.anew = Some(Arc::clone(connection));
        }
        self.route(ticket);
    }

    /// There is none: the connection ends as its acceptor did.
    pub(super) fn end_unaccepted(&mut self, connection: &Arc<Connection>) {
        let mut state = connection.lock();
        state.acceptance = Acceptance::Settled;
        state.look(self.now);
        drop(state);
        self.settle_later(connection);
    }

    /// The connection was announced to another acceptor over this lane.
    pub(super) fn accept_anew(
        &mut self,
        connection: &Arc<Connection>,
        mut lane: Lane,
        (link, key): (Arc<LinkEnd>, Key),
    ) -> Option<Ticket> {
        let mut state = connection.lock();
        if !connection.has_owner() {
            // The peer has ended it meanwhile, and nobody settles it any more.
            drop(state);
            lane.close(true);
            self.release_link_if_unused(key);
            return None;
        }
        lane.set_packet_size(connection.peer.packet_payload(&connection.wanted.server));
        let next = Next { lane, link, key };
        state.acceptance = Acceptance::Found(Box::new(next));
        drop(state);
        self.settle_later(connection);
        Some(connection.ticket())
    }

    /// Moves the connection to the lane of another acceptor, if there is one and the former lane is at rest.
    pub(super) fn move_to_next(&mut self, connection: &Arc<Connection>) {
        let now = self.now;
        let mut state = connection.lock();
        let Some(handover) = state.move_to_next() else {
            return;
        };
        let Handover { former, link, key } = handover;
        let mut unused = Some(key);
        if let (Some(former), Some(lane)) = (former, &state.lane) {
            let (slot, capacity) = (lane.handle().index, lane.capacity());
            state.socket.on_capacity(capacity, now);
            connection.move_to(link);
            former.close(true);
            unused = self.owned.move_lane(connection.entry(), key, slot);
            self.watch_lane(&mut state, key, slot);
        } else {
            state.look(now);
        }
        drop(state);
        if let Some(key) = unused {
            self.release_link_if_unused(key);
        }
        self.settle_later(connection);
    }
}
