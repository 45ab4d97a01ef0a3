//! Two lanes that are one connection: bytes from each program's ring into the daemon's ring towards
//! the other, with the ends and resets that go along.

use netchannel_abi::link::{SMALL_RING, side_flags};
use netchannel_service::lane::Lane;
use netchannel_service::spans::{Checked, Spans};
use netchannel_shm::run::transfer;
use rustix::io::Errno;
use std::time::Duration;

/// The largest run that is copied before it is published, so that the program can begin.
const STRIDE: u64 = 64 * 1024;
/// Bytes of one direction moved before others have their turn.
const BUDGET: u64 = 512 * 1024;

/// Two lanes whose programs talk to each other.
#[derive(Debug)]
pub struct Pair {
    lanes: [Lane; 2],
    /// Which lane's program was told that the other's stream has ended.
    told: [bool; 2],
}

/// How a turn of a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more can be done until there are news.
    Waits,
    /// Its budget is used up.
    Busy,
    /// The connection is over: the pair is to be closed.
    Over(Ending),
}

/// What ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Which lane's program ended it.
    by: usize,
    /// The other one sees a reset.
    reset: bool,
    /// What it sent met a reset: nobody was to read it. Both see one.
    unwanted: bool,
    /// The words of one of the programs were wrong.
    fault: bool,
}

enum Moved {
    Everything,
    Blocked,
    Busy,
}

impl Pair {
    /// A connection that begins.
    #[must_use]
    pub const fn new(incoming: Lane, outgoing: Lane) -> Self {
        Self {
            lanes: [incoming, outgoing],
            told: [false; 2],
        }
    }

    /// One of the lanes: 0 is the incoming one.
    pub const fn lane_mut(&mut self, which: usize) -> &mut Lane {
        let [incoming, outgoing] = &mut self.lanes;
        if which == 0 { incoming } else { outgoing }
    }

    /// The lane of the program that connected.
    #[must_use]
    pub const fn incoming(&self) -> &Lane {
        let [incoming, _] = &self.lanes;
        incoming
    }

    /// The lane of the program that listens.
    #[must_use]
    pub const fn outgoing(&self) -> &Lane {
        let [_, outgoing] = &self.lanes;
        outgoing
    }

    /// The incoming and the outgoing lane, which have nothing to do with each other any more.
    #[must_use]
    pub fn split(self) -> (Lane, Lane) {
        let [incoming, outgoing] = self.lanes;
        (incoming, outgoing)
    }

    /// Moves what can be moved.
    pub fn turn(&mut self) -> Turn {
        let [incoming, outgoing] = &mut self.lanes;
        let [to_incoming, to_outgoing] = &mut self.told;
        let forth = advance(incoming, outgoing, to_outgoing, 0);
        let held = incoming.hold_time_left().is_some();
        let back = advance(outgoing, incoming, to_incoming, 1);
        // What came back may have let go what the other way was held back.
        let let_go = held && incoming.hold_time_left().is_none();
        match (forth, back) {
            (over @ Turn::Over(_), _) | (_, over @ Turn::Over(_)) => over,
            (Turn::Busy, _) | (_, Turn::Busy) => Turn::Busy,
            _ if let_go => Turn::Busy,
            _ => Turn::Waits,
        }
    }

    /// For how long bytes may be held back by either program that were written; `None` where none are.
    #[must_use]
    pub fn hold_time_left(&self) -> Option<Duration> {
        self.lanes.iter().filter_map(Lane::hold_time_left).min()
    }

    /// Ends both lanes.
    pub fn close(self, ending: Ending) {
        let [mut incoming, mut outgoing] = self.lanes;
        let (by, other) = match ending.by {
            0 => (&incoming, &mut outgoing),
            _ => (&outgoing, &mut incoming),
        };
        let broken = Errno::PIPE.raw_os_error().unsigned_abs();
        if ending.unwanted {
            // TCP looks for an urgent byte in what it refuses.
            other.announce_mark(by.urgent());
            by.set_reset_error(broken);
        } else if ending.reset && by.resets_behind_its_end() {
            other.set_reset_error(broken);
        }
        let resets = |lane| ending.fault || ending.unwanted || ending.reset && lane != ending.by;
        outgoing.close(resets(1));
        incoming.close(resets(0));
    }
}

impl Ending {
    /// Whether the words of a program were wrong.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        self.fault
    }
}

