//! Marks, and the sleep of an event loop, with two peers that mark.
//!
//! Loom looks for races with the last access to an atomic only, so a thread's own load before its read-modify-write
//! hides the race with an earlier load of another thread. Every party therefore also touches a gate between its steps,
//! relaxed: that orders nothing in the model, but makes loom try every order of the steps.

use crate::cell::{any_marked, mark, may_skip_token, sleep, take, wake};
use crate::waiter::announce_data;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use netchannel_abi::link::waiter::CELL_SHIFT;

struct Shared {
    asleep: AtomicU32,
    summary: [AtomicU64; 1],
    ready: [AtomicU64; 1],
    /// The published value of each slot, and its waiter word.
    sockets: [(AtomicU64, AtomicU32); 2],
    gate: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        let socket = || (AtomicU64::new(0), AtomicU32::new(1 << CELL_SHIFT));
        Arc::new(Self {
            asleep: AtomicU32::new(0),
            summary: [AtomicU64::new(0)],
            ready: [AtomicU64::new(0)],
            sockets: [socket(), socket()],
            gate: AtomicU32::new(0),
        })
    }

    fn step(&self) {
        self.gate.fetch_add(1, Ordering::Relaxed);
    }

    /// A peer: publishes, announces, marks. Returns the tokens that it owes.
    fn publish(&self, slot: usize, value: u64) -> u32 {
        let (index, waiter) = &self.sockets[slot];
        index.store(value, Ordering::Release);
        let cell = announce_data(waiter).and_then(|wake| wake.cell);
        assert_eq!(cell, Some(0));
        self.step();
        u32::from(mark(&self.asleep, &self.summary, &self.ready, slot))
    }

    fn take(&self, seen: &mut [u64; 2]) {
        take(&self.summary, &self.ready, |slot| {
            seen[slot] = self.sockets[slot].0.load(Ordering::Relaxed);
        });
    }

    /// An event loop: takes, and when there is nothing, announces its sleep and looks again.
    fn serve(&self, turns: usize, seen: &mut [u64; 2]) -> bool {
        for _ in 0..turns {
            self.step();
            self.take(seen);
            self.step();
            sleep(&self.asleep);
            if !any_marked(&self.summary) {
                return true;
            }
            wake(&self.asleep);
        }
        false
    }

    /// No published value may be lost: it was seen, or its mark is still there, and then the loop does not sleep
    /// without a token.
    fn settle(&self, wanted: [u64; 2], mut seen: [u64; 2], asleep: bool, tokens: u32) {
        assert!(
            seen == wanted || !asleep || tokens > 0,
            "asleep with {seen:?} of {wanted:?}, and no token on its way"
        );
        self.take(&mut seen);
        assert_eq!(seen, wanted, "a mark was lost");
    }
}

/// Guards: the fence in `mark` with the fence in `sleep`, and that the summary is taken before the
/// bits. Two peers and two slots of one word, so that the second finds the summary already set.
#[test]
fn two_peers_mark_two_slots() {
    super::bounded(3, || {
        let shared = Shared::new();
        let peers = [0, 1].map(|slot| {
            let peer = Arc::clone(&shared);
            thread::spawn(move || peer.publish(slot, 1))
        });
        let mut seen = [0; 2];
        let asleep = shared.serve(1, &mut seen);
        let tokens = peers.map(|peer| peer.join().unwrap()).iter().sum();
        shared.settle([1, 1], seen, asleep, tokens);
    });
}

/// Guards: the fence in `take` with the fence in `announce_data`. The peer marks a slot that it marked before, finds
/// the bit set and writes nothing; the loop that then takes the bit must see the second value.
#[test]
fn a_bit_that_is_already_set_is_enough() {
    loom::model(|| {
        let shared = Shared::new();
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            let first = peer.publish(0, 1);
            peer.step();
            first + peer.publish(0, 2)
        });
        let mut seen = [0; 2];
        let asleep = shared.serve(1, &mut seen);
        let tokens = peer.join().unwrap();
        shared.settle([2, 0], seen, asleep, tokens);
    });
}

/// Guards: the same between two peers that share a slot (both ends of a socket after fork).
#[test]
fn two_peers_mark_one_slot() {
    super::bounded(3, || {
        let shared = Shared::new();
        let peers = [1, 1].map(|_| {
            let peer = Arc::clone(&shared);
            thread::spawn(move || {
                let (index, waiter) = &peer.sockets[0];
                index.fetch_add(1, Ordering::Release);
                announce_data(waiter);
                peer.step();
                u32::from(mark(&peer.asleep, &peer.summary, &peer.ready, 0))
            })
        });
        let mut seen = [0; 2];
        let asleep = shared.serve(1, &mut seen);
        let tokens = peers.map(|peer| peer.join().unwrap()).iter().sum();
        shared.settle([2, 0], seen, asleep, tokens);
    });
}

/// Guards: a token is skipped only where the claim left a mark. A peer marks two slots one after the other and writes
/// each token that it owes a little later, unless the loop has taken all marks by then.
#[test]
fn a_token_that_is_held_back_is_still_due() {
    super::bounded(3, || {
        let shared = Shared::new();
        let peer = Arc::clone(&shared);
        let peer = thread::spawn(move || {
            let mut tokens = 0;
            for slot in 0..2 {
                if peer.publish(slot, 1) > 0 {
                    let left = may_skip_token(&peer.summary);
                    peer.step();
                    tokens += u32::from(!left || any_marked(&peer.summary));
                }
            }
            tokens
        });
        let mut seen = [0; 2];
        let asleep = shared.serve(2, &mut seen);
        let tokens = peer.join().unwrap();
        shared.settle([1, 1], seen, asleep, tokens);
    });
}
