//! Links whose connections go through the queue of a listener: who accepts one has no ledger, and the client keeps that of both ends.

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, Role};
use netchannel_ring::admission;

use super::{Lent, LinkEnd, Loan, ending};
use crate::ground::sys;

/// The ring that is lent to whoever accepts, where there is no plenty.
const LEAST_APART_LOG2: u32 = 18;

impl LinkEnd {
    /// (client) Takes a link of which the daemon gave the memory, which is consumed, and nobody the other end.
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
        Some(ending::known(link))
    }

    /// Whether its connections go through the queue of a listener.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// (client) A slot for a new connection, with a ring for whoever accepts. Its anchor is made when it enters the queue.
    pub fn lend_queued(&self) -> Option<Loan> {
        let mut guard = self.state.lock()?;
        self.reclaim(&mut guard);
        let state = &mut *guard;
        let index = match state.bare.pop() {
            Some(index) => index,
            None if state.slots.len() < self.layout.slots => {
                state.slots.push(Lent {
                    anchor: -1,
                    ..Lent::default()
                });
                u32::try_from(state.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let largest = state.servers.allocate_apart();
        let apart = largest.or_else(|| state.servers.allocate(LEAST_APART_LOG2));
        let lent = state.slots.get_mut(index as usize)?;
        lent.generation = lent.generation.wrapping_add(1);
        lent.busy = true;
        lent.apart = apart;
        let handle = Handle {
            index,
            generation: lent.generation,
        };
        drop(guard);
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(Loan {
            handle,
            anchor: -1,
            nonblocking: true,
        })
    }

    /// (client) The memory, to be sent with a connection: at first to whoever accepts, of whom none has it yet. Who has come later asks
    /// for it.
    pub fn memory_for(&self, holders: usize) -> Option<i32> {
        const MOST: usize = 64;
        let entered = self.entered.load(Ordering::Relaxed);
        if entered as usize >= MOST.min(4 * holders) {
            return None;
        }
        self.entered.store(entered + 1, Ordering::Relaxed);
        Some(self.memory())
    }

    /// (client) A connection is about to enter the queue.
    pub fn enters(&self, handle: Handle) {
        if let Some(slot) = self.slot(handle.index) {
            admission::wait(&slot.meta.queued, handle.generation);
        }
    }

    /// (client) A connection in the queue goes another way. False where it was accepted already.
    pub fn withdraw(&self, handle: Handle) -> bool {
        let slot = self.slot(handle.index);
        slot.is_some_and(|slot| admission::withdraw(&slot.meta.queued, handle.generation))
    }

    /// (server) A connection of the queue is accepted. False where its client has gone another way.
    pub fn admit(&self, handle: Handle) -> bool {
        let slot = self.slot(handle.index);
        slot.is_some_and(|slot| admission::accept(&slot.meta.queued, handle.generation))
    }

    /// (client) The ring that was lent with a slot.
    pub fn lent_apart(&self, handle: Handle) -> Option<Geometry> {
        let state = self.state.lock()?;
        state.slots.get(handle.index as usize)?.apart
    }

    /// (server) A connection came through the queue, from this process: more may come, and the link is kept for them.
    pub fn is_queued_by(&self, client: i32) {
        self.client.store(client, Ordering::Relaxed);
        self.queued.store(true, Ordering::Relaxed);
    }

    /// (server) Whether the client's process is gone.
    pub fn has_lost_client(&self) -> bool {
        let client = sys::int(self.client.load(Ordering::Relaxed));
        // SAFETY: no pointers; the signal is none.
        let asked = unsafe { sys::raw(libc::SYS_kill, [client, 0, 0, 0, 0, 0]) };
        asked == Err(libc::ESRCH)
    }
}
