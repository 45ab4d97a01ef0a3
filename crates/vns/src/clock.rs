//! When something is due that no event brings: probes, time-outs, keep-alive.

use crate::settings::{KeepAlive, Settings};

/// Times of one connection. Nothing here runs: the owner asks what the time means.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the connection was asked for.
    began: u64,
    /// When the peer was heard last.
    heard: u64,
    /// Since when something is pending without progress.
    pending_since: Option<u64>,
    /// Since when the peer owes something without progress.
    awaiting_since: Option<u64>,
    /// When the peer, which owes something, is probed next, and how often it was already.
    probe_at: Option<u64>,
    probes: u32,
    /// Keep-alive questions since the peer was heard, and when the last was asked.
    questions: u8,
    asked: u64,
    /// End of the program's lingering.
    linger: Option<u64>,
    /// Since when a closed program's connection waits for nothing but the peer's end.
    ending_since: Option<u64>,
}

/// What has come due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Probe,
    Question,
    LingerOver,
    /// The peer's end did not come to a closed program.
    EndingOver,
    TimedOut,
}

/// The parts of a socket's state that decide which times count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// The connection is not answered yet.
    pub(crate) opening: bool,
    /// Something the program wrote is not acknowledged.
    pub(crate) pending: bool,
    /// The peer owes an answer.
    pub(crate) awaits_peer: bool,
    /// The program has closed.
    pub(crate) orphan: bool,
    /// The program has closed and the peer has all of it.
    pub(crate) ending: bool,
}

impl Clock {
    pub(crate) const fn new(now: u64) -> Self {
        Self {
            began: now,
            heard: now,
            pending_since: None,
            awaiting_since: None,
            probe_at: None,
            probes: 0,
            questions: 0,
            asked: now,
            linger: None,
            ending_since: None,
        }
    }

    pub(crate) const fn heard(&mut self, now: u64) {
        self.heard = now;
        self.questions = 0;
    }

    pub(crate) const fn linger_until(&mut self, at: Option<u64>) {
        self.linger = at;
    }

    pub(crate) const fn lingers(&self) -> bool {
        self.linger.is_some()
    }

    /// The peer acknowledged or opened its window.
    pub(crate) const fn progress(&mut self) {
        self.pending_since = None;
        self.awaiting_since = None;
        self.probe_at = None;
        self.probes = 0;
    }

    /// After any event: starts and ends what the situation asks for.
    pub(crate) fn follow(&mut self, situation: Situation, settings: &Settings, now: u64) {
        start_or_stop(&mut self.pending_since, situation.pending, now);
        start_or_stop(&mut self.awaiting_since, situation.awaits_peer, now);
        start_or_stop(&mut self.ending_since, situation.ending, now);
        if !situation.awaits_peer {
            self.probe_at = None;
            self.probes = 0;
        } else if self.probe_at.is_none() {
            self.probe_at = Some(now.saturating_add(self.probe_interval(settings)));
        }
    }

    fn probe_interval(&self, settings: &Settings) -> u64 {
        let doubled = settings
            .probe_interval
            .saturating_mul(1 << self.probes.min(30));
        doubled.min(settings.probe_interval_most)
    }

    /// Probed: the next comes later. Gives how often, since the peer has moved.
    pub(crate) fn probed(&mut self, settings: &Settings, now: u64) -> u32 {
        self.probes = self.probes.saturating_add(1);
        self.probe_at = Some(now.saturating_add(self.probe_interval(settings)));
        self.probes
    }

    pub(crate) const fn asked(&mut self, now: u64) {
        self.questions = self.questions.saturating_add(1);
        self.asked = now;
    }

    /// What comes due first, and when.
    pub(crate) fn next(&self, situation: Situation, settings: &Settings) -> Option<(u64, Due)> {
        let give_up = self.gives_up_at(situation, settings);
        let candidates = [
            (give_up, Due::TimedOut),
            (self.linger, Due::LingerOver),
            (
                after(self.ending_since, settings.orphan_timeout),
                Due::EndingOver,
            ),
            (self.probe_at, Due::Probe),
            self.keep_alive(situation, settings),
        ];
        let candidates = candidates.into_iter();
        candidates
            .filter_map(|(at, due)| at.map(|at| (at, due)))
            .min_by_key(|(at, _)| *at)
    }

    fn gives_up_at(&self, situation: Situation, settings: &Settings) -> Option<u64> {
        if situation.opening {
            return after(Some(self.began), settings.connect_timeout);
        }
        let user = settings
            .user_timeout
            .and_then(|timeout| after(self.pending_since, timeout));
        let orphan = if situation.orphan {
            after(self.pending_since, settings.orphan_timeout)
        } else {
            None
        };
        let silent = after(
            self.awaiting_since.map(|since| since.max(self.heard)),
            settings.response_timeout,
        );
        [user, orphan, silent].into_iter().flatten().min()
    }

    fn keep_alive(&self, situation: Situation, settings: &Settings) -> (Option<u64>, Due) {
        let Some(keep_alive) = settings.keep_alive else {
            return (None, Due::Question);
        };
        // Who owes an answer is probed anyway.
        if situation.opening || situation.awaits_peer {
            return (None, Due::Question);
        }
        let KeepAlive {
            idle,
            interval,
            count,
        } = keep_alive;
        match self.questions {
            0 => (after(Some(self.heard), idle), Due::Question),
            asked if asked >= count => (after(Some(self.asked), interval), Due::TimedOut),
            _ => (after(Some(self.asked), interval), Due::Question),
        }
    }
}

fn after(since: Option<u64>, time: u64) -> Option<u64> {
    since.map(|since| since.saturating_add(time))
}

fn start_or_stop(since: &mut Option<u64>, runs: bool, now: u64) {
    match (runs, *since) {
        (true, None) => *since = Some(now),
        (false, _) => *since = None,
        (true, Some(_)) => {}
    }
}
