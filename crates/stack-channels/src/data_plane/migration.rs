//! Ownership of connections: a connection moves to the worker of its class.

use super::connection::{Connection, State};
use super::shared::{FIRST_WORKER, WorkerMessage};
use super::worker::ChannelWorker;
use netchannel_abi::link::side_flags;
use netchannel_scheduler::{Class, SocketId};
use netchannel_service::cells::Key;
use netchannel_service::timers::NEVER;
use netchannel_vns::Reason;
use std::sync::Arc;

impl ChannelWorker {
    /// Hands a socket whose traffic is of another class to a worker of that class.
    pub(super) fn move_if_due(&mut self, connection: &Arc<Connection>) {
        let Some(class) = connection.take_observed_class() else {
            return;
        };
        let to = self.shared.worker_of(class, connection.handle.index);
        if connection.owner() != self.index {
            return connection.set_observed_class(class);
        }
        if to == self.index {
            let entry = SocketId(connection.entry());
            if let Some(per_peer) = self.per_peer(&connection.peer) {
                per_peer.scheduler.set_class(entry, class);
            }
            return;
        }
        let mut state = connection.lock();
        if state.waits_for_accept() {
            // The socket counts in its listener's backlog, which this worker keeps.
            return connection.set_observed_class(class);
        }
        let gone = |flags: u32| flags & side_flags::RESET != 0;
        let Some(lane) = state.lane.as_mut().filter(|lane| !gone(lane.peer_flags())) else {
            return;
        };
        lane.anchor_mut().unwatch();
        state.scheduled = 0;
        state.timer = NEVER;
        let entry = connection.entry();
        connection.hand_over_to(to);
        drop(state);
        self.give_up_ownership(entry);
        self.send_message(to, WorkerMessage::Adopt(Arc::clone(connection), class));
    }

    /// Takes over a socket of another worker.
    pub(super) fn adopt(&mut self, connection: &Arc<Connection>, class: Class) {
        let number = connection.link().number();
        let key = match self.keys.get(&number).copied() {
            Some(key) => Some(key),
            None => {
                let key = self.cells.add_shared_link(Arc::clone(connection.link()));
                key.inspect(|key| {
                    self.keys.insert(number, *key);
                })
            }
        };
        match key {
            Some(key) => self.take_ownership(connection, key, class),
            None => {
                connection.lock().socket.abort(Reason::Ending, self.now);
                self.settle_later(connection);
            }
        }
    }

    /// Becomes the owner of a connection.
    pub(super) fn take_ownership(&mut self, connection: &Arc<Connection>, key: Key, class: Class) {
        let mut state = connection.lock();
        // The lane may have been closed during the hand-over; the socket may still have frames for its peer.
        let slot = state.lane.as_ref().map(|lane| lane.handle().index);
        let entry = self.owned.add(connection, key, slot);
        connection.set_owner(self.index, entry);
        if let Some(slot) = slot {
            self.watch_lane(&mut state, key, slot);
        }
        drop(state);
        if let Some(per_peer) = self.per_peer(&connection.peer) {
            per_peer.attach(entry, class);
        }
        self.settle_later(connection);
    }

    /// Watches the lane of a connection that it owns.
    pub(super) fn watch_lane(&mut self, state: &mut State, key: Key, slot: u32) {
        let Some(lane) = &mut state.lane else { return };
        let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
        match (watched, self.cells.cell(key)) {
            (Ok(()), Some(cell)) => {
                lane.attach_cell(cell);
                state.look(self.now);
            }
            _ => state.socket.abort(Reason::Ending, self.now),
        }
    }

    /// Gives up the ownership of a connection.
    pub(super) fn give_up_ownership(&mut self, number: u32) {
        let Some(entry) = self.owned.remove(number) else {
            return;
        };
        if let Some(per_peer) = self.per_peer(&entry.connection.peer) {
            per_peer.scheduler.detach(SocketId(number));
        }
        self.release_link_if_unused(entry.key);
    }

    /// Removes a link that brings no new connection, once its last connection has ended.
    pub(super) fn release_link_if_unused(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        if end.is_alive() || self.owned.users_of(key) > 0 {
            return;
        }
        if self.index == FIRST_WORKER {
            if end.connections() > 0 {
                // The worker that has the last of them will report it.
                return;
            }
            self.forget_link(&end);
            self.origins.remove(&key);
        } else {
            self.send_message(FIRST_WORKER, WorkerMessage::LinkUnused(end.number()));
        }
        self.cells.remove_link(key);
        self.owned.forget_link(key);
        self.keys.remove(&end.number());
    }
}
