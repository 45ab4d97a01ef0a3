//! A channel that is up, as all workers see it.

use super::traffic::{Seen, Traffic};
use crate::line_id::LineId;
use netchannel_scheduler::channel::THRESHOLD;
use netchannel_scheduler::{ChannelId, ChannelView, WorkerId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One channel that is up.
#[derive(Debug)]
pub struct Route {
    /// Its name on this host.
    pub line: LineId,
    /// Class and number.
    pub id: ChannelId,
    /// What sockets know it by: never used again for this peer.
    pub key: netchannel_vns::ChannelId,
    /// Who works it.
    pub worker: usize,
    /// Bytes that wait for its worker, or very many while the transport takes none.
    pub queued: AtomicU64,
    /// Workers, by bit, that had bytes for it and found it full.
    pub(super) waiting: AtomicU32,
    /// What moved on it.
    pub traffic: Traffic,
    /// How its transport is.
    pub seen: Seen,
}

impl Route {
    /// `worker` found it full and wants to hear when it takes more. True if it does by now: `seen` waited then.
    pub fn wait(&self, worker: usize, seen: u64) -> bool {
        self.waiting.fetch_or(1 << (worker % 32), Ordering::Relaxed);
        // Pairs with the fence in `take_waiting`: either this sees the room, or its worker that somebody waits.
        fence(Ordering::SeqCst);
        self.queued.load(Ordering::Relaxed) < seen
    }

    /// Workers, by bit, that wait for room, after [`Self::queued`] was changed.
    pub fn take_waiting(&self) -> u32 {
        // Pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.waiting.swap(0, Ordering::Relaxed)
    }

    /// Bytes that wait for its worker.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let queued = self.queued.load(Ordering::Relaxed);
        // What is added while the transport takes none is not there.
        queued.checked_sub(THRESHOLD).unwrap_or(queued)
    }

    /// As policies see it.
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
