//! Two lanes that form one connection: bytes go from each program's ring into the daemon's ring towards the other
//! program, with the ends and resets that belong to them. For stack modules that lead a connection from lane to lane.

use crate::lane::Lane;
use crate::returned::Returned;
use crate::spans::{Checked, length};
use netchannel_abi::link::side_flags;
use netchannel_shm::run::transfer;
use rustix::io::Errno;
use std::time::Duration;

/// The largest run that is copied before it is published, so that the program can begin early.
const STRIDE: u64 = 64 * 1024;
/// Bytes of one direction that are moved before others have their turn.
const BUDGET: u64 = 512 * 1024;

/// Two lanes whose programs are connected.
#[derive(Debug)]
pub struct Pair {
    lanes: [Lane; 2],
    /// Whether each lane's program was notified of the end of the other's stream.
    end_notified: [bool; 2],
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The pair waits for news, at most so long where a program holds bytes back.
    Waits(Option<Duration>),
    /// The budget, or a limit, is used up.
    Busy,
    /// The connection has ended: the pair must be closed.
    Over(Ending),
}

/// What one direction has moved in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// So many bytes.
    pub bytes: u64,
    /// The budget or the limit was used up, and there are more.
    pub more: bool,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The lane whose program ended it.
    by: usize,
    /// The other program sees a reset.
    reset: bool,
    /// Bytes that the ending program sent met a reset, because nobody reads them. Both programs see a reset.
    unwanted: bool,
    /// One of the programs wrote invalid words.
    fault: bool,
}

enum Progress {
    Everything,
    Blocked,
    Busy,
}

