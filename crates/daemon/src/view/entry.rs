//! The view of one socket, from the entry of its region and from its slot.

use super::links::{Announced, Slots, is_listener_of};
use netchannel_abi::address::Address;
use netchannel_abi::link::{self, MOST_RING_LOG2, Role, side_flags};
use netchannel_abi::message::MESSAGE_BYTES;
use netchannel_abi::program::{RELAY, SocketEntry, State};
use netchannel_abi::reason::Reason;
use netchannel_control::types::{Path, Socket};
use netchannel_engine::CoreEngine;
use netchannel_engine::program::{Program, ProgramRegion};
use netchannel_service::addresses::shown as shown_address;
use netchannel_service::class;
use netchannel_service::stack::{RemoteConnection, Stack};
use netchannel_shm::Snapshot;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Connections with programs of other hosts, by link and slot of the socket on this host.
pub type RemoteByPlace = HashMap<(u64, u32), RemoteConnection>;

/// The context of an entry.
pub struct EntryContext<'a> {
    pub core: &'a CoreEngine,
    pub region: &'a ProgramRegion,
    pub number: u32,
    pub program: &'a Program,
    pub announced: &'a Announced,
    pub remote: &'a RemoteByPlace,
    pub stacks: &'a [Box<dyn Stack>],
}

/// The path of a state, and the corresponding state of TCP.
pub const fn path_of(state: State) -> (Path, &'static str) {
    match state {
        State::Virtual => (Path::Virtual, "ESTAB"),
        State::Kernel => (Path::Kernel, "KERNEL"),
        State::Listener => (Path::Listener, "LISTEN"),
        State::Fresh | State::Free => (Path::Fresh, "UNCONN"),
    }
}

/// The view of an entry's socket.
pub fn socket(
    context: &EntryContext<'_>,
    entry: &SocketEntry,
    state: State,
    slots: &mut Slots<'_>,
    copy: &mut Snapshot,
) -> Socket {
    let program = context.program;
    let (path, name) = path_of(state);
    let maker = entry.process.load(Relaxed);
    let class = class::explicit_class(entry.hints.load(Relaxed));
    let mut socket = Socket {
        program: context.number,
        process: if maker == 0 { program.process } else { maker },
        name: program.name.clone(),
        descriptor: entry.descriptor.load(Relaxed),
        path,
        state: name.to_owned(),
        local: shown_address(&entry.local.load()),
        peer: shown_address(&entry.peer.load()),
        reason: Reason::from_word(entry.reason.load(Relaxed))
            .name()
            .to_owned(),
        host: "-".to_owned(),
        channels: "-".to_owned(),
        stack: "-".to_owned(),
        send_queue: 0,
        receive_queue: 0,
        sent: 0,
        received: 0,
        pending: 0,
        class: class.map_or("-", |(class, _)| class).to_owned(),
        class_source: class.map_or("-", |(_, source)| source).to_owned(),
        link: 0,
        slot: 0,
    };
    match state {
        State::Virtual => {
            let flags = fill(context.region, slots, copy, entry, &mut socket);
            let is_opening = flags.is_some_and(|(_, is_opening)| is_opening);
            if let Some((flags, false)) = flags {
                show_way(context, &entry.peer.load(), flags, &mut socket);
            }
            if let Some(remote) = context.remote.get(&(socket.link, socket.slot)) {
                show(remote, &mut socket);
                if is_opening {
                    "SYN-SENT".clone_into(&mut socket.state);
                }
            }
        }
        State::Listener => {
            socket.pending = pending(context, entry.listener.load(Relaxed));
        }
        _ => {}
    }
    socket
}

/// The number of offered links that nobody has taken, and of connections announced on the links of a listener.
fn pending(context: &EntryContext<'_>, number: u32) -> u64 {
    let core = context.core;
    let Some(listener) = core.listeners().get(&number) else {
        return 0;
    };
    if !is_listener_of(core, number, context.region.user) {
        return 0;
    }
    let waiting = rustix::io::ioctl_fionread(&*listener.accepts).unwrap_or(0);
    waiting / MESSAGE_BYTES as u64 + context.announced.of(number)
}

