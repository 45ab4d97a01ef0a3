//! Waking the other side, sleeping until the other side wakes this one, and noticing its end.

use std::sync::OnceLock;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use netchannel_abi::link::{Cell, side_flags, waiter as bits};
use netchannel_abi::program::SocketEntry;
use netchannel_ring::waiter::Wake;
use netchannel_ring::{cell, waiter};

use super::Lane;
use crate::descriptors::attach::header;
use crate::ground::{clock, lock, sys};
use crate::sockets::owner_table;
use crate::sockets::socket::{Socket, status};

/// Notifies the epoll sets that have a socket, except for the set of an index. Registered by the module that has the
/// sets.
pub static NOTIFY_SETS: OnceLock<fn(&Socket, Option<u32>)> = OnceLock::new();
/// The count of a sleeping writer among the sleepers of a socket; a reader counts one.
pub const WRITER: u32 = 1 << 16;

/// The least time between two questions to the kernel about one peer.
const CHECK_EVERY: u64 = 1000 * clock::MICROSECOND;
/// The least time between two such questions of the process, about any peer.
const CHECK_ANY_EVERY: u64 = 50 * clock::MICROSECOND;
/// After this time the kernel is asked about a peer, however many others were asked about.
const CHECK_AT_LAST: u64 = 10_000 * clock::MICROSECOND;

/// When the kernel was last asked about any peer. Only a hint: it orders nothing.
static ANY_CHECKED: AtomicU64 = AtomicU64::new(0);

/// Lets the event loops of this process report a listener once more whose members ask for room.
#[cold]
pub fn notify_of_room(listener: &Socket) {
    listener.entry.transmit.news.fetch_add(1, Ordering::Relaxed);
    notify_sets(listener, None);
}

/// Lets the event loops that have the socket look at it again, except for that of the set `by`.
fn notify_sets(socket: &Socket, by: Option<u32>) {
    if socket.ever_had_memberships()
        && let Some(notify) = NOTIFY_SETS.get()
    {
        notify(socket, by);
    }
}

impl Lane {
    #[inline]
    pub(super) fn announce_data(&self) {
        if let Some(wake) = waiter::announce_data(&self.peer().waiter) {
            self.deliver(wake);
        }
    }

    #[inline]
    pub(super) fn announce_space(&self) {
        if let Some(wake) = waiter::announce_space(&self.peer().waiter) {
            self.deliver(wake);
        }
    }

    /// Notifies the peer of an end or a reset.
    pub fn announce_flags(&self) {
        self.announce_data();
        self.announce_space();
    }

    /// As [`Self::announce_flags`], where this side's last descriptor of the anchor is closed next: that wakes whoever
    /// sleeps on the other one.
    pub fn announce_close(&self) {
        let words = &self.peer().waiter;
        for wake in [waiter::announce_data(words), waiter::announce_space(words)] {
            if let Some(wake) = wake.filter(|wake| wake.cell.is_some()) {
                self.deliver(wake);
            }
        }
    }

    #[cold]
    fn deliver(&self, wake: Wake) {
        let mut token = wake.token;
        let mut owed = None;
        if let Some(index) = wake.cell
            && let Some(cell) = self.link.cell(self.link.role.other(), index)
        {
            let Cell {
                asleep,
                summary,
                ready,
                ..
            } = cell;
            if cell::mark(asleep, summary, ready, self.index as usize) {
                token = true;
                owed = Some(asleep);
            }
        }
        if token {
            if let Some(header) = header() {
                header.tokens.fetch_add(1, Ordering::Relaxed);
            }
            let sent = sys::send(self.fd, &[0], libc::MSG_DONTWAIT);
            if let (Err(libc::EPIPE | libc::ECONNRESET), Some(asleep)) = (sent, owed) {
                // This anchor wakes no thread any more: the next socket of the loop shall.
                cell::sleep(asleep);
            }
        }
    }

