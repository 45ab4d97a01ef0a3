//! Arming and announcing: no thread sleeps while what it waits for is there.

use crate::waiter::{announce_data, announce_space, arm, attach_cell};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use netchannel_abi::link::waiter::{CELL_SHIFT, CELL_SPACE, DATA, SPACE};

#[derive(Default)]
struct Shared {
    index: AtomicU64,
    word: AtomicU32,
}

impl Shared {
    fn publish(&self, value: u64) {
        self.index.store(value, Ordering::Release);
    }

    fn look(&self) -> u64 {
        self.index.load(Ordering::Acquire)
    }
}

/// Guards: the fence in `arm` and the fence in `announce_data`.
#[test]
fn data_never_meets_a_sleeper_unannounced() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            let mut tokens = 0;
            for value in 1..=2 {
                peer.publish(value);
                tokens += u32::from(announce_data(&peer.word).is_some_and(|wake| wake.token));
            }
            tokens
        });
        let mut seen = 0;
        let mut arms = 0;
        let mut asleep = false;
        while seen < 2 && !asleep {
            arm(&shared.word, DATA);
            arms += 1;
            let now = shared.look();
            asleep = now == seen;
            seen = now;
        }
        let tokens = peer.join().unwrap();
        assert!(!asleep || tokens > 0, "asleep at {seen} without a token");
        assert!(tokens <= arms, "a token that nobody asked for");
    });
}

/// Guards: the fence in `arm` and the fence in `announce_space`.
#[test]
fn space_never_meets_a_sleeper_unannounced() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            let mut tokens = 0;
            for value in 1..=2 {
                peer.publish(value);
                tokens += u32::from(announce_space(&peer.word).is_some_and(|wake| wake.token));
            }
            tokens
        });
        let mut seen = 0;
        let mut asleep = false;
        while seen < 2 && !asleep {
            arm(&shared.word, SPACE);
            let now = shared.look();
            asleep = now == seen;
            seen = now;
        }
        let tokens = peer.join().unwrap();
        assert!(!asleep || tokens > 0, "asleep at {seen} without a token");
    });
}

/// Guards: `wake` acts on the bits that it took. A thread waits for room (SPACE is set) while the event loop asks for
/// room, too. A peer that takes the loop's bit owes it a mark, also when it had only seen the other bit. The loop wants
/// two units, so the first may be used up when it looks.
#[test]
fn a_taken_bit_is_always_acted_upon() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        shared
            .word
            .store(1 << CELL_SHIFT | SPACE, Ordering::Relaxed);
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            peer.publish(1);
            let wake = announce_space(&peer.word).unwrap_or_default();
            wake.cell
        });
        arm(&shared.word, CELL_SPACE);
        let marked = peer.join().unwrap();
        let still_armed = shared.word.load(Ordering::Relaxed) & CELL_SPACE != 0;
        assert!(marked == Some(0) || still_armed);
    });
}

/// Guards: the fence that `attach_cell` has from `arm`. The socket is attached to an event loop while bytes arrive:
/// they are marked in the cell, or the look after attaching finds them.
#[test]
fn attaching_to_a_cell_misses_nothing() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            peer.publish(1);
            announce_data(&peer.word).and_then(|wake| wake.cell)
        });
        attach_cell(&shared.word, Some(3));
        let found = shared.look() == 1;
        let marked = peer.join().unwrap();
        assert!(found || marked == Some(3));
    });
}
