//! New connections of a link: announced by the client over the queue, taken by the server, with
//! doorbells and anchors over the channel.

use super::counter;
use super::ledger::release;
use super::link::{LinkEnd, Loan, reset_side};
use crate::packet::{self, Received};
use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{QUEUE_CAPACITY, QueueIndices, Role, asleep, side_flags};
use netchannel_abi::message::Operation;
use netchannel_abi::nqe::{Nqe, Operation as Job};
use netchannel_ring::departure::{self, Fate};
use netchannel_ring::queue::{self, Element};
use netchannel_ring::{Fault, cell};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::sync::atomic::{Ordering, fence};

/// Messages of one channel taken before others have their turn.
const MOST_MESSAGES: usize = 64;
/// Anchors that one message names: two to a word, behind the first.
const MOST_SENT_AT_ONCE: usize = 26;
/// Jobs taken from a queue at once.
const BATCH: usize = 32;

/// A connection that a program has made.
#[derive(Debug)]
pub struct Opened {
    /// The listener it asked for.
    pub listener: u32,
    /// Its own address, by its own word.
    pub client: Address,
    /// Where it connected to.
    pub server: Address,
    /// Its slot and anchor.
    pub loan: Loan,
}

/// Whether what was just posted, up to `position`, is or will be taken: by a program that stays, or before it left.
fn is_taken(indices: &QueueIndices, position: u64) -> bool {
    // Pairs with the fence of who leaves.
    fence(Ordering::SeqCst);
    // It does nothing between but take what there is. One that stands still there is not waited for.
    for _ in 0..MOST_LOOKS {
        match departure::fate(&indices.departure, &indices.head, position) {
            Fate::Taken => return true,
            Fate::Left => return false,
            Fate::Unknown => std::thread::yield_now(),
        }
    }
    true
}

/// How often is looked whether a program that leaves has left.
const MOST_LOOKS: u32 = 100;

impl LinkEnd {
    #[inline]
    pub(super) fn job_queue(&self) -> Option<(&QueueIndices, &[Element])> {
        let start = self.layout.job_queue();
        let indices = self.region.at(start)?;
        let elements = start + size_of::<QueueIndices>();
        Some((indices, self.region.slice(elements, QUEUE_CAPACITY)?))
    }

    /// (client) Whether somebody at the other end will take a connection soon: he loops and has just looked, or sleeps
    /// and is hereby claimed, which the caller then must wake with [`Self::announce`].
    #[inline]
    pub fn claim(&self) -> bool {
        let Some((indices, _)) = self.job_queue() else {
            return false;
        };
        match indices.asleep.load(Ordering::Acquire) {
            // One that has not looked for a while may be anywhere, and others accept what comes meanwhile.
            asleep::LOOPS => {
                let looked = indices.looked.load(Ordering::Relaxed);
                counter::now().wrapping_sub(looked) < asleep::LOOKS_AGAIN
            }
            asleep::SLEEPS | asleep::RESTS => queue::claim_sleep(&indices.asleep, asleep::AWAKE),
            _ => false,
        }
    }

    /// (client) Writes into the slot of a loan what the connection is.
    pub fn describe(&self, handle: Handle, listener: u32, addresses: (&Address, &Address)) {
        let Some(slot) = self.slot(handle.index) else {
            return;
        };
        let state = self.state();
        let index = usize::try_from(handle.index).unwrap_or(usize::MAX);
        let pairs = state.slots.get(index).map_or(0, |lent| lent.pairs);
        let meta = &slot.meta;
        meta.client.store(addresses.0);
        meta.server.store(addresses.1);
        meta.listener.store(listener, Ordering::Relaxed);
        meta.generation.store(handle.generation, Ordering::Relaxed);
        meta.anchor.store(pairs, Ordering::Relaxed);
    }

