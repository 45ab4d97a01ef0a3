//! Values as a configuration has them: whole numbers, with the units that people write.

use crate::time::{MILLISECOND, SECOND};

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number.
    Count,
    /// Bytes: `4096`, `640KB`, `2MB`, `1GB`; K, KB and KiB are all 1024.
    Bytes,
    /// Nanoseconds: `100us`, `200ms`, `5s`.
    Time,
    /// `85` or `85%`.
    Percent,
    /// One of these words; the value is its index.
    Word(&'static [&'static str]),
}

const BYTE_UNITS: [(&str, u64); 10] = [
    ("GiB", 1 << 30),
    ("GB", 1 << 30),
    ("G", 1 << 30),
    ("MiB", 1 << 20),
    ("MB", 1 << 20),
    ("M", 1 << 20),
    ("KiB", 1 << 10),
    ("KB", 1 << 10),
    ("K", 1 << 10),
    ("B", 1),
];

const TIME_UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", MILLISECOND / 1000),
    ("ms", MILLISECOND),
    ("s", SECOND),
];

impl Unit {
    /// Reads a value; nothing if it is not written in this unit.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Count => text.parse().ok(),
            Self::Bytes => scaled(text, &BYTE_UNITS, true),
            Self::Time => scaled(text, &TIME_UNITS, false),
            Self::Percent => text.strip_suffix('%').unwrap_or(text).parse().ok(),
            Self::Word(words) => {
                let index = words.iter().position(|word| *word == text)?;
                u64::try_from(index).ok()
            }
        }
    }

    /// A value as [`Self::parse`] reads it.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        let with = |units: &[(&str, u64)]| {
            let mut units = units.iter();
            match units.find(|(_, size)| value >= *size && value.is_multiple_of(*size)) {
                Some((name, size)) => format!("{}{name}", value / size),
                None => format!("{value}{}", if self == Self::Time { "ns" } else { "" }),
            }
        };
        match self {
            Self::Count => value.to_string(),
            Self::Bytes => with(&[BYTE_UNITS[0], BYTE_UNITS[3], BYTE_UNITS[6]]),
            Self::Time => with(&[TIME_UNITS[3], TIME_UNITS[2], TIME_UNITS[1]]),
            Self::Percent => format!("{value}%"),
            Self::Word(words) => usize::try_from(value)
                .ok()
                .and_then(|index| words.get(index))
                .map_or_else(|| value.to_string(), |word| (*word).to_owned()),
        }
    }
}

/// A number with one of these units; without, if that is allowed or it is 0.
fn scaled(text: &str, units: &[(&str, u64)], bare: bool) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: u64 = digits.parse().ok()?;
    if unit.is_empty() {
        return (bare || number == 0).then_some(number);
    }
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*size)
}
