//! Virtual sockets that are passed to a process which is no fork of this one: over exec, to spawned programs, in
//! `SCM_RIGHTS` messages. The kernel carries the anchor. The daemon keeps the location of the socket's entry and link,
//! under the anchor's cookie, for the process that receives the anchor. The sender keeps the same, in case the daemon
//! ends meanwhile, or none serves ([`crate::processes::in_transit`]).
//!
//! ```text
//!  sender:   deposit (entry, link) --> daemon     one reference more, for the
//!               anchor  --kernel-->               descriptor in transit
//!  receiver: lookup (cookie) --> daemon           maps region and link; the reference is its
//! ```

use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use netchannel_abi::link::Role;
use netchannel_abi::message::{Message, Operation};
use netchannel_abi::program::{SocketEntry, State};

use crate::connections::connection;
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, credentials};
use crate::ground::{clock, gate, process, sys};
use crate::processes::in_transit::{self, Record};
use crate::processes::not_taken_up::{self, is_unknown_anchor, replace_by_reset};
use crate::sockets::lane::Lane;
use crate::sockets::link::LinkEnd;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{foreign, rings};
use crate::waiting::epoll;

/// Adopts a standard stream of the C library that is a virtual socket. Registered by the module of streams.
pub static ADOPT_STANDARD: OnceLock<fn(i32)> = OnceLock::new();

/// The region that has the entry of a socket, and the entry's index.
fn location(socket: &Socket) -> Option<(u64, usize)> {
    if socket.is_foreign() {
        return foreign::location(socket.entry);
    }
    Some((attach::current()?.number(), socket.word.index()))
}

/// A socket that is ready to be passed.
pub struct Deposit {
    /// Whether the daemon has it.
    pub is_with_daemon: bool,
    /// The record that the sender can keep.
    pub record: Option<Record>,
    link: &'static LinkEnd,
}

/// Deposits the socket behind `fd` for one other process, in a message or a child, with the daemon if one serves, and
/// counts a reference for its descriptor. Without a daemon the receiver finds this process's record, while it lives.
/// Returns that record.
///
/// # Errors
/// Where neither the daemon nor this process can keep it, or the link's memory is closed.
pub fn deposit(fd: i32, socket: &Socket) -> Result<Option<Record>, i32> {
    let made = prepare(fd, socket)?;
    let kept = made
        .record
        .is_some_and(|record| in_transit::keep(*socket, made.link, record, made.is_with_daemon));
    if made.is_with_daemon || kept && process::is_dumpable() {
        return Ok(made.record);
    }
    withdraw(fd, socket);
    Err(libc::ENOTCONN)
}

/// Deposits the socket behind `fd` for another process or image, with the daemon if one serves, and counts a reference
/// for its descriptor.
///
/// # Errors
/// Where the link's memory is closed.
pub fn prepare(fd: i32, socket: &Socket) -> Result<Deposit, i32> {
    credentials::note_shared();
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    let memory = lane.link.memory();
    if memory < 0 {
        return Err(libc::EBADF);
    }
    let mut words = [0; 14];
    // Anchors of a queue get their mark only now.
    sys::local::mark(fd)?;
    words[0] = sys::cookie(fd)?;
    words[1] = lane.link.number;
    words[2] = u64::from(lane.handle().index);
    words[3] = lane.link.role as u64;
    words[4] = u64::from(lane.handle().generation);
    lane.reserve_rings();
    // Counted first: a process that looks it up may close it at once.
    socket.begin_passing();
    let asked = retry_once(|| {
        // The next daemon has another number for the region.
        let (region, index) = location(socket).ok_or(libc::EBADF)?;
        words[5] = region;
        words[6] = index as u64;
        attach::request(Operation::Deposit, words, &[memory], &mut [-1; sys::MOST])
    });
    Ok(Deposit {
        is_with_daemon: asked.is_ok(),
        record: in_transit::record(socket, lane.link, words),
        link: lane.link,
    })
}

/// Asks once more where the daemon was lost during the request: another one may serve already.
fn retry_once<R>(mut ask: impl FnMut() -> Result<R, i32>) -> Result<R, i32> {
    match ask() {
        Err(libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT) => {
            attach::retry_now();
            ask()
        }
        answered => answered,
    }
}

