//! The passes of a worker: its input, and its work.

use super::commands::{Command, Report};
use super::loss::Lost;
use super::open_channel::OpenChannel;
use super::shared::{FIRST_WORKER, LEAST_CORES, WorkerMessage};
use super::worker::ChannelWorker;
use netchannel_service::cells::{Cells, Key, News};
use netchannel_service::jobs::Opened;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::routing::Router;
use netchannel_service::timers::{NEVER, Timers};
use netchannel_service::worker::Worker;
use netchannel_wire::GoAwayReason;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A channel without traffic for this long, in nanoseconds, is not worth spinning for.
const WARM: u64 = 1_000_000;
/// A worker that does not sleep updates its busy time this often, in nanoseconds.
const ACCOUNT: u64 = 10_000_000;
/// A worker for throughput yields the processor after this time, in nanoseconds, where programs that need latency share
/// it.
const TURN: u64 = 200_000;
/// The load of the worker and the state of its channels are updated this often, in nanoseconds.
const WINDOW: u64 = 20_000_000;

impl Worker for ChannelWorker {
    type Message = WorkerMessage;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<WorkerMessage>) {
        (&mut self.cells, &self.inbox)
    }

    fn message_buffer(&mut self) -> &mut Vec<WorkerMessage> {
        &mut self.messages
    }

    fn timers(&mut self) -> &mut Timers {
        &mut self.owned.timers
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn deadline(&self) -> Option<Instant> {
        let next = self.next_time();
        next.map(|at| self.shared.epoch + Duration::from_nanos(at))
    }

    fn has_ended(&self) -> bool {
        self.stop
    }

    fn on_message(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Command(command) => self.execute(command),
            WorkerMessage::Settle(connection) => {
                connection.lock().look(self.now);
                self.settle_later(&connection);
            }
            WorkerMessage::Adopt(connection, class) => self.adopt(&connection, class),
            WorkerMessage::Segment {
                connection,
                sequence,
                length,
                hold,
                key,
            } => self.send_for_other(&connection, (sequence, length), hold, key),
            WorkerMessage::Control {
                connection,
                frame,
                key,
            } => self.send_control_for_other(&connection, &frame, key),
            WorkerMessage::ConnectionRequest(peer, syn) => self.requested.push((peer, syn)),
            WorkerMessage::RoutesChanged(peer) => self.refresh(&peer),
            WorkerMessage::Probe(peer, path) => self.probe(&peer, path),
            WorkerMessage::LookAtLink(number) => {
                if let Some(key) = self.keys.get(&number).copied() {
                    self.cells.wake_link(key);
                    self.busy = true;
                }
            }
            WorkerMessage::LinkEnded(number) | WorkerMessage::LinkUnused(number) => {
                if let Some(key) = self.keys.get(&number).copied() {
                    self.release_link_if_unused(key);
                }
            }
        }
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some(connection) = self.owned.of_slot(key, slot).map(Arc::clone) {
            connection.lock().look(self.now);
            self.settle_later(&connection);
        }
    }

    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool {
        let Some(connection) = self.owned.of_slot(key, slot).map(Arc::clone) else {
            return false;
        };
        let mut state = connection.lock();
        let has_lane = state.lane.is_some();
        if let Some(lane) = &mut state.lane {
            lane.on_token(end);
        }
        state.look(self.now);
        drop(state);
        self.settle_later(&connection);
        has_lane
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        self.dial(key, opened);
    }

    fn on_timer(&mut self, number: u32) {
        let Some(connection) = self.owned.get(number).map(Arc::clone) else {
            return;
        };
        let mut state = connection.lock();
        state.timer = NEVER;
        state.look(self.now);
        state.socket.on_timeout(self.now);
        drop(state);
        self.settle_later(&connection);
    }

    fn work(&mut self) {
        self.settle_links();
        self.route_requested();
        self.settle_all();
        self.send_all();
        self.flush_channels();
        // Sockets that need settling again are settled in the next pass.
        self.busy |= !self.requested.is_empty() || !self.to_settle.is_empty();
        self.wake_programs();
    }

    fn take_remaining_work(&mut self) -> bool {
        std::mem::take(&mut self.busy)
    }

    fn begin(&mut self) {
        self.apply_placement();
        self.busy_since = self.clock();
    }

    fn on_pass(&mut self) {
        self.now = self.clock();
        if self.now - self.busy_since > ACCOUNT {
            self.account(self.now);
        }
    }

    fn on_news_known(&mut self, any: bool) {
        self.had_input = any;
    }

    fn on_own(&mut self, name: u32) {
        let index = usize::try_from(name - 1).unwrap_or(usize::MAX);
        if let Some(Some(channel)) = self.channels.get_mut(index) {
            channel.readable = true;
            channel.blocked = false;
        }
    }

    fn poll_external(&mut self) {
        self.read_channels();
    }

    fn on_pass_end(&mut self) {
        self.yield_processor();
    }

    fn on_stray_token(&mut self, key: Key) {
        if self.cells.has_marks_for_others(key)
            && let Some(link) = self.cells.link(key).map(|link| link.number())
        {
            self.send_to_others(|| WorkerMessage::LookAtLink(link));
        }
    }

    fn sleep(&mut self, news: &mut Vec<News>) {
        self.account(self.now);
        self.wait(news);
        self.now = self.clock();
        self.busy_since = self.now;
    }

    fn end(&mut self) {
        for channel in self.channels.iter_mut().flatten() {
            channel.send_goaway(GoAwayReason::Ending);
            // An error means that the transport is lost.
            let _ = channel.flush(&mut Vec::new(), self.now);
        }
    }
}

