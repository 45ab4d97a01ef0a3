//! What comes: bytes of a channel into frames, payloads to their places, small ones by a copy, large ones straight by the read.

use super::connection::Connection;
use super::incoming::{Incoming, Place};
use super::line::{LARGE, Line};
use super::loss::Lost;
use super::route::Route;
use super::sockets::Found;
use super::traffic::Traffic;
use super::worker::ChannelWorker;
use netchannel_service::spans::Spans;
use netchannel_shm::Run;
use netchannel_shm::run::transfer;
use netchannel_vns::{Arrived, Claim, Handle, Placement};
use netchannel_wire::Step;
use std::sync::Arc;

/// Programs are woken for segments of up to so many bytes when all that came have been placed.
const HELD: usize = 512;
/// Bytes of one channel that are read before others have their turn.
const BUDGET: usize = 512 << 10;

impl ChannelWorker {
    /// Reads what has come on a channel.
    pub(super) fn receive(&mut self, line: &mut Line) -> Result<(), Lost> {
        if std::mem::take(&mut line.fresh) {
            self.parse(line)?;
        }
        let mut left = BUDGET;
        loop {
            let filled = line.take()?;
            if filled.bytes > 0 {
                line.heard = self.now;
                self.moved = true;
            }
            if filled.direct > 0 {
                self.written(line, filled.direct);
            }
            self.parse(line)?;
            left = left.saturating_sub(filled.bytes);
            if !line.readable || left == 0 {
                return Ok(());
            }
        }
    }

    /// Bytes went straight to their place.
    fn written(&mut self, line: &mut Line, count: usize) {
        line.parser.placed(count);
        Traffic::add(&line.route.traffic.bytes_received, count as u64);
        let done = line.parser.pending().is_none();
        let Some(incoming) = &mut line.incoming else {
            return;
        };
        if let Some(place) = &mut incoming.place {
            let at = place.advance(count);
            note_placed(place, at, count, self.now);
        }
        self.finish_if_full(line, done);
    }

    /// Ends the claim of a place that is full; forgets a segment that has come as a whole.
    fn finish_if_full(&mut self, line: &mut Line, done: bool) {
        let Some(incoming) = &mut line.incoming else {
            return;
        };
        let full = |place: &mut Place| place.left() == 0 || done;
        if let Some(place) = incoming.place.take_if(full) {
            self.finish(&place.connection, place.claim);
        } else if let Some(place) = &incoming.place {
            let connection = Arc::clone(&place.connection);
            self.touch(&connection);
        }
        if done {
            line.incoming = None;
        }
    }

    fn finish(&mut self, connection: &Arc<Connection>, claim: Claim) {
        let mut state = connection.lock();
        state.socket.finish(claim, self.now);
        connection.follow(&mut state, self.now);
        drop(state);
        self.touch(connection);
    }

    fn parse(&mut self, line: &mut Line) -> Result<(), Lost> {
        let buffer = std::mem::take(&mut line.buffer);
        let result = self.parse_bytes(line, &buffer);
        line.buffer = buffer;
        result
    }

    fn parse_bytes(&mut self, line: &mut Line, buffer: &[u8]) -> Result<(), Lost> {
        loop {
            let unread = buffer.get(line.start..line.end).unwrap_or_default();
            match line.parser.next(unread).map_err(Lost::Violation)? {
                Step::NeedMore { .. } => return Ok(()),
                Step::Frame { frame, consumed } => {
                    line.start += consumed;
                    Traffic::add(&line.route.traffic.control_received, 1);
                    self.on_frame(line, &frame);
                }
                Step::Data {
                    handle,
                    sequence,
                    payload,
                    missing,
                } => {
                    line.start += payload.end;
                    let bytes = unread.get(payload).unwrap_or_default();
                    Traffic::add(&line.route.traffic.bytes_received, bytes.len() as u64);
                    if line.incoming.is_some() {
                        self.more(line, bytes, missing == 0);
                    } else {
                        self.begin(line, (handle, sequence), bytes, missing);
                    }
                }
            }
        }
    }

