//! Timers.

use super::VirtualSocket;
use crate::clock::Due;
use crate::types::{End, Reason, State};

/// Probes that only ask.
const ASKS: u32 = 2;

impl VirtualSocket {
    /// When [`Self::on_timeout`] must be called, or [`Self::next_transmit`] has a frame, if no event happens before;
    /// `None` for never.
    ///
    /// An event may move it later. A call that comes too early is harmless, so a timer need not be moved with each
    /// event.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let next = match self.state {
            State::Closed(_) | State::Deciding => None,
            _ => self.clock.next(&self.settings),
        };
        let window = match self.state {
            State::Established => self.receiver.due_at(),
            _ => None,
        };
        [next, window].into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub fn on_timeout(&mut self, now: u64) {
        self.receiver.on_time(now);
        // At most one timer of each kind is due at a time. The limit is for times that are zero.
        for _ in 0..8 {
            if matches!(self.state, State::Closed(_) | State::Deciding) {
                break;
            }
            let Some(due) = self.clock.due(&self.settings, now) else {
                break;
            };
            match due {
                Due::Probe => {
                    self.counters.probes += 1;
                    let probes = self.clock.probed(&self.settings, now);
                    if self.state == State::Opening {
                        self.handshake.schedule();
                    } else {
                        let segment = u64::from(self.settings.segment);
                        self.sender.probe(segment, probes > ASKS);
                    }
                }
                Due::KeepAlive => {
                    self.counters.probes += 1;
                    self.clock.on_keep_alive_sent(now);
                    self.sender.ask();
                }
                Due::LingerOver => self.end_linger(),
                Due::EndTimedOut => self.end(End::Finished),
                Due::TimedOut => self.give_up(Reason::TimedOut, now),
            }
        }
        self.update(now);
    }
}
