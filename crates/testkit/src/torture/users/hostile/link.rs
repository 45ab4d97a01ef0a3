//! One end of a link without the library. Connections are announced and taken as the library does it, but with content
//! that need not be true.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Layout, MOST_SLOTS, QUEUE_CAPACITY, QueueIndices, Role, side_flags};
use netchannel_abi::message::Message;
use netchannel_abi::nqe::{Nqe, Operation};
use netchannel_testkit::support::Random;

use super::super::memory;
use super::packet::send;

/// Offsets in words of a slot's client side, server side and names.
const CLIENT: usize = 0;
const SERVER: usize = 16;
const META: usize = 32;

/// One end of a link.
pub struct Link {
    /// The daemon's number of the link.
    pub number: u64,
    /// Its memory, its channel, its anchors.
    pub descriptors: Vec<OwnedFd>,
    words: &'static [AtomicU64],
    layout: Layout,
    /// Connections announced, or taken.
    done: u64,
}

impl Drop for Link {
    fn drop(&mut self) {
        memory::unmap(self.words);
    }
}

impl Link {
    /// The link in an answer to Connect, or in an Offer.
    pub fn of(message: &Message, offered: bool, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let at = if offered { 2 } else { 1 };
        let layout = Layout {
            slots: usize::try_from(message.words[at]).ok()?,
            arena: usize::try_from(message.words[at + 1]).ok()?,
        };
        if !layout.is_valid() || layout.slots > MOST_SLOTS {
            return None;
        }
        // Uses the rings of the first slots only.
        let bytes = usize::try_from(
            layout
                .small_ring(Role::Client, 64.min(layout.slots - 1))
                .offset,
        );
        let bytes = bytes.ok()?.next_multiple_of(4096).min(layout.size());
        let words = memory::map(descriptors.first()?.as_raw_fd(), bytes, true)?;
        Some(Self {
            number: message.words[0],
            descriptors,
            words,
            layout,
            done: 0,
        })
    }

    fn word(&self, byte: usize) -> Option<&'static AtomicU64> {
        self.words.get(byte / 8)
    }

    fn put(&self, byte: usize, value: u64) {
        if let Some(word) = self.word(byte) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn slot(&self, slot: usize, word: usize) -> usize {
        self.layout.slot(slot) + word * 8
    }

    /// Writes bytes into a ring, and the words of a side that announce them.
    fn write_ring(&self, slot: usize, role: Role, generation: u32, bytes: &[u8], flags: u32) {
        let ring = self.layout.small_ring(role, slot);
        let side = if role == Role::Client { CLIENT } else { SERVER };
        let start = usize::try_from(ring.offset).unwrap_or(0);
        for (index, eight) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.put(start + index * 8, u64::from_le_bytes(word));
        }
        self.put(self.slot(slot, side), bytes.len() as u64);
        self.put(self.slot(slot, side + 1), 0);
        self.put(self.slot(slot, side + 2), ring.to_word());
        self.put(self.slot(slot, side + 3), 0);
        let word = u64::from(flags) | u64::from(generation) << 32;
        fence(Ordering::SeqCst);
        self.put(self.slot(slot, side + 4), word);
    }

    /// (client) Announces a connection from an arbitrary address.
    pub fn announce(&mut self, listener: u32, from: Address, to: Address, random: &mut Random) {
        let anchors = self.descriptors.len().saturating_sub(2);
        let slot = usize::try_from(self.done).unwrap_or(0);
        if slot >= anchors {
            return;
        }
        let generation = 1;
        let (from, to) = (from.to_words(), to.to_words());
        for word in 0..3 {
            self.put(self.slot(slot, META + word), from[word]);
            self.put(self.slot(slot, META + 3 + word), to[word]);
        }
        let pair = if random.once_in(8) {
            random.number()
        } else {
            1
        };
        let head = u64::from(generation) | u64::from(listener) << 32;
        self.put(self.slot(slot, META + 6), head);
        self.put(self.slot(slot, META + 7), pair & 0xffff_ffff);
        let bytes = random.number().to_le_bytes().repeat(random.between(0, 8));
        self.write_ring(slot, Role::Client, generation, &bytes, 0);
        let nqe = Nqe {
            operation: Operation::Connect as u8,
            handle: Handle {
                index: u32::try_from(slot).unwrap_or(0),
                generation,
            }
            .to_word(),
            data: u64::from(listener),
            ..Nqe::default()
        };
        let queue = self.layout.job_queue();
        let place = usize::try_from(self.done).unwrap_or(0) % QUEUE_CAPACITY;
        let element = queue + size_of::<QueueIndices>() + place * 32;
        for (index, word) in nqe.to_words().into_iter().enumerate() {
            self.put(element + index * 8, word);
        }
        fence(Ordering::SeqCst);
        self.done += 1;
        self.put(queue, self.done);
        // Wakes the server, and any reader of the connection.
        let _ = send(self.descriptors[1].as_raw_fd(), &[0], &[]);
        let _ = send(self.descriptors[2 + slot].as_raw_fd(), &[0], &[]);
    }

    /// (server) Takes the connections that a client announced, and answers as if they had arrived at the right place.
    /// Returns their number.
    pub fn take(&mut self, random: &mut Random) -> u64 {
        let queue = self.layout.job_queue();
        let Some(tail) = self.word(queue) else {
            return 0;
        };
        let tail = tail.load(Ordering::Acquire);
        let mut taken = 0;
        while self.done < tail && taken < 64 {
            let place = usize::try_from(self.done).unwrap_or(0) % QUEUE_CAPACITY;
            let element = queue + size_of::<QueueIndices>() + place * 32;
            let handle = self
                .word(element + 8)
                .map_or(0, |word| word.load(Ordering::Relaxed));
            let handle = Handle::from_word(handle);
            self.done += 1;
            taken += 1;
            self.put(queue + 128, self.done);
            let slot = usize::try_from(handle.index).unwrap_or(0);
            if slot >= 64 {
                continue;
            }
            // Not signed, so that an honest client notices that it reached the wrong server.
            let bytes = random.number().to_le_bytes().repeat(8);
            self.write_ring(
                slot,
                Role::Server,
                handle.generation,
                &bytes,
                side_flags::ACCEPTED,
            );
            if let Some(anchor) = self.descriptors.get(2 + slot) {
                let _ = send(anchor.as_raw_fd(), &[0], &[]);
            }
        }
        taken
    }

    /// Writes `count` words that are not true.
    pub fn lie(&self, random: &mut Random, count: usize) {
        for _ in 0..count {
            crate::hostile::lie(self.words, random);
        }
    }
}
