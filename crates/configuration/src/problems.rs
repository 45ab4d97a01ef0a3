//! All that is wrong with a file.

use core::fmt;
use core::ops::Range;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

use netchannel_control::configuration::Problem;
use netchannel_control::plain;

/// All mistakes in a file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for problem in &self.problems {
            writeln!(formatter, "{}", problem.shown(&file))?;
        }
        match self.problems.len() {
            1 => write!(formatter, "{file} has 1 problem"),
            count => write!(formatter, "{file} has {count} problems"),
        }
    }
}

impl std::error::Error for Problems {}

/// Collects problems while a text is read.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    text: &'a str,
    found: RefCell<Vec<Problem>>,
}

impl<'a> Collector<'a> {
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            found: RefCell::default(),
        }
    }

    /// Reports a mistake at `span`, which concerns `key`.
    pub fn report(&self, span: &Range<usize>, key: &str, sentence: impl Into<String>) {
        let (line, column) = self.place(span.start);
        self.found.borrow_mut().push(Problem {
            line,
            column,
            key: key.to_owned(),
            sentence: plain(&sentence.into()),
        });
    }

    /// Line and column (in letters) of a byte, both from 1.
    pub fn place(&self, offset: usize) -> (u64, u64) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.matches('\n').count();
        let column = before.get(start..).unwrap_or_default().chars().count();
        (line as u64 + 1, column as u64 + 1)
    }

    /// The file is valid, or not.
    pub fn finish(&self, file: &Path) -> Result<(), Problems> {
        let mut problems = self.found.take();
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(Problems {
            file: file.to_owned(),
            problems,
        })
    }
}
