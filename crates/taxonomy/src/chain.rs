//! Judging a call chain.

use crate::category::{Category, Side};

/// The rule for a chain with a certain function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Word {
    /// It is in a category.
    Decides(Category),
    /// The function has no category: its caller decides.
    Asks,
    /// The entry into the kernel: callers further out are ignored.
    Entry,
    /// It is not in the taxonomy.
    #[default]
    Unknown,
}

/// All that is known of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Meaning {
    /// The rule.
    pub word: Word,
    /// Whether a clock without NMI is late in it.
    pub is_late: bool,
    /// The side, where it is known.
    pub side: Option<Side>,
}

/// A call chain, innermost function first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain<'a> {
    /// In the kernel.
    pub kernel: &'a [Meaning],
    /// In user space, inlined functions too.
    pub user: &'a [Meaning],
    /// Whether the innermost function in user space is of NetChannel's library, all of which ought to have a category.
    pub is_in_the_library: bool,
}

/// The judgement of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The activity of the processor.
    pub category: Category,
    /// For whom.
    pub side: Side,
    /// Whether the sample came late, so that its innermost function is not what took the time.
    pub is_late: bool,
}

/// Judges a chain.
#[must_use]
pub fn classify(chain: Chain<'_>) -> Judgement {
    let category = category(&chain);
    // A wake-up by a message reveals the side of the waking thread, which may be either end: only the kernel's stack
    // identifies sides.
    let told = match category {
        Category::WakeUp | Category::Waiting => None,
        _ => chain.kernel.iter().find_map(|meaning| meaning.side),
    };
    Judgement {
        category,
        side: told.unwrap_or(Side::Shared),
        is_late: chain.kernel.first().is_some_and(|meaning| meaning.is_late),
    }
}

fn category(chain: &Chain<'_>) -> Category {
    let own = innermost(chain.user);
    if chain.kernel.is_empty() {
        return match own {
            _ if waits(chain.user) => Category::Waiting,
            Some(category) => category,
            None if chain.is_in_the_library => Category::Unclassified,
            None => Category::Program,
        };
    }
    match kernel(chain.kernel) {
        Category::Idle => Category::Idle,
        // The kernel does this work only for a wait or a wake-up.
        _ if waits(chain.user) => Category::Waiting,
        _ if own == Some(Category::WakeUp) => Category::WakeUp,
        category => category,
    }
}

/// Whether any function waits: what it looks at meanwhile is part of that.
fn waits(user: &[Meaning]) -> bool {
    let waiting = Word::Decides(Category::Waiting);
    user.iter().any(|meaning| meaning.word == waiting)
}

fn innermost(meanings: &[Meaning]) -> Option<Category> {
    meanings.iter().find_map(|meaning| match meaning.word {
        Word::Decides(category) => Some(category),
        _ => None,
    })
}

fn kernel(meanings: &[Meaning]) -> Category {
    let mut lock_seen = false;
    let mut unknown_seen = false;
    for meaning in meanings {
        match meaning.word {
            Word::Asks => {}
            Word::Unknown => unknown_seen = true,
            Word::Entry => break,
            Word::Decides(Category::Locks) => lock_seen = true,
            // A run queue's lock is part of scheduling.
            Word::Decides(Category::Scheduling) => return Category::Scheduling,
            Word::Decides(_) if lock_seen => return Category::Locks,
            Word::Decides(category) => return category,
        }
    }
    if lock_seen {
        Category::Locks
    } else if unknown_seen {
        Category::Unclassified
    } else {
        Category::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(word: Word) -> Meaning {
        Meaning {
            word,
            ..Meaning::default()
        }
    }

    fn is(category: Category) -> Meaning {
        says(Word::Decides(category))
    }

    fn in_kernel(kernel: &[Meaning]) -> Category {
        let chain = Chain {
            kernel,
            ..Chain::default()
        };
        classify(chain).category
    }

    fn under(kernel: &[Meaning], user: &[Meaning]) -> Category {
        let chain = Chain {
            kernel,
            user,
            is_in_the_library: true,
        };
        classify(chain).category
    }

    #[test]
    fn the_innermost_function_with_a_category_decides() {
        let chain = [
            says(Word::Asks),
            says(Word::Unknown),
            is(Category::Skb),
            is(Category::TcpIp),
        ];
        assert_eq!(in_kernel(&chain), Category::Skb);
    }

    #[test]
    fn nobody_beyond_the_entry_is_asked() {
        let interrupted = [says(Word::Asks), says(Word::Entry), is(Category::Copy)];
        assert_eq!(in_kernel(&interrupted), Category::Other);
        let missing = [says(Word::Unknown), says(Word::Entry), is(Category::Copy)];
        assert_eq!(in_kernel(&missing), Category::Unclassified);
    }

    #[test]
    fn a_lock_of_the_scheduler_is_scheduling() {
        let scheduler = [
            is(Category::Locks),
            says(Word::Asks),
            is(Category::Scheduling),
        ];
        assert_eq!(in_kernel(&scheduler), Category::Scheduling);
        let memory = [
            is(Category::Locks),
            is(Category::Memory),
            is(Category::Scheduling),
        ];
        assert_eq!(in_kernel(&memory), Category::Locks);
        assert_eq!(in_kernel(&[is(Category::Locks)]), Category::Locks);
    }

    #[test]
    fn the_kernel_under_a_wake_up_or_a_wait_is_part_of_it() {
        let kernel = [is(Category::Other)];
        let wake = [says(Word::Asks), is(Category::WakeUp), is(Category::Socket)];
        assert_eq!(under(&kernel, &wake), Category::WakeUp);
        let wait = [is(Category::Ring), is(Category::Waiting)];
        assert_eq!(under(&kernel, &wait), Category::Waiting);
        assert_eq!(under(&[], &wait), Category::Waiting);
        assert_eq!(under(&kernel, &[is(Category::Socket)]), Category::Other);
        assert_eq!(under(&[is(Category::Idle)], &wait), Category::Idle);
    }

    #[test]
    fn a_program_is_none_of_the_stack_and_the_library_all_of_it() {
        let unknown = [says(Word::Unknown)];
        assert_eq!(under(&[], &unknown), Category::Unclassified);
        let chain = Chain {
            user: &unknown,
            ..Chain::default()
        };
        assert_eq!(classify(chain).category, Category::Program);
    }

    #[test]
    fn the_innermost_side_holds_and_what_tells_none_is_shared() {
        let on = |side| Meaning {
            side,
            ..Meaning::default()
        };
        let chain = [on(None), on(Some(Side::Receiver)), on(Some(Side::Sender))];
        let judged = |kernel| {
            classify(Chain {
                kernel,
                ..Chain::default()
            })
            .side
        };
        assert_eq!(judged(&chain), Side::Receiver);
        let woken = Chain {
            kernel: &chain,
            user: &[is(Category::WakeUp)],
            is_in_the_library: true,
        };
        assert_eq!(classify(woken).side, Side::Shared);
        assert_eq!(judged(&chain[..1]), Side::Shared);
    }
}
