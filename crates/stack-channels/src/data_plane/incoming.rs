//! A payload that has arrived in part: the place of its remaining bytes.

use super::connection::Connection;
use netchannel_service::spans::Spans;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run, Span};
use netchannel_vns::Claim;
use std::sync::Arc;

/// The place of the new bytes of one segment.
#[derive(Debug)]
pub struct Place {
    /// The connection whose ring it is in.
    pub connection: Arc<Connection>,
    /// Held until all bytes are written, or given up.
    pub claim: Claim,
    /// The sequence of the next byte to write.
    pub at: u64,
    /// The place of that byte and those after it.
    pub spans: Spans,
}

/// The remaining part of a segment.
#[derive(Debug, Default)]
pub struct Incoming {
    /// The number of bytes at the front that are duplicates.
    pub skip: usize,
    /// The place of the new bytes. Bytes after them are discarded too.
    pub place: Option<Place>,
}

impl Place {
    /// The number of missing bytes.
    pub const fn left(&self) -> usize {
        let [first, second] = self.spans;
        first.length + second.length
    }

    /// The remaining place as rooms.
    pub fn rooms(&self) -> [Room<'_>; 2] {
        let region = self.connection.link().region();
        self.spans
            .map(|span| region.room(span).unwrap_or(Room::empty()))
    }

    /// Notes that `count` bytes were written. Returns the sequence of the first of them.
    pub const fn advance(&mut self, count: usize) -> u64 {
        let at = self.at;
        self.at = self.at.wrapping_add(count as u64);
        let [first, second] = &mut self.spans;
        let rest = shorten(first, count);
        shorten(second, rest);
        at
    }

    /// Copies bytes to the place, as far as they fit. Returns how many were copied.
    pub fn fill(&self, bytes: &[u8]) -> usize {
        transfer(&[Run::from(bytes)], &self.rooms())
    }
}

/// Removes up to `count` bytes at the front. Returns the rest of the count.
const fn shorten(span: &mut Span, count: usize) -> usize {
    let step = if count < span.length {
        count
    } else {
        span.length
    };
    span.offset += step;
    span.length -= step;
    count - step
}

impl Incoming {
    /// The place, to give it up.
    pub fn into_place(self) -> Option<Place> {
        self.place
    }

    /// The place, if the next bytes of the channel go there.
    pub fn direct(&self) -> Option<&Place> {
        match &self.place {
            Some(place) if self.skip == 0 && place.left() > 0 => Some(place),
            _ => None,
        }
    }
}
