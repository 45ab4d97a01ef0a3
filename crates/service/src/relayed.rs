//! A connection that a stack module leads from lane to lane: how far it has come on its way to its listener. Its module fulfils
//! [`Router`](crate::routing::Router) with it.

use crate::lane::Lane;
use crate::pair::Pair;
use crate::routing::{Destination, Refused};
use netchannel_abi::link::side_flags;
use rustix::io::Errno;
use std::time::Instant;

/// The state of a connection.
#[derive(Debug)]
pub enum Relayed {
    /// Waits for a link to the listener.
    Pending(Lane, Destination),
    /// CoreEngine offers it to the process that accepts.
    Offered(Pair, Destination),
    /// Announced to another stack module, which has not said yet whether it is connected.
    Asked(Pair, Destination),
    /// Connected. The destination is for a program that accepts it after another one was killed.
    Open(Pair, Destination),
    /// Placeholder during a change of the state.
    Changing,
}

impl Relayed {
    /// Where it goes, as long as it waits.
    #[must_use]
    pub const fn destination(&self) -> Option<Destination> {
        match self {
            Self::Pending(_, wanted) => Some(*wanted),
            _ => None,
        }
    }

    /// Another listener is at its destination.
    pub const fn redirect(&mut self, listener: u32) {
        if let Self::Pending(_, wanted) = self {
            wanted.listener = listener;
        }
    }

    /// Whether it waits [anew](Self::wait_anew): it belongs to its listener, and to none that comes after it.
    #[must_use]
    pub fn was_open(&self) -> bool {
        matches!(self, Self::Pending(lane, _) if lane.is_established())
    }

    /// Whether it was announced to its listener and is not accepted yet.
    #[must_use]
    pub fn is_unaccepted(&self) -> bool {
        match self {
            Self::Offered(..) => true,
            Self::Open(pair, _) => pair.outgoing().waits_for_accept(),
            Self::Pending(..) | Self::Asked(..) | Self::Changing => false,
        }
    }

    /// It was announced to its listener over this lane: the connecting program may go on.
    pub fn establish(&mut self, outgoing: Lane) {
        match std::mem::replace(self, Self::Changing) {
            Self::Pending(incoming, wanted) => {
                tell_established(&incoming);
                *self = Self::Open(Pair::new(incoming, outgoing), wanted);
            }
            other => *self = other,
        }
    }

    /// CoreEngine was asked to offer it.
    pub fn offer(&mut self, outgoing: Lane) {
        match std::mem::replace(self, Self::Changing) {
            Self::Pending(incoming, wanted) => {
                *self = Self::Offered(Pair::new(incoming, outgoing), wanted);
            }
            other => *self = other,
        }
    }

    /// It was announced to another stack module over this lane: the connecting program waits for the answer.
    pub fn ask(&mut self, outgoing: Lane) {
        match std::mem::replace(self, Self::Changing) {
            Self::Pending(incoming, wanted) => {
                *self = Self::Asked(Pair::new(incoming, outgoing), wanted);
            }
            other => *self = other,
        }
    }

    /// The answer of the other stack module, if it has come. `false` where it refuses: both lanes are there still.
    pub fn answer(&mut self) -> Option<bool> {
        let Self::Asked(pair, _) = self else {
            return None;
        };
        let flags = pair.outgoing().peer_flags();
        let has_ended = flags & (side_flags::RESET | side_flags::CLOSED) != 0;
        if flags & side_flags::ESTABLISHED != 0 {
            if let Self::Asked(pair, wanted) = std::mem::replace(self, Self::Changing) {
                *self = Self::Open(pair, wanted);
            }
            return Some(true);
        }
        (has_ended || pair.outgoing().has_hung_up()).then_some(false)
    }

    /// The lane of the connecting program, where the way that was tried leads nowhere: that lane is ended.
    pub fn turn_back(self) -> Option<Lane> {
        match self {
            Self::Pending(incoming, _) => Some(incoming),
            Self::Asked(pair, _) => {
                let (incoming, outgoing) = pair.split();
                outgoing.close(true);
                Some(incoming)
            }
            _ => None,
        }
    }

    /// CoreEngine has offered it. False where it has ended or was never to be offered.
    pub fn taken(&mut self) -> bool {
        match std::mem::replace(self, Self::Changing) {
            Self::Offered(pair, wanted) => {
                tell_established(pair.incoming());
                *self = Self::Open(pair, wanted);
                true
            }
            other => {
                *self = other;
                false
            }
        }
    }

    /// CoreEngine could not offer it: it waits again. Returns its lane towards the listener.
    pub fn take_back(&mut self) -> Option<Lane> {
        match std::mem::replace(self, Self::Changing) {
            Self::Offered(pair, wanted) => {
                let (incoming, outgoing) = pair.split();
                *self = Self::Pending(incoming, wanted);
                Some(outgoing)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Where the program to which it was announced was killed before it accepted the connection: it waits for its
    /// listener again, with all that it had sent. Returns its lane towards that program.
    #[inline]
    pub fn wait_anew(&mut self) -> Option<Lane> {
        let Self::Open(pair, _) = self else {
            return None;
        };
        let sent = pair.left_unaccepted()?;
        let Self::Open(pair, wanted) = std::mem::replace(self, Self::Changing) else {
            return None;
        };
        let (mut incoming, outgoing) = pair.split();
        incoming.give_back(sent);
        let since = Instant::now();
        *self = Self::Pending(incoming, Destination { since, ..wanted });
        Some(outgoing)
    }

    /// A token came on the anchor of one of its lanes, 0 for the incoming one, or its `end`.
    pub fn on_token(&mut self, which: usize, end: bool) {
        match self {
            Self::Pending(lane, _) => lane.on_token(end),
            Self::Open(pair, _) | Self::Asked(pair, _) | Self::Offered(pair, _) => {
                pair.lane_mut(which).on_token(end);
            }
            Self::Changing => {}
        }
    }

    /// Whether the connecting program has left while it waits.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        let lane = match self {
            Self::Pending(lane, _) => lane,
            Self::Asked(pair, _) => pair.incoming(),
            _ => return false,
        };
        if lane.is_established() {
            // What it has sent is for the next who accepts, also where it has closed the connection.
            return lane.peer_flags() & side_flags::RESET != 0;
        }
        lane.peer_flags() & (side_flags::CLOSED | side_flags::RESET) != 0 || lane.has_hung_up()
    }

    /// Refuses one that waits.
    pub fn refuse(self, why: Refused) {
        let errno = match why {
            Refused::NoListener | Refused::WrongAddress => Errno::CONNREFUSED,
            Refused::BacklogFull => Errno::TIMEDOUT,
            Refused::Shortage(errno) => errno,
        };
        match self {
            // TCP resets what a listener that is closed had not accepted.
            Self::Pending(lane, _) if lane.is_established() => lane.close(true),
            Self::Pending(lane, _) => lane.refuse(errno.raw_os_error().unsigned_abs()),
            _ => {}
        }
    }

    /// Resets it for both programs.
    pub fn reset(self) {
        match self {
            Self::Pending(lane, _) => lane.close(true),
            Self::Offered(pair, _) | Self::Asked(pair, _) | Self::Open(pair, _) => {
                let (incoming, outgoing) = pair.split();
                outgoing.close(true);
                incoming.close(true);
            }
            Self::Changing => {}
        }
    }
}

fn tell_established(incoming: &Lane) {
    incoming.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
}
