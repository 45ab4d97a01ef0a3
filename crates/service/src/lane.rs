//! The data path of one virtual socket towards its program: available bytes, room, flags and wake-ups. It makes no
//! system call unless the program sleeps, and looks at no byte.
//!
//! ```text
//!            consumed        frontier                     published    limit
//!  program:  ####|##############|        daemon: #############|.....=====...|
//!            its ring, retained until            its own ring: bytes may be placed ahead of the
//!            consume()                           published tail, where the sequence says
//! ```

use super::anchor::Anchor;
use super::link::{LinkEnd, Loan};
use super::reader::Reader;
use super::returned::Returned;
use super::spans::Spans;
use super::writer::Writer;
use crate::class;
use netchannel_abi::answer;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Cell as Map, Role, Side, Slot, side_flags, waiter as bits};
use netchannel_abi::liveness::Liveness;
use netchannel_ring::urgent::PublishedMarks;
use netchannel_ring::waiter::Wake;
use netchannel_ring::{cell, side, waiter};
use netchannel_scheduler::Hints;
use netchannel_shm::{Room, Run};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One connection with a program, from the daemon's end of a link.
#[derive(Debug)]
pub struct Lane {
    pub(super) link: Arc<LinkEnd>,
    pub(super) handle: Handle,
    pub(super) anchor: Anchor,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// The urgent bytes of which the program was notified.
    pub(super) announced: PublishedMarks,
    /// The kernel has reported that no process holds the other end of the anchor any more.
    hung_up: bool,
    /// Bytes were on their way to the program when it had ended.
    missed_bytes: bool,
    /// Bytes of the program that come before those of its ring.
    pub(super) returned: Returned,
    /// Wake-ups are deferred: a worker that handles many connections wakes their programs afterwards.
    deferred: bool,
    /// The other end is another stack module.
    pub(super) to_module: bool,
    /// The deferred wake-up: a token for a thread that sleeps on the socket, or for a cell that was claimed.
    wake_up: Cell<Option<Wake>>,
}

impl Lane {
    /// (server) A connection that a program has made. This end's side of the slot is set up already.
    #[must_use]
    pub fn accepted(link: &Arc<LinkEnd>, loan: Loan) -> Self {
        let ring = |role| {
            link.layout
                .small_ring(role, usize::try_from(loan.handle.index).unwrap_or(0))
        };
        Self {
            reader: Reader::new(ring(link.role().other())),
            writer: Writer::new(ring(link.role())),
            announced: PublishedMarks::default(),
            link: Arc::clone(link),
            handle: loan.handle,
            anchor: loan.anchor,
            hung_up: false,
            missed_bytes: false,
            returned: Returned::default(),
            deferred: false,
            to_module: false,
            wake_up: Cell::new(None),
        }
    }

    /// If the daemon ends unexpectedly, the connection counts as reset: the end of the daemon is no end of the other
    /// program's stream.
    #[must_use]
    #[inline]
    pub fn of_daemon(self) -> Self {
        if let Some((own, _)) = self.sides() {
            own.flags.fetch_or(side_flags::ABORTS, Ordering::AcqRel);
        }
        self
    }

    /// (client) A connection that is to be announced: initializes its side of the slot. `None` only where the slot does
    /// not exist.
    #[must_use]
    pub fn lent(link: &Arc<LinkEnd>, loan: Loan) -> Option<Self> {
        let slot = link.slot(loan.handle.index)?;
        let lane = Self::accepted(link, loan);
        side::set_up(&slot.client, lane.handle.generation, lane.writer.ring());
        Some(lane)
    }

    /// At the other end is another stack module, which passes the bytes on to a reader that this one does not see.
    pub const fn lead_to_module(&mut self) {
        self.to_module = true;
    }

    /// Slot and generation.
    #[must_use]
    #[inline]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// The anchor, to be watched for tokens and its hang-up.
    #[inline]
    pub const fn anchor_mut(&mut self) -> &mut Anchor {
        &mut self.anchor
    }

    /// The slot, which was checked when the lane was made.
    #[inline]
    fn slot(&self) -> Option<&Slot> {
        self.link.slot(self.handle.index)
    }

    /// This end's words of the slot, and the program's.
    #[must_use]
    #[inline]
    pub fn sides(&self) -> Option<(&Side, &Side)> {
        self.slot().map(|slot| self.link.sides(slot))
    }

