//! A direction with its moves between rings against a `VecDeque` of bytes, with lies in between.

use super::Source;
use core::sync::atomic::{AtomicU64, Ordering};
use netchannel_ring::Fault;
use netchannel_ring::bytes::{readable, runs, writable};
use netchannel_ring::switch::{Position, Readable, announce, look, may_move};
use std::collections::VecDeque;

/// Bytes of the rings that geometry words 0 to 3 name.
const SIZES: [u64; 4] = [4, 16, 8, 64];

struct Direction {
    tail: AtomicU64,
    head: AtomicU64,
    geometry: AtomicU64,
    switch_sequence: AtomicU64,
    rings: [Vec<u8>; 4],
    model: VecDeque<u8>,
    next: u8,
    /// Private words of the writer.
    written: u64,
    ring: usize,
    last_move: u64,
    /// Private words of the reader.
    position: Position,
    from: usize,
}

/// Writes, reads, moves and lies, from any start index but 0 (which means that no move was made).
pub fn run(data: &[u8]) {
    let source = &mut Source::new(data);
    let mut direction = Direction::at(source.start().max(1));
    while !source.is_empty() {
        match source.byte() % 6 {
            0 | 1 => direction.write(u64::from(source.byte())),
            2 => direction.read(u64::from(source.byte())),
            3 => direction.move_to(source.below(SIZES.len())),
            4 => direction.writer_lies(source),
            _ => direction.reader_lies(source.word()),
        }
    }
    direction.read(u64::MAX);
    assert!(direction.model.is_empty(), "everything written was read");
}

/// The size of the ring that a geometry word names.
fn accept(word: u64) -> Option<u64> {
    SIZES.get(usize::try_from(word).ok()?).copied()
}

/// Every place of `length` bytes from `position` on.
fn places(position: u64, length: u64, size: u64) -> impl Iterator<Item = usize> {
    let found = runs(position, length, size);
    assert_eq!(found.first + found.second, length);
    assert!(found.offset + found.first <= size);
    assert!(found.second == 0 || found.offset + found.first == size);
    (found.offset..found.offset + found.first)
        .chain(0..found.second)
        .map(|at| usize::try_from(at).unwrap())
}

impl Direction {
    fn at(start: u64) -> Self {
        Self {
            tail: AtomicU64::new(start),
            head: AtomicU64::new(start),
            geometry: AtomicU64::new(0),
            switch_sequence: AtomicU64::new(0),
            rings: SIZES.map(|size| vec![0; usize::try_from(size).unwrap()]),
            model: VecDeque::new(),
            next: 0,
            written: start,
            ring: 0,
            last_move: 0,
            position: Position {
                head: start,
                size: SIZES[0],
                adopted: 0,
            },
            from: 0,
        }
    }

    fn write(&mut self, wanted: u64) {
        let head = self.head.load(Ordering::Acquire);
        // What came before the last move does not lie in this ring.
        let since_move = self.written.wrapping_sub(self.last_move);
        let moved_over = self.last_move != 0 && since_move < self.written.wrapping_sub(head);
        let oldest = if moved_over { self.last_move } else { head };
        let size = SIZES[self.ring];
        let count = writable(self.written, oldest, size).unwrap().min(wanted);
        for at in places(self.written, count, size) {
            self.next = self.next.wrapping_add(1);
            self.rings[self.ring][at] = self.next;
            self.model.push_back(self.next);
        }
        self.written = self.written.wrapping_add(count);
        self.tail.store(self.written, Ordering::Release);
    }

    fn move_to(&mut self, ring: usize) {
        let head = self.head.load(Ordering::Acquire);
        // A start index other than 0 counts as bytes written before.
        if ring != self.ring && may_move(self.last_move, self.written, head) {
            announce(
                &self.geometry,
                &self.switch_sequence,
                ring as u64,
                self.written,
            );
            self.last_move = self.written;
            self.ring = ring;
        }
    }

    fn look(&self) -> Result<Readable, Fault> {
        look(
            self.position,
            &self.tail,
            &self.switch_sequence,
            &self.geometry,
            accept,
        )
    }

    fn read(&mut self, limit: u64) {
        let found = self.look().unwrap();
        let beyond = found.moved.map_or(0, |moved| moved.length);
        assert_eq!(found.in_ring + beyond, self.model.len() as u64);
        let here = found.in_ring.min(limit);
        self.take(here);
        if let Some(moved) = found.moved.filter(|_| limit > here) {
            self.position.adopted = moved.sequence;
            self.position.size = moved.size;
            self.from = usize::try_from(moved.geometry).unwrap();
            self.take(moved.length.min(limit - here));
        }
        self.head.store(self.position.head, Ordering::Release);
    }

    fn take(&mut self, length: u64) {
        for at in places(self.position.head, length, self.position.size) {
            assert_eq!(Some(self.rings[self.from][at]), self.model.pop_front());
        }
        self.position.head = self.position.head.wrapping_add(length);
    }

    /// Any words from the writer: a fault, or nothing that lies outside of a ring it may use.
    fn writer_lies(&mut self, source: &mut Source<'_>) {
        let words = [&self.tail, &self.switch_sequence, &self.geometry];
        let truth = words.map(|word| word.load(Ordering::Relaxed));
        let lies = [source.word(), source.word(), source.word() % 6];
        let which = source.byte();
        for (index, (word, lie)) in words.into_iter().zip(lies).enumerate() {
            if which >> index & 1 == 1 {
                word.store(lie, Ordering::Relaxed);
            }
        }
        let claimed = self
            .tail
            .load(Ordering::Relaxed)
            .wrapping_sub(self.position.head);
        match self.look() {
            Err(Fault) => {}
            Ok(found) => {
                let beyond = found.moved.map_or(0, |moved| moved.length);
                assert_eq!(found.in_ring + beyond, claimed);
                assert!(found.in_ring <= self.position.size);
                assert!(found.moved.is_none_or(|moved| {
                    moved.length > 0
                        && accept(moved.geometry) == Some(moved.size)
                        && moved.length <= moved.size
                }));
            }
        }
        assert_eq!(
            readable(
                self.position.head,
                self.tail.load(Ordering::Relaxed),
                SIZES[0]
            )
            .is_ok(),
            claimed <= SIZES[0]
        );
        for (word, value) in words.into_iter().zip(truth) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Any head from the reader: a fault, or no more room than the ring has.
    fn reader_lies(&self, lie: u64) {
        let size = SIZES[self.ring];
        match writable(self.written, lie, size) {
            Ok(room) => assert_eq!(room, size - self.written.wrapping_sub(lie)),
            Err(Fault) => assert!(self.written.wrapping_sub(lie) > size),
        }
    }
}
