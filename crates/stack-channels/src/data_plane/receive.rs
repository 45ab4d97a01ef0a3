//! The receive path: bytes of a channel are parsed into frames and payloads are placed, small ones by a copy, large
//! ones straight by the read.

use super::connection::{Connection, State};
use super::incoming::{Incoming, Place};
use super::loss::Lost;
use super::open_channel::{LARGE, OpenChannel};
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

/// For segments of up to this size the wake-up of the program is deferred until all input was placed.
const SMALL: usize = 512;
/// Bytes of one channel that are read before other channels have their turn.
const BUDGET: usize = 512 << 10;

impl ChannelWorker {
    /// Reads the input of a channel.
    pub(super) fn receive(&mut self, channel: &mut OpenChannel) -> Result<(), Lost> {
        if std::mem::take(&mut channel.unparsed) {
            self.parse(channel)?;
        }
        let mut left = BUDGET;
        loop {
            let filled = channel.take()?;
            if filled.bytes > 0 {
                channel.last_received = self.now;
                self.had_input = true;
            }
            if filled.direct > 0 {
                self.written(channel, filled.direct);
            }
            self.parse(channel)?;
            left = left.saturating_sub(filled.bytes);
            if !channel.readable || left == 0 {
                return Ok(());
            }
        }
    }

    /// Bytes were read straight into their place.
    fn written(&mut self, channel: &mut OpenChannel, count: usize) {
        channel.parser.placed(count);
        Traffic::add(&channel.route.traffic.bytes_received, count as u64);
        let done = channel.parser.pending().is_none();
        let Some(incoming) = &mut channel.incoming else {
            return;
        };
        if let Some(place) = &mut incoming.place {
            let at = place.advance(count);
            note_placed(place, at, count, self.now);
        }
        self.finish_if_full(channel, done);
    }

    /// Ends the claim of a full place. Drops the record of a segment that is complete.
    fn finish_if_full(&mut self, channel: &mut OpenChannel, done: bool) {
        let Some(incoming) = &mut channel.incoming else {
            return;
        };
        let full = |place: &mut Place| place.left() == 0 || done;
        if let Some(place) = incoming.place.take_if(full) {
            self.finish(&place.connection, &channel.route, place.claim);
        } else if let Some(place) = &incoming.place {
            let connection = Arc::clone(&place.connection);
            self.settle_later(&connection);
        }
        if done {
            channel.incoming = None;
        }
    }

    fn finish(&mut self, connection: &Arc<Connection>, route: &Route, claim: Claim) {
        let mut state = connection.lock();
        finish_claim(connection, &mut state, (route, claim), self.now);
        drop(state);
        self.settle_later(connection);
    }

    fn parse(&mut self, channel: &mut OpenChannel) -> Result<(), Lost> {
        let buffer = std::mem::take(&mut channel.buffer);
        let result = self.parse_bytes(channel, &buffer);
        channel.buffer = buffer;
        result
    }

    fn parse_bytes(&mut self, channel: &mut OpenChannel, buffer: &[u8]) -> Result<(), Lost> {
        loop {
            let unread = buffer.get(channel.start..channel.end).unwrap_or_default();
            match channel.parser.next(unread).map_err(Lost::Violation)? {
                Step::NeedMore { .. } => return Ok(()),
                Step::Frame { frame, consumed } => {
                    channel.start += consumed;
                    Traffic::add(&channel.route.traffic.control_received, 1);
                    self.on_frame(channel, &frame);
                }
                Step::Data {
                    handle,
                    sequence,
                    payload,
                    missing,
                } => {
                    channel.start += payload.end;
                    let bytes = unread.get(payload).unwrap_or_default();
                    Traffic::add(&channel.route.traffic.bytes_received, bytes.len() as u64);
                    if channel.incoming.is_some() {
                        self.continue_segment(channel, bytes, missing == 0);
                    } else {
                        self.begin_segment(channel, (handle, sequence), bytes, missing);
                    }
                }
            }
        }
    }

    /// More bytes of the incomplete segment are in the buffer.
    fn continue_segment(&mut self, channel: &mut OpenChannel, bytes: &[u8], done: bool) {
        let Some(incoming) = &mut channel.incoming else {
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
        self.finish_if_full(channel, done);
    }

    /// Begins a segment: `bytes` of it are in the buffer, `missing` follow.
    fn begin_segment(
        &mut self,
        channel: &mut OpenChannel,
        (handle, sequence): (Handle, u64),
        bytes: &[u8],
        missing: usize,
    ) {
        let total = bytes.len() + missing;
        channel.large = total >= LARGE;
        Traffic::add(&channel.route.traffic.segments_received, 1);
        let found = channel.peer.sockets().find(handle);
        let incoming = match found {
            Found::Live(connection) => {
                let incoming = self.place(&connection, &channel.route, sequence, bytes, total);
                self.settle_later(&connection);
                incoming
            }
            Found::Ended(tombstone) => {
                self.answer(channel, handle, Some(&tombstone), Arrived::Data);
                Incoming::default()
            }
            Found::Unknown => {
                self.answer(channel, handle, None, Arrived::Data);
                Incoming::default()
            }
        };
        if missing > 0 {
            channel.incoming = Some(incoming);
        } else if let Some(place) = incoming.place {
            self.finish(&place.connection, &channel.route, place.claim);
        }
    }

    /// Copies the available part of a segment to its place. Returns how to continue with the rest.
    fn place(
        &mut self,
        connection: &Arc<Connection>,
        route: &Route,
        sequence: u64,
        bytes: &[u8],
        total: usize,
    ) -> Incoming {
        let now = self.now;
        self.note_latency_activity();
        let mut state = connection.lock();
        let class = state.class().0;
        if total <= SMALL || self.wake_ups.note_large(&mut state.large_came, class) {
            // Of a larger segment the program can take the first part while the rest is placed.
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
            connection.set_observed_class(class);
        }
        // An error is a violation, which has reset the socket.
        let placement = state.socket.on_data(sequence, length, now);
        let Ok(Placement::Write {
            skip,
            sequence: at,
            length,
            claim,
        }) = placement
        else {
            connection.apply_changes(&mut state, now);
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
        let mut incoming = Incoming {
            skip: skip.saturating_sub(bytes.len()),
            place: None,
        };
        if place.left() == 0 {
            finish_claim(connection, &mut state, (route, place.claim), now);
        } else {
            connection.apply_changes(&mut state, now);
            incoming.place = Some(place);
        }
        incoming
    }
}

/// Ends a claim. A ring that could not grow while there were claims, or gaps, perhaps can now.
fn finish_claim(
    connection: &Connection,
    state: &mut State,
    (route, claim): (&Route, Claim),
    now: u64,
) {
    state.socket.finish(claim, now);
    connection.apply_changes(state, now);
    let end = state.socket.frontier();
    state.make_room(end, route.seen.most_ring(), now);
}

/// Notes the written bytes in the socket, and notifies the program.
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
    place.connection.apply_changes(&mut state, now);
}
