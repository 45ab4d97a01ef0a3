//! New connections of a link. The client announces them over the queue and the server takes them. Doorbells and anchors
//! go over the channel.

use super::counter;
use super::ledger::release;
use super::link::{LinkEnd, Loan};
use crate::packet::{self, Received};
use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{QUEUE_CAPACITY, QueueIndices, Role, asleep, side_flags};
use netchannel_abi::message::Operation;
use netchannel_abi::nqe::{Nqe, Operation as Job};
use netchannel_ring::departure::{self, Fate};
use netchannel_ring::queue::{self, Element};
use netchannel_ring::side;
use netchannel_ring::{Fault, cell};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::sync::atomic::{Ordering, fence};

/// Messages of one channel that are read before other channels have their turn.
const MOST_MESSAGES: usize = 64;
/// Anchors that one message names: two to a word, after the first word.
const MOST_SENT_AT_ONCE: usize = 26;
/// Jobs taken from a queue at once.
const BATCH: usize = 32;

/// A connection that a program has made.
#[derive(Debug)]
pub struct Opened {
    /// The listener that it asked for.
    pub listener: u32,
    /// The client's address, as the program claims it.
    pub client: Address,
    /// The address to which it connected.
    pub server: Address,
    /// Its slot and anchor.
    pub loan: Loan,
}

/// Whether the jobs posted up to `position` are or will be taken: by a program that stays, or before it left.
fn is_taken(indices: &QueueIndices, position: u64) -> bool {
    // Pairs with the fence of the program that leaves.
    fence(Ordering::SeqCst);
    departure::insist(&indices.departure, &indices.head, position) == Fate::Taken
}

impl LinkEnd {
    #[inline]
    pub(super) fn job_queue(&self) -> Option<(&QueueIndices, &[Element])> {
        let start = self.layout.job_queue();
        let indices = self.region.at(start)?;
        let elements = start + size_of::<QueueIndices>();
        Some((indices, self.region.slice(elements, QUEUE_CAPACITY)?))
    }

    /// (client) Whether the program at the other end will accept soon. Either it loops and has looked just now, or it
    /// sleeps and is claimed by this call: the caller must then wake it with [`Self::announce`].
    #[inline]
    pub fn claim(&self) -> bool {
        let Some((indices, _)) = self.job_queue() else {
            return false;
        };
        match indices.asleep.load(Ordering::Acquire) {
            // A program that has not looked for a while may be busy elsewhere, and others may accept meanwhile.
            asleep::LOOPS => {
                let looked = indices.looked.load(Ordering::Relaxed);
                counter::now().wrapping_sub(looked) < asleep::LOOKS_AGAIN
            }
            asleep::SLEEPS | asleep::RESTS => queue::claim_sleep(&indices.asleep, asleep::AWAKE),
            _ => false,
        }
    }

    /// (client) Writes the metadata of the connection into the slot of a loan.
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

    /// (client) Fills in the slot of a loan and announces it. Wakes the program if necessary, or if it was `claimed`.
    /// False when its queue is full or the program has ended: the slot was not used.
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

    /// (client) As [`Self::announce`], but leaves the wake-up to the caller, by [`Self::rouse`]: many connections are
    /// announced, then the program is woken once.
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

    /// (client) Wakes a claimed program although the connection was not made.
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

    /// (server) How many connections wait to be taken. The program's index is clamped to the capacity of the queue.
    #[inline]
    pub(super) fn jobs(&self) -> usize {
        let Some((indices, _)) = self.job_queue() else {
            return 0;
        };
        let head = indices.head.load(Ordering::Relaxed);
        // Acquire: pairs with the release with which the program announces. Anchors that it sent before are in the
        // channel.
        let announced = indices.tail.load(Ordering::Acquire).wrapping_sub(head);
        usize::try_from(announced).map_or(QUEUE_CAPACITY, |count| count.min(QUEUE_CAPACITY))
    }

    /// (server) Requests a doorbell. The caller checks [`Self::has_jobs`] once more.
    pub fn listen_for_jobs(&self) {
        if let Some((indices, _)) = self.job_queue() {
            cell::sleep(&indices.asleep);
        }
    }

    /// (server) Cancels the request: this end looks by itself again.
    pub fn listen_no_more(&self) {
        if let Some((indices, _)) = self.job_queue() {
            cell::wake(&indices.asleep);
        }
    }

    /// (server) Takes new connections, up to `most` or a few more. The limit matters because a program may announce
    /// them faster than they are taken, while other links wait for their turn.
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

    /// `None` for a connection that was refused because its anchor is missing.
    fn take_job(&self, nqe: &Nqe) -> Result<Option<Opened>, Fault> {
        let handle = Handle::from_word(nqe.handle);
        let slot = self.slot(handle.index).ok_or(Fault)?;
        if nqe.operation != Job::Connect as u8 {
            return Err(Fault);
        }
        let index = usize::try_from(handle.index).map_err(|_| Fault)?;
        let pair = slot.meta.anchor.load(Ordering::Relaxed);
        if !self.has_pair(index, pair) {
            // The anchor was sent before the job was announced.
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
        side::set_up(&slot.server, handle.generation, ring);
        let Some(anchor) = anchor else {
            // The client sees the end of its anchor, and needs no token.
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

    /// Whether the anchor of pair number `pair` of a slot has arrived. An anchor of an older pair does not count: its
    /// other end is closed.
    fn has_pair(&self, slot: usize, pair: u32) -> bool {
        let state = self.state();
        state.slots.get(slot).is_some_and(|lent| lent.pairs == pair)
    }

    /// Reads doorbells and anchors from the channel. False where the program has closed its end.
    pub fn read_channel(&self) -> bool {
        for _ in 0..MOST_MESSAGES {
            match packet::receive(&self.channel) {
                Received::Nothing => return true,
                Received::Ended => return false,
                // A doorbell, or a message of a later version.
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
                            .for_each(|index| self.skip_anchor(slot(index)));
                    }
                }
            }
        }
        true
    }
}
