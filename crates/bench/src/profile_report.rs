//! Tells `netchannel profile`, where that measures this benchmark, how much was done.

use crate::measurement::Measurement;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// The file to which what was done is appended.
const VARIABLE: &str = "NETCHANNEL_PROFILE_WORK";

/// Tells of a run whose work is counted in this unit.
pub fn tell(unit: &str, measured: &Measurement) {
    let Some(file) = env::var_os(VARIABLE) else {
        return;
    };
    if let Ok(mut file) = OpenOptions::new().append(true).open(file) {
        // An error means that the report is lost.
        let _ = writeln!(file, "{}", line(unit, measured.work()));
    }
}

fn line(unit: &str, work: f64) -> String {
    match unit {
        "Gbit/s" => format!("bytes {:.0}", work * 1e9 / 8.0),
        _ => format!("operations {work:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_told_as_bytes_and_all_else_as_operations() {
        assert_eq!(line("Gbit/s", 16.0), "bytes 2000000000");
        assert_eq!(line("requests/s", 77.4), "operations 77");
    }
}
