//! A program under test, with which the test exchanges lines.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::served::Served;

/// A program under test, which answers each line with one.
pub struct Subject {
    pub child: Child,
    says: Lines<BufReader<ChildStdout>>,
    pub hears: ChildStdin,
}

impl Subject {
    pub fn start(served: &Served, part: &str) -> Self {
        let mut child = served.run(part);
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        let hears = child.stdin.take().unwrap();
        Self { child, says, hears }
    }

    /// The rest of the next line that begins with `word`.
    pub fn said(&mut self, word: &str) -> String {
        loop {
            let line = self.says.next().expect("it ended").unwrap();
            // The test harness writes to the same stream, without an end of line.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.hears, "{line}").unwrap();
        self.said("answer:")
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
