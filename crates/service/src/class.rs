//! The class hints of programs, converted to the types of the scheduler.

use netchannel_abi::class::{self, LATENCY, THROUGHPUT};
use netchannel_scheduler::{Class, Hints, Source, classify};

/// Decodes a word that a program wrote. Every word is valid.
#[must_use]
pub fn hints(word: u32) -> Hints {
    let hints = class::Hints::from_word(word);
    let of = |code: u8| match code {
        LATENCY => Some(Class::Latency),
        THROUGHPUT => Some(Class::Throughput),
        _ => None,
    };
    Hints {
        option: of(hints.option),
        priority: u32::from(hints.priority),
        dscp: hints.dscp,
        run: of(hints.run),
        ..Hints::default()
    }
}

/// The class that a hint word selects by itself, and the source of that decision. `None` where the word has no hint.
#[must_use]
pub fn explicit_class(word: u32) -> Option<(&'static str, &'static str)> {
    let (class, source) = classify(&hints(word));
    let class = match class {
        Class::Latency => "latency",
        Class::Throughput => "throughput",
    };
    (source != Source::Default).then(|| (class, name(source)))
}

/// The name of a source as commands show it.
#[must_use]
pub const fn name(source: Source) -> &'static str {
    match source {
        Source::Enforced => "enforced",
        Source::Option => "SO_APP_TYPE",
        Source::Priority => "SO_PRIORITY",
        Source::Dscp => "DSCP",
        Source::Run => "run",
        Source::Tenant => "tenant",
        Source::Observed => "observed",
        Source::Default => "default",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_programs_said() {
        let word = |option, run, dscp, priority| {
            let hints = class::Hints {
                option,
                run,
                dscp,
                priority,
            };
            explicit_class(hints.to_word())
        };
        assert_eq!(explicit_class(0), None);
        assert_eq!(word(0, 1, 0, 0), Some(("latency", "run")));
        assert_eq!(word(0, 1, 8, 0), Some(("throughput", "DSCP")));
        assert_eq!(word(0, 1, 8, 6), Some(("latency", "SO_PRIORITY")));
        assert_eq!(word(2, 1, 8, 6), Some(("throughput", "SO_APP_TYPE")));
        // An incomplete hint selects nothing.
        assert_eq!(word(3, 3, 26, 0), None);
    }
}
