//! Options that are set on a listener hold for connections that come afterwards, as over TCP, where a connection gets
//! its options when it is established. Here it gets them when it is accepted. So when options are set while connections
//! are pending, an era begins, and the options of the former era are kept for the connections that came in it. Each
//! relative has its own eras: options that one of them sets hold also for pending connections that another one accepts.

use std::collections::VecDeque;

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Listener, poll_jobs};
use crate::ground::lock::Lock;
use crate::ground::{process, sys};
use crate::sockets::options::InheritedOptions;
use crate::sockets::socket::Socket;

/// Former eras that are kept. Connections of older ones get the present options.
const MOST: usize = 64;

/// The eras of one listener.
pub(super) struct OptionSnapshots {
    now: AtomicU64,
    /// Number of connections that had come when it began.
    arrived: AtomicU64,
    /// Number of former eras that are kept.
    count: AtomicUsize,
    former: Lock<VecDeque<(u64, InheritedOptions)>>,
}

impl OptionSnapshots {
    pub const fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            former: Lock::new(VecDeque::new()),
        }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn change<R>(
        &self,
        with: impl FnOnce(&mut VecDeque<(u64, InheritedOptions)>) -> R,
    ) -> Option<R> {
        let mut former = self.former.lock()?;
        let result = with(&mut former);
        self.count.store(former.len(), Ordering::Relaxed);
        Some(result)
    }

    pub fn reset_in_child(&self) {
        self.former.reset();
    }
}

impl Listener {
    /// Called before an option of the listener behind `socket` is set: takes the connections that have come, and
    /// returns the options that hold for them, where any is pending for which they are not kept yet.
    #[cold]
    pub fn before_set(&self, socket: &Socket) -> Option<InheritedOptions> {
        // Relatives can get what is taken here, other holders can not.
        while !self.has_unrelated_holders() && self.take_offers() {}
        poll_jobs();
        if self.can_share() {
            self.take_all_queued();
            self.share();
        }
        let is_pending = self.has_taken();
        let arrived = self.arrived();
        let new = arrived != self.eras.arrived.load(Ordering::Relaxed);
        (is_pending && new).then(|| InheritedOptions::of(socket))
    }

    /// Begins an era after an option was set.
    pub fn begin_era(&self, former: InheritedOptions) {
        let before = self.eras.now();
        self.eras.change(|eras| {
            if eras.len() == MOST {
                eras.pop_front();
            }
            eras.push_back((before, former));
        });
        self.eras.arrived.store(self.arrived(), Ordering::Relaxed);
        // No relative has an era of the same number.
        let next = u64::from(process::number()) << 32 | sys::random() & 0xffff_ffff;
        self.eras.now.store(next, Ordering::Relaxed);
    }

    /// Gives an accepted socket the options of the era in which its connection came, if they are not the present ones.
    /// Whether it did.
    #[inline]
    pub fn apply_former(&self, era: u64, socket: &Socket) -> bool {
        era != self.eras.now()
            && self.eras.count.load(Ordering::Relaxed) > 0
            && self.find_era(era, socket)
    }

    #[cold]
    fn find_era(&self, era: u64, socket: &Socket) -> bool {
        let found = self.eras.change(|eras| {
            let found = eras.iter().find(|(known, _)| *known == era);
            found.inspect(|(_, former)| former.apply(socket)).is_some()
        });
        found == Some(true)
    }

    /// Forgets former eras: no connection is pending.
    #[inline]
    pub fn forget_eras(&self) {
        if self.eras.count.load(Ordering::Relaxed) > 0 && !self.has_other_holders() {
            self.eras.change(VecDeque::clear);
        }
    }
}
