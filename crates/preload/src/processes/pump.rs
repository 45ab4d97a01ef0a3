//! A process that copies between a virtual socket and an ordinary one, for a program that gets the
//! descriptor but can not have the library: static, privileged, or simply without it.
//!
//! ```text
//!  peer == rings == pump -- AF_UNIX pair -- program without the library
//! ```
//!
//! It is nobody's child that the program could wait for, holds nothing but the two ends and the
//! memory of the link, and ends with the connection.
//!
//! While other processes have the connection, too, what the program was given stays in the rings until it has read it: what it leaves
//! unread is theirs, as with a socket of the kernel.

use core::sync::atomic::Ordering;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, TIOCOUTQ, c_int, pollfd};

use crate::connections::connection::flags;
use crate::connections::connection::lane;
use crate::connections::{connection, transfer};
use crate::descriptors::limits;
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::user::vector;
use crate::ground::{real, sys};
use crate::processes::fork;
use crate::sockets::lane::{self, Lane, LentBytes, Stop};
use crate::sockets::socket::{self, Socket, status};
use crate::waiting::poll;

/// Bytes that wait in one direction.
const BUFFER: usize = 64 * 1024;
/// Bytes that the program is given at a time while others have the connection. Of a piece that it has read in part when it ends nobody
/// knows how much: all of it is theirs.
const PIECE: usize = 8 * 1024;
const CLONED: usize = 0x8000_0000;

/// A pump that waits for the word to begin.
pub struct Pump {
    /// The ends that take the place of the sockets, in their order.
    pub ends: Vec<i32>,
    go: i32,
}

impl Pump {
    /// The descriptors have been handed on, or will be by an exec, which closes the word's
    /// descriptor.
    pub fn begin(&self) {
        sys::close(self.go);
        self.ends.iter().for_each(|end| sys::close(*end));
    }

    /// Nothing was handed on: it ends without having touched the sockets.
    pub fn cancel(&self) {
        let _ = sys::send(self.go, &[0], 0);
        self.begin();
    }
}

/// Starts a pump for these sockets, each with one descriptor of it.
pub fn start(sockets: &[(i32, Socket)]) -> Option<Pump> {
    let mut pairs = Vec::new();
    let pair = || limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM));
    let (go, word) = pair().ok()?;
    let mut made = Pump {
        ends: Vec::new(),
        go,
    };
    for (fd, socket) in sockets {
        let Ok((ours, theirs)) = pair() else {
            break;
        };
        flags::apply(socket, theirs);
        socket.mark(status::SHARED);
        lane::set_pumped(socket, true);
        if let Some(lane) = Lane::of(*socket, *fd) {
            lane.reserve_rings();
        }
        pairs.push((*fd, ours));
        made.ends.push(theirs);
    }
    let forked = pairs.len() == sockets.len() && fork_pump(&pairs, word);
    sys::close(word);
    pairs.iter().for_each(|(_, ours)| sys::close(*ours));
    if !forked {
        for (_, socket) in sockets {
            lane::set_pumped(socket, false);
        }
        made.begin();
        return None;
    }
    Some(made)
}

/// Forks twice, without the handlers of the program and without a signal at the end.
fn fork_pump(pairs: &[(i32, i32)], word: i32) -> bool {
    match fork::clone() {
        Ok(0) => {
            // SAFETY: as fork; both children touch only the library's memory and never return.
            if let Ok(0) = unsafe { sys::raw(libc::SYS_clone, [0; 6]) } {
                serve(pairs, word);
            }
            exit()
        }
        Ok(number) => {
            loop {
                // SAFETY: no pointers.
                let waited = unsafe { sys::raw(libc::SYS_wait4, [number, 0, CLONED, 0, 0, 0]) };
                if waited != Err(libc::EINTR) {
                    break;
                }
            }
            true
        }
        Err(_) => false,
    }
}

fn exit() -> ! {
    loop {
        // SAFETY: no pointers; does not return.
        let _ = unsafe { sys::raw(libc::SYS_exit_group, [0; 6]) };
    }
}

