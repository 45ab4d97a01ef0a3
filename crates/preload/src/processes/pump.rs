//! The pump: a process that copies between a virtual socket and an ordinary one, for a program that gets the descriptor
//! but can not have the library: it is static, privileged, or runs without it.
//!
//! ```text
//!  peer == rings == pump -- AF_UNIX pair -- program without the library
//! ```
//!
//! It is not a child for which the program could wait, holds only the two ends and the memory of the link, and ends
//! with the connection.
//!
//! While other processes have the connection, too, bytes that the program was given stay in the rings until it has read
//! them. Unread ones are left to the other processes, as with a kernel socket.

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

/// Size of the buffer of one direction.
const BUFFER: usize = 64 * 1024;
/// Bytes that the program is given at a time while other processes have the connection. If it ends after reading a part
/// of a piece, its length is not known: all of the piece is left to the others.
const PIECE: usize = 8 * 1024;
const CLONED: usize = 0x8000_0000;

/// A pump that waits for its start.
pub struct Pump {
    /// The ends that take the place of the sockets, in their order.
    pub ends: Vec<i32>,
    start_signal: i32,
}

impl Pump {
    /// Starts the pump: the descriptors have been passed on, or will be by an exec, which closes `go`.
    pub fn begin(&self) {
        sys::close(self.start_signal);
        self.ends.iter().for_each(|end| sys::close(*end));
    }

    /// Ends the pump, which has not touched the sockets: no descriptor was passed on.
    pub fn cancel(&self) {
        let _ = sys::send(self.start_signal, &[0], 0);
        self.begin();
    }
}

/// Makes a pump for these sockets, each with one of its descriptors.
pub fn start(sockets: &[(i32, Socket)]) -> Option<Pump> {
    let mut pairs = Vec::new();
    let pair = || limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM));
    let (start_signal, word) = pair().ok()?;
    let mut made = Pump {
        ends: Vec::new(),
        start_signal,
    };
    for (fd, socket) in sockets {
        let Ok((ours, plain)) = pair() else {
            break;
        };
        flags::apply(socket, plain);
        socket.mark(status::SHARED);
        lane::set_pumped(socket, true);
        if let Some(lane) = Lane::of(*socket, *fd) {
            lane.reserve_rings();
        }
        pairs.push((*fd, ours));
        made.ends.push(plain);
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

/// Forks twice, without the program's handlers and without a signal at the end.
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
    set_signals();
    fork::become_child();
    close_others(pairs, word);
    let mut byte = [0];
    // The end of the stream comes when the program closes its side; a byte cancels the pump.
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

fn set_signals() {
    // SAFETY: the name is a C string; no other pointers; all zero is the default action.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"netchannel-pump".as_ptr());
        let _ = sys::raw(libc::SYS_setsid, [0; 6]);
        // The program's handlers must not run in this process.
        let all = !0u64;
        let most = (&raw const all).addr();
        let block = sys::int(libc::SIG_SETMASK);
        let _ = sys::raw(libc::SYS_rt_sigprocmask, [block, most, 0, 8, 0, 0]);
        let action = [0u64; 4];
        let term = sys::int(libc::SIGTERM);
        let default = (&raw const action).addr();
        let _ = sys::raw(libc::SYS_rt_sigaction, [term, default, 0, 8, 0, 0]);
        // A process that waits for the pump interrupts its sleep.
        let mut woken: libc::sigaction = core::mem::zeroed();
        woken.sa_sigaction = no_op as extern "C" fn(c_int) as usize;
        real::sigaction(libc::SIGCONT, &raw const woken, core::ptr::null_mut());
        let open = !(1u64 << (libc::SIGTERM - 1) | 1u64 << (libc::SIGCONT - 1));
        let most = (&raw const open).addr();
        let _ = sys::raw(libc::SYS_rt_sigprocmask, [block, most, 0, 8, 0, 0]);
        let root = c"/".as_ptr().addr();
        let _ = sys::raw(libc::SYS_chdir, [root, 0, 0, 0, 0, 0]);
    }
}

extern "C" fn no_op(_: c_int) {}

