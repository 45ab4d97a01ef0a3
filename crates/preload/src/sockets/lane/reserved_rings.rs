//! Rings for another process. A process that has the socket, but not the ledger of its link, can allocate none from the
//! arena. The process that keeps the ledger reserves a block when it passes the socket on.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, SMALL_RING_LOG2};

use super::Lane;
use super::modes::GROWTH_LIMIT_LOG2;
use crate::ground::lock;

impl Lane {
    /// Before another process gets the socket: reserves a block for its rings. True when one was reserved.
    pub fn reserve_rings(&self) -> bool {
        if !self.link.is_own() {
            return false;
        }
        let (transmit, receive) = (&self.socket.entry.transmit, &self.socket.entry.receive);
        if !lock::acquire(&transmit.lock) {
            return false;
        }
        // A socket has two blocks at most: the present ring, and this one.
        self.retire_former(self.peer_head());
        let mut done = false;
        if transmit.former_geometry.load(Ordering::Relaxed) == 0
            && receive.former_geometry.load(Ordering::Relaxed) == 0
            && let Some(block) = self.link.allocate_for_other(GROWTH_LIMIT_LOG2)
        {
            receive
                .former_geometry
                .store(block.to_word(), Ordering::Relaxed);
            done = true;
        }
        lock::release(&transmit.lock);
        done
    }

    /// The reserved block.
    pub(super) fn reserved_block(&self) -> Option<Geometry> {
        let entry = self.socket.entry;
        let word = entry.receive.former_geometry.load(Ordering::Relaxed);
        (word != 0).then(|| Geometry::from_word(word))
    }

    /// The ring of the reserved block that follows `ring`, not larger than `most`: at first a part that stays in the
    /// processor's cache, then, for a slow reader, the half that does not contain that part.
    pub(super) fn next_reserved_ring(&self, ring: Geometry, most: u32) -> Option<Geometry> {
        let block = self.reserved_block()?;
        let first = Geometry {
            offset: block.offset,
            log2: block.log2.min(GROWTH_LIMIT_LOG2),
        };
        let next = if !contains(block, ring) && first.log2 > ring.log2 {
            first
        } else if block.log2 > GROWTH_LIMIT_LOG2 + 1 {
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

    /// Whether a ring is a part of the reserved block.
    pub(super) fn is_reserved_ring(&self, ring: Geometry) -> bool {
        self.reserved_block()
            .is_some_and(|block| contains(block, ring))
    }

    /// The blocks of the arena that this side has and has not freed.
    pub fn rings(&self) -> [Geometry; 2] {
        let transmit = &self.socket.entry.transmit;
        let mut rings = [&transmit.geometry, &transmit.former_geometry]
            .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
        if let Some(block) = self.reserved_block() {
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
