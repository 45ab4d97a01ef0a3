//! A virtual socket with a remote end: the lane to its program and the state machine towards the peer, under one short
//! lock.
//!
//! Payload is moved outside of the lock. Bytes to be sent are held, the place of arriving bytes is claimed, and the
//! lane is not closed before all holds and claims have ended.

mod acceptance;
mod looking;

pub use acceptance::{Acceptance, Handover, Next};

use super::channels_used::ChannelsUsed;
use super::peer;
use super::reset_reasons;
use super::sockets::Counted;
use super::tombstone::Tombstone;
use netchannel_abi::link::{MOST_RING_LOG2, side_flags};
use netchannel_ring::Fault;
use netchannel_scheduler::{Class, Hints, Observer, Source, classify};
use netchannel_service::class;
use netchannel_service::core_engine::Ticket;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::timers::NEVER;
use netchannel_service::urgent::Row;
use netchannel_vns::{
    Changes, ChannelId, End, Handle, Hold, Reason, State as Phase, Transmit, VirtualSocket,
};
use netchannel_wire::{Address, Fin, Frame, NcRst, NcSyn, NcSynAck, NoSocket, Rst, Window};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The factor by which a receive ring grows when the peer fills it, as a power of two.
const GROWTH: u32 = 2;
/// The first larger receive ring.
const FIRST_RING_LOG2: u32 = 17;

/// The entry of a connection that no worker owns.
const NOWHERE: u32 = u32::MAX;

/// One start of a peer's daemon, with its connections.
pub type Peer = peer::Peer<Connection>;

/// The fields of NCSYN that describe a connection.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The address of the client.
    pub client: Address,
    /// The address to which it connects.
    pub server: Address,
    /// The listener, as its host numbers it.
    pub listener: u32,
    /// The class of the socket, if the connecting program has declared one.
    pub class: Option<Class>,
}

/// How the lane must be closed.
#[derive(Clone, Copy, Debug)]
struct Closing {
    reset: bool,
    /// The connect fails with this errno.
    errno: Option<u32>,
}

/// One connection with a remote program.
#[derive(Debug)]
pub struct Connection {
    /// The peer that has the other end.
    pub peer: Arc<Peer>,
    /// The handle by which the peer names it.
    pub handle: Handle,
    /// The link of its first lane. Its memory stays mapped as long as this connection exists.
    link: Arc<LinkEnd>,
    /// The link of the lane to another acceptor, after the first one was killed.
    next_link: OnceLock<Arc<LinkEnd>>,
    /// The fields of its NCSYN.
    pub wanted: Wanted,
    /// Tells connections of peers apart.
    pub stamp: u64,
    /// The worker that sends for it.
    owner: AtomicU32,
    /// Its entry in its owner's table.
    entry: AtomicU32,
    /// A bit for each worker that has it on its list of connections to settle.
    unsettled: AtomicU32,
    /// The observed class plus one, until the owner has taken it.
    seen_class: AtomicU32,
    state: Mutex<State>,
}

