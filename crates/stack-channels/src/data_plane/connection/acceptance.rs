//! A connection of the peer whose acceptor was killed before it accepted it: with TCP it belongs to the listener still, and
//! another process accepts it. Its bytes go on to arrive in the ring of the former lane, until there is another lane.

use super::State;
use netchannel_abi::link::side_flags;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::returned::Returned;
use netchannel_service::timers::NEVER;
use std::sync::Arc;

/// A lane to another acceptor.
#[derive(Debug)]
pub struct Next {
    /// The lane. The connection was announced over it.
    pub lane: Lane,
    /// Its link.
    pub link: Arc<LinkEnd>,
    /// The worker's key of that link.
    pub key: Key,
}

/// Who accepts a connection of the peer.
#[derive(Debug)]
pub enum Acceptance {
    /// The program of its lane has accepted it, or will.
    Known,
    /// That program was killed before: another one is to be found. Noted at this time.
    Lost(u64),
    /// Another one is being found.
    Sought,
    /// There is another one. Bytes are on their way into the ring of the former lane still.
    Found(Box<Next>),
    /// There is none, or it was found before: how the program of the lane ends is how the connection ends.
    Settled,
}

/// The result of a move to another lane.
#[derive(Debug)]
pub struct Handover {
    /// The former lane. `None` where the connection has it still, and ends with it.
    pub former: Option<Lane>,
    /// The link of the other lane.
    pub link: Arc<LinkEnd>,
    /// The worker's key of that link.
    pub key: Key,
}

/// How long a link is waited for whose process ends. Its relatives may have it, too.
const LONGEST_END: u64 = 20_000_000;

impl Acceptance {
    /// Whether there is a lane to another acceptor.
    pub const fn is_found(&self) -> bool {
        matches!(self, Self::Found(_))
    }

    /// When another acceptor is sought in any case.
    pub const fn next_timeout(&self) -> u64 {
        match self {
            Self::Lost(since) => since.saturating_add(LONGEST_END),
            _ => NEVER,
        }
    }
}

impl State {
    /// Whether the acceptor was killed, and no other one is sought yet. The caller seeks one. A process that ends closes
    /// its anchors before its links, and would be chosen again: it is waited for.
    pub fn begins_to_seek(&mut self, has_ended: impl FnOnce() -> bool, now: u64) -> bool {
        let begins = match self.acceptance {
            Acceptance::Lost(since) => now.saturating_sub(since) >= LONGEST_END || has_ended(),
            _ => false,
        };
        if begins {
            self.acceptance = Acceptance::Sought;
        }
        begins
    }

    /// Moves the connection to the lane of another acceptor, if there is one, once no byte is on its way into the ring of
    /// the former lane.
    pub fn move_to_next(&mut self) -> Option<Handover> {
        if !self.acceptance.is_found() {
            return None;
        }
        let is_open = self.lane.is_some() && self.closing.is_none();
        let arrives = |lane: &Lane| lane.published() != self.socket.frontier();
        let arrives = self.socket.claims() > 0
            || self.socket.gaps() > 0
            || self.lane.as_ref().is_some_and(arrives);
        if is_open && arrives {
            return None;
        }
        let found = std::mem::replace(&mut self.acceptance, Acceptance::Settled);
        let Acceptance::Found(next) = found else {
            return None;
        };
        let Next {
            mut lane,
            link,
            key,
        } = *next;
        let former = self
            .lane
            .take_if(|former| is_open && hand_over(former, &mut lane).is_some());
        if former.is_some() {
            self.lane = Some(lane);
            self.timer = NEVER;
        } else {
            lane.close(true);
        }
        Some(Handover { former, link, key })
    }
}

/// Sends over the next lane all that was sent over the former one. The room that the peer was told of is there.
fn hand_over(former: &Lane, next: &mut Lane) -> Option<()> {
    let mut sent = former.sent_bytes(&Returned::default())?;
    if next.capacity() < former.capacity() {
        // A ring is left for a larger one once it holds something.
        next.send_some_again(&mut sent, 1).ok()?;
        next.grow_to(former.capacity().ilog2()).ok()?;
    }
    let all = next.send_again(&mut sent).ok()?;
    if former.own_flags() & side_flags::FIN != 0 {
        next.set_flags(side_flags::FIN);
    }
    (all && next.capacity() >= former.capacity()).then_some(())
}
