//! The text format of Prometheus: families with help and type, samples with labels.

use std::fmt::Write;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The values only grow, until the daemon is restarted.
    Counter,
    /// The values go up and down.
    Gauge,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Count(u64),
    /// Microseconds, written in seconds.
    Microseconds(u64),
    /// Nanoseconds, written in seconds.
    Nanoseconds(u64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// The text.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
}

impl Text {
    /// Writes a family with one sample for each item. Writes nothing where there is none.
    pub fn family<'a, L, V>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        samples: impl IntoIterator<Item = (L, V)>,
    ) where
        L: AsRef<[(&'a str, &'a str)]>,
        V: Into<Value>,
    {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        for (labels, value) in samples {
            self.put(format_args!("{name}"));
            self.labels(labels.as_ref());
            match value.into() {
                Value::Count(count) => self.put(format_args!(" {count}\n")),
                Value::Microseconds(count) => {
                    let (whole, rest) = (count / 1_000_000, count % 1_000_000);
                    self.put(format_args!(" {whole}.{rest:06}\n"));
                }
                Value::Nanoseconds(count) => {
                    let (whole, rest) = (count / 1_000_000_000, count % 1_000_000_000);
                    self.put(format_args!(" {whole}.{rest:09}\n"));
                }
            }
        }
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing into memory does not fail.
        let _ = self.text.write_fmt(what);
    }

    fn labels(&mut self, labels: &[(&str, &str)]) {
        for (index, (name, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.put(format_args!("{before}{name}=\""));
            for letter in value.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
    }

    /// The complete text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_help_type_and_samples() {
        let mut text = Text::default();
        let family = ("x_seconds", Kind::Gauge, "How long.");
        let one = [("peer", "a\\\"b\nc"), ("class", "latency")];
        text.family(family, [(&one[..], Value::Microseconds(1_000_120))]);
        text.family(("y_total", Kind::Counter, "How many."), [([], 7)]);
        let none: [([(&str, &str); 0], u64); 0] = [];
        text.family(("z", Kind::Gauge, "Nothing."), none);
        let wanted = "# HELP x_seconds How long.\n# TYPE x_seconds gauge\n\
                      x_seconds{peer=\"a\\\\\\\"b\\nc\",class=\"latency\"} 1.000120\n\
                      # HELP y_total How many.\n# TYPE y_total counter\ny_total 7\n";
        assert_eq!(text.finish(), wanted);
    }
}
