//! What a policy says of itself: name, parameters, bounds; and the values it gets.

use core::fmt;

use crate::view::{MILLISECOND, SECOND};

/// A policy.
#[derive(Debug)]
pub struct Description {
    /// Lower case, with hyphens; unique over all kinds.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// Whether values that are each within bounds go together; if not, why.
    pub check: fn(&Values<'_>) -> Result<(), &'static str>,
}

impl PartialEq for Description {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameters) == (other.name, other.parameters)
    }
}

impl Eq for Description {}

/// A [`Description::check`] for parameters that have nothing to do with each other.
///
/// # Errors
///
/// None.
pub fn independent(_: &Values<'_>) -> Result<(), &'static str> {
    Ok(())
}

/// One parameter. Values are whole numbers in the smallest unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Lower case, with hyphens.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// How values are written.
    pub unit: Unit,
    /// Least value that is taken.
    pub least: u64,
    /// Most.
    pub most: u64,
    /// What it is if not set.
    pub default: u64,
}

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

impl Parameter {
    /// What may be written, for people.
    #[must_use]
    pub fn range(&self) -> String {
        match self.unit {
            Unit::Word(words) => words.join(" or "),
            unit => format!("{} to {}", unit.show(self.least), unit.show(self.most)),
        }
    }
}

impl fmt::Display for Description {
    /// Name, summary and parameters, a line each.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.summary)?;
        for parameter in self.parameters {
            write!(
                formatter,
                "\n  {}={} ({}): {}",
                parameter.name,
                parameter.unit.show(parameter.default),
                parameter.range(),
                parameter.summary
            )?;
        }
        Ok(())
    }
}

/// The values of a policy's parameters, each within its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    pub(super) description: &'static Description,
    pub(super) values: &'a [u64],
}

impl Values<'_> {
    /// The value of a parameter; 0 if the policy has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let parameters = self.description.parameters.iter();
        let mut both = parameters.zip(self.values);
        both.find(|(parameter, _)| parameter.name == name)
            .map_or(0, |(_, value)| *value)
    }

    /// The same, for parameters whose bounds are within 32 bits.
    #[must_use]
    pub fn get_u32(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).unwrap_or(u32::MAX)
    }

    /// The same, for parameters whose bounds are within 16 bits.
    #[must_use]
    pub fn get_u16(&self, name: &str) -> u16 {
        u16::try_from(self.get(name)).unwrap_or(u16::MAX)
    }

    /// The same, for parameters whose bounds are within 8 bits.
    #[must_use]
    pub fn get_u8(&self, name: &str) -> u8 {
        u8::try_from(self.get(name)).unwrap_or(u8::MAX)
    }

    /// Whether a parameter is not 0, or not the first of its words.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) != 0
    }
}
