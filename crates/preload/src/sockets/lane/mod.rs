//! The data path of a virtual socket: copies between the program's buffers and the two rings, and notifications of the
//! other side. No system call unless the other side sleeps.

mod holding;
mod lending;
mod modes;
mod progress;
mod receive;
mod reserved_rings;
mod send;
mod shut_peer;
mod unaccepted;
mod urgent;
mod wake;

use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::class::Hints;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{
    Geometry, MOST_RING_LOG2, Role, SMALL_RING, Side, Slot, side_flags, waiter as bits,
};
use netchannel_ring::{held, side};
use netchannel_shm::split::Transfer;

use crate::descriptors::attach::header;
use crate::descriptors::copying;
use crate::ground::lock;
use crate::sockets::link::LinkEnd;
use crate::sockets::socket::{self, Socket, status};

pub use holding::note_cork;
pub use lending::{LentBytes, last_waiter, publish_caught_up, publish_pump, set_pumped};
pub use modes::{ReceiveMode, Urgent, WHOLE, goes_whole};
pub use progress::{CARRY_ON, Progress};
pub use urgent::{flags_at_start, publish_inline};
pub use wake::{NOTIFY_SETS, WRITER, notify_of_room};

/// A connected virtual socket with everything its data path needs, resolved once per call.
#[derive(Clone, Copy)]
pub struct Lane {
    /// The socket.
    pub socket: Socket,
    /// Its anchor: the program's descriptor.
    pub fd: i32,
    /// Its link.
    pub link: &'static LinkEnd,
    slot: &'static Slot,
    index: u32,
    generation: u32,
}

/// What stops a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The ring is empty (receiving) or full (sending).
    Wait,
    /// No byte will follow.
    End,
    /// The call fails with this errno.
    Error(i32),
}

/// The largest run that is copied before it is published, so that the other side can begin.
const STRIDE: u64 = 64 * 1024;

/// The result of a call that met an invalid address of the program after `done` bytes.
const fn result_of_fault(done: u64) -> Result<usize, Stop> {
    if done > 0 {
        Ok(done as usize)
    } else {
        Err(Stop::Error(libc::EFAULT))
    }
}

impl Lane {
    /// Resolves a virtual socket.
    #[inline]
    pub fn of(socket: Socket, fd: i32) -> Option<Self> {
        let link = socket.link()?;
        let index = socket.entry.slot.load(Ordering::Relaxed);
        let slot = link.slot(index)?;
        let generation = socket.entry.generation.load(Ordering::Relaxed);
        Some(Self {
            socket,
            fd,
            link,
            slot,
            index,
            generation,
        })
    }

    /// Slot and generation.
    pub const fn handle(&self) -> Handle {
        Handle {
            index: self.index,
            generation: self.generation,
        }
    }

    /// The error of a call that finds another socket under its descriptor: `dissolved` where it is the same socket,
    /// whose connection another thread has dissolved meanwhile.
    #[cold]
    fn descriptor_error(&self, dissolved: i32) -> i32 {
        let now = socket::of(self.fd);
        let same = now.is_some_and(|now| core::ptr::eq(now.entry, self.socket.entry));
        if same { dissolved } else { libc::EBADF }
    }

