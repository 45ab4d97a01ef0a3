//! What the regions of programs and the links between them show. All of it was written by programs
//! that may lie: it is copied once, clamped, and never used as an index unchecked.

use crate::class;
use crate::core::CoreEngine;
use crate::holders::Holders;
use crate::memory;
use crate::program::{Estate, Program};
use crate::totals::{Totals, Users};
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::link::{
    self, Layout, MOST_RING_LOG2, QUEUE_CAPACITY, QueueIndices, Role, Slot, side_flags,
};
use netchannel_abi::message::MESSAGE_BYTES;
use netchannel_abi::program::{ENTRIES_OFFSET, Header, SocketEntry, State};
use netchannel_abi::reason::Reason;
use netchannel_control::types::{self, Fallback, Path, Socket};
use netchannel_shm::{Access, Region};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Every socket of every program that `user` may see.
pub fn sockets(core: &CoreEngine, user: Option<u32>) -> Vec<Socket> {
    let mut links = Links {
        core,
        mapped: HashMap::new(),
    };
    let mut shown = Vec::new();
    for (number, program, estate) in estates(core, user) {
        each(estate, |entry, state| {
            shown.push(socket(&mut links, number, program, entry, state));
        });
    }
    shown.sort_by_key(|socket| (socket.program, socket.descriptor));
    shown
}

/// Every region once, with the program to show for it: its own, or else a forked child that goes
/// on using it.
pub fn estates(core: &CoreEngine, user: Option<u32>) -> Vec<(u32, &Program, &Rc<Estate>)> {
    let mut visible: Vec<_> = core
        .programs()
        .iter()
        .filter(|(_, program)| user.is_none_or(|user| program.credentials.user == user))
        .collect();
    visible.sort_by_key(|(number, _)| **number);
    let mut seen = HashMap::new();
    for (number, program) in &visible {
        if let Some(estate) = &program.estate {
            seen.insert(Rc::as_ptr(estate), (**number, *program, estate));
        }
    }
    for (number, program) in &visible {
        for estate in &program.inherited {
            seen.entry(Rc::as_ptr(estate))
                .or_insert((**number, *program, estate));
        }
    }
    let mut estates: Vec<_> = seen.into_values().collect();
    estates.sort_by_key(|(number, _, _)| *number);
    estates
}

/// One attached program as `status` shows it, with what was counted in those of `regions` that are
/// shown for it.
pub fn program(
    core: &CoreEngine,
    number: u32,
    program: &Program,
    regions: &[(u32, &Program, &Rc<Estate>)],
) -> types::Program {
    let mut shown = types::Program {
        program: number,
        process: program.process,
        name: program.name.clone(),
        user: program.credentials.user,
        listeners: program.listeners.len() as u64,
        links: core
            .links()
            .values()
            .filter(|one| one.client == number)
            .count() as u64,
        ..types::Program::default()
    };
    let mut totals = Totals::default();
    for (_, _, estate) in regions.iter().filter(|(owner, _, _)| *owner == number) {
        shown.memory_bytes += memory::occupied(&estate.region);
        if let Some(region) = map(estate) {
            totals.add(&Totals::of(&region));
        }
    }
    shown.connects = totals.connects;
    shown.accepts = totals.accepts;
    shown.tokens = totals.tokens;
    shown.sleeps = totals.sleeps;
    shown.faults = totals.faults;
    let counted = Reason::ALL.iter().zip(totals.fallbacks);
    let counted = counted.map(|(reason, count)| Fallback {
        reason: reason.name().to_owned(),
        count,
    });
    shown.fallbacks = counted.filter(|fallback| fallback.count > 0).collect();
    shown
}

/// What programs counted, with those that are gone, by user.
pub fn users(core: &CoreEngine) -> Users {
    let mut users = core.departed().clone();
    for (_, _, estate) in estates(core, None) {
        if let Some(region) = map(estate) {
            users.add(estate.user, &Totals::of(&region));
        }
    }
    users
}

/// How many sockets take each path.
pub fn paths(core: &CoreEngine) -> Vec<(Path, u64)> {
    let all = [Path::Virtual, Path::Kernel, Path::Listener, Path::Fresh];
    let mut counts = all.map(|path| (path, 0));
    for (_, _, estate) in estates(core, None) {
        each(estate, |_, state| {
            let (path, _) = path_of(state);
            let of_path = counts.iter_mut().find(|(one, _)| *one == path);
            of_path.into_iter().for_each(|(_, count)| *count += 1);
        });
    }
    counts.to_vec()
}

fn map(estate: &Estate) -> Option<Region> {
    let mapped = Region::map(estate.region.as_raw_fd(), estate.size, Access::ReadOnly);
    mapped
        .inspect_err(|error| tracing::warn!("cannot look into a region ({error:?})"))
        .ok()
}

/// Links as they are needed, mapped read-only for the time of one answer.
struct Links<'a> {
    core: &'a CoreEngine,
    mapped: HashMap<u64, Option<Region>>,
}

