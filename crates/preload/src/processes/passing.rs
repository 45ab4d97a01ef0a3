//! Virtual sockets that go to a process which is no fork of this one: over exec, to spawned
//! programs, in `SCM_RIGHTS` messages. The kernel carries the anchor; the daemon keeps, under the
//! anchor's cookie, where the socket's entry and link are, for whoever finds the anchor. The sender keeps the same, for when the daemon
//! is gone by then ([`crate::processes::in_transit`]).
//!
//! ```text
//!  sender:   deposit (entry, link) --> daemon     one reference more: that of the descriptor
//!               anchor  --kernel-->               on its way
//!  receiver: lookup (cookie) --> daemon           maps region and link; the reference is his
//! ```

use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use netchannel_abi::link::{ANCHOR_MARK, Role};
use netchannel_abi::message::{Message, Operation};
use netchannel_abi::program::{SocketEntry, State};

use crate::connections::connection;
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, credentials, limits};
use crate::ground::{clock, gate, sys};
use crate::processes::in_transit::{self, Record};
use crate::sockets::lane::Lane;
use crate::sockets::link::LinkEnd;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{foreign, rings};
use crate::waiting::epoll;

/// A standard stream of the C library that is a virtual socket: the functions of streams register how it is taken up.
pub static ADOPT_STANDARD: OnceLock<fn(i32)> = OnceLock::new();

/// Where the entry of a socket is: the region that has it, and its number there.
fn home(socket: &Socket) -> Option<(u64, usize)> {
    if socket.is_foreign() {
        return foreign::location(socket.entry);
    }
    Some((attach::current()?.number(), socket.word.index()))
}

/// A socket that was made ready for its way.
pub struct Deposit {
    /// Whether the daemon knows it.
    pub left: bool,
    /// What the sender can keep of it.
    pub record: Option<Record>,
    link: &'static LinkEnd,
}

/// Leaves the socket behind `fd` with the daemon for one other process, in a message or a child, and counts the descriptor that it will
/// have.
///
/// # Errors
/// Where the daemon can not be told, or nothing is known that it could be told.
pub fn deposit(fd: i32, socket: &Socket) -> Result<(), i32> {
    if !attach::is_daemon_serving() {
        return Err(libc::ENOTCONN);
    }
    let made = prepare(fd, socket)?;
    if !made.left {
        withdraw(fd, socket);
        return Err(libc::ENOTCONN);
    }
    if let Some(record) = made.record {
        in_transit::keep(*socket, made.link, record);
    }
    Ok(())
}

/// Leaves the socket behind `fd` for the next image, with the daemon if one serves, and counts the descriptor that it will have.
///
/// # Errors
/// Where nothing is known that could be told.
pub fn prepare(fd: i32, socket: &Socket) -> Result<Deposit, i32> {
    credentials::note_shared();
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    let memory = lane.link.memory();
    if memory < 0 {
        return Err(libc::EBADF);
    }
    let mut words = [0; 14];
    // Those of a queue have it only now.
    sys::local::mark(fd)?;
    words[0] = sys::cookie(fd)?;
    words[1] = lane.link.number;
    words[2] = u64::from(lane.handle().index);
    words[3] = lane.link.role as u64;
    words[4] = u64::from(lane.handle().generation);
    lane.reserve_rings();
    // Counted first: whoever looks it up may close it at once.
    socket.begin_passing();
    let asked = with_second_call(|| {
        // The next daemon knows the region by another number.
        let (region, index) = home(socket).ok_or(libc::EBADF)?;
        words[5] = region;
        words[6] = index as u64;
        attach::request(Operation::Deposit, words, &[memory], &mut [-1; sys::MOST])
    });
    Ok(Deposit {
        left: asked.is_ok(),
        record: in_transit::record(socket, lane.link, words),
        link: lane.link,
    })
}

/// Asks once more where the daemon was lost in the asking: another one may serve already.
fn with_second_call<R>(mut ask: impl FnMut() -> Result<R, i32>) -> Result<R, i32> {
    match ask() {
        Err(libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT) => {
            attach::retry_now();
            ask()
        }
        answered => answered,
    }
}

/// What was deposited will not be fetched: the call that should have carried it failed.
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

