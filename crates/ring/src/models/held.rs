//! A sender that holds two bytes back and releases them, and a reader that looks and sleeps.

use crate::held;
use crate::waiter::{announce_data, arm};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use netchannel_abi::link::waiter::DATA;

#[derive(Default)]
struct Shared {
    tail: AtomicU64,
    held: AtomicU64,
    word: AtomicU32,
}

impl Shared {
    /// The visible tail for a reader that has read nothing, and whether more is held back.
    fn look(&self) -> (u64, bool) {
        let tail = self.tail.load(Ordering::Acquire);
        match held::load(&self.held) {
            0 => (tail, false),
            word => (held::visible_tail(word, 0, tail), tail > 0),
        }
    }

    /// The sender writes the bytes up to `tail`, and holds those from `from` on back, from the time `now` on.
    fn hold(&self, from: u64, now: u64, tail: u64) {
        held::publish(&self.held, held::word(from, held::OnReply::Keeps, now));
        self.tail.store(tail, Ordering::Release);
    }

    fn announce(&self) -> u32 {
        u32::from(announce_data(&self.word).is_some_and(|wake| wake.token))
    }
}

/// Guards: `publish` before the release of the tail.
#[test]
fn nothing_is_seen_that_is_held_back() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            peer.hold(0, 1, 1);
            peer.tail.store(2, Ordering::Release);
        });
        assert_eq!(shared.look().0, 0);
        sender.join().unwrap();
        assert_eq!(shared.look(), (0, true));
    });
}

/// The next hold begins where the last one ended. A reader may find its word with a tail before it, and then sees all
/// that is there.
#[test]
fn what_was_let_go_stays_seen() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            peer.hold(0, 1, 2);
            held::release(&peer.held);
            peer.hold(2, 2, 3);
        });
        let mut last = 0;
        for _ in 0..2 {
            let (seen, _) = shared.look();
            assert!(matches!(seen, 0 | 2) && seen >= last, "{seen} after {last}");
            last = seen;
        }
        sender.join().unwrap();
        assert_eq!(shared.look(), (2, true));
    });
}

/// Guards: the begin of a hold is announced, so that a sleeping reader learns the time; bytes that follow are not; the
/// release is.
#[test]
fn who_sleeps_knows_of_the_time_or_is_woken() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            peer.hold(0, 1, 1);
            let first = peer.announce();
            peer.tail.store(2, Ordering::Release);
            held::release(&peer.held);
            (first, peer.announce())
        });
        arm(&shared.word, DATA);
        let (seen, bounded) = shared.look();
        let (first, last) = sender.join().unwrap();
        // The sleep is bounded, or a token ends it.
        assert!(seen == 2 || bounded || first + last > 0);
        // A reader that was woken without bytes, or slept until the time, sleeps again.
        if seen == 0 {
            arm(&shared.word, DATA);
            assert_eq!(shared.look(), (2, false));
        }
    });
}