/// What the lock guards.
#[derive(Debug)]
pub struct State {
    /// The state machine.
    pub socket: VirtualSocket,
    /// The lane, until it is closed.
    pub lane: Option<Lane>,
    /// The peer's handle, once it is known.
    pub peer_handle: Option<Handle>,
    /// The statistics of its traffic.
    pub observer: Observer,
    /// The program of this host has connected. Otherwise the peer's program has.
    active: bool,
    /// Who accepts it, if the peer's program has connected.
    pub acceptance: Acceptance,
    /// The program of this host was notified that its connect succeeded.
    established: bool,
    closing: Option<Closing>,
    /// The lane was closed, and its anchor perhaps with it: the worker that settles the socket must look at the link.
    pub lane_closed: bool,
    /// The channel of its last control frame.
    pub last: Option<ChannelId>,
    /// The channel of its last bytes.
    pub last_data_channel: Option<ChannelId>,
    /// The sendable bytes that the owner's scheduler knows of.
    pub scheduled: u64,
    /// The time of its timer.
    pub timer: u64,
    /// The time when bytes that the program holds back are released in any case.
    held_until: u64,
    /// A wake-up of its program is queued at a worker.
    pub wake_up_queued: bool,
    /// The window of time in which the last large segment was sent.
    pub large_sent: u32,
    /// The window of time in which the last large segment came.
    pub large_came: u32,
    /// The channels that it used lately.
    pub used: ChannelsUsed,
    /// The last urgent bytes of the peer's program, as far as they are known.
    pub urgent: Row,
    /// The sequence after the last byte that was ever sent.
    sent_to: u64,
    /// The sequence up to which the peer was asked to acknowledge.
    acknowledgement_requested_to: u64,
    /// The class hints of the program of this host, as last read.
    hints: Hints,
    hints_word: u32,
    /// The hints have changed.
    pub hints_changed: bool,
    /// The class that the other program declared when it connected.
    peer_class: Option<Class>,
}

impl Counted for Connection {
    fn user(&self) -> Option<u32> {
        self.link.user()
    }
}

