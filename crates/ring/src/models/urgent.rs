//! A sender of urgent bytes, and a reader right before the first of them.

use crate::urgent::{PublishedMarks, mark_ahead};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

#[derive(Default)]
struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    urgent: AtomicU64,
    passed: AtomicU64,
}

/// Reads all bytes that are there and returns the sequences of those that it took.
fn read(shared: &Shared, head: &mut u64, got: &mut Vec<u64>) {
    let tail = shared.tail.load(Ordering::Acquire);
    while *head != tail {
        match mark_ahead(&shared.urgent, &shared.passed, *head, tail) {
            Some(mark) if mark.from > *head => *head = mark.from,
            Some(mark) if mark.is_here() && mark.has_arrived() => *head += 1,
            _ => {
                got.push(*head);
                *head += 1;
            }
        }
        shared.head.store(*head, Ordering::Release);
    }
}

/// Guards: the release of the tail after `publish`, `passed` before the release of `urgent`, and the rule of
/// [`PublishedMarks::next`]: a reader that comes to an urgent byte skips it, whatever was sent meanwhile.
#[test]
fn no_urgent_byte_is_taken_for_an_ordinary_one() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            let mut marks = PublishedMarks::default();
            for tail in 1..=2 {
                let head = peer.head.load(Ordering::Acquire);
                marks = marks.next(tail, head, false);
                marks.publish(&peer.urgent, &peer.passed);
                peer.tail.store(tail, Ordering::Release);
            }
            peer.tail.store(3, Ordering::Release);
        });
        let (mut head, mut got) = (0, Vec::new());
        read(&shared, &mut head, &mut got);
        read(&shared, &mut head, &mut got);
        sender.join().unwrap();
        read(&shared, &mut head, &mut got);
        assert_eq!((head, got), (3, vec![2]));
    });
}
