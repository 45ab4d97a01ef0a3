//! The ready map against a set of slots, with arbitrary words in the map.

use super::Source;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use netchannel_abi::link::MOST_SLOTS;
use netchannel_ring::cell::{any_marked, mark, sleep, take, wake};
use std::collections::BTreeSet;

/// Marks (also of slots beyond the map), takes, sleeps and scribbles.
pub fn run(data: &[u8]) {
    let source = &mut Source::new(data);
    let asleep = AtomicU32::new(0);
    let summary: [AtomicU64; 4] = Default::default();
    let ready: Vec<AtomicU64> = (0..MOST_SLOTS / 64).map(|_| AtomicU64::new(0)).collect();
    let mut model = BTreeSet::new();
    let mut sleeping = false;
    while !source.is_empty() {
        match source.byte() % 6 {
            0..=2 => {
                let slot = slot(source);
                let owed = mark(&asleep, &summary, &ready, slot);
                let within = slot < MOST_SLOTS;
                assert_eq!(owed, sleeping && within, "one token, for the first mark");
                if within {
                    model.insert(slot);
                    sleeping = false;
                }
            }
            3 => taken(&summary, &ready, &mut model),
            4 => {
                sleep(&asleep);
                sleeping = !any_marked(&summary);
                if !sleeping {
                    wake(&asleep);
                }
            }
            _ => scribble(source, &summary, &ready, &asleep),
        }
        assert_eq!(any_marked(&summary), !model.is_empty());
    }
    taken(&summary, &ready, &mut model);
}

fn slot(source: &mut Source<'_>) -> usize {
    let low = usize::from(source.byte());
    match source.byte() {
        255 => usize::MAX - low,
        254 => MOST_SLOTS + low,
        high => usize::from(high % 64) * 256 + low,
    }
}

fn taken(summary: &[AtomicU64], ready: &[AtomicU64], model: &mut BTreeSet<usize>) {
    let mut found = Vec::new();
    take(summary, ready, |slot| found.push(slot));
    assert!(
        found.iter().eq(model.iter()),
        "{found:?} instead of {model:?}"
    );
    model.clear();
}

/// Whatever a peer writes: no slot beyond the map, none twice, and an end. A map shorter than the summary says does no
/// harm either.
fn scribble(
    source: &mut Source<'_>,
    summary: &[AtomicU64],
    ready: &[AtomicU64],
    asleep: &AtomicU32,
) {
    let copy = |words: &[AtomicU64]| -> Vec<AtomicU64> {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        words.iter().map(word).collect()
    };
    let (summary, ready) = (copy(summary), copy(ready));
    let high = source.below(4);
    summary[high].store(source.word(), Ordering::Relaxed);
    let word = high * 64 + source.below(64);
    ready[word].store(source.word(), Ordering::Relaxed);
    let shorter = &ready[..source.below(257)];
    let mut last = None;
    take(&summary, shorter, |slot| {
        assert!(slot < shorter.len() * 64);
        assert!(last.is_none_or(|last| last < slot));
        last = Some(slot);
    });
    let word = u32::from(source.byte());
    let lie = AtomicU32::new(word);
    let owed = mark(&lie, &summary, &ready, 0);
    assert_eq!(owed, word == 1);
    assert!(asleep.load(Ordering::Relaxed) <= 1);
}
