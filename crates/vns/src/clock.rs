//! When something is due that no event brings: probes, time-outs, keep-alive.

use crate::settings::{KeepAlive, Settings};

/// No time.
const NEVER: u64 = u64::MAX;

/// Times of one connection. Nothing here runs: the owner asks what the time means. What is not set is [`NEVER`].
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the connection was asked for.
    began: u64,
    /// When the peer was heard last.
    heard: u64,
    /// Since when something is pending without progress.
    pending_since: u64,
    /// Since when the peer owes something without progress.
    awaiting_since: u64,
    /// When the peer, which owes something, is probed next, and how often it was already.
    probe_at: u64,
    probes: u32,
    /// Keep-alive questions since the peer was heard, and when the last was asked.
    questions: u8,
    asked: u64,
    /// End of the program's lingering.
    linger: u64,
    /// Since when a closed program's connection waits for nothing but the peer's end.
    ending_since: u64,
    /// What counts of all that.
    situation: Situation,
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
#[derive(Clone, Copy, Debug, Default)]
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
    pub(crate) fn new(now: u64) -> Self {
        Self {
            began: now,
            heard: now,
            pending_since: NEVER,
            awaiting_since: NEVER,
            probe_at: NEVER,
            probes: 0,
            questions: 0,
            asked: now,
            linger: NEVER,
            ending_since: NEVER,
            situation: Situation::default(),
        }
    }

    pub(crate) const fn heard(&mut self, now: u64) {
        self.heard = now;
        self.questions = 0;
    }

    pub(crate) const fn linger_until(&mut self, at: u64) {
        self.linger = at;
    }

    /// Ends the lingering; gives whether there was any.
    pub(crate) const fn end_linger(&mut self) -> bool {
        let lingered = self.linger != NEVER;
        self.linger = NEVER;
        lingered
    }

    /// The peer acknowledged or opened its window.
    pub(crate) const fn progress(&mut self) {
        self.pending_since = NEVER;
        self.awaiting_since = NEVER;
        self.probe_at = NEVER;
        self.probes = 0;
    }

    /// After any event: starts and ends what the situation asks for.
    pub(crate) fn follow(&mut self, situation: Situation, settings: &Settings, now: u64) {
        self.situation = situation;
        start_or_stop(&mut self.pending_since, situation.pending, now);
        start_or_stop(&mut self.awaiting_since, situation.awaits_peer, now);
        start_or_stop(&mut self.ending_since, situation.ending, now);
        if !situation.awaits_peer {
            self.probe_at = NEVER;
            self.probes = 0;
        } else if self.probe_at == NEVER {
            self.probe_at = now.saturating_add(self.probe_interval(settings));
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
        self.probe_at = now.saturating_add(self.probe_interval(settings));
        self.probes
    }

    pub(crate) const fn asked(&mut self, now: u64) {
        self.questions = self.questions.saturating_add(1);
        self.asked = now;
    }

    /// When something comes due.
    pub(crate) fn next(&self, settings: &Settings) -> Option<u64> {
        let at = self.gives_up_at(settings).min(self.linger);
        let at = at.min(self.ending_over_at(settings)).min(self.probe_at);
        let at = at.min(self.question_at(settings));
        (at != NEVER).then_some(at)
    }

    /// What is due, if anything.
    pub(crate) fn due(&self, settings: &Settings, now: u64) -> Option<Due> {
        [
            (self.gives_up_at(settings), Due::TimedOut),
            (self.linger, Due::LingerOver),
            (self.ending_over_at(settings), Due::EndingOver),
            (self.probe_at, Due::Probe),
            (self.question_at(settings), Due::Question),
        ]
        .into_iter()
        .find(|(at, _)| *at <= now && *at != NEVER)
        .map(|(_, due)| due)
    }

    fn ending_over_at(&self, settings: &Settings) -> u64 {
        self.ending_since.saturating_add(settings.orphan_timeout)
    }

    fn gives_up_at(&self, settings: &Settings) -> u64 {
        if self.situation.opening {
            return self.began.saturating_add(settings.connect_timeout);
        }
        let mut patience = settings.user_timeout.unwrap_or(NEVER);
        if self.situation.orphan {
            patience = patience.min(settings.orphan_timeout);
        }
        let pending = self.pending_since.saturating_add(patience);
        // Since then the peer owes something, and has said nothing.
        let silent = self.awaiting_since.max(self.heard);
        let silent = silent.saturating_add(settings.response_timeout);
        pending.min(silent).min(self.unanswered_at(settings))
    }

    /// Who owes an answer is probed anyway.
    fn keep_alive(&self, settings: &Settings) -> Option<KeepAlive> {
        let quiet = !self.situation.opening && !self.situation.awaits_peer;
        settings.keep_alive.filter(|_| quiet)
    }

    /// When enough questions were not answered.
    fn unanswered_at(&self, settings: &Settings) -> u64 {
        match self.keep_alive(settings) {
            Some(it) if self.questions >= it.count.max(1) => self.asked.saturating_add(it.interval),
            _ => NEVER,
        }
    }

    fn question_at(&self, settings: &Settings) -> u64 {
        match self.keep_alive(settings) {
            Some(it) if self.questions == 0 => self.heard.saturating_add(it.idle),
            Some(it) if self.questions < it.count => self.asked.saturating_add(it.interval),
            _ => NEVER,
        }
    }
}

fn start_or_stop(since: &mut u64, runs: bool, now: u64) {
    if !runs {
        *since = NEVER;
    } else if *since == NEVER {
        *since = now;
    }
}
