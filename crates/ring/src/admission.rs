//! The decision about a connection in the queue of a listener, or one that was announced to one of several processes that
//! have it: a server accepts it, or its client withdraws it.
//!
//! The word carries the slot's generation: a slot is used again while the queue still has the message of its former
//! connection.

use netchannel_abi::link::queued;

use crate::sync::{AtomicU32, Ordering};

/// (client) Marks the connection of that generation as waiting.
pub fn wait(word: &AtomicU32, generation: u32) {
    // Release: pairs with the acquire of the server that accepts it.
    word.store(queued::word(generation, queued::WAITS), Ordering::Release);
}

/// (server) Accepts the connection. False where the client has withdrawn it, and may have put another connection into
/// the same slot.
pub fn accept(word: &AtomicU32, generation: u32) -> bool {
    decide(word, generation, queued::ACCEPTED)
}

/// (server) As [`accept`], of a connection that was announced: only those can be withdrawn whose client has called
/// [`wait`].
pub fn accept_announced(word: &AtomicU32, generation: u32) -> bool {
    let [waits, withdrawn] =
        [queued::WAITS, queued::WITHDRAWN].map(|fate| queued::word(generation, fate));
    // The other words decide nothing any more, and the line stays the client's. Acquire: as in `decide`.
    let seen = word.load(Ordering::Acquire);
    seen != withdrawn && (seen != waits || accept(word, generation))
}

/// (client) Withdraws the connection. False where it was already accepted.
pub fn withdraw(word: &AtomicU32, generation: u32) -> bool {
    decide(word, generation, queued::WITHDRAWN)
}

fn decide(word: &AtomicU32, generation: u32, fate: u32) -> bool {
    let [waits, decided] = [queued::WAITS, fate].map(|fate| queued::word(generation, fate));
    // Acquire: pairs with the release in `wait`, for the accepting server. Release: pairs with the acquire of the other
    // side, which then gives up.
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
    fn an_announced_one_may_never_have_waited() {
        let word = AtomicU32::new(0);
        assert!(accept_announced(&word, 7));
        wait(&word, 8);
        assert!(accept_announced(&word, 8));
        // A second try to accept it.
        assert!(accept_announced(&word, 8));
        wait(&word, 9);
        assert!(withdraw(&word, 9));
        assert!(!accept_announced(&word, 9));
        assert!(accept_announced(&word, 10));
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
