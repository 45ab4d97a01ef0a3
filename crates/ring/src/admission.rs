//! Who decides about a connection that waits for whoever accepts first: one of them, or its client, which goes another way.
//!
//! The word carries the slot's generation. A slot is used again, while what its former connection has said still waits to be read.

use netchannel_abi::link::queued;

use crate::sync::{AtomicU32, Ordering};

/// (client) The connection of that generation waits from now on.
pub fn wait(word: &AtomicU32, generation: u32) {
    // Release: pairs with the acquire of who accepts it.
    word.store(queued::word(generation, queued::WAITS), Ordering::Release);
}

/// (server) It is accepted. False where the client has gone another way, maybe with another connection in the same slot.
pub fn accept(word: &AtomicU32, generation: u32) -> bool {
    decide(word, generation, queued::ACCEPTED)
}

/// (client) It goes another way. False where it was accepted already.
pub fn withdraw(word: &AtomicU32, generation: u32) -> bool {
    decide(word, generation, queued::WITHDRAWN)
}

fn decide(word: &AtomicU32, generation: u32, fate: u32) -> bool {
    let [waits, decided] = [queued::WAITS, fate].map(|fate| queued::word(generation, fate));
    // Acquire: pairs with the release in `wait`, for who accepts. Release: with the other side's acquire, which then gives up.
    word.compare_exchange(waits, decided, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_side_decides() {
        let word = AtomicU32::new(0);
        for generation in [1, 2, u32::MAX] {
            wait(&word, generation);
            assert!(accept(&word, generation));
            assert!(!withdraw(&word, generation) && !accept(&word, generation));
            wait(&word, generation);
            assert!(withdraw(&word, generation));
            assert!(!accept(&word, generation));
        }
    }

    #[test]
    fn what_a_former_connection_of_the_slot_has_said_decides_nothing() {
        let word = AtomicU32::new(0);
        wait(&word, 28);
        assert!(withdraw(&word, 28));
        wait(&word, 29);
        assert!(!accept(&word, 28));
        assert!(accept(&word, 29));
    }
}