    /// More of the incomplete segment lies in the buffer.
    fn more(&mut self, line: &mut Line, bytes: &[u8], done: bool) {
        let Some(incoming) = &mut line.incoming else {
            return;
        };
        let skipped = incoming.skip.min(bytes.len());
        incoming.skip -= skipped;
        let bytes = bytes.get(skipped..).unwrap_or_default();
        if let Some(place) = &mut incoming.place {
            let count = place.fill(bytes);
            let at = place.advance(count);
            note_placed(place, at, count, self.now);
        }
        self.finish_if_full(line, done);
    }

    /// A segment begins: `bytes` of it lie in the buffer, `missing` follow.
    fn begin(
        &mut self,
        line: &mut Line,
        (handle, sequence): (Handle, u64),
        bytes: &[u8],
        missing: usize,
    ) {
        let total = bytes.len() + missing;
        line.large = total >= LARGE;
        Traffic::add(&line.route.traffic.segments_received, 1);
        let found = line.peer.sockets().find(handle);
        let incoming = match found {
            Found::Live(connection) => {
                let incoming = self.place(&connection, &line.route, sequence, bytes, total);
                self.touch(&connection);
                incoming
            }
            Found::Ended(tombstone) => {
                self.answer(line, handle, Some(&tombstone), Arrived::Data);
                Incoming::default()
            }
            Found::Unknown => {
                self.answer(line, handle, None, Arrived::Data);
                Incoming::default()
            }
        };
        if missing > 0 {
            line.incoming = Some(incoming);
        } else if let Some(place) = incoming.place {
            self.finish(&place.connection, place.claim);
        }
    }

    /// Writes what is there of a segment to its place; gives what is to happen with the rest.
    fn place(
        &mut self,
        connection: &Arc<Connection>,
        route: &Route,
        sequence: u64,
        bytes: &[u8],
        total: usize,
    ) -> Incoming {
        let now = self.now;
        self.note_hurry();
        let mut state = connection.lock();
        let class = state.class().0;
        if total <= HELD || self.wake_ups.note_large(&mut state.large_came, class) {
            // Of what is larger the program can take the first while the rest is placed.
            state.defer_wake_ups();
        }
        state.used.note(route.id, now);
        let most_ring = route.seen.most_ring();
        let length = u32::try_from(total).unwrap_or(u32::MAX);
        let end = sequence.wrapping_add(u64::from(length));
        state.look_before_arrival(now);
        state.make_room(end, most_ring, now);
        let shown = state.observer.on_received(length, now);
        if let Some(class) = state.observed(shown) {
            connection.see_class(class);
        }
        // A violation has reset the socket.
        let placement = state.socket.on_data(sequence, length, now);
        let Ok(Placement::Write {
            skip,
            sequence: at,
            length,
            claim,
        }) = placement
        else {
            connection.follow(&mut state, now);
            return Incoming::default();
        };
        let lane = state.lane.as_ref();
        let spans = lane.map(|lane| lane.room(at, u64::from(length)));
        let spans: Spans = spans.and_then(Result::ok).unwrap_or_default();
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let here = bytes.get(skip.min(bytes.len())..).unwrap_or_default();
        let count = lane.map_or(0, |lane| transfer(&[Run::from(here)], &lane.rooms(spans)));
        let mut place = Place {
            connection: Arc::clone(connection),
            claim,
            at,
            spans,
        };
        place.advance(count);
        if count > 0 {
            let placed = u32::try_from(count).unwrap_or(u32::MAX);
            if let Some(lane) = &mut state.lane {
                lane.note_placed(at + count as u64);
            }
            state.socket.placed(&place.claim, at, placed, now);
        }
        let over = place.left() == 0;
        let mut incoming = Incoming {
            skip: skip.saturating_sub(bytes.len()),
            place: None,
        };
        if over {
            state.socket.finish(place.claim, now);
        } else {
            incoming.place = Some(place);
        }
        connection.follow(&mut state, now);
        // What came may have filled a ring that could not move before it.
        state.make_room(end, most_ring, now);
        incoming
    }
}

/// Tells the socket what was written, and the program.
fn note_placed(place: &Place, at: u64, count: usize, now: u64) {
    if count == 0 {
        return;
    }
    let mut state = place.connection.lock();
    if let Some(lane) = &mut state.lane {
        lane.note_placed(at + count as u64);
    }
    let placed = u32::try_from(count).unwrap_or(u32::MAX);
    state.socket.placed(&place.claim, at, placed, now);
    place.connection.follow(&mut state, now);
}
