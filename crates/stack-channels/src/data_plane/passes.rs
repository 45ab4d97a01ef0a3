//! The passes of a worker: what it takes in, and what it does then.

use super::commands::{Command, Report};
use super::line::Line;
use super::loss::Lost;
use super::shared::{FIRST_WORKER, LEAST_CORES, Letter};
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

/// A channel on which nothing moved for this long, in nanoseconds, is not worth spinning for.
const WARM: u64 = 1_000_000;
/// A worker that does not sleep accounts for its time this often, in nanoseconds.
const ACCOUNT: u64 = 10_000_000;
/// A worker for throughput lets others run after so long, in nanoseconds, where those who want latency share its processor.
const TURN: u64 = 200_000;
/// How busy it is, and how its channels are, is looked at this often, in nanoseconds.
const WINDOW: u64 = 20_000_000;

impl Worker for ChannelWorker {
    type Message = Letter;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Letter>) {
        (&mut self.cells, &self.inbox)
    }

    fn message_buffer(&mut self) -> &mut Vec<Letter> {
        &mut self.letters
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

    fn on_message(&mut self, letter: Letter) {
        match letter {
            Letter::Command(command) => self.obey(command),
            Letter::Touch(connection) => {
                connection.lock().look(self.now);
                self.touch(&connection);
            }
            Letter::Adopt(connection, class) => self.adopt(&connection, class),
            Letter::Segment {
                connection,
                sequence,
                length,
                hold,
                key,
            } => self.send_for_other(&connection, (sequence, length), hold, key),
            Letter::Control {
                connection,
                frame,
                key,
            } => self.say_for_other(&connection, &frame, key),
            Letter::Asked(peer, syn) => self.asked.push((peer, syn)),
            Letter::Routes(peer) => self.refresh(&peer),
            Letter::Doubt(peer, path) => self.doubt(&peer, path),
            Letter::Look(number) => {
                if let Some(key) = self.keys.get(&number).copied() {
                    self.cells.wake_link(key);
                    self.busy = true;
                }
            }
            Letter::LinkEnded(number) | Letter::LetGo(number) => {
                if let Some(key) = self.keys.get(&number).copied() {
                    self.let_go(key);
                }
            }
        }
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some(connection) = self.owned.of_slot(key, slot).map(Arc::clone) {
            connection.lock().look(self.now);
            self.touch(&connection);
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
        self.touch(&connection);
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
        state.armed = NEVER;
        state.look(self.now);
        state.socket.on_timeout(self.now);
        drop(state);
        self.touch(&connection);
    }

    fn work(&mut self) {
        self.tidy();
        self.route_asked();
        self.settle_all();
        self.send_all();
        self.flush_lines();
        // What sockets came to owe meanwhile goes with the next pass.
        self.busy |= !self.asked.is_empty() || !self.touched.is_empty();
        self.wake_programs();
    }

    fn take_remaining_work(&mut self) -> bool {
        std::mem::take(&mut self.busy)
    }

    fn begin(&mut self) {
        self.take_place();
        self.began = self.clock();
    }

    fn on_pass(&mut self) {
        self.now = self.clock();
        if self.now - self.began > ACCOUNT {
            self.account(self.now);
        }
    }

    fn on_news_known(&mut self, any: bool) {
        self.moved = any;
    }

    fn on_own(&mut self, name: u32) {
        let index = usize::try_from(name - 1).unwrap_or(usize::MAX);
        if let Some(Some(line)) = self.lines.get_mut(index) {
            line.readable = true;
            line.blocked = false;
        }
    }

    fn take_in(&mut self) {
        self.read_lines();
    }

    fn on_pass_end(&mut self) {
        self.give_way();
    }

    fn on_stray_token(&mut self, key: Key) {
        if self.cells.has_marks_for_others(key)
            && let Some(link) = self.cells.link(key).map(|link| link.number())
        {
            self.tell_others(|| Letter::Look(link));
        }
    }

    fn sleep(&mut self, news: &mut Vec<News>) {
        self.account(self.now);
        self.wait(news);
        self.now = self.clock();
        self.began = self.now;
    }

    fn end(&mut self) {
        for line in self.lines.iter_mut().flatten() {
            line.say_goodbye(GoAwayReason::Ending);
            // A transport that takes it no more has lost it.
            let _ = line.flush(&mut Vec::new(), self.now);
        }
    }
}

impl ChannelWorker {
    /// Where processors are few, a worker for throughput does not keep one for long while somebody is in a hurry.
    fn give_way(&mut self) {
        if self.index == FIRST_WORKER || self.shared.cores.len() >= LEAST_CORES {
            return;
        }
        let now = self.clock();
        if now >= self.shared.hurried.load(Ordering::Relaxed) {
            return;
        }
        if now - self.turn.max(self.began) > TURN {
            std::thread::yield_now();
            self.turn = self.clock();
        }
    }

    /// It has worked until now. Whoever decides how many channels there are is woken by a worker that has much to do.
    fn account(&mut self, now: u64) {
        let Some(gauges) = self.shared.gauges.get(self.index) else {
            return;
        };
        let busy = now.saturating_sub(self.began);
        gauges.busy.fetch_add(busy, Ordering::Relaxed);
        self.began = now;
        self.window.1 += busy;
        let elapsed = now.saturating_sub(self.window.0);
        if elapsed < WINDOW {
            return;
        }
        let much = self.window.1 >= elapsed / 2;
        self.window = (now, 0);
        self.wake_ups.turn();
        for line in self.lines.iter_mut().flatten() {
            line.look_at_transport();
        }
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let channels = self.lines.iter().flatten().count();
        gauges.channels.store(count(channels), Ordering::Relaxed);
        gauges
            .sockets
            .store(count(self.owned.len()), Ordering::Relaxed);
        if much && self.shared.cores.len() < LEAST_CORES {
            let until = now + 2 * WINDOW;
            self.shared.crowded.store(until, Ordering::Relaxed);
        }
        if much && !self.shared.watched.swap(true, Ordering::Relaxed) {
            self.report(Report::Busy);
        }
    }

    /// Wakes the programs that have news. All at the end: whoever is woken may take the processor.
    fn wake_programs(&mut self) {
        for (key, claimed) in self.posted.drain(..) {
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
            lines,
            shared,
            inbox,
            index,
            now,
            ..
        } = self;
        if let Some(gauges) = shared.gauges.get(*index) {
            gauges.sleeps.fetch_add(1, Ordering::Relaxed);
        }
        let warm = |line: &Line| *now - line.heard.max(line.said).min(*now) < WARM;
        let any_warm = lines.iter().flatten().any(|line| warm(line));
        let lines = RefCell::new(lines);
        let mut first = true;
        let look = || {
            let mut found = inbox.has_any();
            // Each look at a line is a system call, and the pass before has just taken what there was.
            if std::mem::take(&mut first) {
                return found;
            }
            for line in lines.borrow_mut().iter_mut().flatten() {
                found |= warm(line) && line.may_be_read() && line.peek();
            }
            found
        };
        let arm = || {
            inbox.sleep();
            let mut found = inbox.has_any();
            for line in lines.borrow_mut().iter_mut().flatten() {
                // Of what came since it was last read the kernel tells.
                found |= line.readable && line.may_be_read() && line.peek();
            }
            found
        };
        // Where a worker has much to do and cores are few, who spins takes them from the programs that it waits for.
        let crowded = *now < shared.crowded.load(Ordering::Relaxed);
        let spins = (any_warm || cells.is_awake()) && !crowded;
        cells.sleep_with(news, until, spins, look, arm);
        inbox.wake();
    }

    /// When there is something to do by itself.
    fn next_time(&self) -> Option<u64> {
        let lines = self.lines.iter().flatten().map(|line| line.deadline());
        let per_peers = self
            .per_peers
            .iter()
            .flatten()
            .filter_map(|per_peer| per_peer.until);
        let retry = self.targets.next_retry().map(|at| {
            let after = at.duration_since(self.shared.epoch).as_nanos();
            u64::try_from(after).unwrap_or(u64::MAX)
        });
        let untidy = self.untidy.iter().map(|(at, ..)| *at);
        let timers = self.owned.timers.next().into_iter().chain(retry);
        let timers = timers.chain(untidy);
        lines.chain(per_peers).chain(timers).min()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Links(command) => {
                self.on_command(command);
            }
            Command::Listener { number, listed } => self.dialer.add(number, listed),
            Command::Unlisten(number) => self.dialer.remove(number, self.now),
            Command::Channel {
                peer,
                line,
                id,
                channel,
                rest,
            } => {
                let route = peer.add_route(line, id, self.index);
                let mut line = Line::new(Arc::clone(&peer), route, channel, &rest, self.now);
                line.look_at_transport();
                self.add_line(Box::new(line));
            }
            Command::Retire { line, reason, .. } => {
                if let Some(index) = self.find_line(line) {
                    self.leave(index, reason);
                }
            }
            Command::Cut { line, .. } => {
                if let Some(index) = self.find_line(line) {
                    self.lose(index, Lost::Cut);
                }
            }
            Command::Frames { line, bytes, .. } => {
                if let Some(index) = self.find_line(line)
                    && let Some(Some(line)) = self.lines.get_mut(index)
                    && !line.leaving.said
                {
                    line.outbox.push_bytes(&bytes);
                }
            }
            Command::Fail { peer, reason, what } => self.fail_peer(&peer, reason, what),
            Command::Policies(policies) => {
                for per_peer in self.per_peers.iter_mut().flatten() {
                    per_peer.set_policies(&self.policies, &policies, self.now);
                }
                self.policies = policies;
                self.take_place();
            }
            Command::Stop => self.stop = true,
        }
    }

    pub(super) fn settle_all(&mut self) {
        while !self.touched.is_empty() {
            let spare = std::mem::take(&mut self.spare);
            let mut touched = std::mem::replace(&mut self.touched, spare);
            for connection in touched.drain(..) {
                connection.untouch(self.index);
                self.settle(&connection);
            }
            self.spare = touched;
        }
    }
}