/// Closes every descriptor except for the pump's own.
fn close_others(pairs: &[(i32, i32)], word: i32) {
    let mut kept: Vec<i32> = pairs.iter().flat_map(|(fd, plain)| [*fd, *plain]).collect();
    kept.push(word);
    // Rings that are not adopted yet are read through the memory's descriptor.
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

/// Descriptors of a connection on which the pump sleeps.
const ENTRIES: usize = 3;

/// One direction.
struct HalfFlow {
    from: i32,
    to: i32,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    shut: bool,
    /// Bytes at `from` that were written to `to`, and stay there until they are read.
    lent: Option<LentBytes>,
    /// An epoll set that reports that `to` has been read from, once it was needed.
    read: i32,
}

/// Both directions of one socket.
struct Flow {
    socket: i32,
    plain: i32,
    /// To the program.
    down: HalfFlow,
    /// From the program.
    up: HalfFlow,
}

fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
    let Some(mut lane) = lane(fd) else {
        return sys::receive(fd, buffer, libc::MSG_DONTWAIT);
    };
    let vector = vector(buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the buffer is a slice of the caller.
    unsafe { transfer::receive(&mut lane, &vector, libc::MSG_DONTWAIT) }
}

/// Whether other processes have the connection behind a descriptor.
fn has_other_holders(fd: i32) -> bool {
    socket::of(fd).is_some_and(|socket| socket.entry.references.load(Ordering::Acquire) > 1)
}

/// Whether all bytes that were written to a local socket were read at its other end.
fn was_all_read(fd: i32) -> Result<bool, i32> {
    /// The kernel reports a message as read before the last bytes of its accounting are released; no message counts for
    /// so little.
    const SMALLEST_CHARGE: c_int = 64;
    let left = sys::file::count(fd, TIOCOUTQ)?;
    if left >= SMALLEST_CHARGE {
        return Ok(false);
    }
    // Bytes that were unread at a close are dropped after the close is visible.
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
    // SAFETY: the buffer is a slice of the caller.
    unsafe { transfer::send(&mut lane, &vector, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
}

impl HalfFlow {
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

    /// Takes lent bytes once they are read. False while they are not.
    fn take_read(&mut self) -> Result<bool, i32> {
        let Some(lent) = self.lent else {
            return Ok(true);
        };
        let _ = sys::epoll_take(self.read, &mut [libc::epoll_event { events: 0, u64: 0 }]);
        let read = was_all_read(self.to)?;
        if read {
            lane(self.from).inspect(|lane| lane.take_lent(&lent));
            self.lent = None;
        }
        Ok(read)
    }

    /// Writes a piece to `to` and leaves it at `from`.
    fn lend_piece(&mut self) -> Result<(), i32> {
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
            Err(Stop::Wait) if lane.finds_end() => return Ok(()),
            Err(Stop::Wait) => return Err(libc::EAGAIN),
            Err(Stop::Error(error)) => return Err(error),
        };
        lent.count = send(self.to, piece.get(..lent.count).unwrap_or(&[]))?;
        self.lent = Some(lent);
        Ok(())
    }

    /// Ends the direction: its program has ended, and other processes have the bytes.
    fn discard(&mut self) {
        (self.start, self.end) = (0, 0);
        self.lent = None;
        (self.ended, self.shut) = (true, true);
    }

    /// Moves bytes without waiting.
    fn step(&mut self) -> Result<(), i32> {
        loop {
            if !self.take_read()? {
                return Ok(());
            }
            if self.is_empty() && !self.ended && has_other_holders(self.from) {
                match self.lend_piece() {
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
                    if self.is_closed_by_program() {
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

    /// Whether the program has closed its end while other processes have the connection: then the close does not end
    /// it.
    fn is_closed_by_program(&self) -> bool {
        let mut set = [pollfd {
            fd: self.from,
            events: 0,
            revents: 0,
        }];
        has_other_holders(self.to)
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
            down: HalfFlow::new(socket, plain),
            up: HalfFlow::new(plain, socket),
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
        if down == Err(libc::EPIPE) && has_other_holders(self.socket) {
            // The last bytes that the program wrote are still sent.
            self.down.discard();
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
            // The program may have read since `down` was moved, unless its end is a reset, which is reported once.
            let _ = self.down.take_read();
        }
        if (down, up) == (Ok(()), Ok(())) {
            return false;
        }
        // The program ended without reading all bytes: TCP would reset.
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

    /// The entries to poll: socket, plain end, and the set that reports lent bytes as read.
    fn poll_entries(&self) -> [pollfd; ENTRIES] {
        let entry = |fd, events| pollfd {
            fd,
            events,
            revents: 0,
        };
        let wanted = |read: &HalfFlow, write: &HalfFlow| {
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
        // Hang-ups are reported unasked: such an end is polled only where they are handled.
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
            let seen = set
                .get(index * ENTRIES + 1)
                .map_or(0, |entry| entry.revents);
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
        set.extend(flows.iter().flat_map(Flow::poll_entries));
        let mut entries = poll::Entries::new(poll::EventFilter::Poll);
        entries.make(set.len()).copy_from_slice(&set);
        let slept = poll::poll(&mut entries, -1, core::ptr::null());
        set.copy_from_slice(&entries);
        if slept.is_err() {
            set.clear();
        }
    }
}
