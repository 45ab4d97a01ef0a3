//! The channels of a worker: added, read, written, retired, lost.

use super::commands::{FailureScope, Report};
use super::connection::Peer;
use super::incoming::Incoming;
use super::loss::Lost;
use super::open_channel::OpenChannel;
use super::peer::Counters;
use super::shared::WorkerMessage;
use super::worker::ChannelWorker;
use crate::channel_instance::ChannelInstance;
use netchannel_vns::{Reason, State as Phase};
use netchannel_wire::{Frame, GoAwayReason};
use std::net::IpAddr;
use std::sync::Arc;

/// A channel on which a frame was received within this time, in nanoseconds, counts as working.
const QUIET: u64 = 300_000_000;

impl ChannelWorker {
    /// Adds a channel.
    pub(super) fn add_channel(&mut self, channel: Box<OpenChannel>) {
        let peer = Arc::clone(&channel.peer);
        let free = self.channels.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() - 1
        });
        let name = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let watched = self.cells.watch_edges(channel.descriptor(), name);
        if let Some(place) = self.channels.get_mut(index) {
            *place = Some(channel);
        }
        if watched.is_err() {
            return self.lose_channel(index, Lost::Closed);
        }
        self.refresh(&peer);
        self.send_to_others(|| WorkerMessage::RoutesChanged(Arc::clone(&peer)));
    }

    pub(super) fn find_channel(&self, instance: ChannelInstance) -> Option<usize> {
        self.channels.iter().position(|one| {
            one.as_ref()
                .is_some_and(|one| one.route.instance == instance)
        })
    }

    /// Retires a channel: no new segment takes it, and it ends when both ends have sent GOAWAY.
    pub(super) fn retire_channel(&mut self, index: usize, reason: GoAwayReason) {
        let Some(Some(channel)) = self.channels.get_mut(index) else {
            return;
        };
        channel.send_goaway(reason);
        let peer = Arc::clone(&channel.peer);
        peer.remove_route(&channel.route);
        self.refresh(&peer);
        self.send_to_others(|| WorkerMessage::RoutesChanged(Arc::clone(&peer)));
    }

    /// Ends a channel. Bytes and frames that may be lost with it are sent again.
    pub(super) fn lose_channel(&mut self, index: usize, why: Lost) {
        let Some(mut channel) = self.channels.get_mut(index).and_then(Option::take) else {
            return;
        };
        let (peer, key) = (Arc::clone(&channel.peer), channel.route.key);
        self.cells.forget_own(channel.descriptor());
        peer.forget_route(&channel.route);
        if let Lost::Violation(violation) = &why {
            Counters::add(&peer.counters.violations, 1);
            if channel.outbox.is_empty() {
                channel
                    .outbox
                    .push_frame(&Frame::GoAway(violation.reason()));
                // The GOAWAY helps a person who reads the peer's log.
                let _ = channel.flush(&mut Vec::new(), self.now);
            }
        }
        channel.shut_down();
        let mut freed = Vec::new();
        channel.outbox.discard(&mut freed, self.now);
        freed
            .iter()
            .for_each(|connection| self.settle_later(connection));
        if let Some(place) = channel.incoming.take().and_then(Incoming::into_place) {
            let mut state = place.connection.lock();
            state.socket.finish(place.claim, self.now);
            drop(state);
            self.settle_later(&place.connection);
        }
        for connection in std::mem::take(&mut channel.parked) {
            connection.unmark_for_settling(self.index);
            self.settle_later(&connection);
        }
        if !matches!(why, Lost::Completed) {
            let all = peer.sockets().all();
            for connection in &all {
                connection.lock().on_channel_lost(key, self.now);
                self.settle_later(connection);
            }
            let take_lost_final_states = peer.sockets().take_lost_final_states(key);
            for tombstone in take_lost_final_states {
                self.send_final_state(&peer, &tombstone);
            }
        }
        self.refresh(&peer);
        self.send_to_others(|| WorkerMessage::RoutesChanged(Arc::clone(&peer)));
        self.report(Report::ChannelLost {
            instance: channel.route.instance,
            reason: why,
        });
    }

    /// Reads all channels that have input.
    pub(super) fn read_channels(&mut self) {
        for index in 0..self.channels.len() {
            let place = self.channels.get_mut(index);
            let readable = place.is_some_and(|channel| {
                channel
                    .as_ref()
                    .is_some_and(|channel| channel.may_have_input() && channel.may_be_read())
            });
            if !readable {
                continue;
            }
            let Some(mut channel) = self.channels.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let result = self.receive(&mut channel);
            self.busy |= channel.readable;
            let left = channel.goaway.received.then(|| Arc::clone(&channel.peer));
            if let Some(place) = self.channels.get_mut(index) {
                *place = Some(channel);
            }
            match result {
                Ok(()) => {}
                Err(lost) => self.lose_channel(index, lost),
            }
            left.iter().for_each(|peer| self.refresh(peer));
        }
    }

    /// Writes the queued frames of all channels.
    pub(super) fn flush_channels(&mut self) {
        for index in 0..self.channels.len() {
            let now = self.now;
            let channel = self.channels.get(index).and_then(Option::as_ref);
            if self.had_input && channel.is_some_and(|channel| channel.may_gather(now)) {
                // This pass brought input, so the next one may bring more frames. The first pass without input writes.
                self.busy = true;
                continue;
            }
            self.flush_channel(index);
        }
    }

    /// Writes the queued frames of a channel. Schedules the sockets that waited for it.
    pub(super) fn flush_channel(&mut self, index: usize) {
        let now = self.now;
        let Some(Some(channel)) = self.channels.get_mut(index) else {
            return;
        };
        let mut freed = std::mem::take(&mut self.spare);
        channel.keep_alive(now);
        let result = if channel.blocked {
            Ok(())
        } else {
            channel.flush(&mut freed, now)
        };
        let parked = if channel.blocked {
            Vec::new()
        } else {
            std::mem::take(&mut channel.parked)
        };
        let parted = channel.is_closed();
        let silent = channel.is_silent(now);
        let stalled = channel.is_stalled(now);
        let waiting = if channel.blocked {
            0
        } else {
            channel.route.take_waiting()
        };
        let peer = (waiting != 0).then(|| Arc::clone(&channel.peer));
        let stalled_path = stalled.then(|| (Arc::clone(&channel.peer), channel.path()));
        for connection in parked {
            connection.unmark_for_settling(self.index);
            self.settle_later(&connection);
            self.busy = true;
        }
        for connection in freed.drain(..) {
            self.settle_later(&connection);
        }
        self.spare = freed;
        if let Some(peer) = peer {
            self.busy = true;
            // Any message wakes them.
            self.send_to_others(|| WorkerMessage::RoutesChanged(Arc::clone(&peer)));
        }
        match result {
            Err(lost) => self.lose_channel(index, lost),
            Ok(()) if parted => self.lose_channel(index, Lost::Completed),
            Ok(()) if silent => self.lose_channel(index, Lost::Silent),
            Ok(()) if stalled => {
                self.lose_channel(index, Lost::Stalled);
                if let Some((peer, path)) = stalled_path {
                    self.probe(&peer, path);
                    self.send_to_others(|| WorkerMessage::Probe(Arc::clone(&peer), path));
                }
            }
            Ok(()) => {}
        }
    }

    /// A channel to a peer has stalled. Other channels on the same path have stalled too, unless they received a frame
    /// just now: the bytes of the lost channel must not be sent there. The remaining channels are probed.
    pub(super) fn probe(&mut self, peer: &Arc<Peer>, path: Option<(IpAddr, IpAddr)>) {
        let now = self.now;
        for index in 0..self.channels.len() {
            let Some(Some(channel)) = self.channels.get_mut(index) else {
                continue;
            };
            if !Arc::ptr_eq(&channel.peer, peer) {
                continue;
            }
            let quiet = now.saturating_sub(channel.last_received) >= QUIET;
            if quiet && path.is_some() && channel.path() == path {
                self.lose_channel(index, Lost::Stalled);
            } else {
                channel.probe(now);
                self.busy = true;
            }
        }
    }

    /// Sockets with a peer fail. If its start has ended, its channels end too.
    pub(super) fn fail_peer(&mut self, peer: &Arc<Peer>, reason: Reason, what: FailureScope) {
        let ends = what == FailureScope::Start;
        for index in 0..self.channels.len() {
            let channel = self.channels.get(index).and_then(Option::as_ref);
            if ends && channel.is_some_and(|channel| channel.peer.number() == peer.number()) {
                self.lose_channel(index, Lost::Closed);
            }
        }
        let all = peer.sockets().all();
        let index = self.index;
        for connection in all.iter().filter(|connection| connection.owner() == index) {
            let mut state = connection.lock();
            if what == FailureScope::Connects && state.socket.state() != Phase::Opening {
                continue;
            }
            state.socket.fail(reason, self.now);
            drop(state);
            self.settle_later(connection);
        }
        if ends {
            self.dialer.forget(peer);
            self.acceptor.forget(peer);
        }
    }
}
