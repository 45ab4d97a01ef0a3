//! Bytes that are held back: `MSG_MORE` and `TCP_CORK` on the sender's side, and what a reader sees of them.
//!
//! ```text
//!  send(MSG_MORE) -> held -> tail -> wake: the reader learns until when at most
//!  what ends it: a send without, a piece's worth, no room, TCP_CORK off, TCP_NODELAY, urgent data, an end
//!  reader         -> has all before `held`; sleeps until the time has come
//! ```

use core::sync::atomic::Ordering;

use netchannel_abi::link::side_flags;
use netchannel_abi::program::RELAY;
use netchannel_ring::held::{self, Answer};

use super::manner::Going;
use super::manner::PIECE;
use super::{Lane, Stop, Urgent};
use crate::descriptors::table::Kind;
use crate::ground::{clock, lock};
use crate::sockets::socket;
use crate::sockets::socket::{Socket, status};

/// The clock that says when bytes are there in any case.
fn milliseconds() -> u64 {
    clock::nanoseconds() / 1_000_000
}

fn is_corked(socket: &Socket) -> bool {
    socket::is_on(socket, libc::IPPROTO_TCP, libc::TCP_CORK)
}

impl Lane {
    /// What of `tail` is to be seen, the peer having said `word` of what it holds back.
    #[cold]
    #[inline(never)]
    pub(super) fn seen_of(&self, tail: u64, word: u64) -> u64 {
        let is_there = held::left(word, milliseconds()) == 0
            || self.socket.has(status::PEER_GONE)
            || held::is_answered(word, self.has_sent());
        // What is held back goes with a connection that is reset.
        if is_there && !self.is_reset() {
            return tail;
        }
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        held::before(word, own, tail)
    }

    /// For how many nanoseconds bytes that have come may be held back still; `None` where none are.
    #[inline]
    pub fn hold_remaining(&self) -> Option<i64> {
        match held::look(&self.peer().held) {
            0 => None,
            word => self.held_by(word),
        }
    }

    #[cold]
    fn held_by(&self, word: u64) -> Option<i64> {
        let peer = self.peer();
        // The generation before the words that it guards. Acquire: pairs with the release in `reset_side`.
        if peer.generation.load(Ordering::Acquire) != self.generation
            || self.socket.has(status::PEER_GONE)
        {
            return None;
        }
        // Acquire: pairs with the release in `send`.
        let tail = peer.tail.load(Ordering::Acquire);
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        let left = i64::try_from(held::left(word, milliseconds())).ok()?;
        let holds = left > 0 && !held::is_answered(word, self.has_sent());
        (holds && tail != own && held::before(word, own, tail) != tail).then_some(left * 1_000_000)
    }

    /// How much the peer has of what this side has sent, its end included.
    fn has_sent(&self) -> u64 {
        let sent = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        let end = u64::from(self.socket.has(status::SHUT_WRITE));
        sent.wrapping_sub(self.holds_back()).wrapping_add(end)
    }

    /// Whether `word`, by which this side holds bytes back, holds any still.
    fn is_held(&self, word: u64, now: u64) -> bool {
        self.socket.has(status::HOLDS)
            && held::left(word, now) > 0
            && !held::is_answered(word, self.peer_has_sent())
    }

    /// How much of what the peer has sent is here. What it holds back is not, whatever this side has sent since: else each side's hold
    /// would depend on the other's.
    fn peer_has_sent(&self) -> u64 {
        let peer = self.peer();
        // The generation before the words that it guards. Acquire: pairs with the release in `reset_side`.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `send`.
        let tail = peer.tail.load(Ordering::Acquire);
        let word = held::look(&peer.held);
        let ended = self.peer_flags() & side_flags::FIN != 0 || self.socket.has(status::PEER_GONE);
        let end = u64::from(ended);
        if held::left(word, milliseconds()) == 0 {
            return tail.wrapping_add(end);
        }
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        held::before(word, own, tail)
    }

    /// Whether the daemon is the other end.
    fn is_relayed(&self) -> bool {
        self.link.listener == RELAY || self.link.relayed.load(Ordering::Relaxed)
    }

