//! The budget of each user in one pass of the loop: a number of messages and a time, whatever the number of his
//! programs. Further messages wait in the sockets until the next pass, which begins as soon as the other users were
//! served.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Messages of one user that are handled in one pass.
const MESSAGES: usize = 16;
/// How long messages of one user are handled in one pass. Making a link takes a tenth of it, a look-up of a listener
/// among thousands all of it.
const TIME: Duration = Duration::from_micros(500);

/// The budgets of one pass.
#[derive(Debug, Default)]
pub struct Turns {
    used: HashMap<u32, (usize, Duration)>,
}

impl Turns {
    /// Whether another message of `user` is handled in this pass.
    #[must_use]
    pub fn has(&self, user: u32) -> bool {
        let used = self.used.get(&user);
        used.is_none_or(|(messages, time)| *messages < MESSAGES && *time < TIME)
    }

    /// A message of `user` was handled from `start` to `end`.
    pub fn take(&mut self, user: u32, start: Instant, end: Instant) {
        let (messages, time) = self.used.entry(user).or_default();
        *messages += 1;
        *time += end.saturating_duration_since(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(user: u32, turns: &mut Turns, each: Duration) -> usize {
        let start = Instant::now();
        let mut served = 0;
        while turns.has(user) {
            turns.take(user, start, start + each);
            served += 1;
        }
        served
    }

    #[test]
    fn nobody_uses_up_the_turns_of_another() {
        let mut turns = Turns::default();
        assert_eq!(served(7, &mut turns, Duration::ZERO), MESSAGES);
        assert!(turns.has(8));
    }

    #[test]
    fn what_takes_long_is_done_seldom() {
        let mut turns = Turns::default();
        assert_eq!(served(7, &mut turns, 3 * TIME), 1);
        assert_eq!(served(8, &mut turns, TIME / 2), 2);
        assert!(turns.has(9));
    }
}