fn serve(pairs: &[(i32, i32)], word: i32) {
    settle_signals();
    fork::become_child();
    keep_only(pairs, word);
    let mut byte = [0];
    // The end comes when the program lets go of its side; a byte says that it came to nothing.
    if matches!(sys::receive(word, &mut byte, 0), Ok(0)) {
        for socket in pairs.iter().filter_map(|(fd, _)| socket::of(*fd)) {
            lane::publish_pump(&socket);
        }
        run(pairs
            .iter()
            .map(|(fd, plain)| Flow::new(*fd, *plain))
            .collect());
    } else {
        for socket in pairs.iter().filter_map(|(fd, _)| socket::of(*fd)) {
            lane::set_pumped(&socket, false);
            socket.drop_descriptor();
        }
    }
}

fn settle_signals() {
    // SAFETY: the name is a C string; no other pointers; all zero is the default action.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"netchannel-pump".as_ptr());
        let _ = sys::raw(libc::SYS_setsid, [0; 6]);
        // The program's handlers are not for this process.
        let all = !0u64;
        let most = (&raw const all).addr();
        let block = sys::int(libc::SIG_SETMASK);
        let _ = sys::raw(libc::SYS_rt_sigprocmask, [block, most, 0, 8, 0, 0]);
        let action = [0u64; 4];
        let term = sys::int(libc::SIGTERM);
        let default = (&raw const action).addr();
        let _ = sys::raw(libc::SYS_rt_sigaction, [term, default, 0, 8, 0, 0]);
        // Who waits for the pump interrupts its sleep.
        let mut woken: libc::sigaction = core::mem::zeroed();
        woken.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        real::sigaction(libc::SIGCONT, &raw const woken, core::ptr::null_mut());
        let open = !(1u64 << (libc::SIGTERM - 1) | 1u64 << (libc::SIGCONT - 1));
        let most = (&raw const open).addr();
        let _ = sys::raw(libc::SYS_rt_sigprocmask, [block, most, 0, 8, 0, 0]);
        let root = c"/".as_ptr().addr();
        let _ = sys::raw(libc::SYS_chdir, [root, 0, 0, 0, 0, 0]);
    }
}

extern "C" fn nothing(_: c_int) {}

/// Closes every descriptor but the pump's own.
fn keep_only(pairs: &[(i32, i32)], word: i32) {
    let mut kept: Vec<i32> = pairs.iter().flat_map(|(fd, plain)| [*fd, *plain]).collect();
    kept.push(word);
    // A look into a ring that nobody has come to yet goes by the memory's descriptor.
    let memories = pairs
        .iter()
        .filter_map(|(fd, _)| Some(socket::of(*fd)?.link()?.memory()));
    kept.extend(memories.filter(|memory| *memory >= 0));
    kept.sort_unstable();
    kept.dedup();
    table::for_each(|fd, known| {
        if kept.contains(&fd) {
            return;
        }
        if !matches!(known.kind(), Kind::Internal | Kind::Epoll)
            && let Some(socket) = socket::of_word(known)
        {
            socket.drop_descriptor();
        }
        table::set(fd, Word::FOREIGN);
    });
    let mut start = 0;
    for fd in kept.into_iter().chain([c_int::MAX]) {
        if fd > start {
            let (first, last) = (sys::int(start), sys::int(fd - 1));
            // SAFETY: no pointers.
            let _ = unsafe { sys::raw(libc::SYS_close_range, [first, last, 0, 0, 0, 0]) };
        }
        start = fd.saturating_add(1);
    }
}

/// Descriptors that a connection has the pump sleep on.
const WAITS: usize = 3;

/// One direction.
struct Half {
    from: i32,
    to: i32,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    shut: bool,
    /// Bytes at `from` that were written to `to` and stay until they are read there.
    lent: Option<LentBytes>,
    /// Tells that `to` has been read from, once it was needed.
    read: i32,
}

/// Both directions of one socket.
struct Flow {
    socket: i32,
    plain: i32,
    /// To the program.
    down: Half,
    /// From the program.
    up: Half,
}

fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
    let Some(mut lane) = lane(fd) else {
        return sys::receive(fd, buffer, libc::MSG_DONTWAIT);
    };
    let vector = vector(buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: a buffer of ours.
    unsafe { transfer::receive(&mut lane, &vector, libc::MSG_DONTWAIT) }
}

/// Whether other processes have the connection behind a descriptor of ours.
fn is_held(fd: i32) -> bool {
    socket::of(fd).is_some_and(|socket| socket.entry.references.load(Ordering::Acquire) > 1)
}

