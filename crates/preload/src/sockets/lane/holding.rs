//! Bytes that are held back: `MSG_MORE` and `TCP_CORK` on the sender's side, and the reader's view of them.
//!
//! ```text
//!  send(MSG_MORE) -> held -> tail -> wake: the reader learns until when at most
//!  what ends it: a send without, a piece's worth, no room, TCP_CORK off, TCP_NODELAY, urgent data, an end
//!  reader         -> has all before `held`; sleeps until the time has come
//! ```

use core::sync::atomic::Ordering;

use netchannel_abi::link::side_flags;
use netchannel_abi::program::RELAY;
use netchannel_ring::held::{self, OnReply};

use super::modes::Announcement;
use super::modes::PIECE;
use super::{Lane, Stop, Urgent};
use crate::descriptors::table::Kind;
use crate::ground::{clock, lock};
use crate::sockets::socket;
use crate::sockets::socket::{Socket, status};

/// Nanoseconds between the looks of a sleeper for whether its own side has sent something that releases bytes.
const REPLY_LOOKS: i64 = 1_000_000;

/// The clock of the time at which held-back bytes become visible.
fn milliseconds() -> u64 {
    clock::nanoseconds() / 1_000_000
}

fn is_corked(socket: &Socket) -> bool {
    socket::is_on(socket, libc::IPPROTO_TCP, libc::TCP_CORK)
}

impl Lane {
    /// The part of `tail` that is visible, where the peer's word for held-back bytes is `word`.
    #[cold]
    #[inline(never)]
    pub(super) fn visible_tail(&self, tail: u64, word: u64) -> u64 {
        if !self.is_reset() {
            if held::time_left(word, milliseconds()) == 0
                || held::is_released_by(word, self.sent_visibly())
            {
                return tail;
            }
            // A sender that was killed has released them.
            self.check_peer();
            if self.socket.has(status::PEER_GONE) && !self.is_reset() {
                return tail;
            }
        } else if held::is_released_by(word, self.bytes_sent_visibly()) {
            // They had come before the reset.
            return tail;
        }
        // A reset discards held-back bytes with the connection.
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        held::visible_tail(word, own, tail)
    }

    /// Nanoseconds for which bytes that have come may still be held back; `None` where none are.
    #[inline]
    pub fn hold_remaining(&self) -> Option<i64> {
        match held::load(&self.peer().held) {
            0 => None,
            word => self.remaining_hold(word),
        }
    }

    /// As [`Self::hold_remaining`], for a thread that watches the socket: also for bytes of this side that will meet a
    /// reset when their time is over.
    #[inline]
    pub fn next_look(&self) -> Option<i64> {
        let theirs = self.hold_remaining();
        if self.socket.has(status::HOLDS) {
            return theirs.into_iter().chain(self.hold_for_shut_peer()).min();
        }
        theirs
    }

    #[cold]
    fn hold_for_shut_peer(&self) -> Option<i64> {
        let word = self.socket.entry.held.load(Ordering::Relaxed);
        let left = i64::try_from(held::time_left(word, milliseconds())).unwrap_or(0);
        (left > 0 && self.holds_for_shut_peer()).then_some(left * 1_000_000)
    }

    #[cold]
    fn remaining_hold(&self, word: u64) -> Option<i64> {
        let peer = self.peer();
        // The generation before the words that it guards. Acquire: pairs with the release in `side::set_up`.
        if peer.generation.load(Ordering::Acquire) != self.generation
            || self.socket.has(status::PEER_GONE)
        {
            return None;
        }
        // Acquire: pairs with the release in `send`.
        let tail = peer.tail.load(Ordering::Acquire);
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        let left = i64::try_from(held::time_left(word, milliseconds())).ok()?;
        let holds = left > 0 && !held::is_released_by(word, self.sent_visibly());
        // Nobody wakes a sleeper of the side that releases them.
        let most = if held::releases_on_reply(word) {
            REPLY_LOOKS
        } else {
            i64::MAX
        };
        (holds && tail != own && held::visible_tail(word, own, tail) != tail)
            .then_some(most.min(left * 1_000_000))
    }

    /// The peer has just been found dead. Where that was a reset, bytes that it still held back are lost.
    #[cold]
    pub(super) fn drop_held_of_dead(&self) {
        let word = held::load(&self.peer().held);
        if held::time_left(word, milliseconds()) > 0
            && !held::is_released_by(word, self.sent_visibly())
            && self.ended_by_reset()
        {
            self.own()
                .flags
                .fetch_or(side_flags::RESET, Ordering::AcqRel);
        }
    }

    /// The sequence up to which the peer can see this side's stream, its end included.
    fn sent_visibly(&self) -> u64 {
        let end = u64::from(self.socket.has(status::SHUT_WRITE));
        self.bytes_sent_visibly().wrapping_add(end)
    }

    fn bytes_sent_visibly(&self) -> u64 {
        let sent = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        sent.wrapping_sub(self.held_count())
    }

    /// Whether `word`, by which this side holds bytes back, still holds any.
    fn is_held(&self, word: u64, now: u64) -> bool {
        self.socket.has(status::HOLDS)
            && held::time_left(word, now) > 0
            && !held::is_released_by(word, self.peer_sent_visibly())
    }

