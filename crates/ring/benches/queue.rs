//! Queue elements through a queue set, on one thread.
//!
//! A queue set is the job queue and the completion queue of a link, each with the capacity that
//! links have. The client pushes jobs, the server pops them and pushes an answer to each, the
//! client pops the answers. M/s counts elements that were pushed and popped, so that a job and its
//! answer are two. Every element is written and read in full.

use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use netchannel_abi::link::QUEUE_CAPACITY;
use netchannel_abi::nqe::{Nqe, Operation};
use netchannel_ring::queue::{Consumer, Element, Producer};

/// How long one figure is measured, and how often. The best round counts, since everything else that runs on the
/// machine only adds time.
const SPAN: Duration = Duration::from_millis(200);
const ROUNDS: usize = 5;

/// An index on a cache line of its own, as in a link.
#[derive(Default)]
#[repr(align(128))]
struct Index(AtomicU64);

/// One queue with both of its ends.
struct Queue {
    tail: Index,
    head: Index,
    elements: Vec<Element>,
    producer: Producer,
    consumer: Consumer,
}

impl Queue {
    fn new() -> Self {
        Self {
            tail: Index::default(),
            head: Index::default(),
            elements: (0..QUEUE_CAPACITY).map(|_| Element::default()).collect(),
            producer: Producer::default(),
            consumer: Consumer::default(),
        }
    }

    fn push(&mut self, items: &[Nqe]) -> usize {
        self.producer
            .push(&self.tail.0, &self.head.0, &self.elements, items)
            .expect("both ends are honest")
    }

    fn pop(&mut self, out: &mut [Nqe]) -> usize {
        self.consumer
            .pop(&self.tail.0, &self.head.0, &self.elements, out)
            .expect("both ends are honest")
    }
}

fn main() {
    for (batch, wanted) in [(1, Some(8.0)), (16, None), (64, None), (256, Some(198.0))] {
        let rate = queue_set(batch);
        let note = wanted.map_or_else(String::new, |wanted| {
            let verdict = if rate >= wanted { "reached" } else { "MISSED" };
            format!("   (must be >= {wanted}: {verdict})")
        });
        println!("queue set, batches of {batch:<4} {rate:>9.1} M/s{note}");
    }
}

/// Millions of elements per second, in the best round.
fn queue_set(batch: usize) -> f64 {
    let mut jobs = Queue::new();
    let mut completions = Queue::new();
    let asked: Vec<Nqe> = (0..batch as u64)
        .map(|index| Nqe {
            operation: Operation::Connect as u8,
            handle: index,
            ..Nqe::default()
        })
        .collect();
    let mut taken = vec![Nqe::default(); batch];
    let mut answered = vec![Nqe::default(); batch];
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut times = 0u32;
        while begun.elapsed() < SPAN {
            for _ in 0..64 {
                let pushed = jobs.push(black_box(&asked));
                let popped = jobs.pop(black_box(&mut taken));
                let returned = completions.push(black_box(&taken));
                let received = completions.pop(black_box(&mut answered));
                assert!([pushed, popped, returned, received] == [batch; 4]);
            }
            times += 64;
        }
        let elements = 2.0 * f64::from(times) * batch as f64;
        best = best.max(elements / begun.elapsed().as_secs_f64() / 1e6);
    }
    assert_eq!(asked, answered, "the elements came through");
    best
}