impl ChannelWorker {
    /// Where processors are few, a worker for throughput does not keep one for long while a program needs latency.
    fn yield_processor(&mut self) {
        if self.index == FIRST_WORKER || self.shared.cores.len() >= LEAST_CORES {
            return;
        }
        let now = self.clock();
        if now >= self.shared.latency_active_until.load(Ordering::Relaxed) {
            return;
        }
        if now - self.last_yield.max(self.busy_since) > TURN {
            std::thread::yield_now();
            self.last_yield = self.clock();
        }
    }

    /// Adds the busy time up to now. A worker that is busy wakes the daemon, which decides the number of channels.
    fn account(&mut self, now: u64) {
        let Some(gauges) = self.shared.gauges.get(self.index) else {
            return;
        };
        let busy = now.saturating_sub(self.busy_since);
        gauges.busy.fetch_add(busy, Ordering::Relaxed);
        self.busy_since = now;
        self.window.1 += busy;
        let elapsed = now.saturating_sub(self.window.0);
        if elapsed < WINDOW {
            return;
        }
        let much = self.window.1 >= elapsed / 2;
        self.window = (now, 0);
        self.wake_ups.turn();
        for channel in self.channels.iter_mut().flatten() {
            channel.update_status();
        }
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let channels = self.channels.iter().flatten().count();
        gauges.channels.store(count(channels), Ordering::Relaxed);
        gauges
            .sockets
            .store(count(self.owned.len()), Ordering::Relaxed);
        if much && self.shared.cores.len() < LEAST_CORES {
            let until = now + 2 * WINDOW;
            self.shared.busy_until.store(until, Ordering::Relaxed);
        }
        if much && !self.shared.is_sampled.swap(true, Ordering::Relaxed) {
            self.report(Report::Busy);
        }
    }

    /// Wakes the programs that have news. This is done at the end, since a woken program may take the processor.
    fn wake_programs(&mut self) {
        for (key, claimed) in self.announced_links.drain(..) {
            if let Some(end) = self.cells.link(key) {
                end.rouse(claimed);
            }
        }
        self.wake_ups.ring(self.busy, self.now);
    }