impl Connection {
    /// A new connection. It is active where the peer's handle is not known yet: a program of this host has connected.
    pub fn new(
        (peer, handle): (Arc<Peer>, Handle),
        link: Arc<LinkEnd>,
        wanted: Wanted,
        (socket, lane): (VirtualSocket, Lane),
        (stamp, theirs): (u64, Option<Handle>),
    ) -> Self {
        let state = State {
            socket,
            lane: Some(lane),
            peer_handle: theirs,
            observer: Observer::new(),
            active: theirs.is_none(),
            acceptance: Acceptance::Known,
            established: false,
            closing: None,
            lane_closed: false,
            last: None,
            last_data_channel: None,
            scheduled: 0,
            timer: NEVER,
            held_until: NEVER,
            wake_up_queued: false,
            large_sent: 0,
            large_came: 0,
            used: ChannelsUsed::default(),
            urgent: Row::default(),
            sent_to: 0,
            acknowledgement_requested_to: 0,
            hints: Hints::default(),
            hints_word: 0,
            hints_changed: theirs.is_some() && wanted.class.is_some(),
            peer_class: wanted.class.filter(|_| theirs.is_some()),
        };
        Self {
            peer,
            handle,
            link,
            next_link: OnceLock::new(),
            wanted,
            stamp,
            owner: AtomicU32::new(0),
            entry: AtomicU32::new(NOWHERE),
            unsettled: AtomicU32::new(0),
            seen_class: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    /// The link of its lane. Without the lock it is that of a claimed place as long as the claim is held.
    #[inline]
    pub fn link(&self) -> &Arc<LinkEnd> {
        self.next_link.get().unwrap_or(&self.link)
    }

    /// Its lane is in another link from now on. It can move once, under the lock.
    pub fn move_to(&self, link: Arc<LinkEnd>) {
        let _ = self.next_link.set(link);
    }

    /// Locks the state. The lock is never held while a lock of the peer is taken.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker that sends for it.
    pub fn owner(&self) -> usize {
        usize::try_from(self.owner.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Its entry in its owner's table. Only the owner may rely on it.
    pub fn entry(&self) -> u32 {
        self.entry.load(Ordering::Relaxed)
    }

    /// Its name in the backlog of its listener, which its owner keeps.
    pub fn ticket(&self) -> Ticket {
        Ticket {
            number: usize::try_from(self.entry()).unwrap_or(usize::MAX),
            stamp: self.stamp,
        }
    }

    /// Worker `owner` becomes the owner, with this `entry`.
    pub fn set_owner(&self, owner: usize, entry: u32) {
        self.entry.store(entry, Ordering::Relaxed);
        let owner = u32::try_from(owner).unwrap_or(0);
        self.owner.store(owner, Ordering::Release);
    }

    /// Worker `owner` will become the owner. Until then no worker owns it.
    pub fn hand_over_to(&self, owner: usize) {
        self.entry.store(NOWHERE, Ordering::Relaxed);
        let owner = u32::try_from(owner).unwrap_or(0);
        self.owner.store(owner, Ordering::Release);
    }

    /// Whether a worker owns it. Called under the lock, under which this changes.
    pub fn has_owner(&self) -> bool {
        self.entry.load(Ordering::Relaxed) != NOWHERE
    }

    /// Marks it for settling by `worker`. True if the caller must add it to that worker's list.
    pub fn mark_for_settling(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 32);
        self.unsettled.load(Ordering::Relaxed) & bit == 0
            && self.unsettled.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// `worker` has removed it from its list.
    pub fn unmark_for_settling(&self, worker: usize) {
        self.unsettled
            .fetch_and(!(1 << (worker % 32)), Ordering::AcqRel);
    }

    /// Sets the observed class of its traffic.
    pub fn set_observed_class(&self, class: Class) {
        let number = if class == Class::Latency { 1 } else { 2 };
        self.seen_class.store(number, Ordering::Relaxed);
    }

    /// Whether the owner has to take the observed class.
    pub fn has_observed_class(&self) -> bool {
        self.seen_class.load(Ordering::Relaxed) != 0
    }

    /// Takes the observed class if it was set since the last call.
    pub fn take_observed_class(&self) -> Option<Class> {
        if !self.has_observed_class() {
            return None;
        }
        match self.seen_class.swap(0, Ordering::Relaxed) {
            1 => Some(Class::Latency),
            2 => Some(Class::Throughput),
            _ => None,
        }
    }

    /// Applies the changes of the state machine to the lane.
    pub fn apply_changes(&self, state: &mut State, now: u64) {
        for _ in 0..3 {
            if state.apply(now) {
                break;
            }
        }
        state.close_lane();
    }

    /// Whether it does not wait for accept by a program of this host.
    pub fn is_accepted(&self) -> bool {
        let state = self.lock();
        !state.lane.as_ref().is_some_and(Lane::waits_for_accept)
    }

    /// Held bytes were taken by the channel, or never will be. True if the socket must be settled.
    pub fn release(&self, hold: Hold, now: u64) -> bool {
        let mut state = self.lock();
        state.socket.release(hold, now);
        self.apply_changes(&mut state, now);
        state.closing.is_some()
    }

    /// Whether all that remains of it is the final state, for which its peer may still ask.
    pub fn is_over(&self, state: &State, now: u64) -> bool {
        // A lane to another acceptor is closed first.
        state.lane.is_none() && !state.acceptance.is_found() && state.socket.is_finished(now)
    }

    /// The frame for a transmit other than DATA.
    pub fn frame(&self, state: &State, transmit: &Transmit) -> Option<Frame<'static>> {
        if let Transmit::Open { limit } = *transmit {
            return Some(Frame::NcSyn(NcSyn {
                handle: self.handle,
                client: self.wanted.client,
                server: self.wanted.server,
                limit,
                listener: self.wanted.listener,
                class: self.wanted.class.map(|class| match class {
                    Class::Latency => netchannel_wire::Class::Latency,
                    Class::Throughput => netchannel_wire::Class::Throughput,
                }),
            }));
        }
        let Some(theirs) = state.peer_handle else {
            // Only a reset can be due here, which comes too late: the peer will ask.
            let handle = self.handle;
            return Some(Frame::NoSocket(NoSocket { handle }));
        };
        frame_to(theirs, Some(self.handle), transmit)
    }

    /// The tombstone that remains of it.
    pub fn tombstone(&self, state: &State) -> Tombstone {
        Tombstone {
            final_state: state.socket.final_state(),
            peer_handle: state.peer_handle,
            last: state.last,
        }
    }
}

/// A frame to the peer's socket `peer_handle`, from this host's socket `own_handle`.
pub fn frame_to(
    theirs: Handle,
    ours: Option<Handle>,
    transmit: &Transmit,
) -> Option<Frame<'static>> {
    let handle = theirs;
    Some(match *transmit {
        Transmit::Open { .. } | Transmit::Data { .. } => return None,
        Transmit::Answer { limit } => Frame::NcSynAck(NcSynAck {
            handle,
            responder: ours?,
            limit,
        }),
        Transmit::Window(window) => Frame::Window(Window {
            handle,
            filled: window.filled,
            limit: window.limit,
            fin: window.fin,
            ask: window.ask,
            again: window.again,
        }),
        Transmit::Fin { sequence } => Frame::Fin(Fin { handle, sequence }),
        Transmit::Reset { reason } => match reset_reasons::refusal(reason) {
            Some(reason) => Frame::NcRst(NcRst { handle, reason }),
            None => Frame::Rst(Rst {
                handle,
                reason: reset_reasons::reset(reason),
            }),
        },
    })
}

impl State {
    /// Defers the wake-up of its program to the end of the pass. The caller schedules the socket for settling.
    pub const fn defer_wake_ups(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.defer_wake_ups();
        }
    }

    /// Whether a wake-up of its program is due.
    pub const fn has_deferred_wake_up(&mut self) -> bool {
        match &mut self.lane {
            Some(lane) => lane.has_deferred_wake_up(),
            None => false,
        }
    }

    /// Notes that bytes from `sequence` on were given to a channel. Returns how many of them were sent before.
    pub fn note_sent(&mut self, sequence: u64, bytes: u32) -> u64 {
        let end = sequence.saturating_add(u64::from(bytes));
        let repeated = self.sent_to.min(end).saturating_sub(sequence);
        self.sent_to = self.sent_to.max(end);
        repeated
    }

    /// Asks for an acknowledgement where half of the program's ring waits for one, which may come late otherwise.
    pub fn request_acknowledgement(&mut self, now: u64) {
        let Some(lane) = &self.lane else { return };
        let known = self.acknowledgement_requested_to.max(lane.consumed());
        if self.sent_to.saturating_sub(known) >= lane.program_capacity() / 2 {
            self.acknowledgement_requested_to = self.sent_to;
            self.socket.ask(now);
        }
    }

    /// Asks for a larger ring where nearly all that the program's ring holds is in flight, and at most `unsent` bytes
    /// of it wait in this host. A larger ring lets more bytes be in flight.
    pub fn request_larger_ring(&self, unsent: u64) {
        let Some(lane) = &self.lane else { return };
        let capacity = lane.program_capacity();
        let kept = self.sent_to.saturating_sub(lane.consumed());
        if kept.saturating_sub(unsent) >= capacity / 4 * 3 {
            lane.request_ring((capacity.ilog2() + GROWTH).min(MOST_RING_LOG2));
        }
    }

    /// The class that one of the two programs has declared. That of this host's program takes precedence.
    pub fn declared_class(&self) -> Option<Class> {
        match classify(&self.hints) {
            (_, Source::Default) => self.peer_class,
            (class, _) => Some(class),
        }
    }

    /// The class in which the connection is served, and the source of that decision. While nothing is known it is
    /// latency: a connection begins with few bytes, and urgent ones can not wait until its traffic was observed.
    pub fn class(&self) -> (Class, &'static str) {
        let (class, source) = classify(&self.hints);
        match (source, self.peer_class, self.observer.class()) {
            (Source::Default, Some(class), _) => (class, "peer"),
            (Source::Default, None, Some(class)) => (class, "observed"),
            (Source::Default, None, None) => (Class::Latency, "default"),
            _ => (class, class::name(source)),
        }
    }

    /// Whether no program of this host has accepted it yet.
    pub fn waits_for_accept(&self) -> bool {
        !self.active && self.lane.as_ref().is_none_or(Lane::waits_for_accept)
    }

    /// The observed class, if no program has declared one.
    pub fn observed(&self, shown: Option<Class>) -> Option<Class> {
        shown.filter(|_| self.declared_class().is_none())
    }

    /// Applies the changes once. True when no further changes can follow.
    fn apply(&mut self, now: u64) -> bool {
        let changes = self.socket.take_changes();
        if changes.is_empty() {
            return true;
        }
        let Some(lane) = &mut self.lane else {
            return true;
        };
        self.established |= changes.contains(Changes::ESTABLISHED);
        let notified = notify_program(lane, &self.socket, changes, self.active, self.urgent);
        if changes.contains(Changes::CLOSED) {
            self.begin_closing();
        } else if notified.is_err() {
            self.socket.abort(Reason::ProgramFault, now);
            return false;
        }
        true
    }

    fn begin_closing(&mut self) {
        let Phase::Closed(end) = self.socket.state() else {
            return;
        };
        let connecting = self.active && !self.established;
        let closing = match end {
            End::Finished => Closing {
                reset: false,
                errno: None,
            },
            End::Reset(reason) | End::Aborted(reason) => Closing {
                reset: true,
                errno: connecting.then(|| reset_reasons::errno_of_connect(reason)),
            },
        };
        if let (true, None, Some(lane)) = (closing.reset, closing.errno, &mut self.lane) {
            let ends = lane.peer_flags() & side_flags::FIN != 0;
            let blamed = match end {
                // As TCP in CLOSE-WAIT.
                End::Reset(_) if self.socket.at_end() && !ends => Some(Errno::PIPE),
                // There was no reset: the peer did not answer.
                End::Aborted(Reason::TimedOut | Reason::Unreachable) => Some(Errno::TIMEDOUT),
                _ => None,
            };
            if let Some(errno) = blamed {
                lane.set_reset_error(errno.raw_os_error().unsigned_abs());
            }
            let refused = end == End::Aborted(Reason::Aborted);
            if refused && lane.peer_flags() & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT {
                // TCP looks for an urgent byte even in data that it refuses.
                lane.announce_mark(self.urgent);
            }
            // The flag is set now, though the close of the lane may have to wait.
            lane.set_flags(side_flags::RESET);
        }
        self.closing = Some(closing);
    }

    /// Closes the lane, if the connection has ended and its rings are not in use.
    fn close_lane(&mut self) {
        let Some(closing) = self.closing else { return };
        if self.socket.claims() > 0 || self.socket.holds() > 0 {
            return;
        }
        if let Some(lane) = self.lane.take() {
            match closing.errno {
                Some(errno) => lane.refuse(errno),
                None => lane.close(closing.reset),
            }
            self.lane_closed = true;
        }
    }

    /// `channel` is lost with the frames that were on it.
    pub fn on_channel_lost(&mut self, channel: ChannelId, now: u64) {
        self.socket.on_channel_lost(channel, now);
    }
}

fn notify_program(
    lane: &mut Lane,
    socket: &VirtualSocket,
    changes: Changes,
    active: bool,
    urgent: Row,
) -> Result<(), Fault> {
    if active && changes.contains(Changes::ESTABLISHED) {
        // With ABORTS, a connection whose daemon dies counts as cut, not as ended.
        let flags = side_flags::ESTABLISHED | side_flags::ACCEPTED | side_flags::ABORTS;
        lane.set_flags(flags);
    }
    if changes.contains(Changes::ACKNOWLEDGED) {
        lane.consume(socket.acknowledged())?;
    }
    if changes.contains(Changes::FRONTIER) {
        lane.publish_with_mark(socket.frontier(), urgent)?;
    }
    if changes.contains(Changes::AT_END) {
        lane.set_flags(side_flags::FIN);
    }
    Ok(())
}
