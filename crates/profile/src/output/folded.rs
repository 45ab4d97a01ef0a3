//! Chains as lines of functions from outside in, as flame graph tools read them.

use crate::named::Named;
use netchannel_taxonomy::Category;
use std::collections::BTreeMap;

/// Chains from outside in, with their samples: the program first, the category last.
pub type Folded = BTreeMap<(Vec<String>, Category), u64>;

/// Folds all busy samples into the former ones. A function of the kernel has the suffix `_[k]`.
pub fn fold(named: &Named<'_>, into: &mut Folded) {
    let threads = named.recording().threads();
    for (key, count) in named.recording().counts() {
        let Some(judgement) = named.judgement(key.chain) else {
            continue;
        };
        if judgement.category == Category::Idle {
            continue;
        }
        let place = usize::try_from(key.thread).ok();
        let thread = place.and_then(|place| threads.get(place));
        let program = thread.map_or("[unknown]", |thread| &thread.program);
        let mut chain: Vec<String> = named
            .functions(key.chain)
            .map(|(name, is_kernel)| {
                let mark = if is_kernel { "_[k]" } else { "" };
                format!("{}{mark}", name.replace(';', ":"))
            })
            .collect();
        chain.push(program.replace(';', ":"));
        chain.reverse();
        *into.entry((chain, judgement.category)).or_default() += count;
    }
}
