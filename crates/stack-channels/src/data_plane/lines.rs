//! The channels of a worker: taken up, read, written, left, lost.

use super::commands::{Failing, Report};
use super::connection::Peer;
use super::incoming::Incoming;
use super::line::Line;
use super::loss::Lost;
use super::peer::Counters;
use super::shared::Letter;
use super::worker::ChannelWorker;
use crate::line_id::LineId;
use netchannel_vns::{Reason, State as Phase};
use netchannel_wire::{Frame, GoAwayReason};
use std::net::IpAddr;
use std::sync::Arc;

/// A channel that was heard of within this time, in nanoseconds, is there.
const QUIET: u64 = 300_000_000;

impl ChannelWorker {
    /// Takes a channel up.
    pub(super) fn add_line(&mut self, line: Box<Line>) {
        let peer = Arc::clone(&line.peer);
        let free = self.lines.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.lines.push(None);
            self.lines.len() - 1
        });
        let name = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let watched = self.cells.watch_edges(line.descriptor(), name);
        if let Some(place) = self.lines.get_mut(index) {
            *place = Some(line);
        }
        if watched.is_err() {
            return self.lose(index, Lost::Cut);
        }
        self.refresh(&peer);
        self.tell_others(|| Letter::Routes(Arc::clone(&peer)));
    }

    pub(super) fn find_line(&self, line: LineId) -> Option<usize> {
        self.lines
            .iter()
            .position(|one| one.as_ref().is_some_and(|one| one.route.line == line))
    }

    /// No new segment takes a channel; it ends when both have said so.
    pub(super) fn leave(&mut self, index: usize, reason: GoAwayReason) {
        let Some(Some(line)) = self.lines.get_mut(index) else {
            return;
        };
        line.say_goodbye(reason);
        let peer = Arc::clone(&line.peer);
        peer.remove_route(&line.route);
        self.refresh(&peer);
        self.tell_others(|| Letter::Routes(Arc::clone(&peer)));
    }

    /// A channel is no more: what it may have taken along is sent again.
    pub(super) fn lose(&mut self, index: usize, why: Lost) {
        let Some(mut line) = self.lines.get_mut(index).and_then(Option::take) else {
            return;
        };
        let (peer, key) = (Arc::clone(&line.peer), line.route.key);
        self.cells.forget_own(line.descriptor());
        peer.bury_route(&line.route);
        if let Lost::Violation(violation) = &why {
            Counters::add(&peer.counters.violations, 1);
            if line.outbox.is_empty() {
                line.outbox.push_frame(&Frame::GoAway(violation.reason()));
                // A help for whoever reads the peer's log.
                let _ = line.flush(&mut Vec::new(), self.now);
            }
        }
        line.shut_down();
        let mut freed = Vec::new();
        line.outbox.discard(&mut freed, self.now);
        freed.iter().for_each(|connection| self.touch(connection));
        if let Some(place) = line.incoming.take().and_then(Incoming::into_place) {
            let mut state = place.connection.lock();
            state.socket.finish(place.claim, self.now);
            drop(state);
            self.touch(&place.connection);
        }
        for connection in std::mem::take(&mut line.parked) {
            connection.untouch(self.index);
            self.touch(&connection);
        }
        if !matches!(why, Lost::Parted) {
            let all = peer.sockets().all();
            for connection in &all {
                connection.lock().on_channel_lost(key, self.now);
                self.touch(connection);
            }
            let unheard = peer.sockets().unheard(key);
            for tombstone in unheard {
                self.send_final_state(&peer, &tombstone);
            }
        }
        self.refresh(&peer);
        self.tell_others(|| Letter::Routes(Arc::clone(&peer)));
        self.report(Report::ChannelLost {
            line: line.route.line,
            reason: why,
        });
    }

    /// Reads what has come.
    pub(super) fn read_lines(&mut self) {
        for index in 0..self.lines.len() {
            let place = self.lines.get_mut(index);
            let readable = place.is_some_and(|line| {
                line.as_ref()
                    .is_some_and(|line| line.has_something() && line.may_be_read())
            });
            if !readable {
                continue;
            }
            let Some(mut line) = self.lines.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let result = self.receive(&mut line);
            self.busy |= line.readable;
            let left = line.leaving.heard.then(|| Arc::clone(&line.peer));
            if let Some(place) = self.lines.get_mut(index) {
                *place = Some(line);
            }
            match result {
                Ok(()) => {}
                Err(lost) => self.lose(index, lost),
            }
            left.iter().for_each(|peer| self.refresh(peer));
        }
    }

    /// Writes what waits.
    pub(super) fn flush_lines(&mut self) {
        for index in 0..self.lines.len() {
            let now = self.now;
            let line = self.lines.get(index).and_then(Option::as_ref);
            if self.moved && line.is_some_and(|line| line.may_gather(now)) {
                // Where this pass brought something, the next one may too. The first that brings nothing writes.
                self.busy = true;
                continue;
            }
            self.flush_line(index);
        }
    }

    /// Writes what waits; gives those their turn who waited for the channel.
    pub(super) fn flush_line(&mut self, index: usize) {
        let now = self.now;
        let Some(Some(line)) = self.lines.get_mut(index) else {
            return;
        };
        let mut freed = std::mem::take(&mut self.spare);
        line.keep_alive(now);
        let result = if line.blocked {
            Ok(())
        } else {
            line.flush(&mut freed, now)
        };
        let parked = if line.blocked {
            Vec::new()
        } else {
            std::mem::take(&mut line.parked)
        };
        let parted = line.has_parted();
        let silent = line.is_silent(now);
        let stalled = line.is_stalled(now);
        let waiting = if line.blocked {
            0
        } else {
            line.route.take_waiting()
        };
        let peer = (waiting != 0).then(|| Arc::clone(&line.peer));
        let doubted = stalled.then(|| (Arc::clone(&line.peer), line.path()));
        for connection in parked {
            connection.untouch(self.index);
            self.touch(&connection);
            self.busy = true;
        }
        for connection in freed.drain(..) {
            self.touch(&connection);
        }
        self.spare = freed;
        if let Some(peer) = peer {
            self.busy = true;
            // Any letter wakes them.
            self.tell_others(|| Letter::Routes(Arc::clone(&peer)));
        }
        match result {
            Err(lost) => self.lose(index, lost),
            Ok(()) if parted => self.lose(index, Lost::Parted),
            Ok(()) if silent => self.lose(index, Lost::Silent),
            Ok(()) if stalled => {
                self.lose(index, Lost::Stalled);
                if let Some((peer, path)) = doubted {
                    self.doubt(&peer, path);
                    self.tell_others(|| Letter::Doubt(Arc::clone(&peer), path));
                }
            }
            Ok(()) => {}
        }
    }

    /// A channel to a peer has stalled. Others on the same path have too, unless they were heard of just now: what the lost one had
    /// shall not be sent there. The rest is tried.
    pub(super) fn doubt(&mut self, peer: &Arc<Peer>, path: Option<(IpAddr, IpAddr)>) {
        let now = self.now;
        for index in 0..self.lines.len() {
            let Some(Some(line)) = self.lines.get_mut(index) else {
                continue;
            };
            if !Arc::ptr_eq(&line.peer, peer) {
                continue;
            }
            let quiet = now.saturating_sub(line.heard) >= QUIET;
            if quiet && path.is_some() && line.path() == path {
                self.lose(index, Lost::Stalled);
            } else {
                line.doubt(now);
                self.busy = true;
            }
        }
    }

    /// Sockets with a peer fail; if its start is over, so do its channels.
    pub(super) fn fail_peer(&mut self, peer: &Arc<Peer>, reason: Reason, what: Failing) {
        let ends = what == Failing::Start;
        for index in 0..self.lines.len() {
            let line = self.lines.get(index).and_then(Option::as_ref);
            if ends && line.is_some_and(|line| line.peer.number() == peer.number()) {
                self.lose(index, Lost::Cut);
            }
        }
        let all = peer.sockets().all();
        let index = self.index;
        for connection in all.iter().filter(|connection| connection.owner() == index) {
            let mut state = connection.lock();
            if what == Failing::Connects && state.socket.state() != Phase::Opening {
                continue;
            }
            state.socket.fail(reason, self.now);
            drop(state);
            self.touch(connection);
        }
        if ends {
            self.dialer.forget(peer);
            self.acceptor.forget(peer);
        }
    }
}
