//! The data path of one virtual socket towards its program: what can be read, where there is room,
//! and what each side tells the other. No system call unless the program sleeps; no byte is looked at.
//!
//! ```text
//!            consumed        frontier                     published    limit
//!  program:  ####|##############|        daemon: #############|.....=====...|
//!            its ring, retained until            its own ring: bytes may be placed ahead of the
//!            consume()                           published tail, where the sequence says
//! ```

use super::anchor::Anchor;
use super::link::{LinkEnd, Loan, reset_side};
use super::reader::Reader;
use super::spans::Spans;
use super::writer::Writer;
use crate::class;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Cell as Map, Role, Side, Slot, side_flags, waiter as bits};
use netchannel_ring::urgent::Told;
use netchannel_ring::waiter::Wake;
use netchannel_ring::{cell, waiter};
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
    /// What the program was told of urgent bytes.
    pub(super) told: Told,
    /// The kernel says that nobody holds the other end of the anchor any more.
    hung_up: bool,
    /// Whoever moves many connections wakes their programs afterwards.
    held: bool,
    /// What is owed meanwhile: a token for who sleeps on the socket, or for a cell that was claimed.
    owed: Cell<Option<Wake>>,
}

impl Lane {
    /// (server) A connection that a program has made. Its side of the slot is set up.
    #[must_use]
    pub fn accepted(link: &Arc<LinkEnd>, loan: Loan) -> Self {
        let ring = |role| {
            link.layout
                .small_ring(role, usize::try_from(loan.handle.index).unwrap_or(0))
        };
        Self {
            reader: Reader::new(ring(link.role().other())),
            writer: Writer::new(ring(link.role())),
            told: Told::default(),
            link: Arc::clone(link),
            handle: loan.handle,
            anchor: loan.anchor,
            hung_up: false,
            held: false,
            owed: Cell::new(None),
        }
    }

    /// Should the daemon end without a word, the connection counts as reset: that is no end of what the other program says.
    #[must_use]
    #[inline]
    pub fn of_daemon(self) -> Self {
        if let Some((own, _)) = self.sides() {
            own.flags.fetch_or(side_flags::ABORTS, Ordering::AcqRel);
        }
        self
    }

    /// (client) A connection that is to be announced: sets its side of the slot up. `None` only
    /// where the slot does not exist.
    #[must_use]
    pub fn lent(link: &Arc<LinkEnd>, loan: Loan) -> Option<Self> {
        let slot = link.slot(loan.handle.index)?;
        let lane = Self::accepted(link, loan);
        reset_side(&slot.client, lane.handle.generation, lane.writer.ring());
        Some(lane)
    }

    /// Slot and generation.
    #[must_use]
    #[inline]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// The anchor, to be watched for tokens and its end.
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

