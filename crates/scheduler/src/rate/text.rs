//! Caps as they stand in a configuration: `1Gbit/s`, `125MB/s burst=1MB`, `20000/s burst=100`.

use core::fmt;

use super::{MOST, MOST_PER_SECOND, Rate};
use crate::unit::Unit;

/// The text is no rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateError {
    text: String,
    wanted: &'static str,
}

impl fmt::Display for RateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is not {}", self.text, self.wanted)
    }
}

impl std::error::Error for RateError {}

/// Bits are counted by thousands, as networks do; bytes as elsewhere in the configuration.
const BITS: [(&str, u64); 4] = [
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl Rate {
    /// Reads a cap in bytes: `1Gbit/s` or `125MB/s`, and if wanted ` burst=1MB`.
    ///
    /// # Errors
    ///
    /// A sentence that describes valid rates.
    pub fn parse_bytes(text: &str) -> Result<Self, RateError> {
        let bits = |rate: &str| {
            let (name, size) = BITS.iter().find(|(name, _)| rate.ends_with(name))?;
            let number: u64 = rate.strip_suffix(name)?.parse().ok()?;
            Some(number.checked_mul(*size)? / 8)
        };
        let rate = |rate: &str| bits(rate).or_else(|| Unit::Bytes.parse(rate));
        parse(text, rate, Unit::Bytes, Self::bytes).ok_or_else(|| RateError {
            text: text.to_owned(),
            wanted: "a rate in bytes, like 1Gbit/s or 125MB/s burst=1MB, of at most 1000Gbit/s",
        })
    }

    /// Reads a cap in operations: `20000/s`, and if wanted ` burst=100`.
    ///
    /// # Errors
    ///
    /// A sentence that describes valid rates.
    pub fn parse_operations(text: &str) -> Result<Self, RateError> {
        let rate = |rate: &str| Unit::Count.parse(rate);
        parse(text, rate, Unit::Count, Self::operations).ok_or_else(|| RateError {
            text: text.to_owned(),
            wanted: "a rate in operations, like 20000/s or 20000/s burst=100",
        })
    }
}

fn parse(
    text: &str,
    rate: impl Fn(&str) -> Option<u64>,
    burst_unit: Unit,
    with_usual_burst: impl Fn(u64) -> Rate,
) -> Option<Rate> {
    let mut words = text.split_whitespace();
    let per_second = rate(words.next()?.strip_suffix("/s")?)?;
    let burst = match words.next() {
        Some(word) => Some(burst_unit.parse(word.strip_prefix("burst=")?)?),
        None => None,
    };
    let within = (1..=MOST_PER_SECOND).contains(&per_second)
        && burst.is_none_or(|burst| (1..=MOST).contains(&burst));
    if !within || words.next().is_some() {
        return None;
    }
    Some(match burst {
        Some(burst) => Rate::new(per_second, burst),
        None => with_usual_burst(per_second),
    })
}

impl fmt::Display for Rate {
    /// As [`Self::parse_operations`] reads it, and [`Self::parse_bytes`] too.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/s burst={}", self.per_second, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let bytes = |text| Rate::parse_bytes(text).unwrap();
        assert_eq!(bytes("1Gbit/s"), Rate::bytes(125_000_000));
        assert_eq!(bytes("125MB/s"), Rate::bytes(125 << 20));
        assert_eq!(bytes("800kbit/s burst=64KB"), Rate::new(100_000, 64 << 10));
        assert_eq!(bytes("1000Gbit/s").per_second(), MOST_PER_SECOND);
        let operations = |text| Rate::parse_operations(text).unwrap();
        assert_eq!(operations("20000/s"), Rate::new(20_000, 400));
        assert_eq!(operations("20/s burst=5"), Rate::new(20, 5));
        for rate in [Rate::bytes(1), Rate::new(u64::MAX, u64::MAX)] {
            assert_eq!(Rate::parse_bytes(&rate.to_string()), Ok(rate));
            assert_eq!(Rate::parse_operations(&rate.to_string()), Ok(rate));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_what_is() {
        for text in [
            "",
            "1Gbit",
            "fast",
            "0/s",
            "1001Gbit/s",
            "1/s burst",
            "1/s burst=0",
            "1/s x=1",
            "1/s burst=1 2",
            "-1/s",
            "1.5Gbit/s",
            "99999999999999999999Gbit/s",
        ] {
            let error = Rate::parse_bytes(text).unwrap_err().to_string();
            assert!(
                error.contains("is not a rate in bytes, like 1Gbit/s"),
                "{error}"
            );
        }
        assert!(Rate::parse_operations("1Gbit/s").is_err());
    }
}
