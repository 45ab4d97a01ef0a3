//! Tables and quantities for people.

use netchannel_control::plain;
use std::ffi::c_int;
use std::io::{self, Write};

/// Writes to standard output. Returns the exit code: a reader that has closed it is no failure, all other errors are.
pub fn print(text: &str) -> c_int {
    let mut output = io::stdout();
    let written = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output cannot be written ({error})"));
            1
        }
        _ => 0,
    }
}

/// The width of the terminal that standard output is, if it is one.
fn width() -> Option<usize> {
    let output = rustix::stdio::stdout();
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// A line that fits a terminal: what is cut off is marked.
fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            let kept = line.chars().take(width.saturating_sub(1));
            kept.chain(['>']).collect()
        }
        _ => line.to_owned(),
    }
}

/// A count with its word: `1 program`, `2 programs`.
pub fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// A table with columns as wide as they must be, and no wider than the terminal it is for.
pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all: Vec<Vec<String>> = vec![head.iter().map(|name| (*name).to_owned()).collect()];
    all.extend(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = all.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let terminal = width();
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&cut(line.trim_end(), terminal));
        text.push('\n');
    }
    text
}

/// Bytes in the unit that suits them.
pub fn bytes(count: u64) -> String {
    let mut unit = "B";
    let (mut whole, mut tenth) = (count, 0);
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if whole < 1024 {
            break;
        }
        tenth = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit = larger;
    }
    if unit == "B" {
        format!("{whole} B")
    } else {
        format!("{whole}.{tenth} {unit}")
    }
}

/// Seconds as hours, minutes and seconds.
pub fn duration(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// Says a sentence on standard error.
pub fn complain(sentence: &str) {
    // An error means that standard error is closed.
    let _ = writeln!(io::stderr(), "netchannel: {}", plain(sentence));
}

/// A text, or a hyphen.
pub fn or_hyphen(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed() {
        let rows = vec![vec!["redis".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["P", "COUNT"], rows), "P      COUNT\nredis  1\n");
    }

    #[test]
    fn lines_fit_the_terminal() {
        assert_eq!(cut("a line", Some(6)), "a line");
        assert_eq!(cut("a line", Some(4)), "a l>");
        assert_eq!(cut("a line", None), "a line");
        assert_eq!(counted(1, "program"), "1 program");
        assert_eq!(counted(0, "link"), "0 links");
    }

    #[test]
    fn quantities_suit_people() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(3720), "1 h 2 min");
    }
}
