//! Moving between three rings of two bytes while a consumer reads.

use crate::bytes::writable;
use crate::switch::{Position, announce, look, may_move};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use loom::thread;

const SIZE: u64 = 2;

#[derive(Default)]
struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    geometry: AtomicU64,
    switch_sequence: AtomicU64,
    rings: [[AtomicU8; 2]; 3],
}

impl Shared {
    fn byte(&self, ring: u64, sequence: u64) -> &AtomicU8 {
        &self.rings[usize::try_from(ring).unwrap()][usize::try_from(sequence % SIZE).unwrap()]
    }
}

struct Reader {
    position: Position,
    ring: u64,
    got: Vec<u8>,
}

impl Reader {
    fn read(&mut self, shared: &Shared) {
        let found = look(
            self.position,
            &shared.tail,
            &shared.switch_sequence,
            &shared.geometry,
            |word| (word < 3).then_some(SIZE),
        )
        .unwrap();
        self.take(shared, found.in_ring);
        if let Some(moved) = found.moved {
            self.ring = moved.geometry;
            self.position.adopted = moved.sequence;
            self.take(shared, moved.length);
        }
        shared.head.store(self.position.head, Ordering::Release);
    }

    fn take(&mut self, shared: &Shared, length: u64) {
        for _ in 0..length {
            let byte = shared.byte(self.ring, self.position.head);
            self.got.push(byte.load(Ordering::Relaxed));
            self.position.head += 1;
        }
    }
}

/// Guards: the release of the tail after `announce`, its acquire in `look`, and the rule of `may_move`. A producer that
/// writes one byte, moves whenever it may, and so on for three rings.
#[test]
fn every_byte_is_read_from_the_ring_it_was_written_to() {
    super::bounded(4, || {
        let shared = Arc::new(Shared::default());
        let peer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (mut tail, mut last, mut ring) = (0, 0, 0);
            for _ in 0..4 {
                let head = peer.head.load(Ordering::Acquire);
                if ring < 2 && may_move(last, tail, head) {
                    ring += 1;
                    last = tail;
                    announce(&peer.geometry, &peer.switch_sequence, ring, tail);
                }
                let oldest = if last.wrapping_sub(head) <= tail - head {
                    last
                } else {
                    head
                };
                if writable(tail, oldest, SIZE).unwrap() > 0 {
                    peer.byte(ring, tail)
                        .store(u8::try_from(tail + 1).unwrap(), Ordering::Relaxed);
                    tail += 1;
                    peer.tail.store(tail, Ordering::Release);
                }
            }
            tail
        });
        let mut reader = Reader {
            position: Position {
                head: 0,
                size: SIZE,
                adopted: 0,
            },
            ring: 0,
            got: Vec::new(),
        };
        for _ in 0..3 {
            reader.read(&shared);
        }
        let written = writer.join().unwrap();
        reader.read(&shared);
        reader.read(&shared);
        let wanted: Vec<u8> = (1..=u8::try_from(written).unwrap()).collect();
        assert_eq!(reader.got, wanted);
    });
}
