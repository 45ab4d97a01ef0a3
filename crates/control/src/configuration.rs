//! Mistakes in `netchannel.toml`, and the changes of a reload.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Line, from 1; 0 where it is the file as a whole.
    pub line: u64,
    /// Column in letters, from 1.
    pub column: u64,
    /// The key it is about, from the top; empty where it is none.
    pub key: String,
    /// The mistake and the remedy.
    pub sentence: String,
}

impl Problem {
    /// One line, as compilers write them.
    #[must_use]
    pub fn shown(&self, file: &dyn fmt::Display) -> String {
        let Self {
            line,
            column,
            key,
            sentence,
        } = self;
        match (line, key.as_str()) {
            (0, _) => sentence.clone(),
            (_, "") => format!("{file}:{line}:{column}: {sentence}"),
            _ => format!("{file}:{line}:{column}: {key}: {sentence}"),
        }
    }
}

/// A configuration that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// The file.
    pub file: String,
    /// The mistakes in the file; nothing has changed then.
    pub problems: Vec<Problem>,
    /// The changes, a sentence each.
    pub changes: Vec<String>,
    /// Settings that could not be applied, a sentence each.
    pub warnings: Vec<String>,
}