    /// The shared slot.
    pub const fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// This side's words.
    #[inline]
    pub fn own(&self) -> &'static Side {
        self.link.sides(self.slot).0
    }

    #[inline]
    fn peer(&self) -> &'static Side {
        self.link.sides(self.slot).1
    }

    /// The peer's flags; none while it has not initialised its side for this connection.
    #[inline]
    pub fn peer_flags(&self) -> u32 {
        let peer = self.peer();
        side::flags(peer, self.generation)
    }

    /// The errno with which the other side refused the connection; valid only if it did.
    pub fn peer_error(&self) -> u32 {
        self.peer().error.load(Ordering::Relaxed)
    }

    /// The error that reports a reset. As with TCP, a side that had received the peer's end and not ended itself gets a
    /// broken pipe, and a side whose peer is out of reach is told so. A peer that resets publishes the
    /// error. A peer that died silently had ended if its flags show an end without a reset.
    pub fn reset_error(&self) -> i32 {
        let ended = self.peer_flags() & (side_flags::FIN | side_flags::RESET) == side_flags::FIN;
        match i32::try_from(self.peer_error()) {
            Ok(
                error @ (libc::EPIPE
                | libc::ETIMEDOUT
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::EHOSTDOWN
                | libc::ENOBUFS),
            ) => error,
            _ if ended || self.has_lost_held_bytes() => libc::EPIPE,
            _ => libc::ECONNRESET,
        }
    }

    /// Before this side sets RESET: publishes the error that the reset is to the peer.
    pub fn publish_reset_error(&self) {
        if self.socket.has(status::SHUT_WRITE) {
            self.publish_broken_pipe();
        }
    }

    /// Before a reset that follows the end of this side: to a peer that has seen the end it is a broken pipe.
    pub fn publish_broken_pipe(&self) {
        let error = libc::EPIPE.cast_unsigned();
        self.own().error.store(error, Ordering::Relaxed);
    }

    /// The number of bytes that the peer has published since the connection began.
    #[inline]
    pub fn peer_tail(&self) -> u64 {
        let peer = self.peer();
        // The generation first: the words that are read after it belong to this connection, not to the one before.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `send`, so the bytes up to it are there.
        let tail = peer.tail.load(Ordering::Acquire);
        match held::load(&peer.held) {
            0 => tail,
            word => self.visible_tail(tail, word),
        }
    }

    #[inline]
    fn peer_head(&self) -> u64 {
        let peer = self.peer();
        // The generation first, as in `peer_tail`.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `receive`, so the bytes up to it may be overwritten.
        peer.head.load(Ordering::Acquire)
    }

    /// Whether there are unread bytes. Takes nothing.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        self.peer_tail() != self.socket.entry.receive.own.load(Ordering::Relaxed)
    }

    /// Count of visible bytes that the peer has sent so far, according to the peer. Only for noticing a change.
    pub fn arrived(&self) -> u64 {
        self.peer_tail()
    }

    /// Counts wake-ups without bytes: the end of the peer's stream, its reset, and changes on this side. Only for
    /// noticing a change.
    pub fn news(&self) -> u32 {
        let ends = self.peer_flags() & (side_flags::FIN | side_flags::RESET);
        let news = self.socket.entry.transmit.news.load(Ordering::Relaxed);
        news.wrapping_add(ends.count_ones())
    }

    /// How often a writer of this process found no room. Only for noticing a change.
    pub fn full_count(&self) -> u32 {
        self.socket.local.full.load(Ordering::Relaxed)
    }

    /// Whether either side has reset the connection.
    pub fn is_reset(&self) -> bool {
        (self.peer_flags() | self.own().flags.load(Ordering::Relaxed)) & side_flags::RESET != 0
    }

    /// Whether the connection is over, as TCP in CLOSED: it was reset, or both sides have ended it.
    pub fn is_over(&self) -> bool {
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        let flags = self.peer_flags();
        let gone = seen & status::PEER_GONE != 0;
        seen & (status::RESET | status::FAULT | status::WRITE_MET_CLOSED) != 0
            || self.is_reset()
            || seen & status::SHUT_WRITE != 0 && (gone || flags & side_flags::FIN != 0)
            || gone && self.ended_by_reset()
    }

    /// Number of unread bytes.
    pub fn readable(&self) -> u64 {
        let most = 1 << (MOST_RING_LOG2 + 1);
        if let Some(mark) = self.mark() {
            return mark.readable().min(most);
        }
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        self.peer_tail().wrapping_sub(own).min(most)
    }

    /// Whether there are bytes for a peek at `offset` that has `received` some, or no more will come.
    pub fn has_more_than(&self, offset: u64, received: u64) -> bool {
        self.readable() > offset + received + self.out_of_line(offset)
            || self.peer_flags() & (side_flags::FIN | side_flags::RESET) != 0
            || self
                .socket
                .has(status::SHUT_READ | status::RESET | status::PEER_GONE | status::FAULT)
    }

    /// Whether no more bytes will come than are there.
    pub fn is_complete(&self) -> bool {
        self.peer_flags() & side_flags::FIN != 0
            || self.socket.has(status::SHUT_READ | status::PEER_GONE)
    }

    /// Number of sent bytes that the peer has not read yet.
    pub fn unread_by_peer(&self) -> u64 {
        let own = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        own.wrapping_sub(self.peer_head())
            .min(1 << (MOST_RING_LOG2 + 1))
    }

    /// Whether a reader would not wait: there are bytes, an end, or an error.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.has_bytes() && (self.has_no_low_water() || self.reaches_low_water())
            || self.peer_flags() & (side_flags::FIN | side_flags::RESET) != 0
            || self
                .socket
                .has(status::SHUT_READ | status::RESET | status::PEER_GONE | status::FAULT)
    }

    /// Whether any single byte makes the socket readable.
    #[inline]
    fn has_no_low_water(&self) -> bool {
        self.socket.entry.low_water.load(Ordering::Relaxed) <= 1 && !self.has_mark()
    }

    /// Whether there are enough bytes to make the socket readable, not counting an urgent byte at the read position.
    /// Fewer are enough where the peer waits for room: as in TCP, whose window is too small then.
    #[cold]
    fn reaches_low_water(&self) -> bool {
        let least = self.socket.entry.low_water.load(Ordering::Relaxed);
        if self.readable() >= u64::from(least.max(1)) + self.out_of_line(0) {
            return true;
        }
        if least <= 1 {
            return false;
        }
        let flags = &self.own().flags;
        if flags.load(Ordering::Relaxed) & side_flags::LOW_WATER == 0 {
            // Before the caller arms and looks again: pairs with the look of a writer that has armed.
            flags.fetch_or(side_flags::LOW_WATER, Ordering::AcqRel);
        }
        self.is_peer_full()
    }

    /// Whether the peer waits for room, and may need more than there is.
    fn is_peer_full(&self) -> bool {
        let waits = self.peer().waiter.load(Ordering::Relaxed) & (bits::SPACE | bits::CELL_SPACE);
        let size = self.peer_ring_size();
        // A writer waits for a third of the ring, or for as much as one call sends whole.
        let enough = (size / 3).max(WHOLE as u64);
        waits != 0 && size.saturating_sub(self.readable()) < enough
    }

    /// The size of the ring in which the peer writes.
    fn peer_ring_size(&self) -> u64 {
        // After the tail, with whose Acquire it is at least the ring in which the bytes before the tail are.
        let ring = self.peer().geometry.load(Ordering::Relaxed);
        Geometry::from_word(ring).size().max(SMALL_RING as u64)
    }

    /// Whether there are bytes, but too few to make the socket readable, and the peer has room for more.
    #[inline]
    pub fn waits_for_low_water(&self) -> bool {
        self.socket.entry.low_water.load(Ordering::Relaxed) > 1 && self.is_below_low_water()
    }

    #[cold]
    fn is_below_low_water(&self) -> bool {
        let (has_bytes, readable) = (self.has_bytes(), self.readable());
        has_bytes && !self.has_input() && readable < self.peer_ring_size()
    }

    /// Copies some of the `room` bytes that fit at once, of a call for `call` bytes, and publishes them as they are
    /// copied: one stride, or more with helpers. Returns how many were to be copied, and how many were.
    ///
    /// # Safety
    /// What `transfer` makes of a length may be copied.
    #[inline(always)]
    unsafe fn move_bytes(
        &self,
        call: u64,
        room: u64,
        transfer: impl Fn(u64) -> Transfer<'static>,
        publish: impl Fn(u64),
    ) -> (u64, u64) {
        if room > STRIDE {
            let direction = transfer(0).direction;
            // Relaxed: it orders nothing.
            let hints = Hints::from_word(self.socket.entry.hints.load(Ordering::Relaxed));
            if let Some((plan, length)) = copying::plan(hints, call, room, direction) {
                // SAFETY: the caller's promise.
                let copied = unsafe { copying::POOL.copy(&transfer(length), &plan, publish) };
                return (length, copied);
            }
        }
        let step = room.min(STRIDE);
        // SAFETY: the caller's promise.
        let copied = step - unsafe { transfer(step).copy() };
        if copied > 0 {
            publish(copied);
        }
        (step, copied)
    }

    /// Runs `work` under the lock of one direction. Where another thread has dissolved the connection of the same
    /// socket meanwhile, the call fails with `dissolved`.
    #[inline(always)]
    fn with_direction_lock<R>(
        &self,
        held: &AtomicU32,
        dissolved: i32,
        work: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        if !lock::acquire(held) {
            return Err(Stop::Error(libc::EAGAIN));
        }
        let result = if self.socket.is(self.fd) {
            work()
        } else {
            Err(Stop::Error(self.descriptor_error(dissolved)))
        };
        lock::release(held);
        result
    }

    fn fault(&self) -> Stop {
        self.socket.mark(status::FAULT | status::RESET);
        if let Some(header) = header() {
            header.faults.fetch_add(1, Ordering::Relaxed);
        }
        Stop::Error(libc::ECONNRESET)
    }

    /// The peer has ended silently: whether TCP would see that as a reset. It does when the peer had not read all
    /// bytes, had not accepted, or had asked for a reset.
    pub fn ended_by_reset(&self) -> bool {
        let flags = self.peer_flags();
        let over = flags & side_flags::FIN != 0 && self.socket.has(status::SHUT_WRITE);
        !over
            && flags & side_flags::CLOSED == 0
            // The peer never had bytes that were held back.
            && (self.unread_by_peer() > self.held_count()
                || flags & side_flags::ABORTS != 0
                || self.link.role == Role::Client && flags & side_flags::ACCEPTED == 0)
    }
}
