//! A channel as its worker holds it: what has come of it, and what is to go.

use super::connection::{Connection, Peer};
use super::incoming::Incoming;
use super::loss::Lost;
use super::outbox::Outbox;
use super::route::Route;
use super::traffic::Traffic;
use netchannel_driver::{Channel, Dequeued, Room, Status};
use netchannel_scheduler::channel::THRESHOLD;
use netchannel_service::timers::NEVER;
use netchannel_wire::{Frame, GoAwayReason, Parser};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the buffer: small segments that one read brings.
const BUFFER: usize = 256 << 10;
/// While large segments come, so much is read past the end of one: the next header, and little that has to be copied.
const BEYOND: usize = 4 << 10;
/// A segment of this size is large.
pub const LARGE: usize = 32 << 10;
/// Bytes that wait for a peer that does not read; beyond that nothing of it is read either.
const MOST_UNSENT: u64 = 4 << 20;
/// Frames are gathered for this long at most, in nanoseconds: a call that writes costs as much.
const GATHERING: u64 = 10_000;
/// So many bytes are worth a call of their own.
const GATHERED: u64 = 16 << 10;
/// So long after something was sent, in nanoseconds, the transport is asked whether it was acknowledged: as a rule it repeats it then.
const FIRST_CHECK: u64 = 250_000_000;
/// And so often it is asked again.
const CHECKS: u64 = 50_000_000;
/// Whoever repeats himself for so long has done so twice.
const STALLED: u64 = 350_000_000;
/// Room that a read needs at least behind what is unread.
const LEAST_ROOM: usize = Parser::LEAST_BUFFER;

/// Which of the two last words of a channel were said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// This host has said GOAWAY.
    pub said: bool,
    /// The peer has.
    pub heard: bool,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that went straight to their place.
    pub direct: usize,
    /// Bytes in all.
    pub bytes: usize,
}

/// When the transport is asked.
struct Check {
    wanted: bool,
    at: u64,
    /// Since when it repeats itself, as far as was seen.
    since: u64,
}

impl Check {
    const fn new(wanted: bool) -> Self {
        Self {
            wanted,
            at: NEVER,
            since: NEVER,
        }
    }

    /// Something is on its way.
    const fn begin(&mut self, now: u64) {
        if self.wanted && self.at == NEVER {
            self.at = now.saturating_add(FIRST_CHECK);
        }
    }

    const fn is_due(&self, now: u64) -> bool {
        now >= self.at && self.at != NEVER
    }

    /// It was asked. True if it repeats itself for too long.
    const fn go_on(&mut self, status: &Status, now: u64) -> bool {
        self.at = if status.unacknowledged > 0 {
            now.saturating_add(CHECKS)
        } else {
            NEVER
        };
        if !status.repeats {
            self.since = NEVER;
        } else if self.since == NEVER {
            self.since = now;
        }
        now.saturating_sub(self.since) >= STALLED
    }
}

/// One channel.
pub struct Line {
    /// Where it leads.
    pub peer: Arc<Peer>,
    /// As others see it.
    pub route: Arc<Route>,
    channel: Box<dyn Channel>,
    /// Its frames.
    pub parser: Parser,
    /// Unread bytes, from `start` to `end`.
    pub buffer: Box<[u8]>,
    /// First unread byte.
    pub start: usize,
    /// Behind the last unread byte.
    pub end: usize,
    /// The buffer was filled and not looked at.
    pub fresh: bool,
    /// The segment that is incomplete.
    pub incoming: Option<Incoming>,
    /// The last segment was large.
    pub large: bool,
    /// What is to go.
    pub outbox: Outbox,
    /// There is more to read, as far as is known.
    pub readable: bool,
    /// The transport takes nothing now.
    pub blocked: bool,
    /// The end.
    pub leaving: Leaving,
    /// When a frame came last.
    pub heard: u64,
    /// When something was sent last.
    pub said: u64,
    /// When the transport is asked whether anything is acknowledged; never, where the peer can not be had elsewhere.
    check: Check,
    /// Sockets with something to say when the channel takes it.
    pub parked: Vec<Arc<Connection>>,
    /// What a look brought, to be handled.
    seen: Option<Result<Filled, Lost>>,
}

impl Line {
    /// A channel whose handshake is complete. `rest` are bytes that came behind it.
    pub fn new(
        peer: Arc<Peer>,
        route: Arc<Route>,
        channel: Box<dyn Channel>,
        rest: &[u8],
        now: u64,
    ) -> Self {
        let peer_has_others = peer.rules().has_others;
        let mut parser = Parser::new(peer.terms().own_payload);
        parser.open();
        let mut buffer = vec![0; BUFFER.max(rest.len() + LEAST_ROOM)].into_boxed_slice();
        if let Some(place) = buffer.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        Self {
            peer,
            route,
            channel,
            parser,
            buffer,
            start: 0,
            end: rest.len(),
            fresh: !rest.is_empty(),
            incoming: None,
            large: false,
            outbox: Outbox::default(),
            readable: true,
            blocked: false,
            leaving: Leaving::default(),
            heard: now,
            said: now,
            check: Check::new(peer_has_others),
            parked: Vec::new(),
            seen: None,
        }
    }

    /// Reads, if nothing was read that is not handled yet. True if there is something.
    pub fn peek(&mut self) -> bool {
        if self.seen.is_none() {
            let seen = self.fill();
            let nothing = Filled::default();
            if seen.as_ref().is_ok_and(|filled| *filled == nothing) {
                return false;
            }
            self.seen = Some(seen);
        }
        true
    }