/// Whether a descriptor is an anchor of whose connection nothing is known here.
fn is_bare_anchor(fd: i32) -> bool {
    table::get(fd).kind() == Kind::Foreign
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU) == Ok(ANCHOR_MARK)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// A descriptor came from another process: if it is the anchor of a virtual socket, it becomes
/// one here. `again` when the same descriptor will come once more (a peek).
pub fn adopt(fd: i32, again: bool) {
    if !is_bare_anchor(fd) {
        return;
    }
    let Ok(cookie) = sys::cookie(fd) else { return };
    let mut words = [0; 14];
    words[0] = cookie;
    words[1] = u64::from(again);
    let mut received = [-1; sys::MOST];
    let answered = match attach::ensure() {
        Some(_) => look_up(words, &mut received),
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
    let Some((socket, made)) = left.or_else(|| find_kept(cookie)) else {
        return break_off(fd);
    };
    let _inside = gate::enter();
    if !again {
        socket.end_passing();
    }
    if !made {
        socket.add_descriptor();
    }
    // What was on its way is this process's now, which may have held it before.
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

/// How long what is known to be there is asked for.
const PATIENCE: u64 = 2_000_000_000;

/// Asks the daemon for what was left. `ENOBUFS` says that something was, and that the daemon can not send it now: it is asked again for
/// a while, since nothing but the user's other programs is in the way.
fn look_up(words: [u64; 14], received: &mut [i32; sys::MOST]) -> Result<(Message, usize), i32> {
    let until = clock::nanoseconds().saturating_add(PATIENCE);
    let mut pause = 1_000_000;
    loop {
        let ask = || attach::request(Operation::Lookup, words, &[], received);
        match with_second_call(ask) {
            Err(libc::ENOBUFS) if clock::nanoseconds() < until => {
                sys::sleep(pause);
                pause = (pause * 2).min(50_000_000);
            }
            answered => return answered,
        }
    }
}

/// The connection of an anchor can not be had: whoever uses the descriptor gets `ECONNRESET`, and does not wait for ever at a bare
/// anchor, over which nothing comes.
fn break_off(anchor: i32) {
    let Ok((end, other)) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM)) else {
        return;
    };
    let status = sys::fcntl(anchor, libc::F_GETFL, 0).unwrap_or(0);
    let flags = sys::fcntl(anchor, libc::F_GETFD, 0).unwrap_or(0);
    // The kernel's word for an end that goes with bytes unread.
    let _ = sys::send(end, &[0], 0);
    sys::close(other);
    let _ = sys::fcntl(end, libc::F_SETFL, status);
    let _ = sys::replace(end, anchor, flags & libc::FD_CLOEXEC as usize != 0);
    sys::close(end);
}

/// As [`find`], by what the sender keeps: its daemon is gone, and another one knows nothing of it.
#[cold]
fn find_kept(cookie: u64) -> Option<(Socket, bool)> {
    let (record, [memory, region]) = in_transit::find(cookie)?;
    if attach::current().is_none() && attach::attach_without_daemon().is_none() {
        [memory, region].into_iter().for_each(sys::close);
        return None;
    }
    find(&record, memory, region)
}

/// The socket that the daemon's answer names, and whether this process had no descriptor of it. The memfds are consumed.
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
        if let Some(known) = known(entry) {
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

/// The socket of an entry of which this process has a descriptor already.
fn known(entry: &SocketEntry) -> Option<Socket> {
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

/// A descriptor came that may be a TCP listener: it is opened to our programs at once, so that no
/// connection waits for the kernel's queue.
pub fn adopt_listener(fd: i32) {
    if table::get(fd).kind() != Kind::Foreign
        || sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) != Ok(1)
    {
        return;
    }
    let Ok(cookie) = sys::cookie(fd) else { return };
    let mut known = None;
    table::for_each(|other, word| {
        if word.kind() == Kind::Listener && sys::cookie(other) == Ok(cookie) {
            known = Some(word);
        }
    });
    match known.and_then(socket::of_word) {
        Some(socket) => {
            let _inside = gate::enter();
            socket.add_descriptor();
            table::set(fd, socket.word);
        }
        None => connection::adopt_received_listener(fd),
    }
}

/// At the start of a program: what it inherited becomes what it was before the exec. `sets` is what was told of epoll sets.
pub fn adopt_inherited(sets: Option<&str>) {
    let mut adopted: Vec<(u64, table::Word)> = Vec::new();
    for fd in sys::open_descriptors() {
        if table::get(fd).kind() != Kind::Foreign {
            continue;
        }
        adopt_listener(fd);
        if !is_bare_anchor(fd) {
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
        }
    }
    in_transit::arrived();
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
        // Listeners that the exec closed are held no longer.
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

    #[test]
    fn a_connection_that_is_broken_off_is_reset_and_not_waited_for() {
        let (anchor, other) = sys::socket_pair(libc::SOCK_STREAM).unwrap();
        sys::fcntl(anchor, libc::F_SETFL, libc::O_NONBLOCK as usize).unwrap();
        sys::fcntl(anchor, libc::F_SETFD, libc::FD_CLOEXEC as usize).unwrap();
        break_off(anchor);
        assert!(sys::has_hung_up(other), "nobody else has it");
        let flags = sys::fcntl(anchor, libc::F_GETFL, 0).unwrap();
        assert_ne!(flags & libc::O_NONBLOCK as usize, 0);
        assert_eq!(
            sys::fcntl(anchor, libc::F_GETFD, 0),
            Ok(libc::FD_CLOEXEC as usize)
        );
        let mut bytes = [0; 8];
        assert_eq!(sys::receive(anchor, &mut bytes, 0), Err(libc::ECONNRESET));
        assert_eq!(sys::receive(anchor, &mut bytes, 0), Ok(0));
        assert_eq!(
            sys::send(anchor, &bytes, libc::MSG_NOSIGNAL),
            Err(libc::EPIPE)
        );
        sys::close(anchor);
        sys::close(other);
    }
}
