//! What may take long is done by the daemon's loop in turns: it looks for events, works for one turn at one answer, and looks again.

use std::time::{Duration, Instant};

/// How long whoever asks for a link waits for an answer to somebody else. Making one takes about twice as long. By `benches/loop.rs`.
const LENGTH: Duration = Duration::from_micros(50);

/// The time that work has until the loop looks for events again. Whoever works gets on by at least one step in each turn, and his
/// steps are short.
#[derive(Debug)]
pub struct Turn {
    end: Instant,
}

impl Turn {
    /// It begins now.
    pub fn begin() -> Self {
        Self {
            end: Instant::now() + LENGTH,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// One that is over at once, or never.
    #[cfg(test)]
    pub fn of(length: Duration) -> Self {
        Self {
            end: Instant::now() + length,
        }
    }
}
