//! The queue at capacity 2, across the wrap of its indices.

use crate::queue::{Consumer, Element, Producer};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use netchannel_abi::nqe::Nqe;

const START: u64 = u64::MAX - 1;

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    elements: [Element; 2],
}

fn element() -> Element {
    core::array::from_fn(|_| AtomicU64::new(0))
}

fn item(number: u64) -> Nqe {
    Nqe {
        operation: 1,
        handle: number,
        data: !number,
        length: 7,
        ..Nqe::default()
    }
}

/// Guards: Release of the tail with Acquire of it (elements are complete), Release of the head with
/// Acquire of it (elements are free). Three items through two elements, so that one is used again.
#[test]
fn elements_arrive_whole_and_in_order() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            tail: AtomicU64::new(START),
            head: AtomicU64::new(START),
            elements: [element(), element()],
        });
        let peer = Arc::clone(&shared);
        let pusher = thread::spawn(move || {
            let mut producer = Producer::at(START);
            let items = [item(1), item(2), item(3)];
            let mut done = 0;
            for _ in 0..2 {
                done += producer
                    .push(&peer.tail, &peer.head, &peer.elements, &items[done..])
                    .unwrap();
            }
            (producer, done)
        });
        let mut consumer = Consumer::at(START);
        let mut got = Vec::new();
        let drain = |consumer: &mut Consumer, got: &mut Vec<Nqe>| {
            let mut out = [Nqe::default(); 2];
            let count = consumer
                .pop(&shared.tail, &shared.head, &shared.elements, &mut out)
                .unwrap();
            got.extend_from_slice(&out[..count]);
        };
        drain(&mut consumer, &mut got);
        drain(&mut consumer, &mut got);
        let (_, pushed) = pusher.join().unwrap();
        drain(&mut consumer, &mut got);
        drain(&mut consumer, &mut got);
        let wanted: Vec<Nqe> = (1..=pushed as u64).map(item).collect();
        assert_eq!(got, wanted);
    });
}
