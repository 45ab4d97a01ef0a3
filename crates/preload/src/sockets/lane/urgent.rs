//! Urgent data: the mark in what the peer sends, the byte that is taken out of line, who is signalled.
//!
//! ```text
//!  send(MSG_OOB)  -> mark_urgent -> tail -> signal_urgent: an urgent token, for which the kernel raises SIGURG
//!  recv           -> meet_mark: ends before the byte, or passes over it
//!  recv(MSG_OOB)  -> take_urgent: the byte, from its place in the ring
//! ```

use core::sync::atomic::Ordering;

use netchannel_abi::link::side_flags;
use netchannel_ring::urgent::{self, Ahead, Told};

use super::holding::cork_at_start;
use super::manner::Marks;
use super::manner::Met;
use super::{Lane, Manner, Stop};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::socket;
use crate::sockets::socket::{Socket, status};

impl Lane {
    /// Whether an urgent byte may be at `head` or behind. A load from the line that the tail is in.
    #[inline]
    pub(super) fn has_mark_from(&self, head: u64) -> bool {
        self.peer().urgent.load(Ordering::Relaxed) > head
    }

    /// Whether one may be ahead of the reader.
    #[inline]
    pub(super) fn has_mark(&self) -> bool {
        self.has_mark_from(self.socket.entry.receive.own.load(Ordering::Relaxed))
    }

    fn mark_from(&self, head: u64, tail: u64) -> Option<Ahead> {
        let peer = self.peer();
        urgent::ahead(&peer.urgent, &peer.passed, head, tail)
    }

    /// The urgent byte ahead of the reader.
    #[inline]
    pub(super) fn mark(&self) -> Option<Ahead> {
        if self.has_mark() {
            self.look_for_mark()
        } else {
            None
        }
    }

    #[cold]
    fn look_for_mark(&self) -> Option<Ahead> {
        // The generation before the words that it guards. Acquire: pairs with the release in `reset_side`.
        if self.peer().generation.load(Ordering::Acquire) != self.generation {
            return None;
        }
        let tail = self.peer_tail();
        self.mark_from(self.socket.entry.receive.own.load(Ordering::Relaxed), tail)
    }

    fn reads_inline(&self) -> bool {
        reads_inline(&self.socket)
    }

    /// How many bytes right here are no ordinary ones: an urgent one that is not read in line, or none.
    #[inline]
    pub(super) fn hole(&self) -> u64 {
        match self.mark() {
            Some(mark) if mark.is_here() && !self.reads_inline() => 1,
            _ => 0,
        }
    }

    /// How many bytes a peek passes over before its first one.
    #[cold]
    pub(super) fn hole_ahead(&self) -> u64 {
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        let passed = self.mark().map_or(0, |mark| mark.from.wrapping_sub(own));
        passed + self.hole()
    }

