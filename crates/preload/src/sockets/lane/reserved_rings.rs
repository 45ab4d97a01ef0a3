//! Rings for another process: one that has the socket, but not the ledger of its link, can take none
//! from the arena. The process that keeps the ledger sets a block aside when it passes the socket on.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, SMALL_RING_LOG2};

use super::Lane;
use super::manner::CALM_RING_LOG2;
use crate::ground::lock;

impl Lane {
    /// Before another process gets the socket: sets a block aside for its rings. True when one was.
    pub fn set_aside(&self) -> bool {
        if !self.link.is_own() {
            return false;
        }
        let (transmit, receive) = (&self.socket.entry.transmit, &self.socket.entry.receive);
        if !lock::acquire(&transmit.lock) {
            return false;
        }
        // What was taken for a socket is two blocks at most: the present ring, and this one.
        self.retire_former(self.peer_head());
        let mut done = false;
        if transmit.former_geometry.load(Ordering::Relaxed) == 0
            && receive.former_geometry.load(Ordering::Relaxed) == 0
            && let Some(block) = self.link.allocate_apart(CALM_RING_LOG2)
        {
            receive
                .former_geometry
                .store(block.to_word(), Ordering::Relaxed);
            done = true;
        }
        lock::release(&transmit.lock);
        done
    }

    /// The block that was set aside.
    pub(super) fn aside(&self) -> Option<Geometry> {
        let entry = self.socket.entry;
        let word = entry.receive.former_geometry.load(Ordering::Relaxed);
        (word != 0).then(|| Geometry::from_word(word))
    }

    /// The ring of that block that comes after `ring`: at first a part that stays in the processor's cache, then, for a reader that is
    /// slow, the half in which that part is not. Not larger than `most`.
    pub(super) fn ring_aside(&self, ring: Geometry, most: u32) -> Option<Geometry> {
        let block = self.aside()?;
        let first = Geometry {
            offset: block.offset,
            log2: block.log2.min(CALM_RING_LOG2),
        };
        let next = if !contains(block, ring) && first.log2 > ring.log2 {
            first
        } else if block.log2 > CALM_RING_LOG2 + 1 {
            Geometry {
                offset: block.offset + block.size() / 2,
                log2: block.log2 - 1,
            }
        } else {
            return None;
        };
        let log2 = next.log2.min(most);
        (log2 > ring.log2 && log2 >= LEAST_RING_LOG2).then_some(Geometry { log2, ..next })
    }

    /// Whether a ring is a part of the block that was set aside.
    pub(super) fn is_aside(&self, ring: Geometry) -> bool {
        self.aside().is_some_and(|block| contains(block, ring))
    }

    /// What was taken from the arena for this side, and is not given back yet.
    pub fn rings(&self) -> [Geometry; 2] {
        let transmit = &self.socket.entry.transmit;
        let mut rings = [&transmit.geometry, &transmit.former_geometry]
            .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
        if let Some(block) = self.aside() {
            for ring in &mut rings {
                if contains(block, *ring) {
                    *ring = Geometry::from_word(0);
                }
            }
            if let Some(place) = rings.iter_mut().find(|ring| ring.log2 <= SMALL_RING_LOG2) {
                *place = block;
            }
        }
        rings
    }
}

const fn contains(block: Geometry, ring: Geometry) -> bool {
    ring.offset >= block.offset && ring.offset < block.offset + block.size()
}