impl Links<'_> {
    fn region(&mut self, number: u64) -> Option<&Region> {
        let (core, layout) = (self.core, self.layout());
        let region = self.mapped.entry(number).or_insert_with(|| {
            let memory = &core.links().get(&number)?.memory;
            Region::map(memory.as_raw_fd(), layout.size(), Access::ReadOnly).ok()
        });
        region.as_ref()
    }

    fn layout(&self) -> Layout {
        self.core.limits().layout()
    }

    fn slot(&mut self, number: u64, index: u32) -> Option<&Slot> {
        let layout = self.layout();
        let index = usize::try_from(index).ok()?;
        if index >= layout.slots {
            return None;
        }
        self.region(number)?.at(layout.slot(index))
    }

    /// Connections in the job queue of a link.
    fn announced(&mut self, number: u64) -> u64 {
        let offset = self.layout().queue(Role::Client);
        let region = self.region(number);
        let indices = region.and_then(|region| region.at::<QueueIndices>(offset));
        let count = indices.map_or(0, |indices| {
            let head = indices.head.load(Acquire);
            indices.tail.load(Acquire).saturating_sub(head)
        });
        count.min(QUEUE_CAPACITY as u64)
    }
}

/// Every socket in a region.
fn each(estate: &Estate, mut visit: impl FnMut(&SocketEntry, State)) {
    let Some(region) = map(estate) else { return };
    let Some(header) = region.at::<Header>(0) else {
        return;
    };
    let used = header.high_water.load(Acquire).min(estate.entries);
    let entries = usize::try_from(estate.entries).unwrap_or(0);
    let holders = Holders::of(&region, entries);
    for index in 0..usize::try_from(used).unwrap_or(0) {
        let offset = ENTRIES_OFFSET + index * size_of::<SocketEntry>();
        let Some(entry) = region.at::<SocketEntry>(offset) else {
            return;
        };
        let state = State::from_word(entry.state.load(Acquire));
        if state != State::Free && !holders.have_left(index, entry.references.load(Relaxed)) {
            visit(entry, state);
        }
    }
}

/// The path of a state, and the state in TCP's words.
const fn path_of(state: State) -> (Path, &'static str) {
    match state {
        State::Virtual => (Path::Virtual, "ESTAB"),
        State::Kernel => (Path::Kernel, "KERNEL"),
        State::Listener => (Path::Listener, "LISTEN"),
        State::Fresh | State::Free => (Path::Fresh, "UNCONN"),
    }
}

fn socket(
    links: &mut Links<'_>,
    number: u32,
    program: &Program,
    entry: &SocketEntry,
    state: State,
) -> Socket {
    let (path, name) = path_of(state);
    let maker = entry.process.load(Relaxed);
    let class = class::said(entry.hints.load(Relaxed));
    let mut socket = Socket {
        program: number,
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
        State::Virtual => fill(links, entry, &mut socket),
        State::Listener => {
            socket.pending = pending(links, entry.listener.load(Relaxed));
        }
        _ => {}
    }
    socket
}

/// Links offered that nobody has taken, and connections announced on those that were.
fn pending(links: &mut Links<'_>, number: u32) -> u64 {
    let Some(listener) = links.core.listeners().get(&number) else {
        return 0;
    };
    let waiting = rustix::io::ioctl_fionread(&*listener.accepts).unwrap_or(0);
    let offers = waiting / MESSAGE_BYTES as u64;
    let all = links.core.links().iter();
    let same: Vec<u64> = all
        .filter(|(_, link)| link.listener == number)
        .map(|(link, _)| *link)
        .collect();
    let announced = same.into_iter().map(|link| links.announced(link));
    offers + announced.sum::<u64>()
}

/// Queues and counters of a virtual socket from its own words and its slot.
fn fill(links: &mut Links<'_>, entry: &SocketEntry, socket: &mut Socket) {
    socket.link = entry.link.load(Relaxed);
    socket.slot = entry.slot.load(Relaxed);
    socket.sent = entry.transmit.own.load(Relaxed);
    socket.received = entry.receive.own.load(Relaxed);
    let generation = entry.generation.load(Relaxed);
    let Some(slot) = links.slot(socket.link, socket.slot) else {
        return;
    };
    if slot.meta.generation.load(Acquire) != generation {
        return;
    }
    let is_server = entry.role.load(Relaxed) == Role::Server as u32;
    let (own, other) = if is_server {
        (&slot.server, &slot.client)
    } else {
        (&slot.client, &slot.server)
    };
    if own.generation.load(Relaxed) != generation {
        return;
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

/// Bytes between two indices; more than the rings of a direction can hold is a lie.
fn queued(tail: u64, head: u64) -> u64 {
    let most = (1 << (MOST_RING_LOG2 + 1)) + link::SMALL_RING as u64;
    tail.wrapping_sub(head)
        .min(if tail >= head { most } else { 0 })
}

/// An address as commands show it.
pub fn shown_address(address: &Address) -> String {
    match address.family {
        INET => {
            let [a, b, c, d, ..] = address.bytes;
            SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), address.port).to_string()
        }
        INET6 => {
            let plain = Ipv6Addr::from(address.bytes);
            SocketAddrV6::new(plain, address.port, 0, address.scope).to_string()
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_usual() {
        assert_eq!(
            shown_address(&Address::v4([127, 0, 0, 1], 80)),
            "127.0.0.1:80"
        );
        let loopback = Address::v6(1_u128.to_be_bytes(), 443, 0);
        assert_eq!(shown_address(&loopback), "[::1]:443");
        assert_eq!(shown_address(&Address::default()), "-");
    }

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