/// Adds the data of a connection with a program of another host.
fn show(remote: &RemoteConnection, to: &mut Socket) {
    to.path = Path::Channel;
    (*remote.host).clone_into(&mut to.host);
    remote.class.clone_into(&mut to.class);
    remote.source.clone_into(&mut to.class_source);
    if !remote.channels.is_empty() {
        to.channels.clone_from(&remote.channels);
    }
}

/// Adds the stack of a tenant's connection, and where that leads to another host.
fn show_way(context: &EntryContext<'_>, peer: &Address, flags: u32, to: &mut Socket) {
    let link = context.core.links().get(&to.link);
    let is_by_stack = link.is_some_and(|link| link.listener == 0 || link.client == RELAY);
    let mut stacks = context.stacks.iter().filter(|_| is_by_stack);
    let Some((name, host)) = stacks.find_map(|stack| stack.name_of_way(peer, flags)) else {
        return;
    };
    name.clone_into(&mut to.stack);
    if let Some(host) = host {
        (to.path, to.host) = (Path::Channel, host);
    }
}

/// Queues and counters of a virtual socket from its own words and its slot. Returns the flags of the other end, and true where it connects, and
/// no stack module has taken it up.
fn fill(
    region: &ProgramRegion,
    slots: &mut Slots<'_>,
    copy: &mut Snapshot,
    entry: &SocketEntry,
    socket: &mut Socket,
) -> Option<(u32, bool)> {
    socket.link = entry.link.load(Relaxed);
    socket.slot = entry.slot.load(Relaxed);
    socket.sent = entry.transmit.own.load(Relaxed);
    socket.received = entry.receive.own.load(Relaxed);
    let generation = entry.generation.load(Relaxed);
    let slot = slots.get(region, socket.link, socket.slot, copy)?;
    if slot.meta.generation.load(Acquire) != generation {
        return None;
    }
    let is_server = entry.role.load(Relaxed) == Role::Server as u32;
    let (own, other) = if is_server {
        (&slot.server, &slot.client)
    } else {
        (&slot.client, &slot.server)
    };
    if own.generation.load(Relaxed) != generation {
        return None;
    }
    let fresh = other.generation.load(Relaxed) == generation;
    let (head, tail) = if fresh {
        (other.head.load(Acquire), other.tail.load(Acquire))
    } else {
        (0, 0)
    };
    socket.send_queue = queued(own.tail.load(Acquire), head);
    socket.receive_queue = queued(tail, own.head.load(Acquire));
    let own_flags = own.flags.load(Relaxed);
    let other_flags = if fresh { other.flags.load(Relaxed) } else { 0 };
    socket.state = tcp_state(own_flags, other_flags).to_owned();
    let taken_up = side_flags::ESTABLISHED | side_flags::RESET | side_flags::CLOSED;
    Some((other_flags, !is_server && other_flags & taken_up == 0))
}

fn tcp_state(own: u32, other: u32) -> &'static str {
    let ended = |flags: u32| flags & (side_flags::FIN | side_flags::CLOSED) != 0;
    if (own | other) & side_flags::RESET != 0 {
        return "RESET";
    }
    match (ended(own), ended(other)) {
        (false, false) => "ESTAB",
        (true, false) => "FIN-WAIT",
        (false, true) => "CLOSE-WAIT",
        (true, true) => "CLOSED",
    }
}

/// The number of bytes between two indices. More than the rings of a direction can hold is false, and clamped.
fn queued(tail: u64, head: u64) -> u64 {
    let most = (1 << (MOST_RING_LOG2 + 1)) + link::SMALL_RING as u64;
    tail.wrapping_sub(head)
        .min(if tail >= head { most } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_is_clamped() {
        assert_eq!(queued(10, 4), 6);
        assert_eq!(queued(4, 10), 0);
        assert!(queued(u64::MAX, 0) < 16 << 20);
    }

    #[test]
    fn states_have_tcps_names() {
        assert_eq!(tcp_state(0, 0), "ESTAB");
        assert_eq!(tcp_state(side_flags::FIN, 0), "FIN-WAIT");
        assert_eq!(tcp_state(0, side_flags::CLOSED), "CLOSE-WAIT");
        assert_eq!(tcp_state(0, side_flags::RESET), "RESET");
    }
}
