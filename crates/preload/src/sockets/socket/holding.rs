//! The holders of a socket: descriptors of this process, other processes, and descriptors that are being passed.

use core::sync::atomic::Ordering;

use super::{Socket, status};
use crate::sockets::owner_table;

/// The remaining holders of a socket after a descriptor was closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// This process, by another descriptor.
    Here,
    /// Other processes only.
    Elsewhere,
    /// None.
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
        // The last holder keeps its bit until it has ended the connection and freed the entry: it may be killed
        // meanwhile.
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

    /// Whether no other process holds it.
    pub fn is_only_here(&self) -> bool {
        self.entry.references.load(Ordering::Acquire) == 1
    }

    /// Counts another process: a child, or the receiver of a descriptor that is being passed.
    pub fn add_hold(&self) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        self.share();
    }

    /// Counts a descriptor that goes to another process, in a message or by inheritance.
    pub fn send_off(&self) {
        self.add_hold();
        self.entry.travels.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a passed descriptor as arrived, or as not sent: its reference stays with the caller.
    pub fn arrive(&self) {
        let fewer = |travels: u32| travels.checked_sub(1);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.entry.travels.fetch_update(set, read, fewer);
    }

    /// Notes that its anchor can not be pooled any more.
    fn share(&self) {
        self.mark(status::SHARED);
        self.drop_spare();
    }

    /// Uncounts a process; true when none holds the socket.
    pub fn drop_hold(&self) -> bool {
        self.entry.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Gives this process's reference to the descriptors that are being passed. Returns how many descriptors it had.
    pub fn surrender(&self) -> u32 {
        owner_table::note(self.word.index(), false);
        self.drop_hold();
        self.local.descriptors.swap(0, Ordering::AcqRel)
    }

    /// Takes that back: the passing has failed.
    pub fn take_back(&self, descriptors: u32) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        owner_table::note(self.word.index(), true);
        self.local.descriptors.store(descriptors, Ordering::Release);
    }
}
