//! A connection that a stack module leads from lane to lane: how far it has come on its way to its listener. Its module fulfils
//! [`Router`](crate::routing::Router) with it.

use crate::lane::Lane;
use crate::pair::Pair;
use crate::routing::{Destination, Refused};
use netchannel_abi::link::side_flags;
use rustix::io::Errno;

/// The state of a connection.
#[derive(Debug)]
pub enum Relayed {
    /// Waits for a link to the listener.
    Pending(Lane, Destination),
    /// CoreEngine offers it to the process that accepts.
    Offered(Pair, Destination),
    /// Announced to another stack module, which has not said yet whether it is connected.
    Asked(Pair),
    /// Connected.
    Open(Pair),
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

    /// Whether it was announced to its listener and is not accepted yet.
    #[must_use]
    pub fn is_unaccepted(&self) -> bool {
        match self {
            Self::Offered(..) => true,
            Self::Open(pair) => pair.outgoing().waits_for_accept(),
            Self::Pending(..) | Self::Asked(_) | Self::Changing => false,
        }
    }

    /// It was announced to its listener over this lane: the connecting program may go on.
    pub fn establish(&mut self, outgoing: Lane) {
        match std::mem::replace(self, Self::Changing) {
            Self::Pending(incoming, _) => {
                tell_established(&incoming);
                *self = Self::Open(Pair::new(incoming, outgoing));
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
            Self::Pending(incoming, _) => *self = Self::Asked(Pair::new(incoming, outgoing)),
            other => *self = other,
        }
    }

    /// The answer of the other stack module, if it has come. `false` where it refuses: both lanes are there still.
    pub fn answer(&mut self) -> Option<bool> {
        let Self::Asked(pair) = self else {
            return None;
        };
        let flags = pair.outgoing().peer_flags();
        let has_ended = flags & (side_flags::RESET | side_flags::CLOSED) != 0;
        if flags & side_flags::ESTABLISHED != 0 {
            if let Self::Asked(pair) = std::mem::replace(self, Self::Changing) {
                *self = Self::Open(pair);
            }
            return Some(true);
        }
        (has_ended || pair.outgoing().has_hung_up()).then_some(false)
    }

    /// The lane of the connecting program, where the way that was tried leads nowhere: that lane is ended.
    pub fn turn_back(self) -> Option<Lane> {
        match self {
            Self::Pending(incoming, _) => Some(incoming),
            Self::Asked(pair) => {
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
            Self::Offered(pair, _) => {
                tell_established(pair.incoming());
                *self = Self::Open(pair);
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

    /// A token came on the anchor of one of its lanes, 0 for the incoming one, or its `end`.
    pub fn on_token(&mut self, which: usize, end: bool) {
        match self {
            Self::Pending(lane, _) => lane.on_token(end),
            Self::Open(pair) | Self::Asked(pair) | Self::Offered(pair, _) => {
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
            Self::Asked(pair) => pair.incoming(),
            _ => return false,
        };
        lane.peer_flags() & (side_flags::CLOSED | side_flags::RESET) != 0 || lane.has_hung_up()
    }

    /// Refuses one that waits.
    pub fn refuse(self, why: Refused) {
        let errno = match why {
            Refused::NoListener | Refused::WrongAddress => Errno::CONNREFUSED,
            Refused::BacklogFull => Errno::TIMEDOUT,
            Refused::Shortage(errno) => errno,
        };
        if let Self::Pending(lane, _) = self {
            lane.refuse(errno.raw_os_error().unsigned_abs());
        }
    }

    /// Resets it for both programs.
    pub fn reset(self) {
        match self {
            Self::Pending(lane, _) => lane.close(true),
            Self::Offered(pair, _) | Self::Asked(pair) | Self::Open(pair) => {
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
