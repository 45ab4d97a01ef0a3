//! Connections to listeners that only accept connections whose clients have sent something (`TCP_DEFER_ACCEPT`).
//!
//! ```text
//!  connect --> deferred: names, options, one end of a pair for the kernel --> announced: connected as any other
//!                 its first word or end, or the time is over, or what only a connection can do
//! ```
//!
//! For the program it is connected and writable. Until it is announced, only its port exists: no slot, no anchor. So
//! the listener may be passed on, shared or closed meanwhile. A connection that can not be made by then is the
//! kernel's, with the same names. Where the listener is closed, the first bytes meet a reset, as over TCP.
//!
//! The library has no thread for the time limit: calls that sleep check it.

use core::sync::atomic::Ordering;

use netchannel_abi::address::{Address, INET6};
use netchannel_abi::program::{SocketEntry, State};
use netchannel_abi::reason::Reason;

use super::deferral::{SECOND, connect_again};
use super::dissolve::{has_named_address, leave_error};
use super::{
    REPLACING, connect, falls_back, flags, make_in_place, other_numbers, shutdown, turn_into,
};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, limits, names, ports};
use crate::ground::lock::Lock;
use crate::ground::{cancel, clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{options, placeholder, signal_owner};
use crate::waiting::housekeeping::{self, DEFERRED, NEXT};
use crate::waiting::signals::{self, BlockedSignals};
use crate::waiting::{epoll, wait};

/// Each is held by the thread that announces a deferred connection of its share.
static ANNOUNCING: [Lock<()>; SHARES] = [const { Lock::new(()) }; SHARES];
/// Threads that announce connections of different shares do not wait for each other.
const SHARES: usize = 64;
/// Longest time that the kernel takes to connect to this host, unless a backlog is full.
const ON_THIS_HOST: i64 = 100_000_000;
/// How often the relay's answer is looked for, every 50 microseconds.
const MOST_LOOKS: u32 = 2000;

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    ANNOUNCING.iter().for_each(Lock::reset);
}

/// The lock of the socket's share.
fn announcing(socket: &Socket) -> &'static Lock<()> {
    let place = core::ptr::from_ref(socket.entry).addr() / size_of::<SocketEntry>();
    &ANNOUNCING[place % SHARES]
}

/// The deferred connection under a number.
#[inline]
pub fn at(fd: i32) -> Option<Socket> {
    if !housekeeping::any_deferred() {
        return None;
    }
    let word = table::get(fd);
    (word.kind() == Kind::Deferred)
        .then(|| socket::of_word(word))
        .flatten()
}

/// Announces the deferred connection under a number. True when the number names another kind of socket by now.
#[cold]
#[inline(never)]
pub fn announce(fd: i32) -> bool {
    if let Some(socket) = at(fd) {
        // A signal handler that used it could not wait for the thread that it interrupts.
        let _held = BlockedSignals::all();
        if let Some(_announcing) = announcing(&socket).lock()
            && table::get(fd) == socket.word
        {
            announce_one(fd, &socket);
        }
    }
    table::get(fd).kind() != Kind::Deferred
}

fn announce_one(fd: i32, socket: &Socket) {
    match connect::announce(fd, socket, socket.entry.peer.load()) {
        Ok(true) => wait_for_relay(fd),
        Ok(false) => {}
        Err(reason) => to_kernel(fd, socket, Some(reason)),
    }
    let is_shut = socket.has(status::SHUT_READ);
    if is_shut {
        socket.unmark(status::SHUT_READ);
        match socket::of(fd).and_then(|now| Lane::of(now, fd)) {
            Some(lane) => {
                let _ = shutdown::shutdown(&lane, libc::SHUT_RD);
            }
            None => shut_pair(fd),
        }
    }
    // Last: a thread that sleeps on the pair finds the new socket.
    forget(socket, !is_shut && table::get(fd).kind() != Kind::Deferred);
}