    /// Called when news was reported to the program. The peer's words are visible a moment before the event loop that
    /// has the socket is notified: so the socket is marked for the loop here.
    #[inline]
    pub fn note_reported(&self) {
        if self.socket.is_unshared() {
            if self.mark_own_cell() {
                self.notify_sets(None);
            }
        } else if let Some(cell) = self.own_cell() {
            // The loop may be a relative's, which only the peer can wake; it does so once it looks here.
            let _ = cell::note(&cell.summary, &cell.ready, self.index as usize);
        }
    }

    /// The cell of the event loop of this side, whichever process has that.
    #[inline]
    fn own_cell(&self) -> Option<&'static Cell> {
        let seen = self.own().waiter.load(Ordering::Relaxed);
        waiter::cell_of(seen).and_then(|index| self.link.cell(self.link.role, index))
    }

    /// Marks the socket for the event loop of this side. True where the loop sleeps: the caller wakes it.
    #[inline]
    fn mark_own_cell(&self) -> bool {
        self.own_cell().is_some_and(|cell| {
            let Cell {
                asleep,
                summary,
                ready,
                ..
            } = cell;
            cell::mark(asleep, summary, ready, self.index as usize)
        })
    }

    /// Called after a change that no peer announces. As in TCP, it is a wake-up for all sets that have the socket, also
    /// those of relatives.
    #[cold]
    pub fn notify_of_change(&self) {
        let news = &self.socket.entry.transmit.news;
        news.fetch_add(1, Ordering::Relaxed);
        if !self.socket.is_unshared() {
            self.notify_relatives();
        }
        self.notify_sets(None);
    }

    fn notify_relatives(&self) {
        // The change before the looks: pairs with the fence in `cell::take`, and with that of who has armed a token.
        fence(Ordering::SeqCst);
        let armed = self.own().waiter.load(Ordering::Relaxed) & (bits::DATA | bits::SPACE) != 0;
        if self.mark_own_cell() || armed {
            self.wake_sleepers();
        }
    }

    /// Asks to be woken for `wanted` ([`bits::DATA`], [`bits::SPACE`], [`bits::CELL_SPACE`]); the caller looks again.
    pub fn arm(&self, wanted: u32) {
        waiter::arm(&self.own().waiter, wanted);
        if wanted & (bits::SPACE | bits::CELL_SPACE) != 0
            && self.peer_flags() & side_flags::LOW_WATER != 0
        {
            // The fence in `arm` comes first: this side sees that the peer sleeps, or the peer sees that this side waits.
            self.announce_data();
        }
    }

    /// Takes that back.
    pub fn disarm(&self, wanted: u32) {
        if self.socket.has(status::ASYNC) {
            return self.arm(bits::DATA);
        }
        if !self.socket.is_unshared() {
            // It is not known what another process waits for: a needless token does no harm.
            return;
        }
        waiter::disarm(&self.own().waiter, wanted);
        // An event loop may have relied on the same bits.
        self.notify_sets(None);
    }

    /// Arms the anchor: the next news shall bring a token, which raises a signal.
    #[cold]
    pub fn arm_signal(&self) {
        self.take_tokens(None);
        self.arm(bits::DATA);
    }

    /// Asks for a notification of the event loops when there is room. True when there is room already.
    pub fn want_space(&self) -> bool {
        self.socket.local.full.fetch_add(1, Ordering::Relaxed);
        let token = if self.socket.has(status::ASYNC) || self.needs_token() {
            bits::SPACE
        } else {
            0
        };
        self.arm(bits::CELL_SPACE | token);
        self.is_writable()
    }

    /// Lets the event loops of this process tell of room once more where there is some.
    #[cold]
    pub fn note_room(&self) {
        self.socket.local.full.fetch_add(1, Ordering::Relaxed);
        self.notify_sets(None);
    }

    /// Whether an event loop has the socket that its cell does not cover: one of a process that does not keep the link,
    /// or a second one. Such a loop is reached by tokens only, while it sleeps or does not look at the socket by
    /// itself.
    #[cold]
    fn needs_token(&self) -> bool {
        let in_cell = waiter::cell_of(self.own().waiter.load(Ordering::Relaxed)).is_some();
        let spoken_for = usize::from(in_cell && self.link.is_own());
        self.socket.memberships() > spoken_for
    }

    /// Runs `change` while no other thread changes the sleepers of the anchor or takes tokens off it: a token for a
    /// thread that is about to sleep must not be taken before it sleeps.
    fn with_anchor_lock<R>(&self, change: impl FnOnce(&'static SocketEntry) -> R) -> R {
        let entry = self.socket.entry;
        let held = lock::acquire(&entry.anchor_lock);
        let result = change(entry);
        if held {
            lock::release(&entry.anchor_lock);
        }
        result
    }

    /// Announces that the calling thread will sleep in a call for `wanted`, counted by `unit` (1 for a reader,
    /// [`WRITER`] for a writer, both for a reader that any change wakes). It looks once more afterwards.
    pub fn begin_sleep(&self, unit: u32, wanted: u32) {
        self.with_anchor_lock(|entry| {
            entry.receive.sleepers.fetch_add(unit, Ordering::AcqRel);
            self.socket.local.sleepers[0].fetch_add(unit, Ordering::Relaxed);
            self.arm(wanted);
        });
    }

    /// Ends the sleep. The bits that other sleepers of its kind wait for stay armed. True when others sleep.
    pub fn end_sleep(&self, unit: u32, wanted: u32) -> bool {
        self.with_anchor_lock(|entry| {
            self.socket.local.sleepers[0].fetch_sub(unit, Ordering::Relaxed);
            let left = entry
                .receive
                .sleepers
                .fetch_sub(unit, Ordering::AcqRel)
                .wrapping_sub(unit);
            let alike = if unit == WRITER {
                left / WRITER
            } else {
                left % WRITER
            };
            if alike == 0 && entry.transmit.sleepers.load(Ordering::Acquire) == 0 {
                self.disarm(wanted);
            }
            left != 0
        })
    }

    /// As [`Self::begin_sleep`], for a thread that sleeps in `poll`.
    pub fn begin_poll_sleep(&self, wanted: u32) {
        self.with_anchor_lock(|entry| {
            entry.transmit.sleepers.fetch_add(1, Ordering::AcqRel);
            self.socket.local.sleepers[1].fetch_add(1, Ordering::Relaxed);
            self.arm(wanted);
        });
    }

    /// As [`Self::end_sleep`], for a thread that slept in `poll`.
    pub fn end_poll_sleep(&self, wanted: u32) {
        self.with_anchor_lock(|entry| {
            self.socket.local.sleepers[1].fetch_sub(1, Ordering::Relaxed);
            let last = entry.transmit.sleepers.fetch_sub(1, Ordering::AcqRel) == 1;
            if last && entry.receive.sleepers.load(Ordering::Acquire) == 0 {
                self.disarm(wanted);
            }
        });
    }

    /// Lets the event loops that have the socket look at it again, except for that of the set `by`.
    pub(super) fn notify_sets(&self, by: Option<u32>) {
        notify_sets(&self.socket, by);
    }

    /// Takes all tokens off the anchor, unless another thread sleeps on it, which needs them. Notices the end of the
    /// peer. Event loops for which the tokens were meant are notified, except for `by`, which takes them.
    pub fn take_tokens(&self, by: Option<u32>) {
        let taken = self.with_anchor_lock(|entry| {
            let counts = [&entry.receive.sleepers, &entry.transmit.sleepers];
            let sleeps = || counts.iter().any(|count| count.load(Ordering::Acquire) > 0);
            if sleeps() {
                self.forget_killed_sleepers(counts);
            }
            if sleeps() {
                return None;
            }
            let mut tokens = [0; 64];
            Some(sys::receive(self.fd, &mut tokens, libc::MSG_DONTWAIT))
        });
        match taken {
            None => return,
            Some(Ok(1..)) => return self.note_tokens(by),
            Some(Ok(0) | Err(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)) => self.peer_ended(),
            Some(_) => {}
        }
        self.notify_sets(by);
    }

    /// Takes sleepers off the counts that were killed with their process. The caller holds the anchor lock.
    #[cold]
    fn forget_killed_sleepers(&self, counts: [&AtomicU32; 2]) {
        owner_table::collect_if_due();
        if self.socket.is_unshared() {
            for (count, own) in counts.into_iter().zip(&self.socket.local.sleepers) {
                count.store(own.load(Ordering::Relaxed), Ordering::Release);
            }
        }
    }

    /// Called when tokens were taken off the anchor. Event loops for which they were meant are notified, except for
    /// `by`.
    pub fn note_tokens(&self, by: Option<u32>) {
        // The peer has just sent them: it lives.
        let checked = &self.socket.local.checked;
        checked.store(clock::now(), Ordering::Relaxed);
        self.notify_sets(by);
    }

    /// Called when the kernel reports that every descriptor of the other end of the anchor is closed.
    pub fn peer_ended(&self) {
        // An anchor that one side has shut for reading shows an end to both, but is closed for both directions only
        // when the other end is closed. An anchor that both sides have shut shows nothing: then only the link does.
        let shut_here = self.socket.has(status::ANCHOR_SHUT);
        let shut_there = self.peer_flags() & side_flags::ANCHOR_SHUT != 0;
        let lives = match (shut_here, shut_there) {
            (false, false) => false,
            (true, true) => self.link.check(),
            _ => !self.is_anchor_closed(),
        };
        if !lives && !self.socket.has(status::PEER_GONE) && !self.may_connect_anew() {
            self.note_end();
        }
    }

    /// Whether the anchor is closed for both directions.
    #[cold]
    fn is_anchor_closed(&self) -> bool {
        let mut set = [libc::pollfd {
            fd: self.fd,
            events: 0,
            revents: 0,
        }];
        let polled = sys::poll(&mut set, 0, core::ptr::null());
        polled.is_ok() && set[0].revents & libc::POLLHUP != 0
    }

    /// Asks the kernel now and then whether the peer still lives, for programs that never sleep. With many sockets,
    /// each is asked about less often.
    #[inline]
    pub fn check_peer(&self) {
        let now = clock::now();
        let last = self.socket.local.checked.load(Ordering::Relaxed);
        let since = now.wrapping_sub(last);
        if since > CHECK_EVERY {
            let any = now.wrapping_sub(ANY_CHECKED.load(Ordering::Relaxed));
            if any < CHECK_ANY_EVERY && since < CHECK_AT_LAST {
                return;
            }
            ANY_CHECKED.store(now, Ordering::Relaxed);
            self.socket.local.checked.store(now, Ordering::Relaxed);
            self.check_peer_now();
        }
    }

    /// As [`Self::check_peer`]. True when the peer has just been found dead.
    pub fn finds_end(&self) -> bool {
        let gone = self.socket.has(status::PEER_GONE);
        self.check_peer();
        !gone && self.socket.has(status::PEER_GONE)
    }

    /// Asks the kernel whether the peer still lives.
    pub fn check_peer_now(&self) {
        if sys::has_hung_up(self.fd) {
            self.peer_ended();
        }
    }

    /// Wakes all threads of this program that sleep on the anchor, for a change that no peer announces. The anchor
    /// brings no tokens afterwards.
    #[cold]
    pub fn wake_sleepers(&self) {
        let flags = &self.own().flags;
        flags.fetch_or(side_flags::ANCHOR_SHUT, Ordering::AcqRel);
        self.socket.mark(status::SHARED | status::ANCHOR_SHUT);
        // SAFETY: no pointers.
        let _ = unsafe {
            let how = sys::int(libc::SHUT_RD);
            sys::raw(libc::SYS_shutdown, [sys::int(self.fd), how, 0, 0, 0, 0])
        };
    }

    /// Nanoseconds to sleep before another look where the anchor brings no tokens. A dead peer sends no more.
    pub fn poll_interval(&self) -> Option<i64> {
        if self.socket.has(status::PEER_GONE) {
            Some(10_000_000)
        } else if self.socket.has(status::ANCHOR_SHUT) {
            Some(1_000_000)
        } else {
            None
        }
    }

    /// Assigns the socket to an event loop's cell, or takes it back.
    pub fn attach_cell(&self, index: Option<usize>) {
        waiter::attach_cell(&self.own().waiter, index);
    }
}
