//! Arbitrary values of the words that a peer shares, word by word: every invalid value is a fault, and none is a panic
//! or an access out of range.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use netchannel_abi::link::waiter::{CELL_MASK, CELL_SHIFT, CELL_SPACE, DATA, SPACE};
use netchannel_abi::nqe::Nqe;
use netchannel_ring::Fault;
use netchannel_ring::bytes::{readable, writable};
use netchannel_ring::queue::{Consumer, Element, Producer};
use netchannel_ring::waiter::{announce_data, announce_space, attach_cell, disarm};

const CAPACITY: u64 = 8;
/// Own indices at which something could overflow.
const STARTS: [u64; 6] = [0, 3, 1 << 32, i64::MAX as u64, u64::MAX - 4, u64::MAX];

/// Values around `start`, one at each power of two away from it, and both ends of the range.
fn claims(start: u64) -> impl Iterator<Item = u64> {
    let near = (0..40).flat_map(move |by| [start.wrapping_add(by), start.wrapping_sub(by)]);
    let far = (5..64).flat_map(move |log2| {
        [0, 1, u64::MAX].map(|by: u64| start.wrapping_add(1 << log2).wrapping_add(by))
    });
    near.chain(far).chain([0, 1, u64::MAX - 1, u64::MAX])
}

fn elements(count: u64) -> Vec<Element> {
    (0..count).map(|_| Element::default()).collect()
}

#[test]
fn a_tail_of_a_queue_is_within_its_capacity_or_a_fault() {
    let elements = elements(CAPACITY);
    for start in STARTS {
        for claim in claims(start) {
            let (tail, head) = (AtomicU64::new(claim), AtomicU64::new(start));
            let mut out = [Nqe::default(); 20];
            let popped = Consumer::at(start).pop(&tail, &head, &elements, &mut out);
            let length = claim.wrapping_sub(start);
            if length <= CAPACITY {
                assert_eq!(popped, Ok(usize::try_from(length).unwrap()));
                assert_eq!(head.load(Ordering::Relaxed), claim);
            } else {
                assert_eq!(popped, Err(Fault));
                assert_eq!(
                    head.load(Ordering::Relaxed),
                    start,
                    "a fault publishes nothing"
                );
            }
        }
    }
}

#[test]
fn a_tail_of_a_queue_does_not_run_back() {
    let elements = elements(CAPACITY);
    for start in STARTS {
        let (tail, head) = (AtomicU64::new(start.wrapping_add(6)), AtomicU64::new(start));
        let mut consumer = Consumer::at(start);
        let mut out = [Nqe::default(); 3];
        assert_eq!(consumer.pop(&tail, &head, &elements, &mut out), Ok(3));
        for back in 1..=6 {
            tail.store(start.wrapping_add(6 - back), Ordering::Relaxed);
            let mut out = [Nqe::default(); 4];
            assert_eq!(consumer.pop(&tail, &head, &elements, &mut out), Err(Fault));
        }
    }
}

#[test]
fn a_head_of_a_queue_lies_between_its_last_value_and_the_tail_or_is_a_fault() {
    let elements = elements(CAPACITY);
    for start in STARTS {
        for claim in claims(start) {
            let (tail, head) = (AtomicU64::new(start), AtomicU64::new(start));
            let mut producer = Producer::at(start);
            let full = [Nqe::default(); 8];
            assert_eq!(producer.push(&tail, &head, &elements, &full), Ok(8));
            head.store(claim, Ordering::Relaxed);
            let pushed = producer.push(&tail, &head, &elements, &full);
            let read = claim.wrapping_sub(start);
            if read <= CAPACITY {
                assert_eq!(pushed, Ok(usize::try_from(read).unwrap()));
            } else {
                assert_eq!(pushed, Err(Fault));
                assert_eq!(tail.load(Ordering::Relaxed), start.wrapping_add(8));
            }
        }
    }
}

#[test]
fn a_queue_of_no_elements_holds_none() {
    let (tail, head) = (AtomicU64::new(5), AtomicU64::new(5));
    let item = [Nqe::default()];
    assert_eq!(Producer::at(5).push(&tail, &head, &[], &item), Ok(0));
    assert_eq!(
        Consumer::at(5).pop(&tail, &head, &[], &mut [Nqe::default()]),
        Ok(0)
    );
    tail.store(6, Ordering::Relaxed);
    assert_eq!(
        Consumer::at(5).pop(&tail, &head, &[], &mut [Nqe::default()]),
        Err(Fault)
    );
}

#[test]
fn any_words_of_an_element_are_some_element() {
    for word in [0, 1, u64::MAX, 0x8000_0000_8000_0080] {
        let element: Element = core::array::from_fn(|_| AtomicU64::new(word));
        let (tail, head) = (AtomicU64::new(1), AtomicU64::new(0));
        let mut out = [Nqe::default()];
        assert_eq!(
            Consumer::at(0).pop(&tail, &head, &[element], &mut out),
            Ok(1)
        );
        assert_eq!(out[0].to_words(), [word; 4]);
    }
}

#[test]
fn indices_of_a_byte_ring_are_within_its_size_or_a_fault() {
    for size in [1, 2048, 1 << 22, 1 << 63] {
        for own in STARTS {
            for claim in claims(own)
                .chain(claims(own.wrapping_sub(size)))
                .chain(claims(own.wrapping_add(size)))
            {
                let ahead = claim.wrapping_sub(own);
                let wanted = if ahead <= size { Ok(ahead) } else { Err(Fault) };
                assert_eq!(readable(own, claim, size), wanted);
                let used = own.wrapping_sub(claim);
                let wanted = if used <= size {
                    Ok(size - used)
                } else {
                    Err(Fault)
                };
                assert_eq!(writable(own, claim, size), wanted);
            }
        }
    }
}

#[test]
fn any_waiter_word_asks_for_one_known_thing() {
    // The word is 32 bits of which 11 mean something: all of these, and all others set or not.
    for meaning in 0..1u32 << 11 {
        let low = meaning & 7;
        let cell = meaning >> 3 << CELL_SHIFT;
        for rest in [0, !(CELL_MASK | DATA | SPACE | CELL_SPACE)] {
            let word = AtomicU32::new(low | cell | rest);
            let number = (cell != 0).then(|| (cell >> CELL_SHIFT) as usize - 1);

            let wake = announce_data(&word);
            assert_eq!(wake.is_some(), low & DATA != 0 || cell != 0);
            let wake = wake.unwrap_or_default();
            assert_eq!((wake.token, wake.cell), (low & DATA != 0, number));
            assert_eq!(word.load(Ordering::Relaxed), (low & !DATA) | cell | rest);

            let wake = announce_space(&word).unwrap_or_default();
            let wanted = number.filter(|_| low & CELL_SPACE != 0);
            assert_eq!((wake.token, wake.cell), (low & SPACE != 0, wanted));
            assert_eq!(word.load(Ordering::Relaxed), cell | rest);
        }
    }
}

#[test]
fn a_cell_that_a_word_can_not_name_is_none() {
    let word = AtomicU32::new(DATA);
    for (index, number) in [(0, 1), (254, 255), (255, 0), (usize::MAX, 0)] {
        attach_cell(&word, Some(index));
        assert_eq!(
            word.load(Ordering::Relaxed),
            DATA | number << CELL_SHIFT,
            "{index}"
        );
    }
    attach_cell(&word, Some(7));
    attach_cell(&word, None);
    disarm(&word, DATA);
    assert_eq!(word.load(Ordering::Relaxed), 0);
}
