//! Long work is done by the daemon's loop in turns: it handles events, works for one turn on one answer, and handles
//! events again.

use std::time::{Duration, Instant};

/// How long a program that requests a link waits for the answer to another program. Making a link takes about twice as
/// long. Measured by `benches/loop.rs`.
const LENGTH: Duration = Duration::from_micros(50);

/// The time that work has until the loop handles events again. Work makes at least one step in each turn, and steps are
/// short.
#[derive(Debug)]
pub struct Turn {
    end: Instant,
}

impl Turn {
    /// A turn that begins now.
    pub fn begin() -> Self {
        Self {
            end: Instant::now() + LENGTH,
        }
    }

    /// Whether the turn is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// A turn of another length.
    #[cfg(test)]
    pub fn of(length: Duration) -> Self {
        Self {
            end: Instant::now() + length,
        }
    }
}
