//! Connections of a process that becomes another user's. Their memory is shared with relatives and peers of the former
//! user, so the process leaves it. A pump, which still is the former user's, continues each connection, and the
//! program's descriptor becomes the other end of a local socket. Names and options are answered as before. The same
//! happens in a process that is found to have a ring of `io_uring` ([`crate::sockets::rings`]).
//!
//! ```text
//!  before:  peer == rings == this process
//!  after:   peer == rings == pump (former user) -- AF_UNIX pair -- this process
//! ```
//!
//! Where no pump can be made the connection is reset for this process; relatives that have it continue.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use crate::connections::connection;
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, limits};
use crate::ground::sys;
use crate::processes::pump::{self, Pump};
use crate::sockets::socket::Record;
use crate::sockets::socket::{self, Socket, status};
use crate::waiting::epoll::{self, RemovedMember};

/// A connection of this process, and its descriptors.
struct OwnConnection {
    socket: Socket,
    descriptors: Vec<i32>,
}

/// Connections with their pump, which waits for its start.
pub struct HandOver {
    all: Vec<OwnConnection>,
    pump: Option<Pump>,
}

/// The state of a connection whose entry is left behind.
pub struct KeptState {
    descriptors: Vec<i32>,
    local: Address,
    peer: Address,
    status: u32,
    flags: u32,
    hints: u32,
    timeouts: [u64; 2],
    options: Vec<Record>,
    left: Vec<RemovedMember>,
}

fn connections() -> Vec<OwnConnection> {
    let mut all: Vec<OwnConnection> = Vec::new();
    table::for_each(|fd, word| {
        if word.kind() != Kind::Virtual {
            return;
        }
        match all.iter_mut().find(|one| one.socket.word == word) {
            Some(one) => one.descriptors.push(fd),
            None => all.extend(socket::of_word(word).map(|socket| OwnConnection {
                socket,
                descriptors: vec![fd],
            })),
        }
    });
    all
}

/// Called before the process may become another user's, or when its calls are found to bypass the library.
pub fn prepare() -> HandOver {
    connection::deferred::announce_all();
    let all = connections();
    let sockets: Vec<(i32, Socket)> = all
        .iter()
        .filter_map(|one| Some((*one.descriptors.first()?, one.socket)))
        .collect();
    let pump = if sockets.is_empty() {
        None
    } else {
        pump::start(&sockets)
    };
    HandOver { all, pump }
}

impl HandOver {
    /// For a process that became another user's unexpectedly: its connections are reset.
    pub fn none() -> Self {
        Self {
            all: connections(),
            pump: None,
        }
    }

    /// The process did not become another user's.
    pub fn undo(self) {
        self.pump.inspect(Pump::cancel);
    }

    /// It did: the descriptors become the pump's other ends.
    pub fn complete(self) -> Vec<KeptState> {
        let ends = self.pump.as_ref().map(|pump| pump.ends.as_slice());
        let mut kept = Vec::new();
        for (index, one) in self.all.iter().enumerate() {
            let end = ends.and_then(|ends| ends.get(index)).copied();
            kept.push(one.leave(end));
        }
        self.pump.inspect(Pump::begin);
        kept
    }
}

impl OwnConnection {
    /// Puts `end` under the descriptors; without an end, a socket whose connection was reset.
    fn leave(&self, end: Option<i32>) -> KeptState {
        let (socket, entry) = (&self.socket, self.socket.entry);
        let kept = KeptState {
            descriptors: self.descriptors.clone(),
            local: entry.local.load(),
            peer: entry.peer.load(),
            status: entry.status.load(Ordering::Relaxed)
                & (status::NONBLOCKING | status::BOUND | status::APPENDS | status::NO_ACCESS_TIME),
            flags: entry.flags.load(Ordering::Relaxed),
            hints: entry.hints.load(Ordering::Relaxed),
            timeouts: [&entry.receive_timeout, &entry.send_timeout]
                .map(|word| word.load(Ordering::Relaxed)),
            options: if socket.has_options() {
                socket.with_options(|all| all.clone()).unwrap_or_default()
            } else {
                Vec::new()
            },
            left: epoll::remove_from_sets(socket),
        };
        let reset = if end.is_none() { reset_end() } else { None };
        if end.is_none() {
            self.end_connection();
        }
        for fd in &self.descriptors {
            if let Some(end) = end.or(reset) {
                let close_on_exec = sys::fcntl(*fd, libc::F_GETFD, 0).is_ok_and(|f| f & 1 != 0);
                let _ = sys::replace(end, *fd, close_on_exec);
            }
            table::set(*fd, Word::FOREIGN);
        }
        reset.inspect(|end| sys::close(*end));
        socket.drop_spare();
        let bound = socket.local.reserve.swap(0, Ordering::Relaxed);
        if bound > 0 {
            attach::close_internal(bound - 1);
        }
        if end.is_some() {
            socket.pass_all();
        }
        kept
    }