/// Takes a deposit back: the call that should have passed the socket failed.
pub fn withdraw(fd: i32, socket: &Socket) {
    let mut words = [0; 14];
    words[0] = sys::cookie(fd).unwrap_or(0);
    in_transit::withdraw(words[0]);
    let mut received = [-1; sys::MOST];
    if let Ok((_, count)) = attach::request(Operation::Lookup, words, &[], &mut received) {
        received.iter().take(count).for_each(|fd| sys::close(*fd));
    }
    socket.end_passing();
    socket.drop_reference();
}

/// Adopts a received descriptor, if it is the anchor of a virtual socket. `again` when the same descriptor will be
/// received once more (a peek).
pub fn adopt(fd: i32, again: bool) {
    if !is_unknown_anchor(fd) {
        return;
    }
    let Ok(cookie) = sys::cookie(fd) else { return };
    let mut words = [0; 14];
    words[0] = cookie;
    words[1] = u64::from(again);
    let mut received = [-1; sys::MOST];
    let answered = match attach::ensure() {
        Some(_) => look_up_deposit(words, &mut received),
        None => Err(libc::ENOTCONN),
    };
    let left = match answered {
        Ok((answer, 2)) => find(&answer.words, received[0], received[1]),
        Ok((_, count)) => {
            received.iter().take(count).for_each(|fd| sys::close(*fd));
            None
        }
        Err(_) => None,
    };
    let Some((socket, made)) = left.or_else(|| find_at_sender(cookie)) else {
        return replace_by_reset(fd);
    };
    let _inside = gate::enter();
    if !again {
        socket.end_passing();
    }
    if !made {
        socket.add_descriptor();
    }
    // The reference of the passed descriptor is now this process's, which may already have one.
    match (made, again) {
        (true, true) => socket.add_reference(),
        (false, false) => {
            socket.drop_reference();
        }
        _ => {}
    }
    if !table::set(fd, socket.word) {
        socket.drop_descriptor();
    }
}

/// How long to ask for a deposit that is known to exist.
const DEPOSIT_TIMEOUT: u64 = 2_000_000_000;

/// Asks the daemon for a deposit. `ENOBUFS` means that it exists and the daemon can not send it now: it is asked again
/// for a while, since only the user's other programs are in the way.
fn look_up_deposit(
    words: [u64; 14],
    received: &mut [i32; sys::MOST],
) -> Result<(Message, usize), i32> {
    let until = clock::nanoseconds().saturating_add(DEPOSIT_TIMEOUT);
    let mut pause = 1_000_000;
    loop {
        let ask = || attach::request(Operation::Lookup, words, &[], received);
        match retry_once(ask) {
            Err(libc::ENOBUFS) if clock::nanoseconds() < until => {
                sys::sleep(pause);
                pause = (pause * 2).min(50_000_000);
            }
            answered => return answered,
        }
    }
}

/// As [`find`], by the sender's record: the sender's daemon has ended, and the next one has no deposit.
#[cold]
fn find_at_sender(cookie: u64) -> Option<(Socket, bool)> {
    let (record, [memory, region]) = in_transit::find(cookie)?;
    if attach::current().is_none() && attach::attach_without_daemon().is_none() {
        [memory, region].into_iter().for_each(sys::close);
        return None;
    }
    find(&record, memory, region)
}

/// The socket that the daemon's answer names, and whether it is new to this process. The memfds are consumed.
fn find(words: &[u64; 14], memory: i32, region: i32) -> Option<(Socket, bool)> {
    let found = find_in(words, memory, region);
    sys::close(region);
    found
}

fn find_in(words: &[u64; 14], memory: i32, region: i32) -> Option<(Socket, bool)> {
    let role = Role::from_word(words[3]);
    let number = |word: u64| usize::try_from(word).ok();
    let listener = 0;
    let link = foreign::link(role, words[1], listener, (words[8], words[9]), memory)?;
    let socket = || {
        let index = number(words[6])?;
        let (entry, own) = foreign::entry(words[5], number(words[7])?, region, index)?;
        if entry.state.load(Ordering::Acquire) != State::Virtual as u32
            || entry.link.load(Ordering::Relaxed) != words[1]
            || u64::from(entry.slot.load(Ordering::Relaxed)) != words[2]
            || u64::from(entry.generation.load(Ordering::Relaxed)) != words[4]
        {
            return None;
        }
        if let Some(known) = find_known(entry) {
            return Some((known, false));
        }
        Some((socket::of_entry(entry, own.then_some(index))?, true))
    };
    let found = socket();
    if let Some((made, true)) = found {
        let link = core::ptr::from_ref::<LinkEnd>(link).cast_mut();
        made.local.link.store(link, Ordering::Release);
        made.mark(status::SHARED);
    } else {
        link.remove_user();
    }
    found
}

