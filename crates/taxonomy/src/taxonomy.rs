//! The taxonomy: read from text, asked for functions.

use crate::category::{Category, Side};
use crate::chain::{Meaning, Word};
use crate::pattern::{Patterns, plain};
use toml::{Table, Value};

/// The taxonomy that this repository keeps.
const BUILT_IN: &str = include_str!("../taxonomy.toml");

/// A text is no taxonomy.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Not TOML.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// An unknown section.
    #[error("there is no section [{0}]: a taxonomy has [kernel], [netchannel], [user] and [sides]")]
    Section(String),
    /// An unknown category.
    #[error("there is no category {name:?} in [{section}]")]
    Category {
        /// In which section.
        section: String,
        /// The given name.
        name: String,
    },
    /// Not a list of names.
    #[error("{name} in [{section}] is no list of names in quotes")]
    Names {
        /// In which section.
        section: String,
        /// Of which category.
        name: String,
    },
    /// One name in two categories, of which neither can hold.
    #[error("{pattern:?} stands twice in [{section}]")]
    Twice {
        /// In which section.
        section: String,
        /// Which name.
        pattern: String,
    },
}

/// The meanings of functions.
#[derive(Clone, Debug, Default)]
pub struct Taxonomy {
    kernel: Patterns<(Word, bool)>,
    sources: Patterns<Word>,
    user: Patterns<Word>,
    sides: Patterns<Side>,
}

impl Taxonomy {
    /// The one that this repository keeps.
    ///
    /// # Errors
    /// When it is invalid, which a test rules out.
    pub fn built_in() -> Result<Self, Problem> {
        let mut taxonomy = Self::default();
        taxonomy.add(BUILT_IN)?;
        Ok(taxonomy)
    }

