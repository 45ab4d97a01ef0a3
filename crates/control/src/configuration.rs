//! What is wrong with `netchannel.toml`, and what reading it again changed.

use core::fmt;

use serde::{Deserialize, Serialize};

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Line, from 1; 0 where it is the file as a whole.
    pub line: u64,
    /// Column in letters, from 1.
    pub column: u64,
    /// The key it is about, from the top; empty where it is none.
    pub key: String,
    /// What is wrong and what to do.
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
    /// What is wrong with it; then nothing has changed.
    pub problems: Vec<Problem>,
    /// What has changed, a sentence each.
    pub changes: Vec<String>,
    /// What could not be done as the file says, a sentence each.
    pub warnings: Vec<String>,
}
