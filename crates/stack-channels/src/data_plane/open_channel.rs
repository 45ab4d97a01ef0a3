//! An open channel, as its worker holds it: received bytes, and the outbox.

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

/// The size of the buffer, for small segments that come with one read.
const BUFFER: usize = 256 << 10;
/// While large segments come, a read takes this many bytes beyond the end of one: the next header, and little that must
/// be copied.
const READ_BEYOND: usize = 4 << 10;
/// A segment of at least this size is large.
pub const LARGE: usize = 32 << 10;
/// The limit of queued bytes for a peer that does not read. Beyond it nothing is read from that peer either.
const MOST_UNSENT: u64 = 4 << 20;
/// Frames are gathered for at most this long, in nanoseconds: a write costs as much.
const GATHERING: u64 = 10_000;
/// This many bytes are worth a write.
const GATHERED: u64 = 16 << 10;
/// The transport is first asked about acknowledgements this long after a send, in nanoseconds: usually it retransmits
/// by then.
const FIRST_CHECK: u64 = 250_000_000;
/// The transport is asked again after this time.
const CHECKS: u64 = 50_000_000;
/// A transport that has retransmitted for this long has done so twice.
const STALLED: u64 = 350_000_000;
/// The minimum room for a read, after the unread bytes.
const LEAST_ROOM: usize = Parser::LEAST_BUFFER;

/// Which GOAWAY frames of a channel were exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoAwayState {
    /// This host has sent GOAWAY.
    pub sent: bool,
    /// The peer has sent GOAWAY.
    pub received: bool,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that were read straight into their place.
    pub direct: usize,
    /// All bytes that were read.
    pub bytes: usize,
}

/// The schedule of questions to the transport.
struct StallCheck {
    wanted: bool,
    at: u64,
    /// The time since when it retransmits, as far as was seen.
    since: u64,
}

impl StallCheck {
    const fn new(wanted: bool) -> Self {
        Self {
            wanted,
            at: NEVER,
            since: NEVER,
        }
    }

    /// Bytes were sent.
    const fn on_sent(&mut self, now: u64) {
        if self.wanted && self.at == NEVER {
            self.at = now.saturating_add(FIRST_CHECK);
        }
    }

    const fn is_due(&self, now: u64) -> bool {
        now >= self.at && self.at != NEVER
    }

    /// The transport was asked. True if it has retransmitted for too long.
    const fn on_status(&mut self, status: &Status, now: u64) -> bool {
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

/// One open channel.
pub struct OpenChannel {
    /// The peer to which it leads.
    pub peer: Arc<Peer>,
    /// The part that all workers see.
    pub route: Arc<Route>,
    driver: Box<dyn Channel>,
    /// The parser of its frames.
    pub parser: Parser,
    /// The read buffer. Unread bytes are from `start` to `end`.
    pub buffer: Box<[u8]>,
    /// The first unread byte.
    pub start: usize,
    /// The end of the unread bytes.
    pub end: usize,
    /// The buffer has bytes that were not parsed yet.
    pub unparsed: bool,
    /// The segment that is incomplete.
    pub incoming: Option<Incoming>,
    /// The last segment was large.
    pub large: bool,
    /// The frames to be sent.
    pub outbox: Outbox,
    /// There may be more to read.
    pub readable: bool,
    /// The transport takes nothing now.
    pub blocked: bool,
    /// The GOAWAY frames that were exchanged.
    pub goaway: GoAwayState,
    /// When the last frame was received.
    pub last_received: u64,
    /// When the last frame was sent.
    pub last_sent: u64,
    /// When the transport is asked about acknowledgements; never, where the peer has no other address.
    check: StallCheck,
    /// Sockets that have frames to send when the channel takes some.
    pub parked: Vec<Arc<Connection>>,
    /// The result of a read that was not handled yet.
    prefetched: Option<Result<Filled, Lost>>,
}

impl OpenChannel {
    /// A channel whose handshake is complete. `rest` are bytes that followed it.
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
            driver: channel,
            parser,
            buffer,
            start: 0,
            end: rest.len(),
            unparsed: !rest.is_empty(),
            incoming: None,
            large: false,
            outbox: Outbox::default(),
            readable: true,
            blocked: false,
            goaway: GoAwayState::default(),
            last_received: now,
            last_sent: now,
            check: StallCheck::new(peer_has_others),
            parked: Vec::new(),
            prefetched: None,
        }
    }

    /// Reads, unless a former read was not handled yet. True if there is a result.
    pub fn prefetch(&mut self) -> bool {
        if self.prefetched.is_none() {
            let seen = self.fill();
            let nothing = Filled::default();
            if seen.as_ref().is_ok_and(|filled| *filled == nothing) {
                return false;
            }
            self.prefetched = Some(seen);
        }
        true
    }