    /// The sequence up to which the peer's stream is visible here. The peer's held-back bytes do not count, whatever
    /// this side has sent since: otherwise each side's hold would depend on the other's.
    fn peer_sent_visibly(&self) -> u64 {
        let peer = self.peer();
        // The generation before the words that it guards. Acquire: pairs with the release in `side::set_up`.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `send`.
        let tail = peer.tail.load(Ordering::Acquire);
        let word = held::load(&peer.held);
        let ended = self.peer_flags() & side_flags::FIN != 0 || self.socket.has(status::PEER_GONE);
        let end = u64::from(ended);
        if held::time_left(word, milliseconds()) == 0 {
            return tail.wrapping_add(end);
        }
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        held::visible_tail(word, own, tail)
    }

    /// Whether the daemon is the other end.
    fn is_relayed(&self) -> bool {
        self.link.listener == RELAY || self.link.relayed.load(Ordering::Relaxed)
    }

    /// Number of bytes that this side holds back.
    pub fn held_count(&self) -> u64 {
        let entry = self.socket.entry;
        let word = entry.held.load(Ordering::Relaxed);
        if !self.is_held(word, milliseconds()) {
            return 0;
        }
        held::count(word, entry.transmit.own.load(Ordering::Relaxed))
    }

    /// Whether so many bytes would be held back.
    pub(super) fn would_hold(&self, count: u64) -> bool {
        let word = self.socket.entry.held.load(Ordering::Relaxed);
        self.is_held(word, milliseconds()) && count < PIECE
    }

    /// Whether bytes are held back, and the peer has sent nothing since.
    fn holds_unanswered(&self) -> bool {
        let entry = self.socket.entry;
        let word = entry.held.load(Ordering::Relaxed);
        let count = held::count(word, entry.transmit.own.load(Ordering::Relaxed));
        let arrived_at_hold = self.socket.local.arrived_at_hold.load(Ordering::Relaxed);
        let holds = self.socket.has(status::HOLDS) && held::time_left(word, milliseconds()) > 0;
        holds && count > 0 && arrived_at_hold == self.peer_tail()
    }

    /// Whether the end of this side would release bytes that the peer holds back: they meet a reset, since this side no
    /// longer reads.
    #[cold]
    pub fn end_releases_held(&self) -> bool {
        let word = held::load(&self.peer().held);
        held::releases_on_reply(word)
            && !self.socket.has(status::SHUT_WRITE)
            && self.hold_remaining().is_some()
    }

    /// Whether the end of a killed peer has released held-back bytes, which then met a reset. A peer that ends by
    /// itself reports it.
    #[cold]
    pub(super) fn has_lost_held_bytes(&self) -> bool {
        let entry = self.socket.entry;
        let word = entry.held.load(Ordering::Relaxed);
        let held = held::count(word, entry.transmit.own.load(Ordering::Relaxed));
        self.socket.has(status::PEER_GONE)
            && self.peer_flags() & side_flags::FIN == 0
            && self.holds_unanswered()
            && !self.would_hold(0)
            && self.unread_by_peer() <= held
    }