    /// (client) Fills the slot of a loan in, and announces it; wakes the program if need be, or if
    /// it was `claimed`. False when its queue is full or it is gone: the slot was not used.
    #[must_use]
    pub fn announce(
        &self,
        handle: Handle,
        listener: u32,
        addresses: (&Address, &Address),
        claimed: bool,
    ) -> bool {
        let posted = self.post(handle, listener, addresses);
        if posted {
            self.rouse(claimed);
        }
        posted
    }

    /// (client) As [`Self::announce`], and leaves it to the caller to [`Self::rouse`] the program: many are announced, then it is
    /// woken once.
    #[must_use]
    pub fn post(&self, handle: Handle, listener: u32, addresses: (&Address, &Address)) -> bool {
        let Some((indices, elements)) = self.job_queue() else {
            return false;
        };
        self.describe(handle, listener, addresses);
        let nqe = Nqe {
            operation: Job::Connect as u8,
            handle: handle.to_word(),
            data: u64::from(listener),
            ..Nqe::default()
        };
        let mut state = self.state();
        let pushed = state
            .producer
            .push(&indices.tail, &indices.head, elements, &[nqe]);
        let position = state.producer.position();
        drop(state);
        let taken = match pushed {
            Ok(1) => is_taken(indices, position),
            Ok(_) => return false,
            Err(Fault) => false,
        };
        if !taken {
            self.fail();
        }
        taken
    }

    /// (client) Wakes the program if it sleeps and has not taken all that was posted, or if it was `claimed`.
    #[inline]
    pub fn rouse(&self, claimed: bool) {
        let Some((indices, _)) = self.job_queue() else {
            return;
        };
        // Pairs with the fence in `cell::sleep`, by which the program asks for a doorbell.
        fence(Ordering::SeqCst);
        let tail = indices.tail.load(Ordering::Relaxed);
        let waits = indices.head.load(Ordering::Relaxed) != tail;
        let slept = waits && queue::claim_sleep(&indices.asleep, asleep::AWAKE);
        if slept || claimed && indices.asleep.load(Ordering::Relaxed) == asleep::AWAKE {
            self.ring();
        }
    }