    /// Ends the connection for this process, which has no pump; with the last holder also for the peer.
    fn end_connection(&self) {
        let Some(fd) = self.descriptors.first() else {
            return;
        };
        if self.socket.entry.references.load(Ordering::Acquire) <= 1 {
            self.socket.entry.linger.store(1, Ordering::Relaxed);
        }
        if let Ok(last) = attach::duplicate(*fd) {
            table::set(last, self.socket.word);
            self.socket.local.descriptors.store(1, Ordering::Release);
            let _ = connection::close(last, &self.socket);
        }
    }
}

/// A local socket that reports a reset: its other end was closed with unread bytes.
fn reset_end() -> Option<i32> {
    let (ours, other) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM)).ok()?;
    let _ = sys::send(ours, &[0], libc::MSG_DONTWAIT);
    sys::close(other);
    Some(ours)
}

impl KeptState {
    /// Publishes the descriptors as kernel sockets with the former names and options.
    pub fn publish(&self, reason: Reason) {
        let Some(socket) = socket::allocate(Kind::Kernel, State::Kernel) else {
            return;
        };
        let entry = socket.entry;
        entry.local.store(&self.local);
        entry.peer.store(&self.peer);
        entry.flags.store(self.flags, Ordering::Relaxed);
        entry.hints.store(self.hints, Ordering::Relaxed);
        socket.mark(self.status | status::HANDED_OVER | status::KERNEL_CONNECTED);
        socket.falls_back(reason);
        if !self.options.is_empty() {
            socket.with_options(|all| all.extend_from_slice(&self.options));
        }
        let mut first = true;
        for fd in &self.descriptors {
            if first {
                connection::publish(*fd, socket);
                self.set_timeouts(*fd);
            } else {
                socket.add_descriptor();
                table::set(*fd, socket.word);
            }
            first = false;
        }
        epoll::add_again(&self.left, &socket);
    }

    fn set_timeouts(&self, fd: i32) {
        if self.timeouts == [0; 2] {
            return;
        }
        let names = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
        for (name, microseconds) in names.into_iter().zip(self.timeouts) {
            let seconds = i64::try_from(microseconds / 1_000_000).unwrap_or(i64::MAX);
            let rest = i64::try_from(microseconds % 1_000_000).unwrap_or(0);
            let value = libc::timeval {
                tv_sec: seconds,
                tv_usec: rest,
            };
            let (level, place) = (sys::int(libc::SOL_SOCKET), (&raw const value).addr());
            let words = [
                sys::int(fd),
                level,
                sys::int(name),
                place,
                size_of_val(&value),
                0,
            ];
            // SAFETY: the value is a local of that size.
            let _ = unsafe { sys::raw(libc::SYS_setsockopt, words) };
        }
    }
}

/// Used entries of this process's region, each once.
pub fn used_entries() -> Vec<usize> {
    let entries = attach::current().map_or(0, |own| own.entries);
    let mut used: Vec<usize> = Vec::new();
    socket::for_each(|socket| {
        let index = socket.word.index();
        if index < entries && !used.contains(&index) {
            used.push(index);
        }
    });
    used
}

/// Describes handed-over sockets for the next image, which can not see them: cookie and addresses of each.
pub fn describe_names() -> Option<String> {
    let mut text = String::new();
    table::for_each(|fd, word| {
        if word.kind() == Kind::Kernel
            && let Some(socket) = socket::of_word(word)
            && socket.has(status::HANDED_OVER)
            && let Ok(cookie) = sys::cookie(fd)
        {
            let (local, peer) = (socket.entry.local.load(), socket.entry.peer.load());
            text.push_str(&format!("{cookie:x}"));
            for number in local.to_words().into_iter().chain(peer.to_words()) {
                text.push_str(&format!(":{number:x}"));
            }
            text.push(',');
        }
    });
    (!text.is_empty()).then_some(text)
}

/// At the start of a program: adopts local sockets that the former image described.
pub fn adopt(text: &str) {
    let known: Vec<[u64; 7]> = text
        .split(',')
        .filter_map(|one| {
            let mut words = one
                .split(':')
                .map_while(|word| u64::from_str_radix(word, 16).ok());
            let mut all = [0; 7];
            for word in &mut all {
                *word = words.next()?;
            }
            Some(all)
        })
        .collect();
    for fd in sys::open_descriptors() {
        if table::get(fd).kind() != Kind::Foreign {
            continue;
        }
        let cookie = sys::cookie(fd);
        let Some(words) = known.iter().find(|words| Ok(words[0]) == cookie) else {
            continue;
        };
        let [_, a, b, c, d, e, f] = *words;
        let kept = KeptState {
            descriptors: vec![fd],
            local: Address::from_words([a, b, c]),
            peer: Address::from_words([d, e, f]),
            status: 0,
            flags: 0,
            hints: 0,
            timeouts: [0; 2],
            options: Vec::new(),
            left: Vec::new(),
        };
        kept.publish(Reason::UserChanged);
    }
}
