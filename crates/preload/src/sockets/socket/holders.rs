//! The holders of a socket: descriptors of this process, other processes, and descriptors that are being passed.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{Socket, status};
use crate::sockets::owner_table;

/// How often another process was counted for a socket of this one.
static SHARINGS: AtomicU32 = AtomicU32::new(1);

/// A number that is another one once another process may have a socket of this one.
#[inline]
pub fn sharings() -> u32 {
    SHARINGS.load(Ordering::Relaxed)
}

impl Socket {
    /// Counts one more descriptor of this process.
    pub fn add_descriptor(&self) {
        self.local.descriptors.fetch_add(1, Ordering::AcqRel);
        self.mark_shared();
    }

    /// Counts one descriptor of this process less. True where that was its last one: then it releases the socket.
    pub fn close_descriptor(&self) -> bool {
        self.local.descriptors.fetch_sub(1, Ordering::AcqRel) <= 1
    }

    /// This process, which has no descriptor of it any more, holds it no longer. True where nobody does. Otherwise the
    /// entry may be another socket's from now on.
    pub fn release(&self) -> bool {
        let index = self.word.index();
        owner_table::note(index, false);
        let last = self.drop_reference();
        if last {
            // As in `release_if_alone`.
            owner_table::note(index, true);
        }
        last
    }

    /// As [`Self::release`] where no other process holds it; otherwise nothing is done. The last holder keeps its bit
    /// until it has ended the connection and freed the entry: it may be killed meanwhile.
    pub fn release_if_alone(&self) -> bool {
        let references = &self.entry.references;
        references
            .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Counts one descriptor less, which was not closed by the program.
    pub fn drop_descriptor(&self) {
        if self.close_descriptor() && !self.release_if_alone() {
            self.release();
        }
    }

    /// Whether the descriptor that is about to be closed is the last one anywhere.
    pub fn is_last(&self) -> bool {
        self.is_last_here() && self.is_unshared()
    }

    /// Whether this process has one descriptor of it.
    pub fn is_last_here(&self) -> bool {
        self.local.descriptors.load(Ordering::Acquire) == 1
    }

    /// Whether no other process holds it.
    pub fn is_unshared(&self) -> bool {
        self.entry.references.load(Ordering::Acquire) == 1
    }

    /// Counts another process: a child, or the receiver of a descriptor that is being passed.
    pub fn add_reference(&self) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        SHARINGS.fetch_add(1, Ordering::Relaxed);
        self.mark(status::ELSEWHERE);
        self.mark_shared();
    }

    /// Counts a descriptor that goes to another process, in a message or by inheritance.
    pub fn begin_passing(&self) {
        self.add_reference();
        self.entry.travels.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a passed descriptor as arrived, or as not sent: its reference stays with the caller.
    pub fn end_passing(&self) {
        let fewer = |travels: u32| travels.checked_sub(1);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.entry.travels.fetch_update(set, read, fewer);
    }

    /// Notes that its anchor can not be pooled any more.
    fn mark_shared(&self) {
        self.mark(status::SHARED);
        self.drop_spare();
    }

    /// Uncounts a process; true when none holds the socket.
    pub fn drop_reference(&self) -> bool {
        self.entry.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Gives this process's reference to the descriptors that are being passed. Returns how many descriptors it had.
    pub fn pass_all(&self) -> u32 {
        owner_table::note(self.word.index(), false);
        self.drop_reference();
        self.local.descriptors.swap(0, Ordering::AcqRel)
    }

    /// Takes that back: the passing has failed.
    pub fn undo_pass_all(&self, descriptors: u32) {
        self.entry.references.fetch_add(1, Ordering::AcqRel);
        owner_table::note(self.word.index(), true);
        self.local.descriptors.store(descriptors, Ordering::Release);
    }
}