    /// (client) Wakes a claimed program for nothing: the connection did not come about.
    #[inline]
    pub fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::send(&self.channel, &[0], flags);
        if matches!(sent, Err(Errno::PIPE | Errno::CONNRESET)) {
            self.fail();
        }
    }

    /// (server) Whether connections wait to be taken.
    #[must_use]
    #[inline]
    pub fn has_jobs(&self) -> bool {
        self.jobs() > 0
    }

    /// (server) How many connections wait to be taken, by the program's word: no more than the queue holds.
    #[inline]
    pub(super) fn jobs(&self) -> usize {
        let Some((indices, _)) = self.job_queue() else {
            return 0;
        };
        let head = indices.head.load(Ordering::Relaxed);
        // Acquire: pairs with the release with which the program announces; anchors it sent before lie in the channel.
        let announced = indices.tail.load(Ordering::Acquire).wrapping_sub(head);
        usize::try_from(announced).map_or(QUEUE_CAPACITY, |count| count.min(QUEUE_CAPACITY))
    }

    /// (server) Asks for a doorbell; the caller looks at [`Self::has_jobs`] once more.
    pub fn listen_for_jobs(&self) {
        if let Some((indices, _)) = self.job_queue() {
            cell::sleep(&indices.asleep);
        }
    }

    /// (server) Looks by itself again.
    pub fn listen_no_more(&self) {
        if let Some((indices, _)) = self.job_queue() {
            cell::wake(&indices.asleep);
        }
    }

    /// (server) Takes new connections, up to `most` or a few more: a program may announce them faster than they are taken, and others
    /// want their turn.
    ///
    /// # Errors
    /// A fault of the program; the link has failed then.
    pub fn take_jobs(&self, most: usize, mut each: impl FnMut(Opened)) -> Result<(), Fault> {
        let (indices, elements) = self.job_queue().ok_or(Fault)?;
        let mut batch = [Nqe::default(); BATCH];
        let mut taken = 0;
        while taken < most {
            let popped =
                self.state()
                    .consumer
                    .pop(&indices.tail, &indices.head, elements, &mut batch);
            let count = popped.inspect_err(|Fault| {
                self.fail();
            })?;
            for nqe in batch.iter().take(count) {
                let opened = self.take_job(nqe).inspect_err(|Fault| {
                    self.fail();
                })?;
                opened.into_iter().for_each(&mut each);
            }
            taken += count;
            if count < batch.len() {
                break;
            }
        }
        Ok(())
    }

    /// `None` for a connection that was refused, as there is no anchor for it.
    fn take_job(&self, nqe: &Nqe) -> Result<Option<Opened>, Fault> {
        let handle = Handle::from_word(nqe.handle);
        let slot = self.slot(handle.index).ok_or(Fault)?;
        if nqe.operation != Job::Connect as u8 {
            return Err(Fault);
        }
        let index = usize::try_from(handle.index).map_err(|_| Fault)?;
        let pair = slot.meta.anchor.load(Ordering::Relaxed);
        if !self.has_pair(index, pair) {
            // It was sent before the job was announced.
            let _ = self.read_channel();
        }
        let mut state = self.state();
        let lent = state.slots.get_mut(index).ok_or(Fault)?;
        if lent.busy || lent.pairs != pair || handle.generation == lent.generation {
            return Err(Fault);
        }
        let anchor = lent.anchor.take();
        lent.busy = anchor.is_some();
        lent.generation = handle.generation;
        let blocks = std::mem::take(&mut lent.blocks);
        blocks
            .into_iter()
            .flatten()
            .for_each(|block| state.arena.free(block, |bare| release(&self.region, bare)));
        drop(state);
        let ring = self.layout.small_ring(self.role(), index);
        reset_side(&slot.server, handle.generation, ring);
        let Some(anchor) = anchor else {
            // The client sees the end of its anchor; it needs no token.
            let errno = Errno::NOBUFS.raw_os_error().unsigned_abs();
            slot.server.error.store(errno, Ordering::Relaxed);
            let flags = side_flags::RESET | side_flags::CLOSED | side_flags::ANCHOR_GONE;
            slot.server.flags.store(flags, Ordering::Release);
            return Ok(None);
        };
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::AcqRel);
        Ok(Some(Opened {
            listener: u32::try_from(nqe.data).unwrap_or(0),
            client: slot.meta.client.load(),
            server: slot.meta.server.load(),
            loan: Loan { handle, anchor },
        }))
    }

    /// Whether the anchor of pair number `pair` of a slot has come, not an older one whose other end
    /// is closed.
    fn has_pair(&self, slot: usize, pair: u32) -> bool {
        let state = self.state();
        state.slots.get(slot).is_some_and(|lent| lent.pairs == pair)
    }

    /// Reads doorbells and anchors from the channel. False where the program let go of its end.
    pub fn read_channel(&self) -> bool {
        for _ in 0..MOST_MESSAGES {
            match packet::receive(&self.channel) {
                Received::Nothing => return true,
                Received::Ended => return false,
                // Doorbells, or what a later version says.
                Received::Garbage => {}
                Received::Message {
                    message,
                    descriptors,
                    lost,
                    ..
                } => {
                    if message.operation != Operation::Anchors as u32 || self.role() != Role::Server
                    {
                        continue;
                    }
                    let slot = |index: usize| {
                        let word = message.words.get(1 + index / 2).copied().unwrap_or(0);
                        let number = word >> (32 * (index % 2)) & 0xffff_ffff;
                        usize::try_from(number).unwrap_or(usize::MAX)
                    };
                    let came = descriptors.len();
                    for (index, anchor) in descriptors.into_iter().enumerate() {
                        self.add_anchor(slot(index), anchor);
                    }
                    if lost {
                        let said = usize::try_from(message.words[0]).unwrap_or(usize::MAX);
                        (came..said.min(MOST_SENT_AT_ONCE))
                            .for_each(|index| self.miss_anchor(slot(index)));
                    }
                }
            }
        }
        true
    }
}
