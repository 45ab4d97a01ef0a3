//! The class of a socket from its traffic: short exchanges and pauses are latency, long runs are throughput.
//!
//! A run is the traffic in one direction until the other end answers or a pause occurs. Each run that ends short is a
//! point for L; each stretch of a long run is points for T. A socket changes class only far from the middle, so that a
//! few large answers do not make an L socket T, nor a few short ones the reverse.

use crate::time::MILLISECOND;
use crate::view::Class;

/// A run up to this many bytes is a message.
pub const MESSAGE: u32 = 16 << 10;

/// Each stretch of this many bytes in one run is a sign of T.
pub const STRETCH: u32 = 64 << 10;

/// A silence this long, in nanoseconds, ends a run.
pub const PAUSE: u64 = MILLISECOND;

/// Points at which a socket is L; at as many below 0 it is T.
pub const DECIDED: i8 = 8;

/// Points never go beyond this.
const MOST: i8 = 16;

/// Points for T of one stretch.
const STRETCH_POINTS: i8 = 2;

/// One socket's traffic, in 24 bytes. Each call takes a few nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observer {
    last: u64,
    /// Bytes of the run, less the stretches that were counted.
    run: u32,
    points: i8,
    /// The run is outgoing.
    sending: bool,
    /// A stretch of the run was counted: it is no message.
    long: bool,
    class: Option<Class>,
}

impl Observer {
    /// An observer without samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The observed class; `None` before there are enough signs.
    #[must_use]
    pub const fn class(&self) -> Option<Class> {
        self.class
    }

    /// The program sent bytes. Returns the class if that changed it.
    pub fn on_sent(&mut self, bytes: u32, now: u64) -> Option<Class> {
        self.observe(true, bytes, now)
    }

    /// Bytes came for the program. Returns the class if that changed it.
    pub fn on_received(&mut self, bytes: u32, now: u64) -> Option<Class> {
        self.observe(false, bytes, now)
    }

    fn observe(&mut self, sending: bool, bytes: u32, now: u64) -> Option<Class> {
        let gap = now.saturating_sub(self.last);
        self.last = now;
        if sending != self.sending || gap >= PAUSE {
            if self.run > 0 && self.run <= MESSAGE && !self.long {
                self.points = (self.points + 1).min(MOST);
            }
            self.sending = sending;
            self.run = 0;
            self.long = false;
        }
        self.run = self.run.saturating_add(bytes);
        if self.run >= STRETCH {
            let stretches = i8::try_from(self.run / STRETCH).unwrap_or(MOST).min(MOST);
            self.points = self
                .points
                .saturating_sub(stretches.saturating_mul(STRETCH_POINTS))
                .max(-MOST);
            self.run %= STRETCH;
            self.long = true;
        }
        let class = if self.points >= DECIDED {
            Class::Latency
        } else if self.points <= -DECIDED {
            Class::Throughput
        } else {
            return None;
        };
        if self.class == Some(class) {
            return None;
        }
        self.class = Some(class);
        self.class
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
