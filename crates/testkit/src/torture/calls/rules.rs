//! Differences that are kept: each rule names the line of section 8 of SPECIFICATION.md that says so.

use super::compare::Difference;
use super::program::{Program, Step};

/// What a kept difference means for the rest of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Only this step says something else.
    Step,
    /// What comes after it may be anything.
    Rest,
}

/// One kept difference.
pub struct Rule {
    /// The line of section 8.
    pub line: &'static str,
    pub then: Then,
    /// Whether it is this one.
    applies: fn(&Look<'_>) -> bool,
}

/// What a rule looks at.
struct Look<'a> {
    step: &'a Step,
    text: String,
    kernel: &'a str,
    other: &'a str,
    /// The steps before, and this one.
    before: &'a [Step],
}

impl Look<'_> {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.step.form.name)
    }

    fn says(&self, word: &str) -> bool {
        self.text.contains(word)
    }

    /// Whether a step up to this one says something.
    fn said(&self, word: &str) -> bool {
        self.before
            .iter()
            .any(|step| step.to_string().contains(word))
    }
}

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        line: "8.2",
        then: Then::Rest,
        applies: |look| look.said("MSG_OOB") || look.is(&["sockatmark"]) || look.says("SIOCATMARK"),
    },
    Rule {
        line: "8.8",
        then: Then::Step,
        applies: |look| look.says("TCP_INFO") || look.says("TCP_MAXSEG"),
    },
    Rule {
        line: "8.9",
        then: Then::Rest,
        applies: |look| {
            look.said("SO_RCVBUF")
                && (look.kernel.contains("EAGAIN") || look.kernel.contains("waited"))
        },
    },
];

/// The rule that keeps a difference.
pub fn find(program: &Program, difference: &Difference) -> Option<&'static Rule> {
    let step = program.steps.get(difference.place)?;
    let look = Look {
        step,
        text: step.to_string(),
        kernel: &difference.kernel,
        other: &difference.other,
        before: &program.steps[..=difference.place],
    };
    let _ = look.other;
    RULES.iter().find(|rule| (rule.applies)(&look))
}
