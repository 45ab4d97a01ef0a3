//! Whose turn it is: of each user so many messages are handled in one pass of the loop, whatever the number of his programs. What is
//! left waits in the sockets until the next pass, which begins as soon as the others were served.

use std::collections::HashMap;

/// Messages of one user handled in one pass.
const MESSAGES: usize = 16;

/// One pass.
#[derive(Debug, Default)]
pub struct Turns {
    used: HashMap<u32, usize>,
}

impl Turns {
    /// Whether one more message of `user` is handled in this pass.
    #[must_use]
    pub fn has(&self, user: u32) -> bool {
        self.used.get(&user).is_none_or(|used| *used < MESSAGES)
    }

    /// A message of `user` is handled.
    pub fn take(&mut self, user: u32) {
        *self.used.entry(user).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_uses_up_the_turns_of_another() {
        let mut turns = Turns::default();
        let mut served = 0;
        while turns.has(7) {
            turns.take(7);
            served += 1;
        }
        assert_eq!(served, MESSAGES);
        assert!(turns.has(8));
    }
}
