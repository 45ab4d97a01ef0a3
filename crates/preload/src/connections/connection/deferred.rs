//! Connections to listeners that hand out only those whose clients have said something (`TCP_DEFER_ACCEPT`).
//!
//! ```text
//!  connect --> deferred: names, options, one end of a pair for the kernel --> announced: connected as any other
//!                 its first word or end, or the time is over, or what only a connection can do
//! ```
//!
//! To the program it is connected, and can be written to. Until it is announced nothing of it exists but its port: no slot, no anchor. So
//! the listener may meanwhile be passed on, shared or closed. What can not be connected by then is the kernel's, under the same names; a
//! listener that is gone meets the first word with a reset, as over TCP.
//!
//! The library has no thread that looks at the time: calls that sleep do.

use core::sync::atomic::Ordering;

use netchannel_abi::address::{Address, INET6};
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use super::deferral::SECOND;
use super::{REPLACING, connect, falls_back, flags, in_place, other_numbers, shutdown, turn_into};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, limits, names, ports};
use crate::ground::lock::Lock;
use crate::ground::{clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{options, signal_owner};
use crate::waiting::housekeeping::{self, DEFERRED, NEXT};
use crate::waiting::signals::{self, BlockedSignals};
use crate::waiting::{epoll, wait};

/// Held by the thread that announces one.
static ANNOUNCING: Lock<()> = Lock::new(());
/// So long the kernel takes at most to connect to this host, unless a backlog is full.
const ON_THIS_HOST: i64 = 100_000_000;
/// For so many looks of 50 microseconds the relay's answer is waited for.
const MOST_LOOKS: u32 = 2000;

/// In a forked child nobody holds the lock.
pub fn reset_in_child() {
    ANNOUNCING.reset();
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

/// Connects what is deferred under a number. True when there is something else by now.
#[cold]
#[inline(never)]
pub fn announce(fd: i32) -> bool {
    if at(fd).is_some() {
        // A handler that used it could not wait for the thread that it interrupts.
        let _held = BlockedSignals::all();
        if let Some(_announcing) = ANNOUNCING.lock()
            && let Some(socket) = at(fd)
        {
            announce_one(fd, &socket);
        }
    }
    table::get(fd).kind() != Kind::Deferred
}

fn announce_one(fd: i32, socket: &Socket) {
    if socket.has_memberships() {
        for number in other_numbers(fd, socket).iter().chain([&fd]) {
            epoll::note_spent(*number, socket);
        }
    }
    match connect::announce(fd, socket, socket.entry.peer.load()) {
        Ok(true) => await_answer(fd),
        Ok(false) => {}
        Err(reason) => to_kernel(fd, socket, Some(reason)),
    }
    if socket.has(status::SHUT_READ) {
        socket.unmark(status::SHUT_READ);
        match socket::of(fd).and_then(|now| Lane::of(now, fd)) {
            Some(lane) => {
                let _ = shutdown::shutdown(&lane, libc::SHUT_RD);
            }
            None => shut(fd),
        }
    }
    // Last: whoever sleeps on the pair finds what it became.
    forget(socket);
}

/// The pair goes, and with it whoever sleeps on it is woken.
fn forget(socket: &Socket) {
    let other = socket.local.other_end.swap(0, Ordering::AcqRel);
    if other > 0 {
        DEFERRED.fetch_sub(1, Ordering::Relaxed);
        attach::close_internal(other - 1);
    }
}

/// The relay says when the other side has it: a program that was told that it is connected does not expect to wait for that.
fn await_answer(fd: i32) {
    for _ in 0..MOST_LOOKS {
        match socket::of(fd).and_then(|socket| Lane::of(socket, fd)) {
            Some(lane) if lane.is_connecting() => sys::sleep(50_000),
            _ => return,
        }
    }
}

/// Announces all of them: what comes next only connections can be part of.
pub fn announce_all() {
    for_each(|_| true);
}

/// The process ends, and with it all of them, which is a word of each; of one that would be reset nobody ever hears.
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

/// The program closes it. True when that was announced.
pub(super) fn ends(fd: i32, socket: &Socket) -> bool {
    !aborts(socket) && socket.is_last() && announce(fd)
}

/// It goes without a word.
pub(super) fn release(socket: &Socket) {
    forget(socket);
    let port = socket.entry.local.load().port;
    ports::give(port, socket.entry.process.load(Ordering::Relaxed));
}

/// `connect` of one to nowhere.
///
/// # Errors
/// None by now.
pub fn dissolve(fd: i32, socket: &Socket) -> Result<(), i32> {
    let _held = BlockedSignals::all();
    if let Some(_announcing) = ANNOUNCING.lock()
        && table::get(fd) == socket.word
    {
        to_kernel(fd, socket, None);
        socket.unmark(status::SHUT_READ | status::CONNECTING);
        forget(socket);
    }
    Ok(())
}

/// `shutdown(SHUT_RD)`, of which no other side hears. False where it is none.
pub fn shut_read(fd: i32) -> bool {
    let Some(socket) = at(fd) else { return false };
    socket.mark(status::SHUT_READ);
    shut(fd);
    true
}

fn shut(fd: i32) {
    let how = sys::int(libc::SHUT_RD);
    // SAFETY: no pointers.
    let _ = unsafe { sys::raw(libc::SYS_shutdown, [sys::int(fd), how, 0, 0, 0, 0]) };
}

/// The kernel connects it, from the same address, for this reason; or is given a socket that is not connected.
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
    // Without a number for it the program finds one that is closed.
    if let Ok(made) = limits::for_library(make).or_else(|_| in_place(fd, make)) {
        options::replay(socket, made);
        if reason.is_some() {
            connect_from(made, &local, &peer);
        }
        flags::put_on(socket, made);
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

fn connect_from(made: i32, local: &Address, peer: &Address) {
    // Where the kernel has given the port to somebody, it is another one.
    let _ = bind(made, local);
    let mut connected = names::connect(made, peer);
    if connected == Err(libc::EINPROGRESS) {
        let mut set = [libc::pollfd {
            fd: made,
            events: libc::POLLOUT,
            revents: 0,
        }];
        let _ = sys::poll(&mut set, ON_THIS_HOST, core::ptr::null());
        connected = names::connect(made, peer);
    }
    if !matches!(connected, Ok(()) | Err(libc::EISCONN | libc::EALREADY)) {
        meet_nobody(made, peer);
    }
}

fn bind(fd: i32, to: &Address) -> Result<usize, i32> {
    let (name, size) = names::to_sockaddr(to);
    let words = [sys::int(fd), (&raw const name).addr(), size, 0, 0, 0];
    // SAFETY: the kernel reads an address of ours.
    unsafe { sys::raw(libc::SYS_bind, words) }
}

/// The listener is gone: over TCP its client hears of that when it says something. So it is over one that was there for a moment.
fn meet_nobody(made: i32, peer: &Address) {
    let six = peer.family == INET6;
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let Ok(gone) = limits::stream_socket(family) else {
        return;
    };
    let _ = sys::set_option(gone, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    let _ = sys::set_option(gone, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 60);
    let there = bind(gone, peer).is_ok();
    // SAFETY: no pointers.
    let _ = unsafe { sys::raw(libc::SYS_listen, [sys::int(gone), 1, 0, 0, 0, 0]) };
    let named = names::kernel_address(gone, false).map_or(0, |own| own.port);
    let to = if there {
        *peer
    } else {
        Address::loopback(six, named)
    };
    let _ = names::connect(made, &to);
    sys::close(gone);
}

/// Announces those whose time is over.
pub fn announce_due() {
    let now = clock::nanoseconds();
    let (mut due, mut next) = (Vec::new(), u64::MAX);
    table::for_each(|fd, word| {
        let one = (word.kind() == Kind::Deferred).then(|| socket::of_word(word));
        let Some(socket) = one.flatten() else { return };
        let began = socket.local.deferred_at.load(Ordering::Relaxed);
        let passed = now.saturating_sub(began);
        let mut asked = 0;
        while options::silence_after(asked + 1) * SECOND <= passed {
            asked += 1;
        }
        if asked > 0 && patience(&socket).is_some_and(|most| asked >= u64::from(most)) {
            due.push(fd);
        } else {
            next = next.min(began + options::silence_after(asked + 1) * SECOND);
        }
    });
    NEXT.store(next, Ordering::Relaxed);
    for fd in due {
        announce(fd);
    }
}

/// How often its listener has it asked, as that is set now. `None` where nobody listens any more.
fn patience(socket: &Socket) -> Option<u32> {
    let entry = socket.entry;
    let attachment = attach::current()?;
    let found = names::find_listener(attachment, &entry.peer.load(), &entry.local.load());
    found.ok().map(|target| target.defers)
}

/// Before the program receives: who has said nothing waits. True where the kernel's answer of the pair is the answer.
///
/// # Errors
/// As of a call that receives.
#[cold]
pub fn before_receive(fd: i32, flags: i32) -> Result<bool, i32> {
    housekeeping::announce_due();
    let Some(socket) = at(fd) else {
        return Ok(false);
    };
    if flags & libc::MSG_OOB != 0 {
        // Nobody has sent any: to ask for it is not the first word.
        return Err(libc::EINVAL);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        announce(fd);
        return Ok(false);
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
        let sleep = |set: &mut [libc::pollfd], mask| {
            housekeeping::announce_due();
            if at(fd).is_some() {
                return signals::sleep_in_poll(set, housekeeping::bounded_sleep(left), mask);
            }
            set.iter_mut().for_each(|one| one.revents = libc::POLLIN);
            Ok(set.len())
        };
        if limit < 0 {
            signals::sleep_restarting(fd, None, sleep)?;
        } else {
            let mut set = [libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            }];
            sleep(&mut set, core::ptr::null())?;
        }
        if at(fd).is_none() {
            return Ok(false);
        }
    }
}
