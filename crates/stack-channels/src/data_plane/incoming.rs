//! A payload that has begun to arrive and is not complete: where the rest of it goes.

use super::connection::Connection;
use netchannel_service::spans::Spans;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run, Span};
use netchannel_vns::Claim;
use std::sync::Arc;

/// The place of the bytes of one segment that are new.
#[derive(Debug)]
pub struct Place {
    /// Whose ring it is in.
    pub connection: Arc<Connection>,
    /// Held until all is written, or given up.
    pub claim: Claim,
    /// Sequence of the next byte to write.
    pub at: u64,
    /// Where it and those behind it go.
    pub spans: Spans,
}

/// One segment, as far as it has not come yet.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Bytes that come first and are here already.
    pub skip: usize,
    /// The new ones. What comes behind them is thrown away, too.
    pub place: Option<Place>,
}

impl Place {
    /// Bytes that are missing.
    pub const fn left(&self) -> usize {
        let [first, second] = self.spans;
        first.length + second.length
    }

    /// The rest of the place, to be filled.
    pub fn rooms(&self) -> [Room<'_>; 2] {
        let region = self.connection.link.region();
        self.spans
            .map(|span| region.room(span).unwrap_or(Room::empty()))
    }

    /// So many bytes were written; gives the sequence of the first of them.
    pub const fn advance(&mut self, count: usize) -> u64 {
        let at = self.at;
        self.at = self.at.wrapping_add(count as u64);
        let [first, second] = &mut self.spans;
        let rest = shorten(first, count);
        shorten(second, rest);
        at
    }

    /// Writes what of `bytes` belongs here; gives how many did.
    pub fn fill(&self, bytes: &[u8]) -> usize {
        transfer(&[Run::from(bytes)], &self.rooms())
    }
}

/// Takes up to `count` bytes off the front; gives what is left of the count.
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

    /// The place, if the next bytes of the channel belong there.
    pub fn direct(&self) -> Option<&Place> {
        match &self.place {
            Some(place) if self.skip == 0 && place.left() > 0 => Some(place),
            _ => None,
        }
    }
}
