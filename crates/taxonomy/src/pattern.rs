//! Names and families, and which of them fits best.

use std::collections::HashMap;

/// Things by the names and families they go by: of all that fit, the one with the most letters.
#[derive(Clone, Debug)]
pub struct Patterns<T> {
    names: HashMap<String, T>,
    /// The family with the most letters first.
    families: Vec<(Family, T)>,
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            families: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Family {
    text: String,
    letters: usize,
}

impl<T: Copy> Patterns<T> {
    /// Adds a name, or a family where it has a star. Returns what went by exactly this name before, which is replaced.
    pub fn insert(&mut self, pattern: &str, value: T) -> Option<T> {
        if !pattern.contains('*') {
            return self.names.insert(pattern.to_owned(), value);
        }
        let known = self
            .families
            .iter_mut()
            .find(|(family, _)| family.text == pattern);
        if let Some((_, former)) = known {
            return Some(std::mem::replace(former, value));
        }
        let family = Family {
            text: pattern.to_owned(),
            letters: pattern.chars().filter(|letter| *letter != '*').count(),
        };
        let place = self
            .families
            .partition_point(|(other, _)| other.letters >= family.letters);
        self.families.insert(place, (family, value));
        None
    }

    /// The value of a name.
    pub fn find(&self, name: &str) -> Option<T> {
        self.rule(name).map(|(_, value)| value)
    }

    /// The name or family that matches, and its value.
    pub fn rule(&self, name: &str) -> Option<(&str, T)> {
        if let Some((name, value)) = self.names.get_key_value(name) {
            return Some((name, *value));
        }
        let mut families = self.families.iter();
        let found = families.find(|(family, _)| fits(&family.text, name));
        found.map(|(family, value)| (family.text.as_str(), *value))
    }

    /// All names and families with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, T)> {
        let names = self
            .names
            .iter()
            .map(|(name, value)| (name.as_str(), *value));
        let families = self.families.iter();
        names.chain(families.map(|(family, value)| (family.text.as_str(), *value)))
    }
}

/// Whether a name matches a family: a star stands for any letters.
fn fits(family: &str, name: &str) -> bool {
    let mut parts = family.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(place) => rest = rest.get(place + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty()
}

/// A function's name as the taxonomy has it: without what a compiler hangs on to it, without leading underscores, and without the
/// mark of code that may run at any address ("__pi_").
pub fn plain(name: &str) -> &str {
    let base = match name.find('.') {
        Some(place) if place > 0 => name.get(..place).unwrap_or(name),
        _ => name,
    };
    let bare = base.strip_prefix("__pi_").unwrap_or(base);
    let bare = bare.trim_start_matches('_');
    if bare.is_empty() { base } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_letters() {
        for (family, name) in [
            ("tcp_*", "tcp_ack"),
            ("*_xmit", "loopback_xmit"),
            ("copy_*_iter", "copy_page_to_iter"),
            ("a*b*c", "aXbYc"),
            ("tcp_*", "tcp_"),
        ] {
            assert!(fits(family, name), "{family} {name}");
        }
        for (family, name) in [("tcp_*", "xtcp_ack"), ("a*b*c", "acb"), ("ab*b", "ab")] {
            assert!(!fits(family, name), "{family} {name}");
        }
    }

    #[test]
    fn the_most_letters_hold_in_any_order() {
        let mut patterns = Patterns::default();
        for (pattern, value) in [("tcp_gro_*", 2), ("tcp_*", 1), ("*", 0), ("tcp_ack", 3)] {
            assert_eq!(patterns.insert(pattern, value), None);
        }
        let found = ["tcp_gro_flush", "tcp_push", "udp", "tcp_ack"].map(|name| patterns.find(name));
        assert_eq!(found, [Some(2), Some(1), Some(0), Some(3)]);
        assert_eq!(patterns.insert("tcp_*", 7), Some(1));
        assert_eq!(patterns.find("tcp_push"), Some(7));
    }

    #[test]
    fn what_compilers_add_is_left_out() {
        assert_eq!(plain("__alloc_skb"), "alloc_skb");
        assert_eq!(plain("do_softirq.part.0"), "do_softirq");
        assert_eq!(
            plain("__pi___x86_indirect_thunk_rax"),
            "x86_indirect_thunk_rax"
        );
        assert_eq!(plain("_"), "_");
        assert_eq!(plain(".L1"), ".L1");
    }
}
