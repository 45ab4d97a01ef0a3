//! The timers of a connection: probes, time-outs, keep-alive.

use crate::settings::{KeepAlive, Settings};

/// A timer that is not set.
const NEVER: u64 = u64::MAX;

/// The times of one connection. They trigger nothing: the owner asks what is due. A time that is not set is [`NEVER`].
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the connection was requested.
    began: u64,
    /// When the last frame of the peer came.
    last_heard: u64,
    /// Since when there is unacknowledged data without progress.
    pending_since: u64,
    /// Since when the peer owes an answer without progress.
    awaiting_since: u64,
    /// When the peer is probed next for a missing answer, and how often it was probed.
    probe_at: u64,
    probes: u32,
    /// Keep-alive probes since the last frame of the peer, and when the last one was sent.
    keep_alive_probes: u8,
    keep_alive_sent: u64,
    /// The end of the program's linger time.
    linger: u64,
    /// Since when the connection of a closed program waits only for the peer's end.
    ending_since: u64,
    /// The state that decides which times count.
    situation: Situation,
}

/// A timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Probe,
    KeepAlive,
    LingerOver,
    /// The peer has not ended its direction in time, after the program has closed.
    EndTimedOut,
    TimedOut,
}

/// The parts of a socket's state that decide which times count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Situation {
    /// The connection is not answered yet.
    pub(crate) opening: bool,
    /// Something that the program wrote is not acknowledged.
    pub(crate) pending: bool,
    /// The peer owes an answer.
    pub(crate) awaits_peer: bool,
    /// The program has closed.
    pub(crate) orphan: bool,
    /// The program has closed, and the peer has acknowledged everything.
    pub(crate) ending: bool,
}

impl Clock {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            began: now,
            last_heard: now,
            pending_since: NEVER,
            awaiting_since: NEVER,
            probe_at: NEVER,
            probes: 0,
            keep_alive_probes: 0,
            keep_alive_sent: now,
            linger: NEVER,
            ending_since: NEVER,
            situation: Situation::default(),
        }
    }

    pub(crate) const fn on_peer_frame(&mut self, now: u64) {
        self.last_heard = now;
        self.keep_alive_probes = 0;
    }

    pub(crate) const fn linger_until(&mut self, at: u64) {
        self.linger = at;
    }

    /// Ends the linger time. Returns whether there was any.
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

    /// Starts and stops the times after an event, as the situation requires.
    pub(crate) fn update(&mut self, situation: Situation, settings: &Settings, now: u64) {
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

    /// Notes a probe, and schedules the next one. Returns the number of probes since the last progress.
    pub(crate) fn probed(&mut self, settings: &Settings, now: u64) -> u32 {
        self.probes = self.probes.saturating_add(1);
        self.probe_at = now.saturating_add(self.probe_interval(settings));
        self.probes
    }

    pub(crate) const fn on_keep_alive_sent(&mut self, now: u64) {
        self.keep_alive_probes = self.keep_alive_probes.saturating_add(1);
        self.keep_alive_sent = now;
    }

    /// The time of the next timer.
    pub(crate) fn next(&self, settings: &Settings) -> Option<u64> {
        let at = self.gives_up_at(settings).min(self.linger);
        let at = at.min(self.end_timed_out_at(settings)).min(self.probe_at);
        let at = at.min(self.keep_alive_at(settings));
        (at != NEVER).then_some(at)
    }

    /// The timer that is due, if any.
    pub(crate) fn due(&self, settings: &Settings, now: u64) -> Option<Due> {
        [
            (self.gives_up_at(settings), Due::TimedOut),
            (self.linger, Due::LingerOver),
            (self.end_timed_out_at(settings), Due::EndTimedOut),
            (self.probe_at, Due::Probe),
            (self.keep_alive_at(settings), Due::KeepAlive),
        ]
        .into_iter()
        .find(|(at, _)| *at <= now && *at != NEVER)
        .map(|(_, due)| due)
    }

    fn end_timed_out_at(&self, settings: &Settings) -> u64 {
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
        // The peer owes an answer since the later of these times, and was silent.
        let silent = self.awaiting_since.max(self.last_heard);
        let silent = silent.saturating_add(settings.response_timeout);
        pending.min(silent).min(self.unanswered_at(settings))
    }

    /// A peer that owes an answer is probed anyway.
    fn keep_alive(&self, settings: &Settings) -> Option<KeepAlive> {
        let quiet = !self.situation.opening && !self.situation.awaits_peer;
        settings.keep_alive.filter(|_| quiet)
    }

    /// When enough keep-alive probes were not answered.
    fn unanswered_at(&self, settings: &Settings) -> u64 {
        match self.keep_alive(settings) {
            Some(it) if self.keep_alive_probes >= it.count.max(1) => {
                self.keep_alive_sent.saturating_add(it.interval)
            }
            _ => NEVER,
        }
    }

    fn keep_alive_at(&self, settings: &Settings) -> u64 {
        match self.keep_alive(settings) {
            Some(it) if self.keep_alive_probes == 0 => self.last_heard.saturating_add(it.idle),
            Some(it) if self.keep_alive_probes < it.count => {
                self.keep_alive_sent.saturating_add(it.interval)
            }
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