    /// The result of a read that was not handled yet, or of a new read.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn take(&mut self) -> Result<Filled, Lost> {
        self.prefetched.take().unwrap_or_else(|| self.fill())
    }

    /// Whether there is, or may be, something to read.
    pub const fn may_have_input(&self) -> bool {
        self.readable || self.prefetched.is_some() || self.unparsed
    }

    /// Whether the channel may be read: not while its peer reads nothing.
    pub const fn may_be_read(&self) -> bool {
        self.outbox.length() < MOST_UNSENT
    }

    /// The descriptor for epoll.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.driver.descriptor()
    }

    /// Whether new segments may be sent on it.
    pub const fn takes_segments(&self) -> bool {
        !self.goaway.sent && !self.goaway.received
    }

    /// Reads once: the rest of an incomplete segment straight into its place, all else into the buffer.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn fill(&mut self) -> Result<Filled, Lost> {
        self.make_room();
        let direct = self.incoming.as_ref().and_then(Incoming::direct);
        let large = self.large || direct.is_some();
        let most = if large { READ_BEYOND } else { BUFFER };
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
        match self.driver.dequeue(&rooms) {
            Ok(Dequeued::Bytes(bytes)) => {
                let direct = bytes.min(wanted);
                self.end = (self.end + bytes - direct).min(size);
                // A short read has taken all bytes. The kernel reports those that come later.
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

    /// Writes the outbox as far as the transport takes it. Sockets whose lanes waited for this are added to `freed`.
    ///
    /// # Errors
    /// The channel is lost.
    pub fn flush(&mut self, freed: &mut Vec<Arc<Connection>>, now: u64) -> Result<(), Lost> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        Traffic::add(&self.route.traffic.writes, 1);
        let all = self.outbox.flush(&mut *self.driver, freed, now);
        self.blocked = !all.map_err(Lost::Failed)?;
        self.last_sent = now;
        self.check.on_sent(now);
        self.publish_queue_length();
        Ok(())
    }

    /// Whether the transport retransmits without success while the peer has another address. Asks the transport seldom.
    pub fn is_stalled(&mut self, now: u64) -> bool {
        if !self.check.is_due(now) {
            return false;
        }
        let status = self.driver.status();
        self.check.on_status(&status, now)
    }

    /// The addresses of both ends, where they are known.
    pub fn path(&self) -> Option<(IpAddr, IpAddr)> {
        let (own, peer) = self.driver.ends()?;
        Some((own.ip(), peer.ip()))
    }

    /// Another channel to the same peer has stalled: sends a PING to find out whether this one works.
    pub fn probe(&mut self, now: u64) {
        if self.takes_segments() {
            self.last_sent = now;
            self.outbox.push_frame(&Frame::Ping(now));
        }
    }

    /// Publishes the status of the transport to the other workers.
    pub fn update_status(&mut self) {
        let status = self.driver.status();
        self.route.seen.note(&status);
        self.peer.note_packet(status.packet);
    }

    /// Whether little is queued and the last write is so recent that more frames can be gathered.
    pub fn may_gather(&self, now: u64) -> bool {
        let length = self.outbox.length();
        length > 0 && length < GATHERED && now.saturating_sub(self.last_sent) < GATHERING
    }

    /// Publishes the length of the queue to the other workers.
    pub fn publish_queue_length(&self) {
        let full = if self.blocked { THRESHOLD } else { 0 };
        let queued = self.outbox.length() + full;
        self.route.queued.store(queued, Ordering::Relaxed);
    }

    /// Sends GOAWAY, once.
    pub fn send_goaway(&mut self, reason: GoAwayReason) {
        if !std::mem::replace(&mut self.goaway.sent, true) {
            self.outbox.push_frame(&Frame::GoAway(reason));
        }
    }

    /// Sends a PING if nothing else was sent lately.
    pub fn keep_alive(&mut self, now: u64) {
        if now.saturating_sub(self.last_sent) >= self.peer.terms().peer_silence / 3
            && !self.goaway.sent
        {
            self.last_sent = now;
            self.outbox.push_frame(&Frame::Ping(now));
        }
    }

    /// Whether the peer was silent for too long.
    pub fn is_silent(&self, now: u64) -> bool {
        now.saturating_sub(self.last_received) >= self.peer.terms().silence
    }

    /// When the next PING or check is due.
    pub fn deadline(&self) -> u64 {
        let terms = self.peer.terms();
        let ping_due = self.last_sent.saturating_add(terms.peer_silence / 3);
        let silent = self.last_received.saturating_add(terms.silence);
        ping_due.min(silent).min(self.check.at)
    }

    /// Ends the transport now.
    pub fn shut_down(&mut self) {
        self.driver.shut_down();
    }

    /// Whether both ends have exchanged GOAWAY and the outbox is empty: no frame is lost.
    pub const fn is_closed(&self) -> bool {
        self.goaway.sent && self.goaway.received && self.outbox.is_empty()
    }
}