    /// Bytes of this side that are held back.
    pub fn holds_back(&self) -> u64 {
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

    /// Whether bytes are held back, and the peer has said nothing since.
    fn holds_in_silence(&self) -> bool {
        let entry = self.socket.entry;
        let word = entry.held.load(Ordering::Relaxed);
        let count = held::count(word, entry.transmit.own.load(Ordering::Relaxed));
        let heard = self.socket.local.heard.load(Ordering::Relaxed);
        let holds = self.socket.has(status::HOLDS) && held::left(word, milliseconds()) > 0;
        holds && count > 0 && heard == self.peer_tail()
    }

    /// Whether the end of this side would let go bytes that the peer holds back: they meet a reset, where nobody reads any more.
    #[cold]
    pub fn end_lets_go(&self) -> bool {
        let word = held::look(&self.peer().held);
        held::waits_for_answer(word)
            && !self.socket.has(status::SHUT_WRITE)
            && self.hold_remaining().is_some()
    }

    /// Whether the end of a peer that was killed has let go what was held back, which then met a reset. Who ends by himself says so.
    #[cold]
    pub(super) fn has_lost_what_it_held(&self) -> bool {
        let entry = self.socket.entry;
        let word = entry.held.load(Ordering::Relaxed);
        let held = held::count(word, entry.transmit.own.load(Ordering::Relaxed));
        self.socket.has(status::PEER_GONE)
            && self.peer_flags() & side_flags::FIN == 0
            && self.holds_in_silence()
            && !self.would_hold(0)
            && self.unread_by_peer() <= held
    }

    /// As [`Self::send`], where `more` is to come.
    ///
    /// # Safety
    /// As [`Self::send`].
    #[cold]
    #[inline(never)]
    pub unsafe fn send_more(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        self.while_sending(|| unsafe { self.send_holding(from, length, whole, true) })
    }

    /// Sends where bytes are held back, or are to be. Under the lock of sending.
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
        let corked = is_corked(&self.socket);
        if length == 0 || !more && !corked {
            // SAFETY: the caller's promise.
            let sent =
                unsafe { self.send_locked(from, length, whole, Urgent::None, Going::WithAll) };
            if length > 0 && !matches!(sent, Err(Stop::Error(_))) {
                // Also where there was no room, but not where nothing goes any more.
                self.let_go();
            }
            return sent;
        }
        let now = milliseconds();
        let goes_on = self.is_held(entry.held.load(Ordering::Relaxed), now);
        let answer = if corked {
            Answer::Corked
        } else {
            Answer::LetsGo(self.peer_has_sent())
        };
        if !goes_on {
            let from = entry.transmit.own.load(Ordering::Relaxed);
            self.hold(held::word(from, answer, now));
        }
        // The daemon sends a packet to another host as soon as it is full.
        let going = if goes_on && !self.is_relayed() {
            // Whoever sleeps knows until when.
            Going::Quietly
        } else {
            Going::AtOnce
        };
        // SAFETY: the caller's promise.
        let sent = unsafe { self.send_locked(from, length, whole, Urgent::None, going) };
        if going == Going::Quietly
            && held::left(entry.held.load(Ordering::Relaxed), milliseconds()) == 0
        {
            // Its time came meanwhile, and whoever slept until then may have looked already.
            self.announce_data();
        }
        let tail = entry.transmit.own.load(Ordering::Relaxed);
        let count = held::count(entry.held.load(Ordering::Relaxed), tail);
        let fits = sent == Ok(length) && self.is_writable();
        if !fits || count == 0 || count >= PIECE && (!corked || count.is_multiple_of(PIECE)) {
            self.let_go();
        } else if count >= PIECE {
            self.hold(held::word(tail - count % PIECE, answer, now));
            self.announce_data();
        }
        sent
    }

    fn hold(&self, word: u64) {
        self.socket.mark(status::HOLDS);
        let heard = &self.socket.local.heard;
        heard.store(self.peer_tail(), Ordering::Relaxed);
        self.socket.entry.held.store(word, Ordering::Relaxed);
        held::tell(&self.own().held, word);
    }

    /// With what is published next, or said, nothing is held back any more; the caller wakes the peer. Under the lock of sending.
    #[cold]
    pub fn hold_nothing(&self) {
        if self.socket.entry.held.swap(0, Ordering::Relaxed) != 0 {
            held::let_go(&self.own().held);
        }
    }

    /// Lets go what is held back. Under the lock of sending.
    #[cold]
    pub fn let_go(&self) {
        self.hold_nothing();
        self.announce_data();
        if !is_corked(&self.socket) {
            self.socket.unmark(status::HOLDS);
        }
    }

    /// As [`Self::let_go`], of a socket that is not closed meanwhile.
    #[cold]
    fn push(&self) {
        let transmit = &self.socket.entry.transmit;
        if lock::acquire(&transmit.lock) {
            if self.socket.is(self.fd) {
                self.let_go();
            }
            lock::release(&transmit.lock);
        }
    }
}

/// The program has set `TCP_CORK` or `TCP_NODELAY`, or taken it back.
pub fn tell_corked(socket: &Socket, fd: i32, name: i32, on: bool) {
    let corks = name == libc::TCP_CORK;
    if corks && on {
        socket.mark(status::HOLDS);
    } else if (corks || on)
        && socket.has(status::HOLDS)
        && socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        lane.push();
    }
}

/// A connection begins: what was said of it before holds for it.
pub fn cork_at_start(socket: &Socket) {
    if is_corked(socket) {
        socket.mark(status::HOLDS);
    }
}