    /// The program's flags; 0 while it has not taken this connection yet.
    #[must_use]
    #[inline]
    pub fn peer_flags(&self) -> u32 {
        let Some((_, peer)) = self.sides() else {
            return side_flags::RESET;
        };
        side::flags(peer, self.handle.generation)
    }

    /// The flags of this end.
    #[must_use]
    pub fn own_flags(&self) -> u32 {
        // Relaxed: only this end sets them.
        self.sides()
            .map_or(0, |(own, _)| own.flags.load(Ordering::Relaxed))
    }

    /// What the program says about the class of the connection.
    #[must_use]
    #[inline]
    pub fn hints(&self) -> Hints {
        class::hints(self.hints_word())
    }

    /// The hints as one word, to detect a change.
    #[must_use]
    #[inline]
    pub fn hints_word(&self) -> u32 {
        self.sides().map_or(0, |(_, peer)| {
            // As with the flags: without its generation the word is of an earlier connection.
            if peer.generation.load(Ordering::Acquire) == self.handle.generation {
                peer.hints.load(Ordering::Relaxed)
            } else {
                0
            }
        })
    }

    /// (client) Says what the program at the other end of a connection says of its class: before it is announced.
    pub fn set_hints_word(&self, word: u32) {
        if let Some((own, _)) = self.sides() {
            // The announcement publishes it; later it guards nothing.
            own.hints.store(word, Ordering::Relaxed);
        }
    }

    /// The errno of the program's RESET; 0 for the usual one.
    #[must_use]
    pub fn peer_error(&self) -> u32 {
        // The release of RESET makes it visible.
        self.sides()
            .map_or(0, |(_, peer)| peer.error.load(Ordering::Relaxed))
    }

    /// The number of the program's last question; another one says that it has set something, too. 0 for none.
    #[must_use]
    #[inline]
    pub fn asked(&self) -> u32 {
        self.sides().map_or(0, |(_, peer)| {
            // As with the hints. The second acquire pairs with the release of the number: what was set is seen.
            if peer.generation.load(Ordering::Acquire) == self.handle.generation {
                peer.asked.load(Ordering::Acquire)
            } else {
                0
            }
        })
    }

