//! `[[peers]]`.

use core::ops::Range;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use netchannel_scheduler::{Class, Settings};

use super::host::is_name;
use super::table::{Item, Section};
use super::transport::CLASSES;
use super::{addresses, path_from};
use crate::key_file;
use crate::prefix::Prefix;
use crate::scale;
use crate::types::{AskedBounds, DEFAULT_PORT, Host, MOST_CHANNELS, Peer, PerClass, SharedKey};

/// Keys of a peer.
const PEER: [&str; 5] = ["name", "addresses", "prefixes", "key-file", "channels"];
/// Keys of the channels of a class.
const BOUNDS: [&str; 2] = ["least", "most"];

/// The valid part of a peer's table.
struct ParsedPeer<'a> {
    section: Section<'a>,
    name: Option<Item<String>>,
    addresses: Vec<Item<SocketAddr>>,
    prefixes: Vec<Item<Prefix>>,
    key: Option<SharedKey>,
}

/// The peers, and whether these are all that the file has: one with a mistake is left out.
pub fn peers(
    root: &Section<'_>,
    host: &Host,
    scheduler: &Settings,
    file: &Path,
) -> (Vec<Peer>, bool) {
    let mut before: Vec<ParsedPeer<'_>> = Vec::new();
    let mut peers = Vec::new();
    for section in root.sections("peers") {
        let name = name(&section);
        let section = match &name {
            Some(name) => section.named(format!("peers.{}", name.value)),
            None => section,
        };
        section.known(&PEER);
        let (key_file, key) = key(&section, file);
        let addresses = addresses(&section, "addresses", DEFAULT_PORT);
        let parsed = ParsedPeer {
            name,
            prefixes: prefixes(&section, &addresses),
            addresses,
            key,
            section,
        };
        check_peer(&parsed, host);
        for other in &before {
            check_pair(&parsed, other);
        }
        let asked = asked(&parsed.section);
        let scale = scale::of_peer(scheduler, &asked);
        if let Err((class, sentence)) = &scale {
            let span = parsed.section.section("channels").map_or_else(
                || parsed.section.span().clone(),
                |channels| channels.span().clone(),
            );
            let key = format!("channels.{class}");
            parsed.section.report(&span, &key, sentence.clone());
        }
        if let (Some(name), Some(key), Ok((channels, scale))) = (&parsed.name, &parsed.key, scale) {
            peers.push(Peer {
                name: name.value.clone(),
                addresses: parsed.addresses.iter().map(|item| item.value).collect(),
                prefixes: parsed.prefixes.iter().map(|item| item.value).collect(),
                key: key.clone(),
                key_file,
                channels,
                scale,
                asked,
            });
        }
        before.push(parsed);
    }
    let all = peers.len() == before.len();
    (peers, all)
}

fn name(section: &Section<'_>) -> Option<Item<String>> {
    if !section.has("name") {
        let sentence = "the peer has no name: add name = \"...\"";
        section.report(section.span(), "", sentence);
    }
    let name = section.string("name")?;
    is_name(section, &name).then_some(name)
}

fn key(section: &Section<'_>, file: &Path) -> (PathBuf, Option<SharedKey>) {
    if !section.has("key-file") {
        section.report(
            section.span(),
            "",
            "the peer has no key: make one with `(umask 077; openssl rand -hex 32 > peer.key)`, copy it to the peer, \
             and add key-file = \"peer.key\" on both",
        );
    }
    let Some(parsed) = section.string("key-file") else {
        return Default::default();
    };
    let path = path_from(file, &parsed.value);
    match key_file::read(&path) {
        Ok(key) => (path, Some(key)),
        Err(sentence) => {
            section.report(&parsed.span, "key-file", sentence);
            (path, None)
        }
    }
}

/// The prefixes; without any, the addresses by themselves.
fn prefixes(section: &Section<'_>, addresses: &[Item<SocketAddr>]) -> Vec<Item<Prefix>> {
    let mut found: Vec<Item<Prefix>> = Vec::new();
    for item in section.strings("prefixes") {
        match item.value.parse::<Prefix>() {
            Ok(value) => found.push(Item {
                value,
                span: item.span,
            }),
            Err(error) => {
                let text = &item.value;
                section.report(&item.span, "prefixes", format!("{text:?} {error}"));
            }
        }
    }
    if section.has("prefixes") {
        return found;
    }
    for item in addresses {
        let value = Prefix::host(item.value.ip());
        if !found.iter().any(|other| other.value == value) {
            let span = item.span.clone();
            found.push(Item { value, span });
        }
    }
    found
}

