//! Which worker a socket is at home with: made, moved, ended.

use super::remote::Remote;
use super::shared::{FRONT, Letter};
use super::worker::Worker;
use crate::relay::cells::Key;
use crate::timers::NEVER;
use netchannel_abi::link::side_flags;
use netchannel_scheduler::{Class, SocketId};
use netchannel_vns::Reason;
use std::sync::Arc;

impl Worker {
    /// A socket whose traffic is of another class than its worker's gets another home.
    pub(super) fn move_if_due(&mut self, remote: &Arc<Remote>) {
        let Some(class) = remote.take_class() else {
            return;
        };
        let to = self.shared.worker_of(class, remote.handle.index);
        if remote.home() != self.index {
            return remote.see_class(class);
        }
        if to == self.index {
            let seat = SocketId(remote.seat());
            if let Some(side) = self.side(&remote.peer) {
                side.scheduler.set_class(seat, class);
            }
            return;
        }
        let mut state = remote.lock();
        if state.waits_for_accept() {
            // It counts in its listener's backlog, which is kept here.
            return remote.see_class(class);
        }
        let gone = |flags: u32| flags & side_flags::RESET != 0;
        let Some(lane) = state.lane.as_mut().filter(|lane| !gone(lane.peer_flags())) else {
            return;
        };
        lane.anchor_mut().unwatch();
        state.announced = 0;
        state.armed = NEVER;
        let seat = remote.seat();
        remote.move_to(to);
        drop(state);
        self.unseat(seat);
        self.tell(to, Letter::Adopt(Arc::clone(remote), class));
    }

    /// Takes a socket of another worker over.
    pub(super) fn adopt(&mut self, remote: &Arc<Remote>, class: Class) {
        let number = remote.link.number();
        let key = match self.keys.get(&number).copied() {
            Some(key) => Some(key),
            None => {
                let key = self.cells.add_shared_link(Arc::clone(&remote.link));
                key.inspect(|key| {
                    self.keys.insert(number, *key);
                })
            }
        };
        match key {
            Some(key) => self.seat(remote, key, class),
            None => {
                remote.lock().socket.abort(Reason::Ending, self.now);
                self.touch(remote);
            }
        }
    }

    /// Becomes a socket's home.
    pub(super) fn seat(&mut self, remote: &Arc<Remote>, key: Key, class: Class) {
        let now = self.now;
        let mut state = remote.lock();
        // On its way here it may have ended, and owe its peer a word all the same.
        let slot = state.lane.as_ref().map(|lane| lane.handle().index);
        let seat = self.seats.add(remote, key, slot);
        remote.settle_at(self.index, seat);
        if let (Some(lane), Some(slot)) = (&mut state.lane, slot) {
            let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
            match (watched, self.cells.cell(key)) {
                (Ok(()), Some(cell)) => {
                    lane.attach_cell(cell);
                    state.look(now);
                }
                _ => state.socket.abort(Reason::Ending, now),
            }
        }
        drop(state);
        if let Some(side) = self.side(&remote.peer) {
            side.attach(seat, class);
        }
        self.touch(remote);
    }

    /// Is a socket's home no longer.
    pub(super) fn unseat(&mut self, number: u32) {
        let Some(seat) = self.seats.remove(number) else {
            return;
        };
        if let Some(side) = self.side(&seat.remote.peer) {
            side.scheduler.detach(SocketId(number));
        }
        self.let_go(seat.key);
    }

    /// A link that brings no new connection goes with the last one that it has.
    pub(super) fn let_go(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        if end.is_alive() || self.seats.users_of(key) > 0 {
            return;
        }
        if self.front.is_some() {
            if end.connections() > 0 {
                // The worker that has the last of them will say so.
                return;
            }
            self.forget_link(&end);
        } else {
            self.tell(FRONT, Letter::LetGo(end.number()));
        }
        self.cells.remove_link(key);
        self.seats.forget_link(key);
        self.keys.remove(&end.number());
    }
}