    /// What was read and is not handled yet; otherwise reads.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn take(&mut self) -> Result<Filled, Lost> {
        self.seen.take().unwrap_or_else(|| self.fill())
    }

    /// Whether there is, or may be, something to read.
    pub const fn has_something(&self) -> bool {
        self.readable || self.seen.is_some() || self.fresh
    }

    /// Whether it is read at all: not from a peer that reads nothing itself.
    pub const fn may_be_read(&self) -> bool {
        self.outbox.length() < MOST_UNSENT
    }

    /// For epoll.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Whether new segments may take it.
    pub const fn takes_segments(&self) -> bool {
        !self.leaving.said && !self.leaving.heard
    }

    /// Reads once: a segment that is incomplete straight to its place, all else into the buffer.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn fill(&mut self) -> Result<Filled, Lost> {
        self.make_room();
        let direct = self.incoming.as_ref().and_then(Incoming::direct);
        let large = self.large || direct.is_some();
        let most = if large { BEYOND } else { BUFFER };
        let size = self.buffer.len();
        let until = self.end.saturating_add(most).min(size);
        let spare = self.buffer.get_mut(self.end..until).unwrap_or_default();
        let spare = Room::from(spare);
        let [first, second] = direct.map_or([Room::empty(), Room::empty()], |place| place.rooms());
        let wanted = first.length() + second.length();
        let offered = wanted + spare.length();
        let rooms = match (first.length(), second.length()) {
            (0, 0) => [spare, Room::empty(), Room::empty()],
            (_, 0) => [first, spare, Room::empty()],
            _ => [first, second, spare],
        };
        Traffic::add(&self.route.traffic.reads, 1);
        match self.channel.dequeue(&rooms) {
            Ok(Dequeued::Bytes(bytes)) => {
                let direct = bytes.min(wanted);
                self.end = (self.end + bytes - direct).min(size);
                // A short read has taken all there was; the kernel tells of what comes later.
                self.readable = bytes == offered;
                Ok(Filled { direct, bytes })
            }
            Ok(Dequeued::Waits) => {
                self.readable = false;
                Ok(Filled::default())
            }
            Ok(Dequeued::End) => Err(Lost::Ended),
            Err(error) => Err(Lost::Failed(error)),
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < LEAST_ROOM {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Writes what waits, as far as the transport takes it. Lanes that waited for it are added to `freed`.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn flush(&mut self, freed: &mut Vec<Arc<Connection>>, now: u64) -> Result<(), Lost> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        Traffic::add(&self.route.traffic.writes, 1);
        let all = self.outbox.flush(&mut *self.channel, freed, now);
        self.blocked = !all.map_err(Lost::Failed)?;
        self.said = now;
        self.check.begin(now);
        self.show();
        Ok(())
    }

    /// Whether the transport repeats itself in vain, where the peer may be had at another address. Asks it seldom.
    pub fn is_stalled(&mut self, now: u64) -> bool {
        if !self.check.is_due(now) {
            return false;
        }
        let status = self.channel.status();
        self.check.go_on(&status, now)
    }

    /// Addresses of both ends, where they are known.
    pub fn path(&self) -> Option<(IpAddr, IpAddr)> {
        let (own, peer) = self.channel.ends()?;
        Some((own.ip(), peer.ip()))
    }

    /// Another channel to the same peer has stalled: this one says something, to see whether it is heard.
    pub fn doubt(&mut self, now: u64) {
        if self.takes_segments() {
            self.said = now;
            self.outbox.push_frame(&Frame::Ping(now));
        }
    }

    /// Shows others how the transport is.
    pub fn look_at_transport(&mut self) {
        let status = self.channel.status();
        self.route.seen.note(&status);
        self.peer.note_packet(status.packet);
    }

    /// Whether what waits is little, and so little time has passed since something was written that more can be gathered.
    pub fn may_gather(&self, now: u64) -> bool {
        let length = self.outbox.length();
        length > 0 && length < GATHERED && now.saturating_sub(self.said) < GATHERING
    }

    /// Shows others how much waits.
    pub fn show(&self) {
        let full = if self.blocked { THRESHOLD } else { 0 };
        let queued = self.outbox.length() + full;
        self.route.queued.store(queued, Ordering::Relaxed);
    }

    /// Says the last word.
    pub fn say_goodbye(&mut self, reason: GoAwayReason) {
        if !std::mem::replace(&mut self.leaving.said, true) {
            self.outbox.push_frame(&Frame::GoAway(reason));
        }
    }

    /// Says that this host lives, if nothing else did.
    pub fn keep_alive(&mut self, now: u64) {
        if now.saturating_sub(self.said) >= self.peer.terms().peer_silence / 3 && !self.leaving.said
        {
            self.said = now;
            self.outbox.push_frame(&Frame::Ping(now));
        }
    }

    /// Whether the peer said nothing for too long.
    pub fn is_silent(&self, now: u64) -> bool {
        now.saturating_sub(self.heard) >= self.peer.terms().silence
    }

    /// When one of the two is to be asked again.
    pub fn deadline(&self) -> u64 {
        let terms = self.peer.terms();
        let said = self.said.saturating_add(terms.peer_silence / 3);
        let silent = self.heard.saturating_add(terms.silence);
        said.min(silent).min(self.check.at)
    }

    /// Ends it now.
    pub fn shut_down(&mut self) {
        self.channel.shut_down();
    }

    /// Whether it ended in good order: nothing that was on it is lost.
    pub const fn has_parted(&self) -> bool {
        self.leaving.said && self.leaving.heard && self.outbox.is_empty()
    }
}
