//! A line of the log, made without allocating.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const LENGTH: usize = 1024;
const DAY: u64 = 86_400;

/// A line that begins as the others of the log do. What does not fit is left out.
pub struct Line {
    bytes: [u8; LENGTH],
    used: usize,
}

impl Line {
    /// An error of now.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let mut line = Self {
            bytes: [0; LENGTH],
            used: 0,
        };
        let (year, month, day) = date(now.as_secs() / DAY);
        let second = now.as_secs() % DAY;
        let _ = fmt::write(
            &mut line,
            format_args!(
                "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z ERROR ",
                second / 3600,
                second / 60 % 60,
                second % 60,
                now.subsec_micros()
            ),
        );
        line
    }

    /// The line as far as it was written.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.used..).unwrap_or_default();
        let length = text.len().min(free.len());
        for (to, from) in free.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self.used += length;
        // The end of the line is the end of it in any case.
        if length < text.len()
            && let Some(last) = self.bytes.last_mut()
        {
            *last = b'\n';
        }
        Ok(())
    }
}

/// The date of a day since 1970, by eras of 400 years that begin on the first of March.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn days_have_their_dates() {
        for (day, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_088, (2024, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), expected, "{day}");
        }
    }

    #[test]
    fn too_much_is_cut_to_a_line() {
        let mut line = Line::new();
        for _ in 0..LENGTH {
            write!(line, "long").unwrap();
        }
        assert_eq!(line.bytes().len(), LENGTH);
        assert_eq!(line.bytes().last(), Some(&b'\n'));
    }
}
