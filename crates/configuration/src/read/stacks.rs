//! `[[stacks]]`.

use std::path::{Path, PathBuf};

use super::host::is_name;
use super::table::Section;
use super::transport::{Refusal, congestion_control};
use crate::stack::{StackFairness, StackKind, StackTable, parse_processors};
use netchannel_scheduler::registry::Unit;

/// Keys of a stack.
const STACK: [&str; 9] = [
    "name",
    "kind",
    "start",
    "namespace",
    "user",
    "processors",
    "memory",
    "fairness",
    "congestion-control",
];
/// Where `ip netns` keeps the names of namespaces.
const NAMESPACES: &str = "/run/netns";
/// The kernel has no user of the highest number.
const MOST_USER: u64 = 4_294_967_294;

pub fn stacks(root: &Section<'_>, refusal: Refusal<'_>) -> Vec<StackTable> {
    let mut stacks: Vec<StackTable> = Vec::new();
    for section in root.sections("stacks") {
        let name = section.string("name");
        if name.is_none() && !section.has("name") {
            let sentence = "a stack needs a name: add name = \"...\"";
            section.report(section.span(), "", sentence);
        }
        let name = name.filter(|name| is_name(&section, name));
        let section = match &name {
            Some(name) => section.named(format!("stacks.{}", name.value)),
            None => section,
        };
        section.known(&STACK);
        if let Some(name) = &name {
            let problem = match name.value.as_str() {
                "kernel" => Some("is the stack within the daemon: write another name"),
                _ if stacks.iter().any(|other| other.name == name.value) => {
                    Some("another stack has this name: write another one")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                section.report(&name.span, "name", problem);
            }
        }
        one_of(&section, "kind", &["kernel"]);
        let starts = one_of(&section, "start", &["daemon", "manual"]).as_deref() != Some("manual");
        let stack = StackTable {
            name: name.map(|name| name.value).unwrap_or_default(),
            kind: StackKind::Kernel,
            namespace: namespace(&section),
            user: section
                .count("user", 0..=MOST_USER)
                .and_then(|item| u32::try_from(item.value).ok()),
            processors: processors(&section),
            memory: section
                .quantity("memory", Unit::Bytes, 16 << 20..=1 << 50)
                .map(|item| item.value),
            fairness: match one_of(&section, "fairness", &["processor", "network"]).as_deref() {
                Some("network") => StackFairness::Network,
                _ => StackFairness::Processor,
            },
            congestion_control: congestion_control(&section, refusal),
            starts,
        };
        if !stack.starts {
            // The user is who may attach, and a namespace says that ports are bound by the stack.
            for key in ["processors", "memory"] {
                if section.has(key) {
                    let sentence = "is for whoever starts the stack to set: remove it, or write start = \"daemon\"";
                    section.report(section.span(), key, sentence);
                }
            }
        }
        stacks.push(stack);
    }
    stacks
}

/// A word out of a few.
fn one_of(section: &Section<'_>, key: &str, words: &[&str]) -> Option<String> {
    let item = section.string(key)?;
    if words.contains(&item.value.as_str()) {
        return Some(item.value);
    }
    let (text, all) = (&item.value, words.join(", "));
    section.report(
        &item.span,
        key,
        format!("{text:?} is not one of {all}: write one of these"),
    );
    None
}

fn namespace(section: &Section<'_>) -> Option<PathBuf> {
    let item = section.string("namespace")?;
    let text = &item.value;
    let is_plain = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    if is_plain {
        return Some(Path::new(NAMESPACES).join(text));
    }
    if text.starts_with('/') {
        return Some(PathBuf::from(text));
    }
    let sentence = format!(
        "{text:?} is no network namespace: write its name of `ip netns`, or a path like /proc/PID/ns/net"
    );
    section.report(&item.span, "namespace", sentence);
    None
}

fn processors(section: &Section<'_>) -> Vec<usize> {
    let Some(item) = section.string("processors") else {
        return Vec::new();
    };
    parse_processors(&item.value).unwrap_or_else(|| {
        let sentence = format!(
            "{:?} is no list of processors: write one like 0-3,6",
            item.value
        );
        section.report(&item.span, "processors", sentence);
        Vec::new()
    })
}
