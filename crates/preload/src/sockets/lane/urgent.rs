//! Urgent data: the mark in the peer's stream, the byte that is read out of line, the signal.
//!
//! ```text
//!  send(MSG_OOB)  -> mark_urgent -> tail -> signal_urgent: an urgent token, for which the kernel raises SIGURG
//!  recv           -> meet_mark: ends before the byte, or passes over it
//!  recv(MSG_OOB)  -> take_urgent: the byte, from its place in the ring
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::link::side_flags;
use netchannel_ring::urgent::{self, Ahead, PublishedMarks};

use super::holding::apply_cork;
use super::modes::AtMark;
use super::modes::Marks;
use super::modes::PIECE;
use super::receive::KEEPS_URGENT;
use super::{Lane, ReceiveMode, Stop};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::socket;
use crate::sockets::socket::{Socket, status};

impl Lane {
    /// Whether an urgent byte may be at `head` or behind it. A load from the cache line of the tail.
    #[inline]
    pub(super) fn has_mark_from(&self, head: u64) -> bool {
        self.peer().urgent.load(Ordering::Relaxed) > head
    }

    /// Whether an urgent byte may be ahead of the reader.
    #[inline]
    pub(super) fn has_mark(&self) -> bool {
        self.has_mark_from(self.socket.entry.receive.own.load(Ordering::Relaxed))
    }

    fn mark_from(&self, head: u64, tail: u64) -> Option<Ahead> {
        static NONE: AtomicU64 = AtomicU64::new(0);
        let peer = self.peer();
        let passed = if self.keeps_all() {
            &NONE
        } else {
            &peer.passed
        };
        urgent::mark_ahead(&peer.urgent, passed, head, tail)
    }

    /// Whether the program has read urgent bytes in line from the beginning. A peer did not know that before the accept,
    /// and may have counted some of them as lost.
    fn keeps_all(&self) -> bool {
        self.socket.entry.receive.flags.load(Ordering::Relaxed) & KEEPS_URGENT != 0
    }

    /// The program reads urgent bytes in line no longer. What was counted as lost before is still kept.
    fn keep_no_more(&self) {
        let receive = &self.socket.entry.receive;
        if self.peer().passed.load(Ordering::Relaxed) <= receive.own.load(Ordering::Relaxed) {
            receive.flags.fetch_and(!KEEPS_URGENT, Ordering::Relaxed);
        }
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

    /// As [`Self::mark`]. A connection that was dissolved has none.
    #[cold]
    fn look_for_mark(&self) -> Option<Ahead> {
        // The generation before the words that it guards. Acquire: pairs with the release in `side::set_up`.
        if self.peer().generation.load(Ordering::Acquire) != self.generation
            || self.socket.has(status::DISSOLVED)
        {
            return None;
        }
        let tail = self.peer_tail();
        self.mark_from(self.socket.entry.receive.own.load(Ordering::Relaxed), tail)
    }

    fn reads_inline(&self) -> bool {
        reads_inline(&self.socket)
    }

    /// Number of bytes `offset` behind the read position that are not part of the stream: 1 for an urgent byte that is
    /// not read in line.
    #[inline]
    pub(super) fn out_of_line(&self, offset: u64) -> u64 {
        match self.mark() {
            Some(mark) if mark.before() == offset && !self.reads_inline() => 1,
            _ => 0,
        }
    }

    /// Number of bytes that a peek skips before the next one. As in TCP, its offset counts an urgent byte.
    #[cold]
    pub(super) fn peek_skip(&self, mode: ReceiveMode) -> u64 {
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        let passed = self.mark().map_or(0, |mark| mark.from.wrapping_sub(own));
        let hole = match mode.already_received {
            0 => 0,
            received => received + self.out_of_line(mode.offset),
        };
        passed + mode.offset + hole
    }

    /// Whether the next byte of the stream is the urgent one (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        self.mark().is_some_and(|mark| mark.is_here())
    }

    /// Whether the next byte that has arrived is the urgent one.
    pub fn is_before_urgent(&self) -> bool {
        self.mark()
            .is_some_and(|mark| mark.is_here() && mark.has_arrived())
    }

    /// Whether a sleeping reader has something to do: a byte to read, an end, or an urgent byte to skip.
    pub fn has_input(&self) -> bool {
        self.is_readable() || self.is_before_urgent()
    }

