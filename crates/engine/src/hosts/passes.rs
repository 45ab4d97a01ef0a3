//! The passes of a worker: it takes everything there is, within a budget, and then sleeps.

use super::commands::{Command, Report};
use super::front::Front;
use super::line::Line;
use super::loss::Lost;
use super::shared::{LEAST_CORES, Letter};
use super::worker::{INBOX, Worker};
use netchannel_service::cells::{Key, News};
use netchannel_service::timers::NEVER;
use netchannel_wire::GoAwayReason;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A channel on which nothing moved for this long, in nanoseconds, is not worth spinning for.
const WARM: u64 = 1_000_000;
/// A worker that does not sleep accounts for its time this often, in nanoseconds.
const ACCOUNT: u64 = 10_000_000;
/// A worker for throughput lets others run after so long, in nanoseconds, where those who want latency share its processor.
const TURN: u64 = 200_000;
/// How busy it is, and how its channels are, is looked at this often, in nanoseconds.
const WINDOW: u64 = 20_000_000;

impl Worker {
    /// Works until it is told to stop.
    pub fn run(mut self) {
        let mut news = Vec::new();
        self.take_place();
        self.began = self.clock();
        while !self.stop {
            self.now = self.clock();
            if self.now - self.began > ACCOUNT {
                self.account(self.now);
            }
            // What the last pass has left to do.
            let due = std::mem::take(&mut self.busy);
            self.cells.look(&mut news);
            if news.is_empty() && !due && !self.has_letters() {
                self.account(self.now);
                self.sleep(&mut news);
                self.now = self.clock();
                self.began = self.now;
            }
            self.work(&mut news);
            self.give_way();
        }
        self.end();
    }

    /// Where processors are few, a worker for throughput does not keep one for long while somebody is in a hurry.
    fn give_way(&mut self) {
        if self.front.is_some() || self.shared.cores.len() >= LEAST_CORES {
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

    fn has_letters(&self) -> bool {
        let inbox = self.shared.inboxes.get(self.index);
        inbox.is_some_and(|inbox| inbox.has_any())
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

    /// One pass over all there is.
    fn work(&mut self, news: &mut Vec<News>) {
        self.moved = !news.is_empty();
        self.read_letters();
        for one in news.drain(..) {
            self.on_news(one);
        }
        self.read_lines();
        while let Some(number) = self.owned.timers.take(self.now) {
            self.on_timer(number);
        }
        self.retry();
        self.tidy();
        self.route_asked();
        self.settle_all();
        self.send_all();
        self.flush_lines();
        // What sockets came to owe meanwhile goes with the next pass.
        self.busy |= !self.asked.is_empty() || !self.touched.is_empty();
        self.wake_programs();
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

    fn sleep(&mut self, news: &mut Vec<News>) {
        let until = self.deadline();
        if until.is_some_and(|at| at <= self.now) {
            return;
        }
        let until = until.map(|at| self.shared.epoch + Duration::from_nanos(at));
        let Self {
            cells,
            lines,
            shared,
            index,
            now,
            ..
        } = self;
        let Some(inbox) = shared.inboxes.get(*index) else {
            return;
        };
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
        cells.sleep_beside(news, until, spins, look, arm);
        inbox.wake();
    }

    /// When there is something to do by itself.
    fn deadline(&self) -> Option<u64> {
        let lines = self.lines.iter().flatten().map(|line| line.deadline());
        let per_peers = self
            .per_peers
            .iter()
            .flatten()
            .filter_map(|per_peer| per_peer.until);
        let retry = self.front.as_ref().and_then(Front::next_retry);
        let untidy = self.untidy.iter().map(|(at, ..)| *at);
        let timers = self.owned.timers.next().into_iter().chain(retry);
        let timers = timers.chain(untidy);
        lines.chain(per_peers).chain(timers).min()
    }

    fn read_letters(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        if let Some(inbox) = self.shared.inboxes.get(self.index) {
            inbox.take(&mut letters);
        }
        for letter in letters.drain(..) {
            self.on_letter(letter);
        }
        self.letters = letters;
    }

    fn on_letter(&mut self, letter: Letter) {
        match letter {
            Letter::Command(command) => self.on_command(command),
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
                    self.cells.touch(key);
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

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Relay(command) => self.on_relay(command),
            Command::Listener { number, listed } => self.add_listener(number, listed),
            Command::Unlisten(number) => self.remove_listener(number),
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

    pub(super) fn on_news(&mut self, news: News) {
        match news {
            News::Own(INBOX) => {
                if let Some(inbox) = self.shared.inboxes.get(self.index) {
                    inbox.hear();
                }
                self.read_letters();
            }
            News::Own(name) => {
                let index = usize::try_from(name - 1).unwrap_or(usize::MAX);
                if let Some(Some(line)) = self.lines.get_mut(index) {
                    line.readable = true;
                    line.blocked = false;
                }
            }
            News::Ready(key, slot) => {
                if let Some(connection) = self.owned.of_slot(key, slot).map(Arc::clone) {
                    connection.lock().look(self.now);
                    self.touch(&connection);
                }
            }
            News::Token(key, slot, end) => self.on_token(key, slot, end),
            News::Opened(key, opened) => self.on_opened(key, opened),
            News::Ended(key) => self.on_link_ended(key),
        }
    }

    fn on_token(&mut self, key: Key, slot: u32, end: bool) {
        if self.cells.owes_others(key)
            && let Some(link) = self.cells.link(key).map(|link| link.number())
        {
            self.tell_others(|| Letter::Look(link));
        }
        // The anchor of a lane that another worker has just closed lies in the pool again.
        let drop_pooled = |worker: &Self| {
            if let (true, Some(link)) = (end, worker.cells.link(key)) {
                link.drop_anchor(slot);
            }
        };
        let Some(connection) = self.owned.of_slot(key, slot).map(Arc::clone) else {
            return drop_pooled(self);
        };
        let mut state = connection.lock();
        match &mut state.lane {
            Some(lane) => lane.on_token(end),
            None => drop_pooled(self),
        }
        state.look(self.now);
        drop(state);
        self.touch(&connection);
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

    fn end(&mut self) {
        for line in self.lines.iter_mut().flatten() {
            line.say_goodbye(GoAwayReason::Ending);
            // A transport that takes it no more has lost it.
            let _ = line.flush(&mut Vec::new(), self.now);
        }
    }
}
