//! Options of a socket that have no word of their own in its entry. They belong to the socket, whichever process holds
//! it and whatever program that executes.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use super::Socket;
use crate::ground::lock;

/// One option as the program set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Level.
    pub level: c_int,
    /// Name.
    pub name: c_int,
    /// Bytes of the value.
    pub length: u32,
    /// The value.
    pub value: [u8; MOST_BYTES],
}

/// The longest value that is recorded.
pub const MOST_BYTES: usize = 16;

/// Bytes of a value in the word with its name.
const FIRST: usize = 4;

impl Socket {
    /// Runs `with` on the set options, in their order. Of too many the oldest are forgotten. `None` in a signal handler
    /// that interrupted a thread within.
    pub fn with_options<R>(&self, with: impl FnOnce(&mut Vec<Record>) -> R) -> Option<R> {
        let entry = self.entry;
        if !lock::acquire(&entry.options_lock) {
            return None;
        }
        let used = entry.option_words.load(Ordering::Relaxed) as usize;
        let mut records = read(entry.options.get(..used).unwrap_or_default());
        let result = with(&mut records);
        let used = write(&entry.options, &records);
        if entry.option_words.load(Ordering::Relaxed) != used {
            entry.option_words.store(used, Ordering::Relaxed);
        }
        lock::release(&entry.options_lock);
        Some(result)
    }

    /// Whether any was set.
    #[inline]
    pub fn has_options(&self) -> bool {
        self.entry.option_words.load(Ordering::Relaxed) > 0
    }
}

/// Number of words for the rest of a value of `length` bytes.
const fn more_words(length: usize) -> usize {
    length.saturating_sub(FIRST).div_ceil(8)
}

fn read(words: &[AtomicU64]) -> Vec<Record> {
    let mut words = words.iter().map(|word| word.load(Ordering::Relaxed));
    let mut records = Vec::new();
    while let Some(word) = words.next() {
        let [level, name, high, length, a, b, c, d] = word.to_le_bytes();
        let length = usize::from(length).min(MOST_BYTES);
        let mut bytes = vec![a, b, c, d];
        let rest = words.by_ref().take(more_words(length));
        bytes.extend(rest.flat_map(u64::to_le_bytes));
        bytes.resize(MOST_BYTES, 0);
        records.push(Record {
            level: level.into(),
            name: u16::from_le_bytes([name, high]).into(),
            length: u32::try_from(length).unwrap_or(0),
            value: bytes.try_into().unwrap_or_default(),
        });
    }
    records
}

/// Returns the number of words used.
fn write(words: &[AtomicU64], records: &[Record]) -> u32 {
    let words_of = |record: &Record| 1 + more_words(record.length as usize);
    let mut needed: usize = records.iter().map(words_of).sum();
    let mut places = words.iter();
    let mut used = 0;
    for record in records {
        let count = words_of(record);
        let names = u8::try_from(record.level)
            .ok()
            .zip(u16::try_from(record.name).ok());
        let fits = needed <= words.len();
        needed -= count;
        let Some((level, name)) = names.filter(|_| fits) else {
            continue;
        };
        let [a, b, c, d, rest @ ..] = record.value;
        let [low, high] = name.to_le_bytes();
        let length = record.length.to_le_bytes()[0];
        let mut bytes = vec![level, low, high, length, a, b, c, d];
        bytes.extend(rest);
        bytes.resize(count * 8, 0);
        for (eight, place) in bytes.chunks_exact(8).zip(places.by_ref()) {
            let word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
            place.store(word, Ordering::Relaxed);
            used += 1;
        }
    }
    used
}

/// Options that are on or off and take any int: they need no check by the kernel, and lie in the shared entry.
pub const FLAGS: [(c_int, c_int); 7] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
];

/// The bit of an option, if it is one of them.
pub fn flag_bit(level: c_int, name: c_int) -> Option<usize> {
    FLAGS.iter().position(|flag| *flag == (level, name))
}

/// Notes that one of them was set.
pub fn set_flag(socket: &Socket, bit: usize, on: bool) {
    let (known, value) = (1 << bit, 1 << (bit + 16));
    if on {
        socket.entry.flags.fetch_or(known | value, Ordering::AcqRel);
    } else {
        socket.entry.flags.fetch_or(known, Ordering::AcqRel);
        socket.entry.flags.fetch_and(!value, Ordering::AcqRel);
    }
}

/// The value of one of them, if it was set.
pub fn flag(socket: &Socket, level: c_int, name: c_int) -> Option<i32> {
    let bit = flag_bit(level, name)?;
    let flags = socket.entry.flags.load(Ordering::Relaxed);
    (flags >> bit & 1 == 1).then(|| i32::from(flags >> (bit + 16) & 1 == 1))
}

/// Whether one of the [`FLAGS`] was set and is on.
pub fn is_on(socket: &Socket, level: c_int, name: c_int) -> bool {
    flag(socket, level, name) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: i32, bytes: &[u8]) -> Record {
        let mut value = [0; MOST_BYTES];
        value[..bytes.len()].copy_from_slice(bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        let level = 6;
        Record {
            level,
            name,
            length,
            value,
        }
    }

    #[test]
    fn what_was_set_is_told() {
        let words: [AtomicU64; 9] = Default::default();
        let set = [
            record(1, &[7, 8, 9, 10]),
            record(13, b"bbr"),
            record(300, b"0123456789abcdef"),
            record(4, &[]),
        ];
        let used = write(&words, &set);
        assert_eq!(used, 6);
        assert_eq!(read(&words[..6]), set);
    }

    #[test]
    fn of_too_many_the_first_are_forgotten() {
        let words: [AtomicU64; 3] = Default::default();
        let set = [1, 2, 3, 4].map(|name| record(name, &[1; 4]));
        assert_eq!(write(&words, &set), 3);
        assert_eq!(read(&words), set[1..]);
    }

    #[test]
    fn any_words_are_read() {
        let words: [AtomicU64; 2] = [u64::MAX, u64::MAX].map(AtomicU64::new);
        assert_eq!(read(&words).len(), 1);
    }
}
