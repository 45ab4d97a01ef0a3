//! Transfers of two parts, one after the other, by an owner and a helper.

use crate::parts::Parts;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

#[derive(Default)]
struct Shared {
    parts: Parts,
    /// The description of the transfer.
    from: AtomicU64,
    /// The targets of the parts.
    to: [AtomicU64; 2],
}

impl Shared {
    /// Claims and copies one part, if there is one.
    fn help(&self) -> bool {
        let Some(part) = self.parts.claim() else {
            return false;
        };
        self.copy(part);
        true
    }

    fn copy(&self, part: u32) {
        let from = self.from.load(Ordering::Relaxed);
        self.to[part as usize].store(from + u64::from(part), Ordering::Relaxed);
        self.parts.finish(part);
    }

    /// A transfer by its owner, which has `own` parts without a claim.
    fn transfer(&self, from: u64, own: u32) {
        self.from.store(from, Ordering::Relaxed);
        self.parts.open(own, 2);
        for part in 0..own {
            self.copy(part);
        }
        while self.help() {}
        let claimed = self.parts.close();
        assert_eq!(claimed, 0b11);
        while self.parts.done() & claimed != claimed {
            loom::hint::spin_loop();
            thread::yield_now();
        }
        for part in [0, 1] {
            assert_eq!(self.to[part].load(Ordering::Relaxed), from + part as u64);
        }
    }
}

/// Guards: the release of `open` and the acquire of `claim` (the description), the release of `finish` and the acquire
/// of `done` (the bytes, and that the description may change), and the number in the word of claims.
#[test]
fn every_part_is_of_the_transfer_that_it_was_claimed_for() {
    super::bounded(3, || {
        let shared = Arc::new(Shared::default());
        let for_helper = Arc::clone(&shared);
        let helper = thread::spawn(move || {
            for_helper.help();
            for_helper.help();
        });
        shared.transfer(10, 1);
        shared.transfer(20, 0);
        helper.join().unwrap();
    });
}

/// Guards: a part is claimed once, also by two helpers.
#[test]
fn two_helpers_share_what_the_owner_leaves() {
    super::bounded(2, || {
        let shared = Arc::new(Shared::default());
        let help = |for_helper: Arc<Shared>| thread::spawn(move || for_helper.help());
        let helpers = [help(Arc::clone(&shared)), help(Arc::clone(&shared))];
        shared.transfer(10, 0);
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}

/// Guards: the helper that finishes owes a wake-up to an owner that sleeps.
#[test]
fn an_owner_that_sleeps_is_woken() {
    super::bounded(3, || {
        let shared = Arc::new(Shared::default());
        shared.parts.open(0, 1);
        assert_eq!(shared.parts.claim(), Some(0));
        let for_helper = Arc::clone(&shared);
        let helper = thread::spawn(move || for_helper.parts.finish(0));
        shared.parts.announce_sleep();
        let is_done = shared.parts.done() == 1;
        let woken = helper.join().unwrap();
        assert!(is_done || woken);
    });
}