/// Whether everything that was written to a local socket was read at its other end.
fn is_read(fd: i32) -> Result<bool, i32> {
    /// The kernel tells that a message was read before the last byte of its account is gone; none is as small.
    const NOTHING: c_int = 64;
    let mut left: c_int = 0;
    let words = [
        sys::int(fd),
        TIOCOUTQ as usize,
        (&raw mut left).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes one number.
    unsafe { sys::raw(libc::SYS_ioctl, words) }?;
    if left >= NOTHING {
        return Ok(false);
    }
    // What is left unread at a close goes after the close can be seen.
    let mut set = [pollfd {
        fd,
        events: 0,
        revents: 0,
    }];
    sys::poll(&mut set, 0, core::ptr::null())?;
    if set[0].revents & POLLERR != 0 {
        return Err(libc::EPIPE);
    }
    Ok(true)
}

fn send(fd: i32, bytes: &[u8]) -> Result<usize, i32> {
    let Some(mut lane) = lane(fd) else {
        return sys::send(fd, bytes, libc::MSG_DONTWAIT);
    };
    let vector = vector(bytes.as_ptr().cast(), bytes.len());
    // SAFETY: a buffer of ours.
    unsafe { transfer::send(&mut lane, &vector, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
}

impl Half {
    fn new(from: i32, to: i32) -> Self {
        Self {
            from,
            to,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            ended: false,
            shut: false,
            lent: None,
            read: -1,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Ends a loan that has been read. False while it has not.
    fn settle(&mut self) -> Result<bool, i32> {
        let Some(lent) = self.lent else {
            return Ok(true);
        };
        let _ = sys::epoll_take(self.read, &mut [libc::epoll_event { events: 0, u64: 0 }]);
        let read = is_read(self.to)?;
        if read {
            lane(self.from).inspect(|lane| lane.take_lent(&lent));
            self.lent = None;
        }
        Ok(read)
    }

    /// Writes a piece to `to` and leaves it at `from`.
    fn lend(&mut self) -> Result<(), i32> {
        if self.read < 0 {
            self.read = limits::for_library(sys::epoll_create)?;
            let events = (libc::EPOLLOUT | libc::EPOLLET).cast_unsigned();
            sys::epoll_control(self.read, libc::EPOLL_CTL_ADD, self.to, events, 0)?;
        }
        let lane = lane(self.from).ok_or(libc::EBADF)?;
        let piece = self.buffer.get_mut(..PIECE).unwrap_or(&mut []);
        let mut lent = match lane.lend(piece) {
            Ok(lent) => lent,
            Err(Stop::End) => {
                self.ended = true;
                return Ok(());
            }
            Err(Stop::Wait) if transfer::finds_end(&lane) => return Ok(()),
            Err(Stop::Wait) => return Err(libc::EAGAIN),
            Err(Stop::Error(error)) => return Err(error),
        };
        lent.count = send(self.to, piece.get(..lent.count).unwrap_or(&[]))?;
        self.lent = Some(lent);
        Ok(())
    }

    /// Nobody is there any more to whom bytes could go, and others have them.
    fn give_up(&mut self) {
        (self.start, self.end) = (0, 0);
        self.lent = None;
        (self.ended, self.shut) = (true, true);
    }

    /// Moves what can be moved without waiting.
    fn step(&mut self) -> Result<(), i32> {
        loop {
            if !self.settle()? {
                return Ok(());
            }
            if self.is_empty() && !self.ended && is_held(self.from) {
                match self.lend() {
                    Ok(()) | Err(libc::EINTR) => continue,
                    Err(libc::EAGAIN) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.is_empty() && !self.ended {
                match receive(self.from, &mut self.buffer) {
                    Ok(0) => self.ended = true,
                    Ok(count) => (self.start, self.end) = (0, count),
                    Err(libc::EAGAIN | libc::EINTR) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.is_empty() {
                if !self.shut {
                    self.shut = true;
                    if self.is_left() {
                        return Err(libc::EBADF);
                    }
                    self.shut();
                }
                return Ok(());
            }
            let waiting = self.buffer.get(self.start..self.end).unwrap_or(&[]);
            match send(self.to, waiting) {
                Ok(count) => self.start += count,
                Err(libc::EAGAIN | libc::EINTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the program has closed its end while others have the connection: a close that ends nothing.
    fn is_left(&self) -> bool {
        let mut set = [pollfd {
            fd: self.from,
            events: 0,
            revents: 0,
        }];
        is_held(self.to)
            && sys::poll(&mut set, 0, core::ptr::null()).is_ok()
            && set[0].revents & POLLHUP != 0
    }

    fn shut(&self) {
        if let Some(lane) = lane(self.to) {
            let _ = connection::shutdown(&lane, libc::SHUT_WR);
        } else {
            let how = sys::int(libc::SHUT_WR);
            // SAFETY: no pointers.
            let _ = unsafe { sys::raw(libc::SYS_shutdown, [sys::int(self.to), how, 0, 0, 0, 0]) };
        }
    }
}

impl Flow {
    fn new(socket: i32, plain: i32) -> Self {
        Self {
            socket,
            plain,
            down: Half::new(socket, plain),
            up: Half::new(plain, socket),
        }
    }

    /// Moves bytes. False when the connection is over.
    fn step(&mut self, program_gone: bool) -> bool {
        let socket = socket::of(self.socket);
        let waiting = socket.map_or(0, |socket| lane::last_waiter(socket.entry));
        let goes_on = self.move_bytes(program_gone);
        socket.inspect(|socket| lane::publish_caught_up(socket.entry, waiting));
        goes_on
    }

    fn move_bytes(&mut self, program_gone: bool) -> bool {
        let mut down = self.down.step();
        if down == Err(libc::EPIPE) && is_held(self.socket) {
            // What the program wrote last still goes.
            self.down.give_up();
            down = Ok(());
        }
        let up = self.up.step();
        if let (Ok(()), Ok(())) = (down, up) {
            let gone = program_gone && self.up.shut;
            if !(gone || self.up.shut && self.down.shut) {
                return true;
            }
        }
        if up != Err(libc::ECONNRESET) {
            // It has read, perhaps, since `down` was looked at. Whose end is a reset has not, and the reset is told once.
            let _ = self.down.settle();
        }
        if (down, up) == (Ok(()), Ok(())) {
            return false;
        }
        // The program went without reading everything: TCP would reset.
        let unread = matches!(up, Err(libc::ECONNRESET)) || matches!(down, Err(libc::EPIPE));
        if unread
            && let Some(socket) = socket::of(self.socket)
            && socket.entry.references.load(Ordering::Acquire) <= 1
        {
            socket.entry.linger.store(1, Ordering::Relaxed);
        }
        false
    }

    fn close(&self) {
        if let Some(socket) = socket::of(self.socket) {
            lane::set_pumped(&socket, false);
            let _ = connection::close(self.socket, &socket);
        }
        sys::close(self.plain);
        if self.down.read >= 0 {
            sys::close(self.down.read);
        }
    }

    /// What to sleep for: socket, plain end, and that what was lent has been read.
    fn waits(&self) -> [pollfd; WAITS] {
        let entry = |fd, events| pollfd {
            fd,
            events,
            revents: 0,
        };
        let wanted = |read: &Half, write: &Half| {
            let read = if read.is_empty() && !read.ended && read.lent.is_none() {
                POLLIN
            } else {
                0
            };
            let write = if write.is_empty() { 0 } else { POLLOUT };
            read | write
        };
        let of_socket = wanted(&self.down, &self.up);
        let of_plain = wanted(&self.up, &self.down);
        // Ends are reported unasked: only where somebody will do something about them.
        let socket = if of_socket == 0 { -1 } else { self.socket };
        let idle = of_plain == 0 && !self.up.shut;
        let plain = if idle { -1 } else { self.plain };
        let read = if self.down.lent.is_some() {
            self.down.read
        } else {
            -1
        };
        [
            entry(socket, of_socket),
            entry(plain, of_plain),
            entry(read, POLLIN),
        ]
    }
}

fn run(mut flows: Vec<Flow>) {
    let mut set: Vec<pollfd> = Vec::new();
    loop {
        let mut index = 0;
        flows.retain_mut(|flow| {
            let seen = set.get(index * WAITS + 1).map_or(0, |entry| entry.revents);
            index += 1;
            let goes_on = flow.step(seen & POLLHUP != 0);
            if !goes_on {
                flow.close();
            }
            goes_on
        });
        if flows.is_empty() {
            return;
        }
        set.clear();
        set.extend(flows.iter().flat_map(Flow::waits));
        let mut entries = poll::Entries::new(poll::EventFilter::Poll);
        entries.make(set.len()).copy_from_slice(&set);
        let slept = poll::poll(&mut entries, -1, core::ptr::null());
        set.copy_from_slice(&entries);
        if slept.is_err() {
            set.clear();
        }
    }
}
