//! A table of the file: values by key and type, and unknown keys.

use core::ops::{Range, RangeInclusive};

use netchannel_scheduler::registry::Unit;
use toml::de::{DeTable, DeValue};

use super::called;
use crate::nearest::nearest;
use crate::problems::Collector;

/// A value and its place in the file.
#[derive(Clone, Debug)]
pub struct Item<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// A table and its key.
#[derive(Clone)]
pub struct Section<'a> {
    collector: &'a Collector<'a>,
    table: &'a DeTable<'a>,
    path: String,
    span: Range<usize>,
}

impl<'a> Section<'a> {
    pub fn new(
        collector: &'a Collector<'a>,
        table: &'a DeTable<'a>,
        path: &str,
        span: Range<usize>,
    ) -> Self {
        Self {
            collector,
            table,
            path: path.to_owned(),
            span,
        }
    }

    /// Its place in the file.
    pub fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// The line of a place.
    pub fn line(&self, span: &Range<usize>) -> u64 {
        self.collector.place(span.start).0
    }

    /// The same table under another name.
    pub fn named(mut self, path: String) -> Self {
        self.path = path;
        self
    }

    /// The name of one of its keys, from the top; of itself where `key` is empty.
    fn full(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            (path, "") => path.to_owned(),
            ("", key) => key.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    /// Tells what is wrong with a value of this table.
    pub fn report(&self, span: &Range<usize>, key: &str, sentence: impl Into<String>) {
        self.collector.report(span, &self.full(key), sentence);
    }

    /// Tells of every key that is none of `known`.
    pub fn known(&self, known: &[&str]) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let list = known.join(", ");
            let sentence = match nearest(name, known) {
                Some(near) => format!("there is no key {name:?} here: is {near:?} meant? ({list})"),
                None => format!("there is no key {name:?} here: remove it; there are {list}"),
            };
            self.collector
                .report(&key.span(), &self.full(name), sentence);
        }
    }

    fn get(&self, key: &str) -> Option<(&'a DeValue<'a>, Range<usize>)> {
        let value = self.table.get(key)?;
        Some((value.get_ref(), value.span()))
    }

    /// Whether it has a value under a key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn mistyped(&self, value: &DeValue<'_>, span: &Range<usize>, key: &str, wanted: &str) {
        let is = called(value);
        self.report(span, key, format!("this is {is}, and {wanted} is wanted"));
    }

    /// A text.
    pub fn string(&self, key: &str) -> Option<Item<String>> {
        let (value, span) = self.get(key)?;
        match value.as_str() {
            Some(text) => Some(Item {
                value: text.to_owned(),
                span,
            }),
            None => {
                self.mistyped(value, &span, key, "a text in quotes");
                None
            }
        }
    }

    /// A list of texts, or a single one.
    pub fn strings(&self, key: &str) -> Vec<Item<String>> {
        let Some((value, _)) = self.get(key) else {
            return Vec::new();
        };
        let Some(list) = value.as_array() else {
            return self.string(key).into_iter().collect();
        };
        list.iter()
            .filter_map(|entry| match entry.get_ref().as_str() {
                Some(text) => Some(Item {
                    value: text.to_owned(),
                    span: entry.span(),
                }),
                None => {
                    self.mistyped(entry.get_ref(), &entry.span(), key, "a text in quotes");
                    None
                }
            })
            .collect()
    }

    /// The texts of a table below this one, with their keys.
    pub fn texts(&self, key: &str) -> Vec<(Item<String>, Item<String>)> {
        let Some(below) = self.section(key) else {
            return Vec::new();
        };
        let keys = below.table.keys().filter_map(|key| {
            let name = key.get_ref().as_ref().to_owned();
            let value = below.string(&name)?;
            let span = key.span();
            Some((Item { value: name, span }, value))
        });
        keys.collect()
    }

    /// Whether it has an empty list under a key.
    pub fn is_empty_list(&self, key: &str) -> bool {
        let list = self.get(key).and_then(|(value, _)| value.as_array());
        list.is_some_and(|list| list.is_empty())
    }

    /// A table below this one.
    pub fn section(&self, key: &str) -> Option<Self> {
        let (value, span) = self.get(key)?;
        match value.as_table() {
            Some(table) => Some(Self::new(self.collector, table, &self.full(key), span)),
            None => {
                let wanted = format!("a table, [{}],", self.full(key));
                self.mistyped(value, &span, key, &wanted);
                None
            }
        }
    }

    /// Whether it has a table under a key.
    pub fn is_section(&self, key: &str) -> bool {
        self.get(key).is_some_and(|(value, _)| value.is_table())
    }

    /// A list of tables.
    pub fn sections(&self, key: &str) -> Vec<Self> {
        let wanted = format!("[[{}]] above each entry", self.full(key));
        let Some((value, span)) = self.get(key) else {
            return Vec::new();
        };
        let Some(list) = value.as_array() else {
            self.mistyped(value, &span, key, &wanted);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            match entry.get_ref().as_table() {
                Some(table) => {
                    let path = format!("{}[{index}]", self.full(key));
                    sections.push(Self::new(self.collector, table, &path, entry.span()));
                }
                None => self.mistyped(entry.get_ref(), &entry.span(), key, &wanted),
            }
        }
        sections
    }

    /// A whole number.
    pub fn count(&self, key: &str, bounds: RangeInclusive<u64>) -> Option<Item<u64>> {
        let (value, span) = self.get(key)?;
        let range = format!("{} to {}", bounds.start(), bounds.end());
        let Some(number) = value.as_integer() else {
            self.mistyped(value, &span, key, &format!("a number, {range},"));
            return None;
        };
        let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
        match read.filter(|number| bounds.contains(number)) {
            Some(value) => Some(Item { value, span }),
            None => {
                let said = number.as_str();
                self.report(&span, key, format!("{said} is not {range}"));
                None
            }
        }
    }

    /// Bytes or a time as policies write them, `2MiB` or `200ms`; bytes also as a plain number.
    pub fn quantity(
        &self,
        key: &str,
        unit: Unit,
        bounds: RangeInclusive<u64>,
    ) -> Option<Item<u64>> {
        let (value, span) = self.get(key)?;
        let range = format!(
            "{} to {}",
            unit.show(*bounds.start()),
            unit.show(*bounds.end())
        );
        let text = match value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if unit == Unit::Bytes => number.as_str(),
            other => {
                let wanted = match unit {
                    Unit::Time => format!("a time in quotes, like \"5s\" or \"200ms\" ({range}),"),
                    _ => format!("a number of bytes, like \"2MiB\" ({range}),"),
                };
                self.mistyped(other, &span, key, &wanted);
                return None;
            }
        };
        match unit.parse(text).filter(|value| bounds.contains(value)) {
            Some(value) => Some(Item { value, span }),
            None => {
                self.report(&span, key, format!("{text:?} is not {range}"));
                None
            }
        }
    }
}
