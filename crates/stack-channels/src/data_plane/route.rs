//! A channel that is up, as all workers see it.

use super::traffic::{Seen, Traffic};
use crate::channel_instance::ChannelInstance;
use netchannel_scheduler::channel::THRESHOLD;
use netchannel_scheduler::{ChannelId, ChannelView, WorkerId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One channel that is up.
#[derive(Debug)]
pub struct Route {
    /// Its name on this host.
    pub instance: ChannelInstance,
    /// Class and number.
    pub id: ChannelId,
    /// The id that sockets use. It is never used again for this peer.
    pub key: netchannel_vns::ChannelId,
    /// The worker that runs it.
    pub worker: usize,
    /// The queued bytes, or a very large number while the transport takes none.
    pub queued: AtomicU64,
    /// A bit for each worker that had bytes for it and found it full.
    pub(super) waiting: AtomicU32,
    /// The counters of its traffic.
    pub traffic: Traffic,
    /// The last status of its transport.
    pub seen: Seen,
}

impl Route {
    /// `worker` found the channel full, with `seen` bytes queued, and waits for room. True if there is room by now.
    pub fn wait(&self, worker: usize, seen: u64) -> bool {
        self.waiting.fetch_or(1 << (worker % 32), Ordering::Relaxed);
        // Pairs with the fence in `take_waiting`: either this thread sees the room, or the channel's worker sees that
        // another worker waits.
        fence(Ordering::SeqCst);
        self.queued.load(Ordering::Relaxed) < seen
    }

    /// A bit for each worker that waits for room. Called after [`Self::queued`] was changed.
    pub fn take_waiting(&self) -> u32 {
        // Pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.waiting.swap(0, Ordering::Relaxed)
    }

    /// The number of queued bytes.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let queued = self.queued.load(Ordering::Relaxed);
        // The surcharge while the transport takes none is not counted.
        queued.checked_sub(THRESHOLD).unwrap_or(queued)
    }

    /// The view for policies.
    pub fn view(&self) -> ChannelView {
        let worker = WorkerId(u16::try_from(self.worker).unwrap_or(u16::MAX));
        ChannelView {
            queued: self.queued.load(Ordering::Relaxed),
            round_trip: self.seen.round_trip.load(Ordering::Relaxed),
            congestion_limited: self.seen.congestion_limited.load(Ordering::Relaxed),
            ..ChannelView::idle(self.id, worker)
        }
    }
}
