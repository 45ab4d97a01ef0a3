//! Listeners that programs hold, or may hold, which are no relatives of each other: one got it in a message, by
//! `posix_spawn`, or had the socket before it listened. Clients then use no queue of relatives. Connections wait in the
//! kernel's queue, or in the daemon's accept channel, which every holder has:
//!
//! ```text
//!  links of one process --> its own list --+-- its accept
//!                                          +-- a look, a message, a spawn --> daemon --> accept channel --> anybody's accept
//! ```

use core::sync::atomic::Ordering;

use netchannel_abi::message::queue_flags;

use super::queue::Queue;
use super::shared_queues::SharedQueues;
use super::{Listener, stop_looking};
use crate::sockets::socket::Socket;

impl Listener {
    /// Called before another program may come to hold the listener without the daemon's knowledge. Clients see that
    /// until it announces it, and what waits is left to whoever accepts next. Where the daemon has no room for it, it
    /// stays with this process.
    #[cold]
    pub fn await_stranger(&self) {
        self.strangers.fetch_add(1, Ordering::Relaxed);
        self.tell_of_strangers(queue_flags::STRANGER);
        self.leave_waiting();
    }

    /// No other program comes to hold it after all: its message was not sent, or the relatives have ended.
    #[cold]
    pub fn forget_stranger(&self) {
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        self.tell_of_strangers(queue_flags::STRANGER_GONE);
    }

    /// As [`Self::await_stranger`], for relatives that have the socket since before it listened, as long as there are any.
    #[cold]
    pub fn await_relatives(&self) {
        self.awaits_relatives.store(true, Ordering::Relaxed);
        self.await_stranger();
    }

    /// Called before an accept: the relatives may have ended.
    #[inline]
    pub fn settle_relatives(&self, socket: &Socket) {
        if self.awaits_relatives.load(Ordering::Relaxed)
            && socket.is_unshared()
            && self.awaits_relatives.swap(false, Ordering::Relaxed)
        {
            self.forget_stranger();
        }
    }

    fn tell_of_strangers(&self, flag: u64) {
        let queue = self.shared_queues().and_then(SharedQueues::queue);
        let _ = self.request_queue(queue.map_or(0, Queue::name), flag);
    }

    /// File actions give it to the next program that is spawned with any.
    #[cold]
    pub fn note_given(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// Whether they do. True once.
    pub fn take_given(&self) -> bool {
        self.is_given.swap(false, Ordering::Relaxed)
    }

    /// Leaves what waits in this process and in the queues of its relatives to whoever accepts next.
    #[cold]
    pub fn leave_waiting(&self) {
        stop_looking();
        self.drain_taken();
        self.take_all_queued();
        self.leave_in_channel(true);
    }

    /// Whether a program that is no relative may hold it, or come to hold it.
    #[inline]
    pub(super) fn awaits_strangers(&self) -> bool {
        self.strangers.load(Ordering::Relaxed) > 0
    }

    /// What another daemon is told of programs that may hold the listener.
    pub(super) fn flag_of_strangers(&self) -> u64 {
        if self.awaits_strangers() {
            queue_flags::STRANGER
        } else {
            0
        }
    }
}
