//! Listeners that programs may hold which are no relatives of each other: one got it in a message, by `posix_spawn`, or
//! had the socket before it listened. Such a listener has no queue of relatives. Its connections wait in the kernel's
//! queue, or in the daemon's accept channel, which every holder has:
//!
//! ```text
//!  links of one process --> its own list --+-- its accept
//!                                          +-- a look, a message --> daemon --> accept channel --> anybody's accept
//! ```

use core::sync::atomic::{Ordering, fence};

use netchannel_abi::message::queue_flags;

use super::queue::Queue;
use super::shared_queues::SharedQueues;
use super::{Listener, mark_awake, poll_jobs};

impl Listener {
    /// Called before other programs may come to hold the listener: what waits in this process and in the queues of its
    /// relatives is left to whoever accepts next. Where the daemon has no room for it, it stays with this process.
    #[cold]
    pub fn open_to_strangers(&self) {
        if !self.has_strangers.swap(true, Ordering::Relaxed) {
            let queue = self.shared_queues().and_then(SharedQueues::queue);
            queue.inspect(|queue: &&Queue| queue.leave());
            let _ = self.request_queue(0, queue_flags::STRANGERS);
        }
        mark_awake();
        // Pairs with the fence in `announce`: a client sees that others hold the listener, or its connection is seen here.
        fence(Ordering::SeqCst);
        poll_jobs();
        self.drain_taken();
        self.take_all_queued();
        if self.pending.any() {
            self.leave_to_holders();
        }
    }

    /// What another daemon is told of the queue of such a listener.
    pub(super) fn words_of_strangers(&self) -> Option<(u64, u64)> {
        let has_strangers = self.has_strangers.load(Ordering::Relaxed);
        has_strangers.then_some((0, queue_flags::STRANGERS))
    }
}
