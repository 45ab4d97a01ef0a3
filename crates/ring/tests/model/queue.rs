//! The queue against a `VecDeque`, with lies of either side in between.

use super::Source;
use core::sync::atomic::{AtomicU64, Ordering};
use netchannel_abi::nqe::Nqe;
use netchannel_ring::Fault;
use netchannel_ring::queue::{Consumer, Element, Producer};
use std::collections::VecDeque;

struct Queue {
    tail: AtomicU64,
    head: AtomicU64,
    elements: Vec<Element>,
    producer: Producer,
    consumer: Consumer,
    model: VecDeque<Nqe>,
}

/// Pushes, pops and lies on a queue of 1 to 64 elements.
pub fn run(data: &[u8]) {
    let source = &mut Source::new(data);
    let capacity = 1usize << source.below(7);
    let start = source.start();
    let mut queue = Queue {
        tail: AtomicU64::new(start),
        head: AtomicU64::new(start),
        elements: (0..capacity).map(|_| Element::default()).collect(),
        producer: Producer::at(start),
        consumer: Consumer::at(start),
        model: VecDeque::new(),
    };
    let mut number = 0;
    while !source.is_empty() {
        match source.byte() % 6 {
            0 | 1 => {
                let items: Vec<Nqe> = (0..source.below(2 * capacity + 1))
                    .map(|_| {
                        number += 1;
                        item(number)
                    })
                    .collect();
                queue.push(&items);
            }
            2 | 3 => queue.pop(source.below(2 * capacity + 1)),
            4 => queue.consumer_lies(source.word()),
            _ => queue.producer_lies(source.word()),
        }
        assert_eq!(queue.consumer.pending(&queue.tail), !queue.model.is_empty());
    }
}

fn item(number: u64) -> Nqe {
    Nqe {
        operation: number.to_le_bytes()[0],
        handle: number,
        data: !number,
        length: 9,
        ..Nqe::default()
    }
}

impl Queue {
    fn push(&mut self, items: &[Nqe]) {
        let free = self.elements.len() - self.model.len();
        let pushed = self
            .producer
            .push(&self.tail, &self.head, &self.elements, items);
        assert_eq!(pushed, Ok(items.len().min(free)));
        self.model.extend(items.iter().take(free));
    }

    fn pop(&mut self, count: usize) {
        let mut out = vec![Nqe::default(); count];
        let popped = self
            .consumer
            .pop(&self.tail, &self.head, &self.elements, &mut out);
        assert_eq!(popped, Ok(count.min(self.model.len())));
        for item in &out[..popped.unwrap()] {
            assert_eq!(Some(*item), self.model.pop_front());
        }
    }

    /// A head that the consumer cannot have: the producer, which fills the queue and so must look,
    /// faults, and goes on as before once the head is right again.
    fn consumer_lies(&mut self, lie: u64) {
        let truth = self.head.load(Ordering::Relaxed);
        let used = self.model.len() as u64;
        if self.tail.load(Ordering::Relaxed).wrapping_sub(lie)
            <= used.max(self.elements.len() as u64)
        {
            return;
        }
        self.head.store(lie, Ordering::Relaxed);
        let too_many = vec![Nqe::default(); self.elements.len() + 1];
        let pushed = self
            .producer
            .push(&self.tail, &self.head, &self.elements, &too_many);
        assert_eq!(pushed, Err(Fault));
        self.head.store(truth, Ordering::Relaxed);
    }

    /// A tail that the producer cannot have.
    fn producer_lies(&mut self, lie: u64) {
        let truth = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Relaxed);
        if lie.wrapping_sub(head) <= self.elements.len() as u64 {
            return;
        }
        self.tail.store(lie, Ordering::Relaxed);
        let mut out = vec![Nqe::default(); self.elements.len() + 1];
        let popped = self
            .consumer
            .pop(&self.tail, &self.head, &self.elements, &mut out);
        assert_eq!(popped, Err(Fault));
        assert!(out.iter().all(|item| *item == Nqe::default()));
        self.tail.store(truth, Ordering::Relaxed);
    }
}
