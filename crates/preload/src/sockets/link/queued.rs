//! Links whose connections go through the queue of a listener: the acceptor has no ledger, and the client keeps that of
//! both ends.

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, Role};
use netchannel_ring::admission;

use super::{LinkEnd, Loan, SlotLedger, ending};
use crate::ground::sys;

/// Size of the ring that is lent to the acceptor, where the arena is not large.
pub(super) const LEAST_APART_LOG2: u32 = 18;

impl LinkEnd {
    /// (client) Adopts a link of which the daemon gave the memory (consumed) to this process only.
    pub fn adopt_queued(
        number: u64,
        listener: u32,
        sizes: (u64, u64),
        memory: i32,
    ) -> Option<&'static Self> {
        let Some(link) = Self::build(Role::Client, number, listener, sizes, &[memory, -1]) else {
            sys::close(memory);
            return None;
        };
        link.queued.store(true, Ordering::Relaxed);
        Some(ending::register(link))
    }

    /// Whether its connections go through the queue of a listener.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// (client) Lends a slot for a new connection, with a ring for the acceptor. Its anchor is made when it enters the
    /// queue.
    pub fn lend_queued(&self) -> Option<Loan> {
        let mut guard = self.state.lock()?;
        if !self.is_alive() {
            return None;
        }
        self.reclaim(&mut guard);
        let state = &mut *guard;
        let index = match state.without_anchor.pop() {
            Some(index) => index,
            None if state.slots.len() < self.layout.slots => {
                state.slots.push(SlotLedger {
                    anchor: -1,
                    ..SlotLedger::default()
                });
                u32::try_from(state.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let largest = state.server_arena.allocate_largest();
        let lent_ring = largest.or_else(|| state.server_arena.allocate(LEAST_APART_LOG2));
        let lent = state.slots.get_mut(index as usize)?;
        lent.generation = lent.generation.wrapping_add(1);
        lent.busy = true;
        lent.lent_ring = lent_ring;
        let handle = Handle {
            index,
            generation: lent.generation,
        };
        // As in `lend`.
        self.live.fetch_add(1, Ordering::Relaxed);
        drop(guard);
        Some(Loan {
            handle,
            anchor: -1,
            nonblocking: true,
        })
    }

    /// (client) The memory to be sent with a connection: with the first ones, since no acceptor has it yet. Later
    /// acceptors ask for it.
    pub fn memory_for(&self, holders: usize) -> Option<i32> {
        const MOST: usize = 64;
        let entered = self.entered.load(Ordering::Relaxed);
        if entered as usize >= MOST.min(4 * holders) {
            return None;
        }
        self.entered.store(entered + 1, Ordering::Relaxed);
        Some(self.memory())
    }

    /// (client) Marks a connection that is about to enter the queue, or to be announced to one of several processes.
    pub fn mark_waiting(&self, handle: Handle) {
        if let Some(slot) = self.slot(handle.index) {
            admission::wait(&slot.meta.queued, handle.generation);
        }
    }

    /// (client) Withdraws a connection that [waits](Self::mark_waiting). False where it was already accepted.
    pub fn withdraw(&self, handle: Handle) -> bool {
        let slot = self.slot(handle.index);
        slot.is_some_and(|slot| admission::withdraw(&slot.meta.queued, handle.generation))
    }

    /// (server) Accepts a connection of the queue. False where its client has withdrawn it.
    pub fn admit(&self, handle: Handle) -> bool {
        let slot = self.slot(handle.index);
        slot.is_some_and(|slot| admission::accept(&slot.meta.queued, handle.generation))
    }

    /// (server) Accepts a connection that was announced over the link. False where its client has withdrawn it.
    pub fn admit_announced(&self, handle: Handle) -> bool {
        let slot = self.slot(handle.index);
        slot.is_some_and(|slot| admission::accept_announced(&slot.meta.queued, handle.generation))
    }

    /// (client) The ring that was lent with a slot.
    pub fn lent_ring(&self, handle: Handle) -> Option<Geometry> {
        let state = self.state.lock()?;
        state.slots.get(handle.index as usize)?.lent_ring
    }

    /// (server) Notes that a connection came through the queue from this process: the link is kept for further ones.
    pub fn note_queue_client(&self, client: i32) {
        self.client.store(client, Ordering::Relaxed);
        self.queued.store(true, Ordering::Relaxed);
    }

    /// (server) Whether the client's process has ended.
    pub fn has_client_ended(&self) -> bool {
        let client = sys::int(self.client.load(Ordering::Relaxed));
        // SAFETY: no pointers; signal 0 is not sent.
        let asked = unsafe { sys::raw(libc::SYS_kill, [client, 0, 0, 0, 0, 0]) };
        asked == Err(libc::ESRCH)
    }
}