    /// Whether the next byte to be read is the urgent one (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        self.mark().is_some_and(|mark| mark.is_here())
    }

    /// Whether the next byte that is there is the urgent one.
    pub fn is_before_urgent(&self) -> bool {
        self.mark()
            .is_some_and(|mark| mark.is_here() && mark.has_arrived())
    }

    /// Whether a reader that sleeps has something to do: a byte to read, an end, or an urgent byte to pass over.
    pub fn has_input(&self) -> bool {
        self.is_readable() || self.is_before_urgent()
    }

    /// Whether there is urgent data (`POLLPRI`).
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.mark()
            .is_some_and(|mark| (mark.has_arrived() || self.was_refused()) && !self.is_taken(&mark))
    }

    /// Whether what came last met a socket that has ended both directions, and a reset went back: an urgent byte of it counts as there.
    #[cold]
    fn was_refused(&self) -> bool {
        const BOTH: u32 = status::SHUT_READ | status::SHUT_WRITE;
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        seen & BOTH == BOTH && self.peer_flags() & side_flags::RESET != 0
    }

    fn is_taken(&self, mark: &Ahead) -> bool {
        self.socket.entry.urgent_taken.load(Ordering::Relaxed) == mark.at.wrapping_add(1)
    }

    /// Bytes that wait to be read, as `FIONREAD` counts them: up to the mark.
    pub fn counted(&self) -> u64 {
        match self.mark() {
            Some(mark) if mark.has_arrived() && !self.reads_inline() => mark.before(),
            _ => self.readable(),
        }
    }

    /// At or before a mark, with bytes up to `tail`; `have` says whether the call has bytes.
    #[cold]
    pub(super) fn meet_mark(&self, head: u64, tail: u64, have: bool) -> Met {
        let Some(mark) = self.mark_from(head, tail) else {
            return Met::Before(u64::MAX);
        };
        let passed = mark.from.wrapping_sub(head);
        if !mark.is_here() {
            return if passed > 0 {
                Met::Pass(passed)
            } else {
                Met::Before(mark.before())
            };
        }
        if have {
            Met::Stop
        } else if self.reads_inline() {
            match passed {
                0 => Met::Before(u64::MAX),
                passed => Met::Pass(passed),
            }
        } else if mark.has_arrived() {
            Met::Pass(passed + 1)
        } else {
            Met::Pass(passed)
        }
    }

    /// `recv` with `MSG_OOB`: takes the urgent byte, or `peek`s at it. Never waits.
    ///
    /// # Safety
    /// `to` is the program's buffer, of a byte at least: writable, or faulting. Null where nothing is copied.
    pub unsafe fn take_urgent(&self, to: *mut u8, peek: bool) -> Result<(), Stop> {
        self.while_receiving(|| {
            let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
            let mark = self.mark().filter(|mark| !self.is_taken(mark));
            let exists = !self.socket.has(status::REFUSED) && !self.reads_inline();
            let Some(mark) = mark.filter(|_| exists) else {
                return Err(Stop::Error(libc::EINVAL));
            };
            self.look_for_peer();
            let flags = self.peer_flags();
            let reset = flags & side_flags::RESET != 0;
            let over = reset
                || self.socket.has(status::RESET)
                || self.socket.has(status::PEER_GONE) && self.ended_by_reset();
            // Whose end came before any reset has sent all that is there.
            let had_end =
                flags & side_flags::FIN != 0 && !(reset && self.reset_error() != libc::EPIPE);
            if over && !had_end {
                return Err(Stop::Error(libc::ENOTCONN));
            }
            if !mark.has_arrived() {
                let ended = self.socket.has(status::SHUT_READ | status::PEER_GONE)
                    || self.peer_flags() & side_flags::FIN != 0;
                return Err(if ended {
                    Stop::End
                } else {
                    Stop::Error(libc::EAGAIN)
                });
            }
            if !peek {
                let taken = &self.socket.entry.urgent_taken;
                taken.store(mark.at.wrapping_add(1), Ordering::Relaxed);
            }
            if to.is_null() {
                return Ok(());
            }
            let manner = Manner {
                peek: true,
                ..Manner::default()
            };
            let skip = mark.at.wrapping_sub(own);
            // SAFETY: the caller's promise.
            unsafe { self.receive_by_marks(to, 1, manner, skip, Marks::Ignored) }.map(|_| ())
        })
    }

    /// The byte before `end` is the urgent one. Under the lock of sending, before the tail that shows it.
    #[cold]
    pub(super) fn mark_urgent(&self, end: u64) {
        let entry = self.socket.entry;
        let told = Told {
            urgent: entry.urgent_sent.load(Ordering::Relaxed),
            passed: entry.urgent_passed.load(Ordering::Relaxed),
        };
        let inline = self.peer_flags() & side_flags::URGENT_INLINE != 0;
        let row = told.next_row(entry.urgent_row.load(Ordering::Relaxed), end);
        let told = told.next(end, self.peer_head(), inline);
        entry.urgent_sent.store(told.urgent, Ordering::Relaxed);
        entry.urgent_passed.store(told.passed, Ordering::Relaxed);
        entry.urgent_row.store(row, Ordering::Relaxed);
        let own = self.own();
        // The release in `tell` shows it.
        own.row.store(row, Ordering::Relaxed);
        told.tell(&own.urgent, &own.passed);
    }

    /// Has the kernel signal whom the peer's program named, if it named any.
    #[cold]
    pub(super) fn signal_urgent(&self) {
        if self.peer_flags() & side_flags::URGENT_SIGNALS != 0 {
            let flags = libc::MSG_OOB | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let _ = sys::send(self.fd, &[0], flags);
        }
    }

    /// The program has said whom to signal. The anchor is this connection's for good.
    #[cold]
    pub fn signals_urgent(&self) {
        self.socket.mark(status::SHARED);
        let inline = 1i32.to_ne_bytes();
        // SAFETY: the value is a local of four bytes.
        let set = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_OOBINLINE);
            sys::raw(
                libc::SYS_setsockopt,
                [
                    sys::int(self.fd),
                    sys::int(level),
                    sys::int(name),
                    inline.as_ptr().addr(),
                    inline.len(),
                    0,
                ],
            )
        };
        if set.is_ok() {
            let flags = &self.own().flags;
            flags.fetch_or(side_flags::URGENT_SIGNALS, Ordering::AcqRel);
        }
    }
}

fn reads_inline(socket: &Socket) -> bool {
    socket::is_on(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE)
}

/// What is said of a connection that begins.
pub fn flags_at_start(socket: &Socket) -> u32 {
    cork_at_start(socket);
    let aborts = socket.entry.linger.load(Ordering::Relaxed) == 1;
    let said = |on: bool, flag: u32| if on { flag } else { 0 };
    said(reads_inline(socket), side_flags::URGENT_INLINE) | said(aborts, side_flags::ABORTS)
}

/// Tells the peer how the program reads urgent bytes, when it has changed its mind.
pub fn tell_inline(socket: &Socket, fd: i32) {
    if socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        let flags = &lane.own().flags;
        if lane.reads_inline() {
            flags.fetch_or(side_flags::URGENT_INLINE, Ordering::AcqRel);
        } else {
            flags.fetch_and(!side_flags::URGENT_INLINE, Ordering::AcqRel);
        }
    }
}
