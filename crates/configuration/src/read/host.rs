//! `[host]`, `[limits]` and `[metrics]`.

use std::net::SocketAddr;

use netchannel_scheduler::registry::Unit;

use super::addresses;
use super::table::{Item, Section};
use crate::types::{DEFAULT_PORT, Host, Limits, METRICS_PORT, SEGMENT};

/// Keys of `[host]`.
const HOST: [&str; 2] = ["name", "listen"];
/// Keys of `[limits]`.
const LIMITS: [&str; 5] = [
    "sockets-per-peer",
    "listeners-per-peer",
    "half-open",
    "segment",
    "workers",
];
/// Keys of `[metrics]`.
const METRICS: [&str; 1] = ["listen"];

pub fn host(root: &Section<'_>) -> Host {
    let section = root.section("host");
    let said = section.as_ref().and_then(|section| {
        section.known(&HOST);
        let name = section.string("name")?;
        is_name(section, &name).then_some(name.value)
    });
    let listen = section
        .iter()
        .flat_map(|section| addresses(section, "listen", DEFAULT_PORT));
    Host {
        name: said.unwrap_or_else(own_name),
        listen: listen.map(|item| item.value).collect(),
    }
}

/// The system's name of this host, if it is a valid name.
fn own_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let name: String = name
        .chars()
        .map(|letter| if is_letter(letter) { letter } else { '-' })
        .take(64)
        .collect();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')
}

/// Whether a text is a valid name. If not, that is reported.
pub fn is_name(section: &Section<'_>, name: &Item<String>) -> bool {
    let good = (1..=64).contains(&name.value.len()) && name.value.chars().all(is_letter);
    if !good {
        let text = &name.value;
        section.report(
            &name.span,
            "name",
            format!("{text:?} is not a name: write 1 to 64 letters, digits, dots, hyphens or underscores"),
        );
    }
    good
}

pub fn limits(root: &Section<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(section) = root.section("limits") else {
        return limits;
    };
    section.known(&LIMITS);
    let narrow = |item: Item<u64>| u32::try_from(item.value).unwrap_or(u32::MAX);
    let set = |value: &mut u32, item: Option<Item<u64>>| {
        if let Some(item) = item {
            *value = narrow(item);
        }
    };
    set(
        &mut limits.sockets_per_peer,
        section.count("sockets-per-peer", 1..=1 << 20),
    );
    set(
        &mut limits.listeners_per_peer,
        section.count("listeners-per-peer", 1..=4096),
    );
    set(&mut limits.half_open, section.count("half-open", 1..=4096));
    set(
        &mut limits.segment,
        section.quantity("segment", Unit::Bytes, SEGMENT.0..=SEGMENT.1),
    );
    set(&mut limits.workers, section.count("workers", 2..=9));
    limits
}

pub fn metrics(root: &Section<'_>, host: &Host) -> Option<SocketAddr> {
    let section = root.section("metrics")?;
    section.known(&METRICS);
    if !section.has("listen") {
        section.report(
            section.span(),
            "",
            "no address is named: add listen = \"127.0.0.1:9117\", or remove the table",
        );
    }
    let named = addresses(&section, "listen", METRICS_PORT);
    if let Some(second) = named.get(1) {
        let sentence = "metrics are served at one address: remove the others";
        section.report(&second.span, "listen", sentence);
    }
    let first = named.first()?;
    let meets = |other: &&SocketAddr| {
        let (one, other) = (first.value.ip(), other.ip());
        first.value.is_ipv4() == other.is_ipv4()
            && (one == other || one.is_unspecified() || other.is_unspecified())
    };
    let mut same_port = host
        .listen
        .iter()
        .filter(|one| one.port() == first.value.port());
    if let Some(other) = same_port.find(meets) {
        let sentence = format!(
            "{} is where other hosts dial (host.listen has {other}): write another port, usually {METRICS_PORT}",
            first.value
        );
        section.report(&first.span, "listen", sentence);
    }
    Some(first.value)
}