/// Checks of a peer by itself.
fn check_peer(parsed: &ParsedPeer<'_>, host: &Host) {
    let section = &parsed.section;
    if parsed
        .name
        .as_ref()
        .is_some_and(|name| name.value == host.name)
        && let Some(name) = &parsed.name
    {
        let sentence = format!(
            "{:?} is the name of this host itself: give the peer its own, or set host.name",
            name.value
        );
        section.report(&name.span, "name", sentence);
    }
    for item in &parsed.addresses {
        let address = item.value;
        if address.ip().is_unspecified() {
            let sentence = format!("{address} is no host's address: write one that the peer has");
            section.report(&item.span, "addresses", sentence);
        } else if host.listen.contains(&address) {
            let sentence = format!("{address} is where this host itself listens: write the peer's");
            section.report(&item.span, "addresses", sentence);
        }
    }
    if parsed.addresses.is_empty() && !section.has("addresses") && host.listen.is_empty() {
        section.report(
            section.span(),
            "",
            "neither can this host dial the peer nor the peer this host: add addresses here, or host.listen",
        );
    }
    if parsed.prefixes.is_empty() && !section.has("prefixes") && !section.has("addresses") {
        section.report(
            section.span(),
            "",
            "the peer has neither addresses nor prefixes, so no connection could go there: add prefixes",
        );
    }
    if section.is_empty_list("prefixes") {
        section.report(
            section.span(),
            "prefixes",
            "no prefix is named, so no connection could go there: name one, or remove the key to have the peer's addresses",
        );
    }
}

/// Checks of a peer against another one.
fn check_pair(parsed: &ParsedPeer<'_>, other: &ParsedPeer<'_>) {
    let section = &parsed.section;
    let whose = |span: &Range<usize>| {
        let name = other.name.as_ref().map(|name| name.value.as_str());
        let line = section.line(span);
        match name {
            Some(name) => format!("peer {name} (line {line})"),
            None => format!("the peer above (line {line})"),
        }
    };
    if let (Some(name), Some(theirs)) = (&parsed.name, &other.name)
        && name.value == theirs.value
    {
        let sentence = format!(
            "{:?} is the name of another peer too (line {}): give each its own",
            name.value,
            section.line(&theirs.span)
        );
        section.report(&name.span, "name", sentence);
    }
    for item in &parsed.addresses {
        let address = item.value.ip().to_canonical();
        let theirs = other.addresses.iter();
        let mut theirs = theirs.filter(|theirs| theirs.value.ip().to_canonical() == address);
        if let Some(theirs) = theirs.next() {
            let sentence = format!(
                "{address} is an address of {} too, and a channel from there must be one peer's: remove it from one",
                whose(&theirs.span)
            );
            section.report(&item.span, "addresses", sentence);
        }
    }
    for item in &parsed.prefixes {
        let mut theirs = other.prefixes.iter();
        let theirs = theirs.find(|theirs| theirs.value.overlaps(&item.value));
        // Addresses in the place of prefixes were reported already.
        if let Some(theirs) = theirs
            && (section.has("prefixes") || other.section.has("prefixes"))
        {
            let sentence = format!(
                "{} overlaps {} of {}, and an address must belong to one peer: narrow one of them",
                item.value,
                theirs.value,
                whose(&theirs.span)
            );
            section.report(&item.span, "prefixes", sentence);
        }
    }
}

fn asked(section: &Section<'_>) -> PerClass<AskedBounds> {
    let mut asked = PerClass::default();
    let Some(channels) = section.section("channels") else {
        return asked;
    };
    channels.known(&CLASSES);
    for (class, key) in Class::ALL.into_iter().zip(CLASSES) {
        *asked.get_mut(class) = bounds(&channels, key);
    }
    asked
}

/// `2`, or `{ least = 1, most = 4 }`.
fn bounds(channels: &Section<'_>, key: &str) -> AskedBounds {
    let range = 1..=u64::from(MOST_CHANNELS);
    let narrow = |item: Item<u64>| u16::try_from(item.value).ok();
    if !channels.is_section(key) {
        let count = channels.count(key, range).and_then(narrow);
        return AskedBounds {
            least: count,
            most: count,
        };
    }
    let Some(section) = channels.section(key) else {
        return AskedBounds::default();
    };
    section.known(&BOUNDS);
    let least = section.count("least", range.clone());
    let most = section.count("most", range);
    if let (Some(least), Some(most)) = (&least, &most)
        && least.value > most.value
    {
        let sentence = format!(
            "{} is more than most = {}: exchange them",
            least.value, most.value
        );
        section.report(&least.span, "least", sentence);
        return AskedBounds::default();
    }
    AskedBounds {
        least: least.and_then(narrow),
        most: most.and_then(narrow),
    }
}
