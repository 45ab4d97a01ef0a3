//! What the time brings.

use super::VirtualSocket;
use crate::clock::Due;
use crate::types::{End, Reason, State};

/// Probes that only ask.
const ASKS: u32 = 2;

impl VirtualSocket {
    /// When [`Self::on_timeout`] is to be called, or [`Self::next_transmit`] has something, if nothing happens before; `None`: never.
    ///
    /// It may move later by events; to be called too early is harmless, so a timer need not be moved by each event.
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

    /// It is `now`.
    pub fn on_timeout(&mut self, now: u64) {
        self.receiver.on_time(now);
        // At most one of each kind comes due at a time; the bound is for times that are zero.
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
                        self.handshake.raise();
                    } else {
                        let segment = u64::from(self.settings.segment);
                        self.sender.suspect(segment, probes > ASKS);
                    }
                }
                Due::Question => {
                    self.counters.probes += 1;
                    self.clock.asked(now);
                    self.sender.ask();
                }
                Due::LingerOver => self.end_linger(),
                Due::EndingOver => self.end(End::Finished),
                Due::TimedOut => self.give_up(Reason::TimedOut, now),
            }
        }
        self.follow(now);
    }
}