    /// The program's flags; none while it has not taken up this connection yet.
    #[must_use]
    #[inline]
    pub fn peer_flags(&self) -> u32 {
        let Some((_, peer)) = self.sides() else {
            return side_flags::RESET;
        };
        // The generation first: what is read after it is of this connection. Acquire: pairs with
        // the releases with which the program sets both words.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return 0;
        }
        peer.flags.load(Ordering::Acquire)
    }

    /// What the program says about the class of the connection.
    #[must_use]
    #[inline]
    pub fn hints(&self) -> Hints {
        class::hints(self.hints_word())
    }

    /// The same as one word, to see whether it is another one.
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

    /// Whether the program is gone without having closed: its bytes can still be read.
    #[must_use]
    #[inline]
    pub const fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// A token came, or the `end`.
    #[inline]
    pub fn on_token(&mut self, end: bool) {
        // A program that shuts its own end down leaves ours open: an end is that nobody holds it.
        self.hung_up |= self.anchor.note_token(end) && !self.anchor.drain();
    }

    /// As if nobody held the other end any more.
    #[cfg(test)]
    pub(super) const fn hang_up_for_test(&mut self) {
        self.hung_up = true;
    }

    /// A program that ended without a word: would TCP have reset the connection? It would when
    /// bytes were unread, or it had asked for it, or never accepted.
    #[must_use]
    pub fn ended_by_reset(&self) -> bool {
        let flags = self.peer_flags();
        flags & side_flags::CLOSED == 0
            && (self.unread_by_peer() > 0
                || flags & side_flags::ABORTS != 0
                || self.link.role() == Role::Client && flags & side_flags::ACCEPTED == 0)
    }

    /// Whether the reset of a program comes behind the end of what it says, as it tells itself, or as is seen where it ended without a word:
    /// to the other program that is a broken pipe.
    #[must_use]
    #[inline]
    pub fn resets_behind_its_end(&self) -> bool {
        let flags = self.peer_flags();
        if flags & side_flags::RESET == 0 {
            return flags & side_flags::FIN != 0;
        }
        // Shown by the release of RESET.
        let error = self
            .sides()
            .map(|(_, peer)| peer.error.load(Ordering::Relaxed));
        error == Some(Errno::PIPE.raw_os_error().unsigned_abs())
    }

    /// (client) Whether no program has accepted it, and one may. What was closed was accepted before, or never will be.
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

    /// Sets flags of this side and tells the program. What they speak of was published before.
    pub fn set_flags(&self, flags: u32) {
        if let Some((own, _)) = self.sides() {
            // Release: the tail that FIN makes final stands before it.
            own.flags.fetch_or(flags, Ordering::AcqRel);
            self.announce_flags();
        }
    }

    /// Hands the socket to a worker's cell. The caller looks at the lane once more.
    #[inline]
    pub fn attach_cell(&self, index: usize) {
        if let Some((own, _)) = self.sides() {
            waiter::attach_cell(&own.waiter, Some(index));
        }
    }

    /// Wants the program's ring to have `1 << log2` bytes.
    #[inline]
    pub fn want_ring(&self, log2: u32) {
        let Some((own, _)) = self.sides() else { return };
        // Relaxed, both: the word guards nothing. The program reads the line that it lies on.
        if own.wanted_ring.load(Ordering::Relaxed) != log2 {
            own.wanted_ring.store(log2, Ordering::Relaxed);
        }
    }

    /// Wants the worker to hear of room. The caller looks once more.
    #[inline]
    pub fn want_space(&self) {
        if let Some((own, _)) = self.sides() {
            waiter::arm(&own.waiter, bits::CELL_SPACE);
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
        let mut owed = Wake {
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
                owed.cell = wake.cell;
                owed.token |= !cell::may_be_left(summary);
            }
        }
        if !owed.token && owed.cell.is_none() {
            return;
        }
        let before = self.owed.take().unwrap_or_default();
        if before.cell.is_some() && owed.cell.is_some() {
            // Of two cells that were claimed, neither may be forgotten.
            self.ring(before);
        } else {
            owed.token |= before.token;
            owed.cell = owed.cell.or(before.cell);
        }
        if self.held {
            self.owed.set(Some(owed));
        } else {
            self.ring(owed);
        }
    }

    /// Writes a token.
    fn ring(&self, owed: Wake) {
        if !self.anchor.ring()
            && let Some(map) = owed.cell.and_then(|index| self.program_cell(index))
        {
            // This anchor wakes nobody any more: the next socket of the loop shall.
            cell::sleep(&map.asleep);
        }
    }

    fn program_cell(&self, index: usize) -> Option<&Map> {
        self.link.cell(self.link.role().other(), index)
    }

    /// From now on the program is not woken before [`Self::ring_owed`].
    #[inline]
    pub const fn hold_wake_up(&mut self) {
        self.held = true;
    }

    /// Whether the program is to be woken. If not, its wake-up is not held any more.
    #[inline]
    pub const fn owes(&mut self) -> bool {
        let owes = self.owed.get().is_some();
        self.held = owes;
        owes
    }

    /// Whether much waits for the program: half of a ring to be read, or else to be filled.
    #[must_use]
    #[inline]
    pub fn presses(&self) -> bool {
        match self.unread_by_peer() {
            0 => {
                let kept = self.frontier().map_or(0, |to| to - self.consumed());
                kept <= self.program_capacity() / 2
            }
            unread => unread >= self.capacity() / 2,
        }
    }

    /// Wakes the program, if that is still due.
    pub fn ring_owed(&mut self) {
        self.held = false;
        let Some(owed) = self.owed.take() else { return };
        let map = owed.cell.and_then(|index| self.program_cell(index));
        // A loop that has taken all marks since is awake, and looks once more before it sleeps.
        let heard = !owed.token && map.is_some_and(|map| !cell::any(&map.summary));
        if !heard {
            self.ring(owed);
        }
    }

    /// Ends this side: no byte follows, and nothing is read any more. With `reset` what the program
    /// has not read is void too. The slot and the anchor go back.
    pub fn close(mut self, reset: bool) {
        // Before the slot is given up: afterwards the anchor is another connection's.
        self.ring_owed();
        let flags = side_flags::FIN | side_flags::CLOSED;
        let reset = if reset { side_flags::RESET } else { 0 };
        if let Some((own, _)) = self.sides() {
            // Nobody is woken on our behalf any more.
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

    /// (server) Ends a connection that does not come about, with a reason for who waits in connect:
    /// an errno.
    pub fn refuse(self, errno: u32) {
        self.blame(errno);
        self.close(true);
    }

    /// The errno that the RESET to come stands for, if it is no usual one.
    #[inline]
    pub fn blame(&self, errno: u32) {
        if let Some((own, _)) = self.sides() {
            // The release of RESET shows it.
            own.error.store(errno, Ordering::Relaxed);
        }
    }

    /// (client) Takes a lane back that could not be announced: the program never saw it.
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