    /// Adds the rules of another text, which take precedence.
    ///
    /// # Errors
    /// When the text is invalid. The taxonomy must not be used then.
    pub fn add(&mut self, text: &str) -> Result<(), Problem> {
        for (section, lists) in text.parse::<Table>()? {
            let Value::Table(lists) = lists else {
                return Err(Problem::Section(section));
            };
            let mut seen = Vec::new();
            for (name, list) in lists {
                for pattern in names(&section, &name, &list)? {
                    let pattern = match section.as_str() {
                        "netchannel" => pattern,
                        _ => pattern.trim_start_matches('_'),
                    };
                    seen.push(pattern.to_owned());
                    self.insert(&section, &name, pattern)?;
                }
            }
            seen.sort_unstable();
            if let Some(pair) = seen.windows(2).find(|pair| pair.first() == pair.last()) {
                let pattern = pair.concat();
                let pattern = pattern.get(..pattern.len() / 2).unwrap_or_default();
                return Err(Problem::Twice {
                    section,
                    pattern: pattern.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn insert(&mut self, section: &str, name: &str, pattern: &str) -> Result<(), Problem> {
        let unknown = || Problem::Category {
            section: section.to_owned(),
            name: name.to_owned(),
        };
        let category = || {
            let category = Category::named(name).map(Word::Decides);
            category.ok_or_else(unknown)
        };
        match (section, name) {
            ("kernel", "late") => drop(self.kernel.insert(pattern, (Word::Asks, true))),
            ("kernel", "asks") => drop(self.kernel.insert(pattern, (Word::Asks, false))),
            ("kernel", "entry") => drop(self.kernel.insert(pattern, (Word::Entry, false))),
            ("kernel", _) => drop(self.kernel.insert(pattern, (category()?, false))),
            ("netchannel", "asks") => drop(self.sources.insert(pattern, Word::Asks)),
            ("netchannel", _) => drop(self.sources.insert(pattern, category()?)),
            ("user", _) => drop(self.user.insert(pattern, category()?)),
            ("sides", _) => {
                let mut sides = Side::ALL.into_iter();
                let side = sides.find(|side| side.name() == name).ok_or_else(unknown)?;
                self.sides.insert(pattern, side);
            }
            _ => return Err(Problem::Section(section.to_owned())),
        }
        Ok(())
    }

    /// The meaning of a kernel function.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Meaning {
        let name = plain(name);
        let (word, is_late) = self.kernel.find(name).unwrap_or_default();
        Meaning {
            word,
            is_late,
            side: self.sides.find(name),
        }
    }

    /// The meaning of a function of a program or library other than NetChannel.
    #[must_use]
    pub fn user(&self, name: &str) -> Meaning {
        // "pthread_mutex_lock@@GLIBC_2.2.5"
        let name = name.split('@').next().unwrap_or(name);
        Meaning {
            word: self.user.find(plain(name)).unwrap_or_default(),
            ..Meaning::default()
        }
    }

    /// The meaning of a function of NetChannel in a source file, such as "crates/preload/src/waiting/wait.rs".
    #[must_use]
    pub fn source(&self, path: &str) -> Meaning {
        let known = path.rsplit_once("crates/");
        let word = known.and_then(|(_, path)| self.sources.find(path));
        Meaning {
            word: word.unwrap_or_default(),
            ..Meaning::default()
        }
    }

    /// Every rule of the kernel's functions: names and families, those of sides with `side ` before them.
    pub fn rules(&self) -> impl Iterator<Item = String> {
        let kernel = self.kernel.iter().map(|(rule, _)| rule.to_owned());
        kernel.chain(self.sides.iter().map(|(rule, _)| of_side(rule)))
    }

    /// The rules that the judgement of a chain of the kernel's functions rests on, innermost first: with another meaning of one of them it may be
    /// another one.
    #[must_use]
    pub fn rules_of(&self, chain: &[&str]) -> Vec<String> {
        let mut rules = Vec::new();
        for name in chain {
            let Some((rule, (word, _))) = self.kernel.rule(plain(name)) else {
                continue;
            };
            rules.push(rule.to_owned());
            let goes_on = matches!(word, Word::Asks | Word::Decides(Category::Locks));
            if !goes_on {
                break;
            }
        }
        let mut sides = chain.iter().filter_map(|name| self.sides.rule(plain(name)));
        rules.extend(sides.next().map(|(rule, _)| of_side(rule)));
        rules
    }
}

fn of_side(rule: &str) -> String {
    format!("side {rule}")
}

fn names<'a>(section: &str, name: &str, list: &'a Value) -> Result<Vec<&'a str>, Problem> {
    let texts = list.as_array().and_then(|list| {
        let texts = list.iter().map(Value::as_str);
        texts.collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| Problem::Names {
        section: section.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_here_can_be_read() {
        Taxonomy::built_in().unwrap();
    }

    #[test]
    fn an_addition_holds_where_it_names_the_same() {
        let mut taxonomy = Taxonomy::built_in().unwrap();
        let copy = Word::Decides(Category::Copy);
        assert_eq!(taxonomy.kernel("__mydrv_poll").word, Word::Unknown);
        taxonomy
            .add("[kernel]\nnetdevice = [\"mydrv_*\"]\ncopy = [\"tcp_*\"]")
            .unwrap();
        let netdevice = Word::Decides(Category::Netdevice);
        assert_eq!(taxonomy.kernel("__mydrv_poll").word, netdevice);
        assert_eq!(taxonomy.kernel("tcp_nothing_known").word, copy);
    }

    #[test]
    fn a_judgement_rests_on_all_rules_up_to_the_one_that_decides() {
        let taxonomy = Taxonomy::built_in().unwrap();
        let chain = [
            "_raw_spin_unlock_bh",
            "unheard_of",
            "tcp_recvmsg",
            "sock_recvmsg",
        ];
        let rules = taxonomy.rules_of(&chain);
        assert_eq!(rules, ["raw_spin_unlock_bh", "tcp_*", "side tcp_recvmsg*"]);
        let all: Vec<String> = taxonomy.rules().collect();
        assert!(rules.iter().all(|rule| all.contains(rule)));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, part) in [
            (
                "[kernel]\ncopying = []\n[user]\ncopying = [\"x\"]",
                "no category \"copying\"",
            ),
            ("[kernels]\ncopy = [\"x\"]", "no section [kernels]"),
            ("kernel = 1", "no section [kernel]"),
            ("[kernel]\ncopy = \"x\"", "no list"),
            (
                "[kernel]\ncopy = [\"x\"]\nskb = [\"__x\"]",
                "\"x\" stands twice",
            ),
            ("[kernel", "TOML"),
        ] {
            let problem = Taxonomy::default().add(text).unwrap_err().to_string();
            assert!(problem.contains(part), "{text:?}: {problem}");
        }
    }

    #[test]
    fn sources_are_known_by_the_end_of_their_path() {
        let taxonomy = Taxonomy::built_in().unwrap();
        let word = |path| taxonomy.source(path).word;
        assert_eq!(
            word("/somewhere/crates/preload/src/waiting/wait.rs"),
            Word::Decides(Category::Waiting)
        );
        assert_eq!(
            word("crates/preload/src/sockets/lane/send.rs"),
            Word::Decides(Category::Ring)
        );
        assert_eq!(word("library/core/src/sync/atomic.rs"), Word::Unknown);
        assert_eq!(word("crates/bench/src/worker/mod.rs"), Word::Unknown);
    }
}