    fn wait(&mut self, news: &mut Vec<News>) {
        let until = self.next_time();
        if until.is_some_and(|at| at <= self.now) {
            return;
        }
        let until = until.map(|at| self.shared.epoch + Duration::from_nanos(at));
        let Self {
            cells,
            channels,
            shared,
            inbox,
            index,
            now,
            ..
        } = self;
        if let Some(gauges) = shared.gauges.get(*index) {
            gauges.sleeps.fetch_add(1, Ordering::Relaxed);
        }
        let warm = |channel: &OpenChannel| {
            *now - channel.last_received.max(channel.last_sent).min(*now) < WARM
        };
        let any_warm = channels.iter().flatten().any(|channel| warm(channel));
        let channels = RefCell::new(channels);
        let mut first = true;
        let look = || {
            let mut found = inbox.has_any();
            // Each read of a channel is a system call, and the pass before has just read all input.
            if std::mem::take(&mut first) {
                return found;
            }
            for channel in channels.borrow_mut().iter_mut().flatten() {
                found |= warm(channel) && channel.may_be_read() && channel.prefetch();
            }
            found
        };
        let arm = || {
            inbox.sleep();
            let mut found = inbox.has_any();
            for channel in channels.borrow_mut().iter_mut().flatten() {
                // The kernel reports what came after the last read.
                found |= channel.readable && channel.may_be_read() && channel.prefetch();
            }
            found
        };
        // Where a worker is busy and cores are few, spinning takes them from the programs for which it waits.
        let busy_until = *now < shared.busy_until.load(Ordering::Relaxed);
        let spins = (any_warm || cells.is_awake()) && !busy_until;
        cells.sleep_with(news, until, spins, look, arm);
        inbox.wake();
    }

    /// The time of the next timer.
    fn next_time(&self) -> Option<u64> {
        let channels = self
            .channels
            .iter()
            .flatten()
            .map(|channel| channel.deadline());
        let per_peers = self
            .per_peers
            .iter()
            .flatten()
            .filter_map(|per_peer| per_peer.until);
        let retry = self.targets.next_retry().map(|at| {
            let after = at.duration_since(self.shared.epoch).as_nanos();
            u64::try_from(after).unwrap_or(u64::MAX)
        });
        let unsettled_links = self.unsettled_links.iter().map(|(at, ..)| *at);
        let timers = self.owned.timers.next().into_iter().chain(retry);
        let timers = timers.chain(unsettled_links);
        channels.chain(per_peers).chain(timers).min()
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Links(command) => {
                self.on_command(command);
            }
            Command::Crossing(parts, origin) => self.add_crossing(parts, origin),
            Command::Listener { number, listed } => self.dialer.add(number, listed),
            Command::Unlisten(number) => self.dialer.remove(number, self.now),
            Command::Channel {
                peer,
                instance,
                id,
                channel,
                rest,
            } => {
                let route = peer.add_route(instance, id, self.index);
                let mut channel =
                    OpenChannel::new(Arc::clone(&peer), route, channel, &rest, self.now);
                channel.update_status();
                self.add_channel(Box::new(channel));
            }
            Command::Retire {
                instance, reason, ..
            } => {
                if let Some(index) = self.find_channel(instance) {
                    self.retire_channel(index, reason);
                }
            }
            Command::Close { instance, .. } => {
                if let Some(index) = self.find_channel(instance) {
                    self.lose_channel(index, Lost::Closed);
                }
            }
            Command::Frames {
                instance, bytes, ..
            } => {
                if let Some(index) = self.find_channel(instance)
                    && let Some(Some(channel)) = self.channels.get_mut(index)
                    && !channel.goaway.sent
                {
                    channel.outbox.push_bytes(&bytes);
                }
            }
            Command::Fail { peer, reason, what } => self.fail_peer(&peer, reason, what),
            Command::Policies(policies) => {
                for per_peer in self.per_peers.iter_mut().flatten() {
                    per_peer.set_policies(&self.policies, &policies, self.now);
                }
                self.policies = policies;
                self.apply_placement();
            }
            Command::Stop => self.stop = true,
        }
    }

    pub(super) fn settle_all(&mut self) {
        while !self.to_settle.is_empty() {
            let spare = std::mem::take(&mut self.spare);
            let mut touched = std::mem::replace(&mut self.to_settle, spare);
            for connection in touched.drain(..) {
                connection.unmark_for_settling(self.index);
                self.settle(&connection);
            }
            self.spare = touched;
        }
    }
}