    /// Sends where bytes are held back, or are to be. The caller holds the transmit lock.
    ///
    /// # Safety
    /// As [`Self::send`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn send_holding(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
        more: bool,
    ) -> Result<usize, Stop> {
        let entry = self.socket.entry;
        if self.has_expired_for_shut_peer() {
            self.release_held();
        }
        let corked = is_corked(&self.socket);
        if length == 0 || !more && !corked {
            // SAFETY: the caller's promise.
            let sent = unsafe {
                self.send_locked(from, length, whole, Urgent::None, Announcement::ReleaseHeld)
            };
            if length > 0 && !matches!(sent, Err(Stop::Error(_))) {
                // Also where there was no room, but not where the connection is over.
                self.release_held();
            }
            return sent;
        }
        let now = milliseconds();
        let goes_on = self.is_held(entry.held.load(Ordering::Relaxed), now);
        let answer = if corked {
            OnReply::Keeps
        } else {
            OnReply::Releases(self.peer_sent_visibly())
        };
        let ended = self.socket.has(status::RECORD_ENDED);
        self.socket.unmark(status::RECORD_ENDED);
        if goes_on && ended && self.holds_for_shut_peer() {
            // The record before leaves, and meets its reset when these bytes were taken.
            // SAFETY: the caller's promise.
            let sent = unsafe {
                self.send_locked(from, length, whole, Urgent::None, Announcement::Deferred)
            };
            if sent.is_ok() {
                self.release_held();
            }
            return sent;
        }
        if goes_on && ended {
            // TCP puts nothing into the packet of a record that has ended, and holds back the last packet only.
            let from = entry.transmit.own.load(Ordering::Relaxed);
            self.set_hold(held::word(from, answer, now));
            self.announce_data();
        } else if !goes_on {
            let from = entry.transmit.own.load(Ordering::Relaxed);
            self.set_hold(held::word(from, answer, now));
        }
        // The daemon sends a packet to another host as soon as it is full.
        let announcement = if goes_on && !self.is_relayed() {
            // A sleeping reader knows the time.
            Announcement::Deferred
        } else {
            Announcement::AtOnce
        };
        // SAFETY: the caller's promise.
        let sent = unsafe { self.send_locked(from, length, whole, Urgent::None, announcement) };
        if announcement == Announcement::Deferred
            && held::time_left(entry.held.load(Ordering::Relaxed), milliseconds()) == 0
        {
            // The hold has expired meanwhile, and a reader that slept until then may already have looked.
            self.announce_data();
        }
        let tail = entry.transmit.own.load(Ordering::Relaxed);
        let count = held::count(entry.held.load(Ordering::Relaxed), tail);
        if count == 0 && self.holds_for_shut_peer() {
            // They are in no ring, and meet their reset later. Event loops watch the time.
            self.notify_sets(None);
            return sent;
        }
        if count > 0 && sent == Err(Stop::Error(libc::EFAULT)) {
            // Of a call that takes nothing TCP releases nothing.
            return sent;
        }
        let fits = sent == Ok(length) && self.is_writable();
        if !fits || count == 0 || count >= PIECE && (!corked || count.is_multiple_of(PIECE)) {
            self.release_held();
        } else if count >= PIECE {
            self.set_hold(held::word(tail - count % PIECE, answer, now));
            self.announce_data();
        }
        sent
    }

    /// What was sent up to now ends a record (`MSG_EOR`): the next send releases what is held back of it.
    pub fn end_record(&self) {
        if self.socket.has(status::HOLDS) {
            self.socket.mark(status::RECORD_ENDED);
        }
    }

    fn set_hold(&self, word: u64) {
        self.socket.mark(status::HOLDS);
        let arrived_at_hold = &self.socket.local.arrived_at_hold;
        arrived_at_hold.store(self.peer_tail(), Ordering::Relaxed);
        self.socket.entry.held.store(word, Ordering::Relaxed);
        held::publish(&self.own().held, word);
    }

    /// Ends the hold with the next bytes or flags that are published; the caller wakes the peer. The caller holds the
    /// transmit lock.
    #[cold]
    pub fn clear_hold(&self) {
        if self.socket.entry.held.swap(0, Ordering::Relaxed) != 0 {
            held::release(&self.own().held);
        }
    }

    /// Releases bytes that are held back. The caller holds the transmit lock.
    #[cold]
    pub fn release_held(&self) {
        if self.holds_for_shut_peer() {
            // The hold stays, so that the peer sees nothing of them.
            self.reset_by_held();
            self.socket.mark(status::WRITE_MET_CLOSED);
            self.notify_of_reset();
        } else {
            self.clear_hold();
            self.announce_data();
        }
        if !is_corked(&self.socket) {
            self.socket.unmark(status::HOLDS);
        }
    }

    /// Whether the time is over for which bytes were held back that the peer does not read.
    fn has_expired_for_shut_peer(&self) -> bool {
        self.holds_for_shut_peer()
            && held::time_left(
                self.socket.entry.held.load(Ordering::Relaxed),
                milliseconds(),
            ) == 0
    }

    /// Lets such bytes meet their reset: nobody else watches the time. Each thread that watches the socket looks by
    /// itself, and the caller may hold the lock of a set: nobody is notified, and no lock is taken.
    #[cold]
    pub fn end_expired_hold(&self) {
        if self.has_expired_for_shut_peer() {
            self.reset_by_held();
            self.socket.mark(status::WRITE_MET_CLOSED);
        }
    }

    /// Keeps what is held back, whatever the peer sends. The caller holds the transmit lock.
    fn cork_held(&self) {
        let word = &self.socket.entry.held;
        let before = word.load(Ordering::Relaxed);
        if self.is_held(before, milliseconds()) {
            let corked = held::corked(before);
            word.store(corked, Ordering::Relaxed);
            held::publish(&self.own().held, corked);
        }
    }

    /// Runs `change` with the transmit lock, where the socket is still open.
    #[cold]
    fn change_hold(&self, change: impl FnOnce(&Self)) {
        let transmit = &self.socket.entry.transmit;
        if lock::acquire(&transmit.lock) {
            if self.socket.is(self.fd) {
                change(self);
            }
            lock::release(&transmit.lock);
        }
    }
}

/// Called when the program has set or cleared `TCP_CORK` or `TCP_NODELAY`.
pub fn note_cork(socket: &Socket, fd: i32, name: i32, on: bool) {
    let corks = name == libc::TCP_CORK && on;
    let lane = || (socket.word.kind() == Kind::Virtual).then(|| Lane::of(*socket, fd));
    if (on || name == libc::TCP_CORK)
        && socket.has(status::HOLDS)
        && let Some(lane) = lane().flatten()
    {
        lane.change_hold(if corks {
            Lane::cork_held
        } else {
            Lane::release_held
        });
    }
    if corks {
        socket.mark(status::HOLDS);
    }
}

/// Applies `TCP_CORK`, set before the connection, to a connection that begins.
pub fn apply_cork(socket: &Socket) {
    if is_corked(socket) {
        socket.mark(status::HOLDS);
    }
}