/// The socket of an entry of which this process already has a descriptor.
fn find_known(entry: &SocketEntry) -> Option<Socket> {
    let mut known = None;
    table::for_each(|_, word| {
        if word.kind() == Kind::Virtual
            && let Some(socket) = socket::of_word(word)
            && core::ptr::eq(socket.entry, entry)
        {
            known = Some(socket);
        }
    });
    known
}

/// A received descriptor may be a TCP listener: opens it to virtual connections at once, so that no connection waits in
/// the kernel's queue. Or it is a TCP socket without a connection, on which others may listen.
pub fn adopt_kernel_socket(fd: i32) {
    if table::get(fd).kind() != Kind::Foreign {
        return;
    }
    let listens = match sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) {
        Ok(listens) => listens == 1,
        Err(_) => return,
    };
    if !listens && !connection::is_unconnected(fd) {
        return;
    }
    let Ok(cookie) = sys::cookie(fd) else { return };
    let mut known = None;
    table::for_each(|other, word| {
        if matches!(word.kind(), Kind::Listener | Kind::Kernel) && sys::cookie(other) == Ok(cookie)
        {
            known = Some(word);
        }
    });
    match known.and_then(socket::of_word) {
        Some(socket) => {
            let _inside = gate::enter();
            socket.add_descriptor();
            table::set(fd, socket.word);
        }
        None if listens => connection::adopt_received_listener(fd),
        None => connection::adopt_unconnected(fd),
    }
}

/// At the start of a program: adopts the inherited sockets. `sets` describes the epoll sets.
pub fn adopt_inherited(sets: Option<&str>) {
    let mut adopted: Vec<(u64, table::Word)> = Vec::new();
    let mut left = Vec::new();
    for fd in sys::open_descriptors() {
        if table::get(fd).kind() != Kind::Foreign {
            continue;
        }
        adopt_kernel_socket(fd);
        if !is_unknown_anchor(fd) {
            continue;
        }
        let Ok(cookie) = sys::cookie(fd) else {
            continue;
        };
        let known = adopted.iter().find(|(known, _)| *known == cookie);
        if let Some(socket) = known.and_then(|(_, word)| socket::of_word(*word)) {
            socket.add_descriptor();
            table::set(fd, socket.word);
            continue;
        }
        adopt(fd, false);
        let word = table::get(fd);
        if word.kind() == Kind::Virtual {
            adopted.push((cookie, word));
        } else {
            left.push(fd);
        }
    }
    not_taken_up::end_inherited(left);
    in_transit::drop_inherited();
    epoll::adopt_inherited(sets);
    if !adopted.is_empty() {
        rings::inherited();
    }
    for fd in 0..3 {
        if table::get(fd).kind() == Kind::Virtual {
            ADOPT_STANDARD.get().inspect(|adopt| adopt(fd));
        }
    }
    if attach::control() >= 0 {
        // This process does not hold listeners that the exec closed.
        let mut none = [-1; sys::MOST];
        let _ = attach::request(Operation::Unlisten, [0; 14], &[], &mut none);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_that_no_daemon_knows_is_broken_off_and_a_local_socket_stays() {
        let (anchor, other) = sys::anchor_pair().unwrap();
        let (local, peer) = sys::socket_pair(libc::SOCK_STREAM).unwrap();
        for fd in [anchor, local] {
            adopt(fd, false);
        }
        let mut bytes = [0; 8];
        assert_eq!(sys::receive(anchor, &mut bytes, 0), Err(libc::ECONNRESET));
        assert_eq!(sys::send(peer, &bytes, 0), Ok(8));
        assert_eq!(sys::receive(local, &mut bytes, 0), Ok(8));
        for fd in [anchor, other, local, peer] {
            sys::close(fd);
        }
    }
}
