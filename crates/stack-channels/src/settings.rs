//! Conversions of the configuration for the peers and the data plane.

use crate::data_plane::Terms;
use crate::peers::{PeerLimits, PeerSettings, Settings};
use crate::prefix::Prefix;
use netchannel_configuration::{ChannelOptions, Configuration, PerClass, SharedKey};
use netchannel_driver::Options;
use netchannel_wire::Key;
use std::collections::HashMap;
use std::sync::Arc;

/// The keys by peer: a key that did not change stays the same object.
pub type Keys = HashMap<String, (SharedKey, Arc<Key>)>;

/// The agreed limits in the form that workers use.
pub const fn agreed(terms: &crate::peers::Terms) -> Terms {
    let crate::peers::Terms { ours, theirs } = terms;
    Terms {
        payload: theirs.payload,
        own_payload: ours.payload,
        sockets: ours.sockets,
        peer_sockets: theirs.sockets,
        silence: ours.silence as u64 * 1_000_000,
        peer_silence: theirs.silence as u64 * 1_000_000,
    }
}

/// The networks of each peer's programs.
pub fn prefixes(settings: &Settings) -> HashMap<String, Vec<Prefix>> {
    let peers = settings.peers.iter();
    peers
        .map(|peer| (peer.name.clone(), peer.prefixes.clone()))
        .collect()
}

/// The configuration in the form that the peers use.
pub fn settings(configuration: &Configuration, keys: &mut Keys) -> Settings {
    let former = std::mem::take(keys);
    let peers = configuration.peers.iter().map(|peer| {
        let same = former
            .get(&peer.name)
            .filter(|(key, _)| key.is_same(&peer.key));
        let key = match same {
            Some((_, key)) => Arc::clone(key),
            None => Arc::new(peer.key.key().clone()),
        };
        keys.insert(peer.name.clone(), (peer.key.clone(), Arc::clone(&key)));
        let prefixes = peer.prefixes.iter().map(|prefix| Prefix {
            address: prefix.address(),
            length: prefix.length(),
        });
        PeerSettings {
            name: peer.name.clone(),
            addresses: peer.addresses.clone(),
            prefixes: prefixes.collect(),
            key,
            channels: peer.channels,
        }
    });
    let options = |configured: &ChannelOptions| Options {
        congestion_control: configured.congestion_control.clone(),
        send_buffer: configured.send_buffer,
        receive_buffer: configured.receive_buffer,
        priority: configured.priority,
        dscp: configured.dscp,
        ..Options::default()
    };
    let limits = &configuration.limits;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Settings {
        listen: configuration.host.listen.clone(),
        peers: peers.collect(),
        options: PerClass {
            latency: options(&configuration.transport.latency),
            throughput: options(&configuration.transport.throughput),
        },
        times: configuration.times,
        limits: PeerLimits {
            payload: limits.segment,
            sockets: limits.sockets_per_peer,
            listeners: count(limits.listeners_per_peer),
            half_open: count(limits.half_open),
        },
    }
}