    /// Whether there is urgent data (`POLLPRI`).
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.mark().is_some_and(|mark| {
            (mark.has_arrived() || self.was_answered_by_reset(&mark)) && !self.is_taken(&mark)
        })
    }

    /// Whether the last bytes met a socket that has ended both directions, and were answered with a reset: an urgent
    /// byte in the first packet of them counts as arrived.
    #[cold]
    fn was_answered_by_reset(&self, mark: &Ahead) -> bool {
        const BOTH: u32 = status::SHUT_READ | status::SHUT_WRITE;
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        seen & BOTH == BOTH
            && self.peer_flags() & side_flags::RESET != 0
            && mark.at.wrapping_sub(self.peer_tail()) < PIECE
    }

    /// Whether the end of the peer's stream came before any reset. A killed peer that had read all ended its stream.
    #[cold]
    pub fn had_end(&self) -> bool {
        let flags = self.peer_flags();
        let reset = flags & side_flags::RESET != 0;
        flags & side_flags::FIN != 0 && !(reset && self.reset_error() != libc::EPIPE)
            || !reset && self.socket.has(status::PEER_GONE) && !self.ended_by_reset()
    }

    fn is_taken(&self, mark: &Ahead) -> bool {
        self.socket.entry.urgent_taken.load(Ordering::Relaxed) == mark.at.wrapping_add(1)
    }

    /// Number of unread bytes as `FIONREAD` counts them: up to the mark.
    pub fn unread_count(&self) -> u64 {
        match self.mark() {
            Some(mark) if mark.has_arrived() && !self.reads_inline() => mark.before(),
            _ => self.readable(),
        }
    }

    /// What a reader does at or before a mark, with bytes up to `tail`; `have` is whether the call already has bytes.
    #[cold]
    pub(super) fn handle_mark(&self, head: u64, tail: u64, have: bool) -> AtMark {
        let Some(mark) = self.mark_from(head, tail) else {
            return AtMark::UpTo(u64::MAX);
        };
        let passed = mark.from.wrapping_sub(head);
        if !mark.is_here() {
            return if passed > 0 {
                AtMark::Skip(passed)
            } else {
                AtMark::UpTo(mark.before())
            };
        }
        if have {
            AtMark::Stop
        } else if self.reads_inline() {
            match passed {
                0 => AtMark::UpTo(u64::MAX),
                passed => AtMark::Skip(passed),
            }
        } else if mark.has_arrived() {
            AtMark::Skip(passed + 1)
        } else {
            AtMark::Skip(passed)
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
            self.check_peer_now();
            let over = self.peer_flags() & side_flags::RESET != 0
                || self.socket.has(status::RESET)
                || self.socket.has(status::PEER_GONE) && self.ended_by_reset();
            // A peer whose end came before any reset has sent all its bytes.
            if over && !self.had_end() {
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
            let mode = ReceiveMode {
                peek: true,
                ..ReceiveMode::default()
            };
            let skip = mark.at.wrapping_sub(own);
            // SAFETY: the caller's promise.
            unsafe { self.receive_by_marks(to, 1, mode, skip, Marks::Ignored) }.map(|_| ())
        })
    }

    /// Marks the byte before `end` as urgent. The caller holds the transmit lock, and publishes the tail afterwards.
    #[cold]
    pub(super) fn mark_urgent(&self, end: u64) {
        let entry = self.socket.entry;
        let marks = PublishedMarks {
            urgent: entry.urgent_sent.load(Ordering::Relaxed),
            passed: entry.urgent_passed.load(Ordering::Relaxed),
        };
        let inline = self.peer_flags() & side_flags::URGENT_INLINE != 0;
        let row = marks.next_row(entry.urgent_row.load(Ordering::Relaxed), end);
        let marks = marks.next(end, self.peer_head(), inline);
        entry.urgent_sent.store(marks.urgent, Ordering::Relaxed);
        entry.urgent_passed.store(marks.passed, Ordering::Relaxed);
        entry.urgent_row.store(row, Ordering::Relaxed);
        let own = self.own();
        // The release in `publish` publishes it.
        own.row.store(row, Ordering::Relaxed);
        marks.publish(&own.urgent, &own.passed);
    }

    /// Has the kernel signal the owner that the peer's program named, if it named one.
    #[cold]
    pub(super) fn signal_urgent(&self) {
        if self.peer_flags() & side_flags::URGENT_SIGNALS != 0 {
            let flags = libc::MSG_OOB | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let _ = sys::send(self.fd, &[0], flags);
        }
    }

    /// Called when the program has named an owner. The anchor is not pooled afterwards.
    #[cold]
    pub fn enable_urgent_signals(&self) {
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

/// The flags of a connection that begins.
pub fn flags_at_start(socket: &Socket) -> u32 {
    apply_cork(socket);
    let aborts = socket.entry.linger.load(Ordering::Relaxed) == 1;
    if reads_inline(socket) {
        let receive = &socket.entry.receive;
        receive.flags.fetch_or(KEEPS_URGENT, Ordering::Relaxed);
    }
    let flag_if = |on: bool, flag: u32| if on { flag } else { 0 };
    flag_if(reads_inline(socket), side_flags::URGENT_INLINE) | flag_if(aborts, side_flags::ABORTS)
}

/// Publishes whether the program reads urgent bytes in line, after a change.
pub fn publish_inline(socket: &Socket, fd: i32) {
    if socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        let flags = &lane.own().flags;
        if lane.reads_inline() {
            flags.fetch_or(side_flags::URGENT_INLINE, Ordering::AcqRel);
        } else {
            lane.keep_no_more();
            flags.fetch_and(!side_flags::URGENT_INLINE, Ordering::AcqRel);
        }
    }
}
