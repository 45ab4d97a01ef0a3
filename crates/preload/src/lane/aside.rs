//! A ring for another process: one that has the socket, but not the ledger of its link, can take
//! none from the arena. The process that keeps the ledger sets one aside when it passes the socket on.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, SMALL_RING_LOG2};

use super::Lane;
use super::send::CALM_RING_LOG2;
use crate::lock;

impl Lane {
    /// Before another process gets the socket: sets a ring aside, unless it has left the small one.
    /// True when one was.
    pub fn set_aside(&self) -> bool {
        if !self.link.is_own() {
            return false;
        }
        let (transmit, receive) = (&self.socket.entry.transmit, &self.socket.entry.receive);
        let limit = transmit.limit.load(Ordering::Relaxed);
        let log2 = match limit {
            0 => CALM_RING_LOG2,
            limit => limit.ilog2().min(CALM_RING_LOG2),
        };
        if log2 < LEAST_RING_LOG2 || !lock::acquire(&transmit.lock) {
            return false;
        }
        let mut done = false;
        if transmit.geometry.load(Ordering::Relaxed) == 0
            && receive.former_geometry.load(Ordering::Relaxed) == 0
            && let Some(ring) = self.link.allocate(log2)
        {
            let word = ring.to_word();
            receive.former_geometry.store(word, Ordering::Relaxed);
            done = true;
        }
        lock::release(&transmit.lock);
        done
    }

    /// The ring that was set aside and is not in use yet.
    pub(super) fn aside(&self) -> Option<Geometry> {
        // Acquire: pairs with the release in `leave_aside`.
        let word = self
            .socket
            .entry
            .receive
            .former_geometry
            .load(Ordering::Acquire);
        (word != 0).then(|| Geometry::from_word(word))
    }

    /// It is the present ring now.
    pub(super) fn leave_aside(&self) {
        // Release: who finds none finds it as the present ring.
        let place = &self.socket.entry.receive.former_geometry;
        place.store(0, Ordering::Release);
    }

    /// What was taken from the arena for this side, and is not given back yet: two at most, since a
    /// ring is set aside only for who has none.
    pub fn rings(&self) -> [Geometry; 2] {
        let aside = self.aside();
        let transmit = &self.socket.entry.transmit;
        let mut rings = [&transmit.geometry, &transmit.former_geometry]
            .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
        if let Some(aside) = aside
            && !rings.contains(&aside)
            && let Some(place) = rings.iter_mut().find(|ring| ring.log2 <= SMALL_RING_LOG2)
        {
            *place = aside;
        }
        rings
    }
}
