//! A program's lane, as the tunnel has it.

use crate::counters::Counters;
use netchannel_abi::link::side_flags;
use netchannel_guest::{Sink, Taken};
use netchannel_service::lane::Lane;
use netchannel_service::urgent::Row;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run};
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes for which room is wanted in the program's ring.
const ROOM: u64 = 64 << 10;

/// A lane.
#[derive(Debug)]
pub struct LaneSink {
    /// The program's end.
    pub lane: Lane,
    counters: Arc<Counters>,
}

impl LaneSink {
    /// The sink of a lane.
    pub const fn new(lane: Lane, counters: Arc<Counters>) -> Self {
        Self { lane, counters }
    }

    fn try_take(&mut self, room: &[Room<'_>]) -> Result<Taken, Errno> {
        let lane = &mut self.lane;
        // Before the bytes: a program that has said FIN, or is gone, writes no more.
        let flags = lane.peer_flags();
        let gone = lane.has_hung_up() && flags & side_flags::CLOSED == 0;
        let waits = lane.frontier().map_err(fault)? - lane.consumed();
        let most: usize = room.iter().map(Room::length).sum();
        if waits > 0 && most > 0 {
            let spans = lane.readable(lane.consumed(), waits.min(most as u64));
            let count = transfer(&lane.runs(spans.map_err(fault)?), room);
            lane.consume(lane.consumed() + count as u64)
                .map_err(fault)?;
            Counters::add(&self.counters.bytes_out, count as u64);
            return Ok(Taken::Bytes(count));
        }
        if flags & side_flags::RESET != 0 || gone && lane.ended_by_reset() {
            return Err(Errno::CONNRESET);
        }
        Ok(match waits {
            0 if flags & side_flags::CLOSED != 0 || gone => Taken::Closed,
            0 if flags & side_flags::FIN != 0 => Taken::End,
            _ => Taken::Nothing,
        })
    }

    fn try_put(&mut self, bytes: &[Run<'_>]) -> Result<usize, Errno> {
        let lane = &mut self.lane;
        let all: usize = bytes.iter().map(Run::length).sum();
        let all = all as u64;
        let mut free = lane.limit().map_err(fault)? - lane.published();
        if free < all && lane.grow(ROOM.max(all)).map_err(fault)? {
            free = lane.limit().map_err(fault)? - lane.published();
        }
        if free < all {
            // What becomes free from now on is told.
            lane.request_space_news();
            free = lane.limit().map_err(fault)? - lane.published();
        }
        let at = lane.published();
        let spans = lane.room(at, free.min(all)).map_err(fault)?;
        let count = transfer(bytes, &lane.rooms(spans));
        if count > 0 {
            lane.publish_with_mark(at + count as u64, Row::default())
                .map_err(fault)?;
            Counters::add(&self.counters.bytes_in, count as u64);
        }
        Ok(count)
    }
}

impl Sink for LaneSink {
    fn take(&mut self, room: &[Room<'_>]) -> Taken {
        let taken = self.try_take(room);
        taken.unwrap_or_else(|errno| Taken::Failed(number(errno)))
    }

    fn put(&mut self, bytes: &[Run<'_>]) -> Result<usize, u32> {
        self.try_put(bytes).map_err(number)
    }

    fn end(&mut self) {
        self.lane.set_flags(side_flags::FIN);
    }

    fn accepted(&mut self) {
        self.lane
            .set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
    }

    fn close(self, error: Option<u32>, made: bool) {
        match error {
            Some(errno) if !made => self.lane.refuse(errno),
            Some(errno) => {
                if errno == number(Errno::TIMEDOUT) {
                    self.lane.set_reset_error(errno);
                }
                self.lane.close(true);
            }
            None => self.lane.close(!made),
        }
    }
}

/// A program that breaks the rules of its lane loses its connection.
fn fault<F>(_: F) -> Errno {
    Errno::CONNRESET
}

/// As in frames.
pub fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}
