//! `destinations` of `[[tenants]]`: by which stack connections go. What is told of peers and of other tenants is known once all are read.

use std::net::IpAddr;
use std::str::FromStr;

use super::table::Section;
use crate::destination::{Destination, Way};
use crate::prefix::Prefix;
use crate::stack::StackTable;
use crate::tenant::Tenant;
use crate::types::{Host, Peer};

/// The key.
pub const KEY: &str = "destinations";
/// All prefixes of all peers.
const PEERS: &str = "peers";

/// What entries are compared with.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub host: &'a Host,
    pub peers: &'a [Peer],
    /// Without it, some were left out for mistakes of their own, of which nothing else is to follow.
    pub has_all_peers: bool,
    pub stacks: &'a [StackTable],
}

/// How exactly an entry names what it names: of two for the same prefix the more exact one holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exactness {
    AllPeers,
    Peer,
    Prefix,
}

/// The tenants with the ways of their connections. `sections` are in the order of `tenants`.
pub fn lead(
    mut tenants: Vec<Tenant>,
    sections: &[Section<'_>],
    around: Surroundings<'_>,
) -> Vec<Tenant> {
    for (place, section) in sections.iter().enumerate() {
        let Some(tenant) = tenants.get(place) else {
            break;
        };
        let found = read(section, tenant, around);
        if let Some(tenant) = tenants.get_mut(place) {
            tenant.destinations = found;
        }
        let (others, rest) = tenants.split_at(place);
        if let Some(problem) = rest
            .first()
            .filter(|one| one.uses_channels())
            .and_then(|one| mistaken(one, others, around))
        {
            section.report(section.span(), KEY, problem);
        }
    }
    tenants
}

fn read(section: &Section<'_>, tenant: &Tenant, around: Surroundings<'_>) -> Vec<Destination> {
    let mut found: Vec<(Exactness, Destination)> = Vec::new();
    for (key, value) in section.texts(KEY) {
        let entry = way(&value.value, around)
            .map_err(|sentence| (value.span.clone(), sentence))
            .and_then(|way| {
                expand(&key.value, way, tenant, around)
                    .map_err(|sentence| (key.span.clone(), sentence))
            });
        let (exactness, entries) = match entry {
            Ok(entry) => entry,
            Err((span, sentence)) => {
                section.report(&span, KEY, sentence);
                continue;
            }
        };
        for one in entries {
            match found
                .iter_mut()
                .find(|(_, other)| other.prefix == one.prefix)
            {
                None => found.push((exactness, one)),
                Some((same, _)) if *same == exactness => {
                    let sentence = format!("{} is named twice: remove one", one.prefix);
                    section.report(&key.span, KEY, sentence);
                }
                Some(other) if other.0 < exactness => *other = (exactness, one),
                Some(_) => {}
            }
        }
    }
    let mut found: Vec<Destination> = found.into_iter().map(|(_, one)| one).collect();
    found.sort_by_key(Destination::rank);
    found
}

fn way(text: &str, around: Surroundings<'_>) -> Result<Way, String> {
    Way::from_str(text).map_err(|()| {
        if text == "local" {
            return "tenants that meet are named by meets, and need no entry here: remove it"
                .to_owned();
        }
        if around.stacks.iter().any(|stack| stack.name == text) {
            return format!(
                "stack = \"{text}\" says which process serves the tenant: write \"kernel\" here"
            );
        }
        let names = Way::ALL.map(|way| format!("\"{way}\"")).join(", ");
        format!("{text:?} is no stack for a destination: write one of {names}")
    })
}

/// The prefixes for which an entry stands.
fn expand(
    key: &str,
    way: Way,
    tenant: &Tenant,
    around: Surroundings<'_>,
) -> Result<(Exactness, Vec<Destination>), String> {
    let named = around.peers.iter().find(|peer| peer.name == key);
    let unknown = (Exactness::AllPeers, Vec::new());
    let (exactness, prefixes) = match named {
        Some(peer) => (Exactness::Peer, peer.prefixes.clone()),
        None if !around.has_all_peers && !key.contains('/') => return Ok(unknown),
        None if key == PEERS => {
            if around.peers.is_empty() {
                return Err("there are no peers: add [[peers]], or remove this".to_owned());
            }
            let all = around.peers.iter().flat_map(|peer| &peer.prefixes);
            (Exactness::AllPeers, all.copied().collect())
        }
        None => (Exactness::Prefix, vec![prefix(key)?]),
    };
    let is_own_family = |one: &&Prefix| {
        let mut own = tenant.addresses.iter();
        own.any(|own| own.is_ipv4() == one.address().is_ipv4())
    };
    let prefixes: Vec<Prefix> = prefixes.iter().filter(is_own_family).copied().collect();
    // Its own mistake is told with addresses.
    if prefixes.is_empty() && !tenant.addresses.is_empty() {
        return Err(format!(
            "the tenant has no address of the family of {key}: add one to addresses"
        ));
    }
    let is_reached = |one: &&Prefix| {
        let mut reach = tenant.reach.iter();
        way == Way::None || reach.any(|reach| reach.prefix.overlaps(one))
    };
    let reached: Vec<Prefix> = prefixes.iter().filter(is_reached).copied().collect();
    if reached.is_empty() && !prefixes.is_empty() {
        return Err(format!(
            "nothing of {key} is within reach, so that no connection goes there: add it to reach, or remove this"
        ));
    }
    let entries = reached.into_iter().map(|prefix| {
        let mut peers = around.peers.iter();
        let peer = peers.find(|peer| peer.prefixes.iter().any(|one| is_within(prefix, *one)));
        if way == Way::Channels && peer.is_none() && around.has_all_peers {
            return Err(format!(
                "no channel leads to {prefix}: it is not within the prefixes of one peer; name a peer, or one of its prefixes"
            ));
        }
        let peer = peer.filter(|_| way == Way::Channels);
        Ok(Destination {
            prefix,
            way,
            peer: peer.map(|peer| peer.name.clone()),
        })
    });
    Ok((exactness, entries.collect::<Result<_, _>>()?))
}

fn prefix(key: &str) -> Result<Prefix, String> {
    if !key.contains('/') {
        return Err(format!(
            "{key:?} is no destination: write a prefix like 10.1.0.0/16, the name of a peer, or {PEERS} for all of them"
        ));
    }
    let (address, length) = key.split_once('/').unwrap_or((key, ""));
    let any = match (address.parse::<IpAddr>(), length.parse::<u8>()) {
        // Everything, of either family.
        (Ok(address), Ok(0)) => Prefix::of_any(address, 0),
        _ => key.parse(),
    };
    any.map_err(|error| format!("{key:?} {error}"))
}

fn is_within(inner: Prefix, outer: Prefix) -> bool {
    outer.length() <= inner.length() && outer.contains(inner.address())
}

/// Why the other host could not tell whose the connections of a tenant over channels are: it sees the tenant's address.
fn mistaken(tenant: &Tenant, others: &[Tenant], around: Surroundings<'_>) -> Option<String> {
    let own = |address: &&IpAddr| tenant.addresses.contains(address);
    for other in others.iter().filter(|other| other.uses_channels()) {
        if let Some(address) = other.addresses.iter().find(own) {
            return Some(format!(
                "tenant {} goes over channels with the address {address}, too, and other hosts could not tell them apart: give one of them another address",
                other.name
            ));
        }
    }
    let mut listens = around.host.listen.iter().map(|listen| listen.ip());
    if let Some(address) = listens.find(|address| tenant.addresses.contains(address)) {
        return Some(format!(
            "other hosts would take the tenant for this host, whose address {address} is (host.listen): give the tenant another address"
        ));
    }
    for peer in around.peers {
        let holds = |address: &&IpAddr| peer.prefixes.iter().any(|one| one.contains(**address));
        if let Some(address) = tenant.addresses.iter().find(holds) {
            return Some(format!(
                "the tenant's address {address} is within the prefixes of peer {}: give the tenant another address",
                peer.name
            ));
        }
    }
    None
}