    /// What the program has set of the stack's socket: when it counts the connection as lost, and the name of a
    /// congestion control, filled up with zeroes.
    #[must_use]
    pub fn wanted_of_socket(&self) -> (Liveness, [u8; answer::NAME]) {
        let Some((_, peer)) = self.sides() else {
            return Default::default();
        };
        let mut name = [0; answer::NAME];
        let (eights, _) = name.as_chunks_mut::<8>();
        for (eight, word) in eights.iter_mut().zip(&peer.congestion) {
            *eight = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let liveness = Liveness::from_word(peer.liveness.load(Ordering::Relaxed));
        (liveness, name)
    }

    /// Answers the program's question of a number. Only the thread that has the link's lanes does it.
    pub fn answer(&self, number: u32, bytes: &[u8; answer::BYTES]) {
        if let Some(place) = self.link.answer() {
            let question = answer::question(self.handle.index, number);
            place.write(question, bytes);
        }
    }

    /// Whether the program has ended without closing the connection. Its bytes can still be read.
    #[must_use]
    #[inline]
    pub const fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Handles a token, or the `end`.
    #[inline]
    pub fn on_token(&mut self, end: bool) {
        // A program that shuts its own end down leaves this one open: the end is reached when no process holds it.
        self.hung_up |= self.anchor.note_token(end) && !self.anchor.drain();
    }

    /// The program has ended before these bytes came to it.
    pub const fn note_missed_bytes(&mut self) {
        self.missed_bytes = true;
    }

    /// Behaves as if no process held the other end any more.
    #[cfg(test)]
    pub(super) const fn hang_up_for_test(&mut self) {
        self.hung_up = true;
    }

    /// Whether TCP would have reset the connection of a program that ended without closing it: when bytes were unread,
    /// or the program had asked for it, or never accepted.
    #[must_use]
    pub fn ended_by_reset(&self) -> bool {
        let flags = self.peer_flags();
        let own = self.own_flags();
        // What both sides have ended is over.
        let over = flags & own & side_flags::FIN != 0;
        !over
            && flags & side_flags::CLOSED == 0
            && (self.missed_bytes
                || self.unread_by_peer() > 0
                || flags & side_flags::ABORTS != 0
                || self.link.role() == Role::Client && flags & side_flags::ACCEPTED == 0)
    }

    /// Whether the program's reset comes after the end of its stream. The program states this in its error word; where
    /// it ended without closing, it follows from its flags. To the other program such a reset is a broken pipe.
    #[must_use]
    #[inline]
    pub fn resets_behind_its_end(&self) -> bool {
        let flags = self.peer_flags();
        if flags & side_flags::RESET == 0 {
            return flags & side_flags::FIN != 0;
        }
        self.peer_error() == Errno::PIPE.raw_os_error().unsigned_abs()
    }

    /// (client) Whether no program has accepted the connection, and one may. A closed connection was accepted before,
    /// or never will be.
    #[must_use]
    #[inline]
    pub fn waits_for_accept(&self) -> bool {
        self.peer_flags() & (side_flags::ACCEPTED | side_flags::CLOSED) == 0
    }

    /// Runs for spans of what the program wrote.
    #[must_use]
    #[inline]
    pub fn runs(&self, spans: Spans) -> [Run<'_>; 2] {
        spans.map(|span| self.link.region().run(span).unwrap_or(Run::empty()))
    }

    /// Rooms for spans of this end's transmit ring.
    #[must_use]
    #[inline]
    pub fn rooms(&self, spans: Spans) -> [Room<'_>; 2] {
        spans.map(|span| self.link.region().room(span).unwrap_or(Room::empty()))
    }

    /// Sets flags of this side and notifies the program. The bytes that the flags refer to were published before.
    pub fn set_flags(&self, flags: u32) {
        if let Some((own, _)) = self.sides() {
            // Release: the tail that FIN makes final was stored before.
            own.flags.fetch_or(flags, Ordering::AcqRel);
            self.announce_flags();
        }
    }

    /// Attaches the socket to a worker's cell. The caller looks at the lane once more.
    #[inline]
    pub fn attach_cell(&self, index: usize) {
        if let Some((own, _)) = self.sides() {
            waiter::attach_cell(&own.waiter, Some(index));
        }
    }

    /// Asks the program for a ring of `1 << log2` bytes.
    #[inline]
    pub fn request_ring(&self, log2: u32) {
        let Some((own, _)) = self.sides() else { return };
        // Both are relaxed: the word guards nothing. The check avoids writes to the cache line, which the program
        // reads.
        if own.wanted_ring.load(Ordering::Relaxed) != log2 {
            own.wanted_ring.store(log2, Ordering::Relaxed);
        }
    }

    /// Asks the program to notify the worker of room. The caller looks once more.
    #[inline]
    pub fn request_space_news(&self) {
        if let Some((own, peer)) = self.sides() {
            waiter::arm(&own.waiter, bits::CELL_SPACE);
            if peer.flags.load(Ordering::Relaxed) & side_flags::LOW_WATER != 0 {
                // A program that waits for more bytes than there is room for takes fewer.
                self.announce_data();
            }
        }
    }

    #[inline]
    pub(super) fn announce_data(&self) {
        let wake = self
            .sides()
            .and_then(|(_, peer)| waiter::announce_data(&peer.waiter));
        wake.into_iter().for_each(|wake| self.deliver(wake));
    }

    #[inline]
    pub(super) fn announce_space(&self) {
        let wake = self
            .sides()
            .and_then(|(_, peer)| waiter::announce_space(&peer.waiter));
        wake.into_iter().for_each(|wake| self.deliver(wake));
    }

    fn announce_flags(&self) {
        self.announce_data();
        self.announce_space();
    }

    #[cold]
    fn deliver(&self, wake: Wake) {
        let mut wake_up = Wake {
            token: wake.token,
            cell: None,
        };
        if let Some(cell) = wake.cell.and_then(|index| self.program_cell(index)) {
            let Map {
                asleep,
                summary,
                ready,
                ..
            } = cell;
            let slot = usize::try_from(self.handle.index).unwrap_or(usize::MAX);
            if cell::mark(asleep, summary, ready, slot) {
                wake_up.cell = wake.cell;
                wake_up.token |= !cell::may_skip_token(summary);
            }
        }
        if !wake_up.token && wake_up.cell.is_none() {
            return;
        }
        let before = self.wake_up.take().unwrap_or_default();
        if before.cell.is_some() && wake_up.cell.is_some() {
            // Two cells were claimed: each needs its own token.
            self.ring(before);
        } else {
            wake_up.token |= before.token;
            wake_up.cell = wake_up.cell.or(before.cell);
        }
        if self.deferred {
            self.wake_up.set(Some(wake_up));
        } else {
            self.ring(wake_up);
        }
    }

    /// Writes a token.
    fn ring(&self, wake_up: Wake) {
        if !self.anchor.ring()
            && let Some(map) = wake_up.cell.and_then(|index| self.program_cell(index))
        {
            // This anchor can not wake the loop. Restoring the sleep makes the next socket of the loop do it.
            cell::sleep(&map.asleep);
        }
    }

    fn program_cell(&self, index: usize) -> Option<&Map> {
        self.link.cell(self.link.role().other(), index)
    }

    /// From now on wake-ups of the program are deferred until [`Self::send_wake_up`].
    #[inline]
    pub const fn defer_wake_ups(&mut self) {
        self.deferred = true;
    }

    /// Whether a wake-up is pending. If not, wake-ups are not deferred any more.
    #[inline]
    pub const fn has_deferred_wake_up(&mut self) -> bool {
        let owes = self.wake_up.get().is_some();
        self.deferred = owes;
        owes
    }

    /// Whether much waits for the program: it has half of a ring to read, or half of its own ring to fill.
    #[must_use]
    #[inline]
    pub fn is_pressing(&self) -> bool {
        match self.unread_by_peer() {
            0 => {
                let kept = self.frontier().map_or(0, |to| to - self.consumed());
                kept <= self.program_capacity() / 2
            }
            unread => unread >= self.capacity() / 2,
        }
    }

    /// Wakes the program if a wake-up is pending and still needed.
    pub fn send_wake_up(&mut self) {
        self.deferred = false;
        let Some(wake_up) = self.wake_up.take() else {
            return;
        };
        let map = wake_up.cell.and_then(|index| self.program_cell(index));
        // A loop that has taken all marks since is awake, and looks once more before it sleeps.
        let seen = !wake_up.token && map.is_some_and(|map| !cell::any_marked(&map.summary));
        if !seen {
            self.ring(wake_up);
        }
    }

    /// Ends this side: no byte follows, and nothing is read any more. With `reset`, bytes that the program has not read
    /// are discarded too. The slot and the anchor are returned.
    pub fn close(mut self, reset: bool) {
        // This must precede the return of the slot: afterwards the anchor may belong to another connection.
        self.send_wake_up();
        let flags = side_flags::FIN | side_flags::CLOSED;
        let reset = if reset { side_flags::RESET } else { 0 };
        if let Some((own, _)) = self.sides() {
            // This end needs no wake-up any more.
            own.waiter.store(0, Ordering::Release);
        }
        self.set_flags(flags | reset);
        let keep = !self.hung_up
            && self.link.wants_anchor()
            && self.peer_flags() & side_flags::ANCHOR_GONE == 0;
        let Self {
            link,
            handle,
            anchor,
            writer,
            ..
        } = self;
        if let Some(slot) = link.slot(handle.index) {
            link.finish(slot, handle, keep.then_some(anchor), writer.rings());
        }
    }

    /// (server) Ends a connection that could not be made. The errno is the result of the client's connect.
    pub fn refuse(self, errno: u32) {
        self.set_reset_error(errno);
        self.close(true);
    }

    /// Sets the errno of the RESET that follows, if it is not the usual one.
    #[inline]
    pub fn set_reset_error(&self, errno: u32) {
        if let Some((own, _)) = self.sides() {
            // The release of RESET makes it visible.
            own.error.store(errno, Ordering::Relaxed);
        }
    }

    /// (client) Takes back a lane that could not be announced: the program never saw it.
    pub fn withdraw(self) {
        if let Some(slot) = self.slot() {
            // Both sides count as closed.
            let server = &slot.server;
            server
                .generation
                .store(self.handle.generation, Ordering::Relaxed);
            let flags = side_flags::CLOSED | side_flags::RELEASED;
            server.flags.store(flags, Ordering::Relaxed);
        }
        self.close(false);
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.anchor.as_fd()
    }
}
