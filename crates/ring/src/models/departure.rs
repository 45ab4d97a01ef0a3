//! A consumer that leaves while a producer pushes, at capacity 2. The producer waits, or asks for another look.

use crate::departure::{self, Fate};
use crate::queue::{Consumer, Element, Producer};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use netchannel_abi::nqe::Nqe;

const START: u64 = u64::MAX;

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    departure: AtomicU32,
    elements: [Element; 2],
}

fn run(decide: fn(&AtomicU32, &AtomicU64, u64) -> Fate) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            tail: AtomicU64::new(START),
            head: AtomicU64::new(START),
            departure: AtomicU32::new(departure::STAYS),
            elements: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        });
        let peer = Arc::clone(&shared);
        let pusher = thread::spawn(move || {
            let mut producer = Producer::at(START);
            let item = [Nqe::default()];
            let pushed = producer.push(&peer.tail, &peer.head, &peer.elements, &item);
            assert_eq!(pushed, Ok(1));
            fence(Ordering::SeqCst);
            decide(&peer.departure, &peer.head, producer.position())
        });
        let mut consumer = Consumer::at(START);
        let mut taken = 0;
        let mut pop = || {
            let mut out = [Nqe::default(); 2];
            taken += consumer
                .pop(&shared.tail, &shared.head, &shared.elements, &mut out)
                .unwrap();
        };
        departure::leave(&shared.departure);
        pop();
        while !departure::finish(&shared.departure) {
            pop();
        }
        let fate = match pusher.join().unwrap() {
            Fate::Unknown => {
                departure::fate(&shared.departure, &shared.head, START.wrapping_add(1))
            }
            known => known,
        };
        let expected = if taken == 1 { Fate::Taken } else { Fate::Left };
        assert_eq!(fate, expected);
    });
}

/// Guards: fence in `leave`, fence of the producer, release in `finish` with acquire in `fate`.
#[test]
fn what_is_pushed_is_taken_or_known_not_to_be() {
    run(departure::fate);
}

/// Guards: `finish` knows of `LOOKS_AGAIN`, the fence in `leave` after it.
#[test]
fn what_a_producer_insists_on_is_taken() {
    run(departure::insist);
}