/// Moves bytes `from` one lane `to` the other, and what ends them. `told` says whether the other
/// program knows of the end; `by` is the number of the lane `from`.
fn advance(from: &mut Lane, to: &mut Lane, told: &mut bool, by: usize) -> Turn {
    let ending = Ending {
        by,
        reset: true,
        unwanted: false,
        fault: false,
    };
    let fault = Turn::Over(Ending {
        fault: true,
        ..ending
    });
    let over = |reset| Turn::Over(Ending { reset, ..ending });
    let unwanted = |by| {
        Turn::Over(Ending {
            by,
            unwanted: true,
            ..ending
        })
    };
    // Before the bytes: whoever has said FIN or is gone writes no more.
    let flags = from.peer_flags();
    let gone = from.has_hung_up() && flags & side_flags::CLOSED == 0;
    // Nobody reads what is sent to a closed socket.
    let there = to.peer_flags();
    let void = there & side_flags::CLOSED != 0 || to.has_hung_up();
    if !void && there & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT {
        match from.frontier() {
            Ok(sent) if sent == from.consumed() => {}
            // What finds no room waits, as with TCP.
            Ok(_) => match room_for(to, 1) {
                Ok(room) if length(&room) == 0 => {}
                Ok(_) => return unwanted(by),
                Err(_) => return fault,
            },
            Err(_) => return fault,
        }
    }
    let moved = if void {
        discard(from).map(|()| Moved::Everything)
    } else {
        move_bytes(from, to)
    };
    let Ok(moved) = moved else {
        return fault;
    };
    match moved {
        Moved::Busy => return Turn::Busy,
        _ if flags & side_flags::RESET != 0 => return over(true),
        Moved::Blocked => return Turn::Waits,
        Moved::Everything => {}
    }
    // Of who had ended before nothing is heard when it closes.
    let lets_go =
        (gone || flags & side_flags::CLOSED != 0) && !*told && to.hang_up_releases_bytes();
    if gone {
        // What it never read makes a reset of it, as TCP would.
        let unread = to
            .readable(to.consumed(), 1)
            .is_ok_and(|one| length(&one) > 0);
        let reset = from.ended_by_reset() || unread;
        return if !reset && lets_go {
            unwanted(1 - by)
        } else {
            over(reset)
        };
    }
    if flags & side_flags::CLOSED != 0 {
        return if lets_go {
            unwanted(1 - by)
        } else {
            over(false)
        };
    }
    if flags & side_flags::FIN != 0 && !std::mem::replace(told, true) {
        to.set_flags(side_flags::FIN);
    }
    Turn::Waits
}

fn discard(from: &mut Lane) -> Checked<()> {
    let to = from.frontier()?;
    if to == from.consumed() {
        return Ok(());
    }
    from.consume(to)
}

fn move_bytes(from: &mut Lane, to: &mut Lane) -> Checked<Moved> {
    let mut left = BUDGET;
    loop {
        let at = from.consumed();
        let bytes = from.readable(at, STRIDE)?;
        let wanted = length(&bytes);
        if wanted == 0 {
            return Ok(Moved::Everything);
        }
        if left == 0 {
            return Ok(Moved::Busy);
        }
        let mut room = room_for(to, wanted)?;
        if length(&room) == 0 {
            to.request_space_news();
            room = room_for(to, wanted)?;
        }
        if length(&room) == 0 {
            to.announce_mark(from.urgent());
            return Ok(Moved::Blocked);
        }
        let moved = transfer(&from.runs(bytes), &to.rooms(room));
        let moved = u64::try_from(moved).unwrap_or(0);
        // In this order: whoever has read all that was sent finds room to send more.
        from.consume(at.wrapping_add(moved))?;
        let urgent = from.urgent();
        let tail = to.published().wrapping_add(moved);
        to.publish_with_mark(tail, urgent)?;
        left = left.saturating_sub(moved);
    }
}

/// Where to put up to `wanted` bytes behind what is published; the ring grows where it is too small.
fn room_for(to: &mut Lane, wanted: u64) -> Checked<Spans> {
    const SMALL: u64 = SMALL_RING as u64;
    let mut free = to.limit()? - to.published();
    if free < wanted && free <= SMALL && to.grow(wanted)? {
        free = to.limit()? - to.published();
    }
    to.room(to.published(), wanted.min(free))
}

fn length(spans: &Spans) -> u64 {
    let [first, second] = spans;
    u64::try_from(first.length + second.length).unwrap_or(0)
}
