//! Who holds a socket: descriptors of this process, other processes, and what is on its way.

use core::sync::atomic::Ordering;

use super::{Socket, status};
use crate::sockets::owner_table;

/// Who still has a socket of which a descriptor is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// This process, by another descriptor.
    Here,
    /// Other processes only.
    Elsewhere,
    /// Nobody.
    Nowhere,
}

impl Socket {
    /// Counts one more descriptor of this process.
    pub fn add_descriptor(&self) {
        self.local.descriptors.fetch_add(1, Ordering::AcqRel);
        self.share();
    }

    /// Counts one descriptor of this process less.
    pub fn drop_descriptor(&self) -> Left {
        if self.local.descriptors.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Left::Here;
        }
        let index = self.word.index();
        // The last one says so until it has ended the connection and freed the entry: it may be killed meanwhile.
        let alone = self.entry.references.load(Ordering::Acquire) == 1;
        if !alone {
            owner_table::note(index, false);
        }
        if !self.drop_hold() {
            return Left::Elsewhere;
        }
        owner_table::note(index, true);
        Left::Nowhere
    }

    /// Whether the descriptor that is about to be closed is the last one anywhere.
    pub fn is_last(&self) -> bool {
        self.local.descriptors.load(Ordering::Acquire) == 1 && self.is_only_here()
    }

    /// Whether no other process has it.
    pub fn is_only_here(&self) -> bool {
        self.entry.references.load(Ordering::Acquire) == 1
    }

    /// Another process will hold it: a child, or whoever gets a descriptor that is on its way.
    pub fn add_hold(&self) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        self.share();
    }

    /// A descriptor goes to another process, in a message or as what it begins with.
    pub fn send_off(&self) {
        self.add_hold();
        self.entry.travels.fetch_add(1, Ordering::AcqRel);
    }

    /// One has arrived, or does not go: its hold stays with whoever calls.
    pub fn arrive(&self) {
        let fewer = |travels: u32| travels.checked_sub(1);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.entry.travels.fetch_update(set, read, fewer);
    }

    /// Its anchor is not pooled any more.
    fn share(&self) {
        self.mark(status::SHARED);
        self.drop_spare();
    }

    /// It does no longer, or never did; true when nobody holds it.
    pub fn drop_hold(&self) -> bool {
        self.entry.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// What this process has is from now on held by what is on its way. How many descriptors that were.
    pub fn surrender(&self) -> u32 {
        owner_table::note(self.word.index(), false);
        self.drop_hold();
        self.local.descriptors.swap(0, Ordering::AcqRel)
    }

    /// It came to nothing.
    pub fn take_back(&self, descriptors: u32) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        owner_table::note(self.word.index(), true);
        self.local.descriptors.store(descriptors, Ordering::Release);
    }
}