impl Pair {
    /// A new connection.
    #[must_use]
    pub const fn new(incoming: Lane, outgoing: Lane) -> Self {
        Self {
            lanes: [incoming, outgoing],
            end_notified: [false; 2],
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

    /// What the listening program was sent, where it was killed before it accepted the connection: another one can
    /// accept it.
    #[must_use]
    pub fn left_unaccepted(&self) -> Option<Returned> {
        let [incoming, outgoing] = &self.lanes;
        if !outgoing.is_left_unaccepted() {
            return None;
        }
        outgoing.sent_bytes(incoming.returned())
    }

    /// Splits the pair into the incoming and the outgoing lane.
    #[must_use]
    pub fn split(self) -> (Lane, Lane) {
        let [incoming, outgoing] = self.lanes;
        (incoming, outgoing)
    }

    /// Moves the available bytes in both directions.
    pub fn turn(&mut self) -> Turn {
        self.turn_within([u64::MAX; 2]).0
    }

    /// As [`Self::turn`], with at most so many bytes from the incoming lane, and from the outgoing one. Says what either has moved.
    pub fn turn_within(&mut self, limits: [u64; 2]) -> (Turn, [Moved; 2]) {
        let mut moved = [Moved::default(); 2];
        let [first, second] = &mut moved;
        let turn = self.advance_both(limits, [first, second]);
        (turn, moved)
    }

    fn advance_both(&mut self, limits: [u64; 2], moved: [&mut Moved; 2]) -> Turn {
        let [incoming, outgoing] = &mut self.lanes;
        let [incoming_notified, outgoing_notified] = &mut self.end_notified;
        let [forth_limit, back_limit] = limits;
        let [forth_moved, back_moved] = moved;
        // Before the bytes: a hold that expires behind the look for them is then over afterwards, and is seen to be.
        let held = [incoming.hold_time_left(), outgoing.hold_time_left()];
        let forth = advance(
            (incoming, 0),
            outgoing,
            outgoing_notified,
            (forth_limit, forth_moved),
        );
        let back = advance(
            (outgoing, 1),
            incoming,
            incoming_notified,
            (back_limit, back_moved),
        );
        match (forth, back) {
            (over @ Turn::Over(_), _) | (_, over @ Turn::Over(_)) => return over,
            (Turn::Busy, _) | (_, Turn::Busy) => return Turn::Busy,
            (Turn::Waits(_), Turn::Waits(_)) => {}
        }
        let mut shortest: Option<Duration> = None;
        for (lane, _) in self
            .lanes
            .iter()
            .zip(held)
            .filter(|(_, held)| held.is_some())
        {
            let Some(left) = lane.hold_time_left() else {
                // Its time is over meanwhile, or bytes of the other direction have released it.
                return Turn::Busy;
            };
            shortest = Some(shortest.map_or(left, |other| left.min(other)));
        }
        Turn::Waits(shortest)
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
            // TCP looks for an urgent byte even in data that it refuses.
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
    /// Whether a program wrote invalid words.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        self.fault
    }
}

/// Moves bytes `from` one lane `to` the other, with the end of the stream. `end_notified` says whether the other program was
/// notified of the end. `by` is the number of the lane `from`.
fn advance(
    (from, by): (&mut Lane, usize),
    to: &mut Lane,
    end_notified: &mut bool,
    (limit, moved): (u64, &mut Moved),
) -> Turn {
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
    // The flags are loaded before the bytes: a program that has set FIN or has ended writes no more.
    let flags = from.peer_flags();
    let gone = from.has_hung_up() && flags & side_flags::CLOSED == 0;
    // Nobody reads bytes that are sent to a closed socket.
    let there = to.peer_flags();
    let void = there & side_flags::CLOSED != 0 || to.has_hung_up();
    if !void && there & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT {
        match from.frontier() {
            Ok(sent) if sent == from.consumed() && from.returned().rest().is_empty() => {}
            // Bytes that find no room wait, as with TCP.
            Ok(_) => match to.room_for(1) {
                Ok(room) if length(&room) == 0 => {}
                Ok(_) => return unwanted(by),
                Err(_) => return fault,
            },
            Err(_) => return fault,
        }
    }
    // As with TCP, unread bytes turn the end of a program that has died into a reset.
    note_missed(to, from);
    note_missed(from, to);
    let progress = if void && there & side_flags::RESET != 0 {
        // The other direction ends the connection. Room, told before the reset, would be used once more.
        Ok(Progress::Everything)
    } else if void {
        discard(from).map(|()| Progress::Everything)
    } else {
        move_bytes(from, to, limit, moved)
    };
    let Ok(progress) = progress else {
        return fault;
    };
    match progress {
        Progress::Busy => return Turn::Busy,
        _ if flags & side_flags::RESET != 0 => return over(true),
        Progress::Blocked => return Turn::Waits(None),
        Progress::Everything => {}
    }
    // This does not apply where the program had ended its stream before it closes.
    let is_rejected =
        (gone || flags & side_flags::CLOSED != 0) && !*end_notified && to.hang_up_releases_bytes();
    if gone {
        let reset = from.ended_by_reset();
        return if !reset && is_rejected {
            unwanted(1 - by)
        } else {
            over(reset)
        };
    }
    if flags & side_flags::CLOSED != 0 {
        return if is_rejected {
            unwanted(1 - by)
        } else {
            over(false)
        };
    }
    if flags & side_flags::FIN != 0 && !std::mem::replace(end_notified, true) {
        to.set_flags(side_flags::FIN);
    }
    Turn::Waits(None)
}

/// Where the program behind `to` has died: whether bytes are on their way to it.
fn note_missed(from: &Lane, to: &mut Lane) {
    let unread = || {
        if !from.returned().rest().is_empty() {
            return true;
        }
        let one = from.readable(from.consumed(), 1);
        one.is_ok_and(|one| length(&one) > 0)
    };
    if to.has_hung_up() && unread() {
        to.note_missed_bytes();
    }
}

fn discard(from: &mut Lane) -> Checked<()> {
    from.give_back(Returned::default());
    let to = from.frontier()?;
    if to == from.consumed() {
        return Ok(());
    }
    from.consume(to)
}

fn move_bytes(from: &mut Lane, to: &mut Lane, limit: u64, count: &mut Moved) -> Checked<Progress> {
    if !to.send_again(from.returned_mut())? {
        return Ok(Progress::Blocked);
    }
    let mut left = BUDGET.min(limit);
    loop {
        let at = from.consumed();
        // One is enough to see whether there are more.
        let bytes = from.readable(at, STRIDE.min(left).max(1))?;
        let wanted = length(&bytes);
        if wanted == 0 {
            return Ok(Progress::Everything);
        }
        if left == 0 {
            count.more = true;
            return Ok(Progress::Busy);
        }
        let room = to.room_or_news(wanted)?;
        if length(&room) == 0 {
            to.announce_mark(from.urgent());
            return Ok(Progress::Blocked);
        }
        let moved = transfer(&from.runs(bytes), &to.rooms(room));
        let moved = u64::try_from(moved).unwrap_or(0);
        // In this order, so that a program that has read all bytes finds room to send more.
        from.consume(at.wrapping_add(moved))?;
        let urgent = from.urgent();
        let tail = to.published().wrapping_add(moved);
        to.publish_with_mark(tail, urgent)?;
        count.bytes += moved;
        left = left.saturating_sub(moved);
    }
}
