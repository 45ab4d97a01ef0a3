//! A process that alone looks for connections of a listener which its relatives have, too, and that calls `accept` again
//! soon after each one: the server child of a parent that keeps the listener. It counts as an event loop, to which clients
//! announce over links of their own. Where another process looks, too, or this one is late, all have the queue again.

use core::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::program::SocketEntry;

use super::departing::{clear_links, stop_looking};
use super::links::{awake, for_each_listener, has_relayed_links};
use super::{Listener, wake_ups};
use crate::descriptors::confinement;
use crate::ground::{clock, process};
use crate::sockets::link::{LOOK_INTERVAL, LinkEnd};

/// Several processes look, or have looked, for connections of the listener.
const SEVERAL: u64 = u64::MAX;
/// So many accepts must have begun soon after the one before.
const QUICK_ACCEPTS: u32 = 16;
/// Most that are counted.
const MOST_QUICK: u32 = 2 * QUICK_ACCEPTS;
/// What a late one counts: a process may have waited for its processor.
const LATE_WEIGHT: u32 = QUICK_ACCEPTS / 2;
/// What was announced to a process that works for so long on one connection is left to all, in nanoseconds.
const PATIENCE: u64 = 10_000_000;

/// When this process has worked for too long on one connection, in nanoseconds of [`clock::nanoseconds`]; 0 for never.
static LEAVE_AT: AtomicU64 = AtomicU64::new(0);

impl Listener {
    /// Notes that this process looks for connections, in any kind of call.
    #[inline]
    pub fn begin_looking(&self, entry: &SocketEntry) {
        if self.looker.load(Ordering::Relaxed) == 0 {
            self.note_looker(entry);
        }
    }

    // Nothing is read by what the word says, so all its accesses are relaxed: who comes second finds the connections in
    // the queue, or gets them when the first one sees it.
    #[cold]
    fn note_looker(&self, entry: &SocketEntry) {
        // Not random bits of the kernel: the process may have filtered its calls.
        let own = (clock::now() << 16 ^ u64::from(process::number())).clamp(1, SEVERAL - 1);
        self.looker.store(own, Ordering::Relaxed);
        let (sole, order) = (&entry.receive.noted, Ordering::Relaxed);
        if sole.compare_exchange(0, own, order, order).is_err() {
            sole.store(SEVERAL, order);
        }
    }

    /// This process looks no more: the next one may be alone.
    pub(super) fn end_looking(&self) {
        let own = self.looker.swap(0, Ordering::Relaxed);
        if own != 0
            && let Some(shared) = self.shared_queues()
        {
            let (sole, order) = (shared.sole_looker(), Ordering::Relaxed);
            let _ = sole.compare_exchange(own, 0, order, order);
        }
    }

    /// Before a fork: the child looks where this process has looked, such as in a set that it inherits.
    pub(super) fn end_looking_alone(&self, entry: &SocketEntry) {
        if self.looker.load(Ordering::Relaxed) != 0 {
            entry.receive.noted.store(SEVERAL, Ordering::Relaxed);
            self.leave_to_all();
        }
    }

    /// Whether this process is an only acceptor that counts as a loop.
    #[inline]
    pub fn accepts_alone(&self) -> bool {
        self.quick_accepts.load(Ordering::Relaxed) >= QUICK_ACCEPTS
    }

    /// Called when an accept begins that waits, of a listener that relatives have. Returns [`Self::accepts_alone`].
    pub fn begin_waiting_accept(&self) -> bool {
        if !self.is_sole_looker() {
            self.leave_to_all();
            return false;
        }
        let now = clock::now();
        let since = now.wrapping_sub(self.waiting_accept.load(Ordering::Relaxed));
        let before = self.quick_accepts.load(Ordering::Relaxed);
        let counted = match since < wake_ups::SOON {
            true => MOST_QUICK.min(before + 1),
            false => before.saturating_sub(LATE_WEIGHT),
        };
        if counted < QUICK_ACCEPTS {
            self.leave_to_all();
        }
        self.quick_accepts.store(counted, Ordering::Relaxed);
        if counted < QUICK_ACCEPTS {
            return false;
        }
        LEAVE_AT.store(0, Ordering::Relaxed);
        wake_ups::note_alone(true);
        if now.wrapping_sub(self.published.load(Ordering::Relaxed)) > LOOK_INTERVAL {
            self.published.store(now, Ordering::Relaxed);
            awake(wake_ups::accepts_soon());
        }
        true
    }

    fn is_sole_looker(&self) -> bool {
        let own = self.looker.load(Ordering::Relaxed);
        self.shared_queues()
            .is_some_and(|shared| shared.sole_looker().load(Ordering::Relaxed) == own)
            && self.can_share()
            && !confinement::is_filtered()
            && !self.awaits_strangers()
            && !self.has_unrelated_holders()
            // A daemon or stack withdraws nothing.
            && !has_relayed_links()
    }

    /// Called when such an accept has taken a connection.
    pub fn end_waiting_accept(&self) {
        self.waiting_accept.store(clock::now(), Ordering::Relaxed);
        if self.accepts_alone() {
            let until = clock::nanoseconds().saturating_add(PATIENCE);
            LEAVE_AT.store(until, Ordering::Relaxed);
        }
    }

    /// Leaves what was announced to this process alone.
    #[inline]
    pub(super) fn leave_to_all(&self) {
        if self.accepts_alone() {
            self.leave_to_all_now();
        }
    }

    #[cold]
    fn leave_to_all_now(&self) {
        self.quick_accepts.store(0, Ordering::Relaxed);
        LEAVE_AT.store(0, Ordering::Relaxed);
        wake_ups::note_alone(false);
        stop_looking();
        // A daemon or stack has just come with one, and makes no other.
        let is_direct = |link: &LinkEnd| !link.relayed.load(Ordering::Relaxed);
        clear_links(|link| self.has_number(link.listener) && is_direct(link));
        self.share();
    }
}

/// When a sleep of this process is to be interrupted for [`leave_if_late`]; 0 for never.
#[inline]
pub fn leave_at() -> u64 {
    LEAVE_AT.load(Ordering::Relaxed)
}

/// Called before a sleep at `now`: what was announced to a process that alone accepts, and has not called accept for
/// long, is left to all.
pub fn leave_if_late(now: u64) {
    let at = leave_at();
    if at == 0 || now < at {
        return;
    }
    LEAVE_AT.store(0, Ordering::Relaxed);
    if wake_ups::accepts_alone() && !wake_ups::anybody_sleeps() {
        for_each_listener(Listener::leave_to_all);
    }
}