/// The pair is not needed any more: its sleepers are woken.
fn forget(socket: &Socket, is_free: bool) {
    if placeholder::dismiss(socket, is_free) {
        DEFERRED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the relay's answer: a program whose connect has succeeded does not expect to wait later.
fn wait_for_relay(fd: i32) {
    for _ in 0..MOST_LOOKS {
        match socket::of(fd).and_then(|socket| Lane::of(socket, fd)) {
            Some(lane) if lane.is_connecting() => sys::sleep(50_000),
            _ => return,
        }
    }
}

/// Announces all deferred connections: the following call needs connections.
pub fn announce_all() {
    for_each(|_| true);
}

/// Announces all deferred connections when the process ends, except for those that would be reset, which no listener
/// ever sees.
pub fn end_all() {
    for_each(|socket| !aborts(socket));
}

fn for_each(wanted: impl Fn(&Socket) -> bool) {
    if !housekeeping::any_deferred() {
        return;
    }
    let mut found = Vec::new();
    table::for_each(|fd, word| {
        if word.kind() == Kind::Deferred && socket::of_word(word).is_some_and(|one| wanted(&one)) {
            found.push(fd);
        }
    });
    for fd in found {
        announce(fd);
    }
}

fn aborts(socket: &Socket) -> bool {
    socket.entry.linger.load(Ordering::Relaxed) == 1
}

/// Called when the program closes it. True when it was announced.
pub(super) fn announce_end(fd: i32, socket: &Socket) -> bool {
    !aborts(socket) && socket.is_last() && announce(fd)
}

/// Releases it without an announcement.
pub(super) fn release(socket: &Socket) {
    forget(socket, false);
    let port = socket.entry.local.load().port;
    ports::give(port, socket.entry.process.load(Ordering::Relaxed));
}

/// `connect` of a deferred connection to `AF_UNSPEC`.
///
/// # Errors
/// None at present.
pub fn dissolve(fd: i32, socket: &Socket) -> Result<(), i32> {
    let _held = BlockedSignals::all();
    if let Some(_announcing) = announcing(socket).lock()
        && table::get(fd) == socket.word
    {
        to_kernel(fd, socket, None);
        socket.unmark(status::SHUT_READ | status::CONNECTING);
        forget(socket, false);
    }
    Ok(())
}

/// The `connect` of a send with `MSG_FASTOPEN`. Returns whether there is a byte to send, as the caller says.
///
/// # Errors
/// `EISCONN` where the program knows that it is connected.
pub fn connect_to_send(socket: &Socket, flags: i32, has_byte: bool) -> Result<bool, i32> {
    // A byte announces the connection first, and is sent with these flags then.
    let connects_later = has_byte && socket.has(status::CONNECTING);
    if flags & libc::MSG_FASTOPEN != 0 && !connects_later {
        connect_again(socket)?;
    }
    Ok(has_byte)
}

/// `shutdown(SHUT_RD)`, of which the peer is not notified. False where the number is no deferred connection.
pub fn shut_read(fd: i32) -> bool {
    let Some(socket) = at(fd) else { return false };
    socket.mark(status::SHUT_READ);
    shut_pair(fd);
    true
}

fn shut_pair(fd: i32) {
    let how = sys::int(libc::SHUT_RD);
    // SAFETY: no pointers.
    let _ = unsafe { sys::raw(libc::SYS_shutdown, [sys::int(fd), how, 0, 0, 0, 0]) };
}

/// Turns it into a kernel socket: with a `reason` connected, from the same address; otherwise not connected.
fn to_kernel(fd: i32, socket: &Socket, reason: Option<Reason>) {
    let replacing = REPLACING.lock();
    let (local, peer) = (socket.entry.local.load(), socket.entry.peer.load());
    let six = local.family == INET6;
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let close_on_exec = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
    let others = other_numbers(fd, socket);
    for number in others.iter().chain([&fd]) {
        epoll::before_replace(*number, socket);
    }
    let make = || sys::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
    // Without a number for it the program finds a closed one.
    if let Ok(made) = limits::for_library(make).or_else(|_| make_in_place(fd, make)) {
        options::replay(socket, made);
        match reason {
            Some(_) => connect_from(made, socket, &local, &peer),
            None => leave_error(made, libc::ECONNRESET),
        }
        flags::apply(socket, made);
        for number in &others {
            let flags = sys::fcntl(*number, libc::F_GETFD, 0);
            let _ = limits::replace(made, *number, flags.is_ok_and(|flags| flags & 1 != 0));
        }
        if made == fd {
            let flags = if close_on_exec { libc::FD_CLOEXEC } else { 0 };
            let _ = sys::fcntl(fd, libc::F_SETFD, sys::int(flags));
        } else {
            let _ = limits::replace(made, fd, close_on_exec);
            sys::close(made);
        }
    }
    let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
    signal_owner::apply_to_file(&turned, fd);
    match reason {
        Some(reason) => falls_back(&turned, reason, Some(peer)),
        None => turned.local.former_port.note(0, local.port),
    }
    for number in others.iter().chain([&fd]) {
        epoll::replaced(*number, &turned);
    }
    drop(replacing);
    ports::give(local.port, turned.entry.process.load(Ordering::Relaxed));
}

fn connect_from(made: i32, socket: &Socket, local: &Address, peer: &Address) {
    // Where the kernel has given the port to another socket, it is another one.
    let _ = if has_named_address(socket) {
        bind(made, local)
    } else {
        bind(made, &local.unnamed()).or_else(|_| bind(made, local))
    };
    if !connect_at_once(made, socket, peer) {
        connect_to_closed_listener(made, socket, peer);
    }
}

/// Connects `made`, which takes the place of `socket`. The kernel notes that it is connected, as it does for a call
/// that waits; unless the program has still to hear so from `connect`.
pub(super) fn connect_at_once(made: i32, socket: &Socket, to: &Address) -> bool {
    let mut connected = names::connect(made, to);
    if connected == Err(libc::EINPROGRESS) {
        let mut set = [libc::pollfd {
            fd: made,
            events: libc::POLLOUT,
            revents: 0,
        }];
        let _ = sys::poll(&mut set, ON_THIS_HOST, core::ptr::null());
        if socket.has(status::CONNECTING) && set[0].revents & libc::POLLERR == 0 {
            return true;
        }
        connected = names::connect(made, to);
    }
    matches!(connected, Ok(()) | Err(libc::EISCONN | libc::EALREADY))
}

pub(super) fn bind(fd: i32, to: &Address) -> Result<usize, i32> {
    let (name, size) = names::to_sockaddr(to);
    let words = [sys::int(fd), (&raw const name).addr(), size, 0, 0, 0];
    // SAFETY: the kernel reads `name`.
    unsafe { sys::raw(libc::SYS_bind, words) }
}

/// The listener is closed: over TCP its client learns that when it sends. So it connects to a listener that exists for
/// a moment.
fn connect_to_closed_listener(made: i32, socket: &Socket, peer: &Address) {
    let six = peer.family == INET6;
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let Ok(listener) = limits::stream_socket(family) else {
        return;
    };
    let _ = sys::set_option(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    let _ = sys::set_option(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 60);
    let is_bound = bind(listener, peer).is_ok();
    // SAFETY: no pointers.
    let _ = unsafe { sys::raw(libc::SYS_listen, [sys::int(listener), 1, 0, 0, 0, 0]) };
    let named = names::kernel_address(listener, false).map_or(0, |own| own.port);
    let to = if is_bound {
        *peer
    } else {
        Address::loopback(six, named)
    };
    connect_at_once(made, socket, &to);
    sys::close(listener);
}

/// Announces deferred connections that are due.
pub fn announce_due() {
    let now = clock::nanoseconds();
    let (mut due, mut next) = (Vec::new(), u64::MAX);
    table::for_each(|fd, word| {
        let one = (word.kind() == Kind::Deferred).then(|| socket::of_word(word));
        let Some(socket) = one.flatten() else { return };
        let began = socket.local.deferred_at.load(Ordering::Relaxed);
        let passed = now.saturating_sub(began);
        let mut probes = 0;
        while options::silence_after(probes + 1) * SECOND <= passed {
            probes += 1;
        }
        if probes > 0 && probes_of_listener(&socket).is_some_and(|most| probes >= u64::from(most)) {
            due.push(fd);
        } else {
            next = next.min(began + options::silence_after(probes + 1) * SECOND);
        }
    });
    NEXT.store(next, Ordering::Relaxed);
    for fd in due {
        announce(fd);
    }
}

/// How often its listener lets TCP probe it, at present. `None` where there is no listener any more.
fn probes_of_listener(socket: &Socket) -> Option<u32> {
    let entry = socket.entry;
    let attachment = attach::current()?;
    let found = names::find_listener(attachment, &entry.peer.load(), &entry.local.load());
    found.ok().map(|target| target.defers)
}

/// Before the program receives from a deferred connection, which waits as long as nothing was sent. True where the
/// kernel's answer for the pair is right.
///
/// # Errors
/// As of a call that receives.
#[cold]
pub fn before_receive(fd: i32, flags: i32) -> Result<bool, i32> {
    housekeeping::announce_due();
    let Some(socket) = at(fd) else {
        return Ok(false);
    };
    if flags & libc::MSG_ERRQUEUE != 0 {
        // TCP queues none.
        return Err(libc::EAGAIN);
    }
    if flags & libc::MSG_OOB != 0 {
        // No urgent byte was sent; asking for it sends nothing.
        return Err(libc::EINVAL);
    }
    let limit = match socket.entry.receive_timeout.load(Ordering::Relaxed) {
        0 => -1,
        microseconds => wait::nanoseconds(microseconds),
    };
    let start = clock::nanoseconds();
    loop {
        if socket.has(status::SHUT_READ | status::NONBLOCKING) || flags & libc::MSG_DONTWAIT != 0 {
            return Ok(at(fd).is_some());
        }
        let left = clock::remaining(limit, start);
        if left == 0 {
            return Err(libc::EAGAIN);
        }
        placeholder::end_with_connection(&socket);
        // Who announces the connection puts another file under its number. A poll of that number would then look at the
        // new file, and sleep on at the old one.
        let watched = attach::duplicate(fd).unwrap_or(fd);
        let forget_watched = || {
            if watched != fd {
                attach::close_internal(watched);
            }
        };
        let sleep = |set: &mut [libc::pollfd], mask| {
            housekeeping::announce_due();
            if at(fd).is_some() {
                return signals::sleep_in_poll(set, housekeeping::bounded_sleep(left), mask);
            }
            set.iter_mut().for_each(|one| one.revents = libc::POLLIN);
            Ok(set.len())
        };
        let slept = cancel::guarded(forget_watched, || {
            if limit < 0 {
                return signals::sleep_restarting(watched, None, sleep).map(drop);
            }
            let mut set = [libc::pollfd {
                fd: watched,
                events: libc::POLLIN,
                revents: 0,
            }];
            sleep(&mut set, core::ptr::null()).map(drop)
        });
        forget_watched();
        slept?;
        if at(fd).is_none() {
            return Ok(false);
        }
    }
}
