//! The output queue of a channel: own bytes and pieces of rings, written together. Ring pieces are not copied.

use super::connection::Connection;
use netchannel_driver::Channel;
use netchannel_service::spans::Spans;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run};
use netchannel_vns::Hold;
use netchannel_wire::{DataHeader, Frame, HEADER, Handle, MOST_FIXED_FRAME, encode_data_header};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The number of pieces that one call writes.
const MOST_RUNS: usize = 128;
/// A payload of up to this many bytes is copied: that costs less than a piece of its own.
pub const COPIED: u32 = 512;

#[derive(Debug)]
enum Piece {
    /// Bytes of the outbox itself.
    Own { start: usize, end: usize },
    /// Bytes of a program's ring.
    Ring {
        connection: Arc<Connection>,
        spans: Spans,
        hold: Hold,
    },
}

/// The DATA frame at the end. More bytes of its socket can be appended to it.
#[derive(Clone, Copy, Debug)]
struct Last {
    header: usize,
    data: DataHeader,
}

/// The frames in the order in which they are sent.
#[derive(Debug, Default)]
pub struct Outbox {
    own: Vec<u8>,
    pieces: VecDeque<Piece>,
    length: u64,
    last: Option<Last>,
}

impl Outbox {
    /// The number of queued bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether the queue is empty.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number of queued pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Adds a frame other than DATA.
    pub fn push_frame(&mut self, frame: &Frame<'_>) {
        let mut bytes = [0; MOST_FIXED_FRAME];
        // All frames that this host sends here fit.
        if let Ok(length) = frame.encode(&mut bytes) {
            self.push_bytes(bytes.get(..length).unwrap_or_default());
        }
    }

    /// Adds whole frames.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.last = None;
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(bytes);
        self.grown(start);
    }

    /// Queues the new own bytes from `start` on.
    fn grown(&mut self, start: usize) {
        let end = self.own.len();
        self.length += (end - start) as u64;
        match self.pieces.back_mut() {
            Some(Piece::Own { end: last, .. }) if *last == start => *last = end,
            _ => self.pieces.push_back(Piece::Own { start, end }),
        }
    }

    /// Adds bytes of a socket: a DATA frame to `handle`, or more bytes of the last one. `most` is the largest payload.
    /// Without a `hold` the bytes are copied: the caller must have the socket's lock then.
    pub fn push_data(
        &mut self,
        connection: &Arc<Connection>,
        (handle, sequence): (Handle, u64),
        spans: Spans,
        hold: Option<Hold>,
        most: u32,
    ) {
        let [first, second] = spans;
        let length = first.length + second.length;
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        if !self.extend_last(handle, sequence, bytes, most) {
            let data = DataHeader {
                handle,
                sequence,
                length: bytes,
            };
            let header = self.own.len();
            let mut encoded = [0; HEADER];
            encode_data_header(&mut encoded, &data);
            self.extend(&encoded);
            self.last = Some(Last { header, data });
        }
        let Some(hold) = hold else {
            let start = self.own.len();
            self.own.resize(start + length, 0);
            let region = connection.link().region();
            let runs = spans.map(|span| region.run(span).unwrap_or(Run::empty()));
            let room = self.own.get_mut(start..).unwrap_or_default();
            transfer(&runs, &[Room::from(room)]);
            return self.grown(start);
        };
        self.length += length as u64;
        let connection = Arc::clone(connection);
        self.pieces.push_back(Piece::Ring {
            connection,
            spans,
            hold,
        });
    }

    fn extend_last(&mut self, handle: Handle, sequence: u64, bytes: u32, most: u32) -> bool {
        let Some(Last { header, data }) = &mut self.last else {
            return false;
        };
        let joined = data.length.saturating_add(bytes);
        let behind = data.sequence.wrapping_add(u64::from(data.length));
        if data.handle != handle || behind != sequence || joined > most {
            return false;
        }
        data.length = joined;
        let place = self.own.get_mut(*header..);
        if let Some(place) = place.and_then(<[u8]>::first_chunk_mut) {
            encode_data_header(place, data);
        }
        true
    }

    /// Writes until the queue is empty (true), or the channel takes no more. Sockets whose lanes waited for this are
    /// added to `freed`.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn flush(
        &mut self,
        channel: &mut dyn Channel,
        freed: &mut Vec<Arc<Connection>>,
        now: u64,
    ) -> io::Result<bool> {
        self.last = None;
        while self.length > 0 {
            let (written, offered) = self.write_once(channel)?;
            self.advance(written, freed, now);
            if written < offered {
                return Ok(false);
            }
        }
        self.own.clear();
        channel.flush()
    }

    fn write_once(&self, channel: &mut dyn Channel) -> io::Result<(usize, usize)> {
        let mut runs = [Run::empty(); MOST_RUNS];
        let (mut count, mut offered) = (0, 0);
        for piece in &self.pieces {
            if count + 2 > MOST_RUNS {
                break;
            }
            let new = match piece {
                Piece::Own { start, end } => {
                    let bytes = self.own.get(*start..*end).unwrap_or_default();
                    [Run::from(bytes), Run::empty()]
                }
                Piece::Ring {
                    connection, spans, ..
                } => {
                    let region = connection.link().region();
                    spans.map(|span| region.run(span).unwrap_or(Run::empty()))
                }
            };
            for run in new {
                if let (true, Some(place)) = (run.length() > 0, runs.get_mut(count)) {
                    offered += run.length();
                    *place = run;
                    count += 1;
                }
            }
        }
        let written = channel.enqueue(runs.get(..count).unwrap_or_default())?;
        Ok((written, offered))
    }

    fn advance(&mut self, mut written: usize, freed: &mut Vec<Arc<Connection>>, now: u64) {
        self.length = self.length.saturating_sub(written as u64);
        while let Some(front) = self.pieces.front_mut() {
            match front {
                Piece::Own { start, end } => {
                    let step = written.min(*end - *start);
                    *start += step;
                    written -= step;
                    if start < end {
                        return;
                    }
                }
                Piece::Ring { spans, .. } => {
                    for span in spans.iter_mut() {
                        let step = written.min(span.length);
                        span.offset += step;
                        span.length -= step;
                        written -= step;
                    }
                    if spans.iter().any(|span| span.length > 0) {
                        return;
                    }
                }
            }
            if let Some(Piece::Ring {
                connection, hold, ..
            }) = self.pieces.pop_front()
                && connection.release(hold, now)
            {
                freed.push(connection);
            }
        }
    }

    /// Drops all queued frames.
    pub fn discard(&mut self, freed: &mut Vec<Arc<Connection>>, now: u64) {
        for piece in self.pieces.drain(..) {
            if let Piece::Ring {
                connection, hold, ..
            } = piece
                && connection.release(hold, now)
            {
                freed.push(connection);
            }
        }
        self.own.clear();
        self.length = 0;
        self.last = None;
    }
}
