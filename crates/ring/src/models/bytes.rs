//! A byte ring of two bytes: copy, publish, check, copy, publish.

use crate::bytes::{readable, runs, writable};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use loom::thread;

const SIZE: u64 = 2;
const START: u64 = u64::MAX;

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    ring: [AtomicU8; 2],
}

fn each(position: u64, length: u64, mut work: impl FnMut(usize)) {
    let runs = runs(position, length, SIZE);
    (runs.offset..runs.offset + runs.first)
        .chain(0..runs.second)
        .for_each(|at| work(usize::try_from(at).unwrap()));
}

/// Guards: the orderings that users of `readable` and `writable` keep: tail and head are stored with Release after the
/// copy and loaded with Acquire before it.
#[test]
fn bytes_arrive_in_order() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            tail: AtomicU64::new(START),
            head: AtomicU64::new(START),
            ring: core::array::from_fn(|_| AtomicU8::new(0)),
        });
        let peer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let mut tail = START;
            let mut next = 1;
            for _ in 0..2 {
                let head = peer.head.load(Ordering::Acquire);
                let room = writable(tail, head, SIZE).unwrap();
                each(tail, room, |at| {
                    peer.ring[at].store(next, Ordering::Relaxed);
                    next += 1;
                });
                tail = tail.wrapping_add(room);
                peer.tail.store(tail, Ordering::Release);
            }
            next
        });
        let mut head = START;
        let mut got = Vec::new();
        let mut read = || {
            let tail = shared.tail.load(Ordering::Acquire);
            let length = readable(head, tail, SIZE).unwrap();
            each(head, length, |at| {
                got.push(shared.ring[at].load(Ordering::Relaxed));
            });
            head = head.wrapping_add(length);
            shared.head.store(head, Ordering::Release);
        };
        read();
        read();
        let next = writer.join().unwrap();
        read();
        assert_eq!(got, (1..next).collect::<Vec<u8>>());
    });
}
