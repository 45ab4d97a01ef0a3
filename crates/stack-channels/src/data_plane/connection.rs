//! A virtual socket with a remote end: the lane to its program and the state machine towards the peer, under one short lock.
//!
//! Payload is moved outside of the lock: what is sent is held, what arrives is claimed, and the lane is not given back before both
//! are over.

mod looking;

use super::channels_used::ChannelsUsed;
use super::peer;
use super::reset_reasons;
use super::sockets::Counted;
use super::tombstone::Tombstone;
use netchannel_abi::link::{MOST_RING_LOG2, side_flags};
use netchannel_ring::Fault;
use netchannel_scheduler::{Class, Hints, Observer, Source, classify};
use netchannel_service::class;
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A receive ring grows by this many powers of two when the peer fills it.
const GROWTH: u32 = 2;
/// The first larger receive ring.
const FIRST_RING_LOG2: u32 = 17;

/// The entry of a connection that no worker owns.
const NOWHERE: u32 = u32::MAX;

/// One start of a peer's daemon, with its connections.
pub type Peer = peer::Peer<Connection>;

/// What NCSYN says of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The connecting program.
    pub client: Address,
    /// Where it connects to.
    pub server: Address,
    /// The listener, as its host numbers it.
    pub listener: u32,
    /// Class of the socket, if the connecting program said one.
    pub class: Option<Class>,
}

/// How the lane is to be closed.
#[derive(Clone, Copy, Debug)]
struct Closing {
    reset: bool,
    /// The connect fails with this errno.
    errno: Option<u32>,
}

/// One connection with a remote program.
#[derive(Debug)]
pub struct Connection {
    /// Where its other end is.
    pub peer: Arc<Peer>,
    /// By which the peer names it.
    pub handle: Handle,
    /// The link of its lane: its memory stays as long as this.
    pub link: Arc<LinkEnd>,
    /// What NCSYN said.
    pub wanted: Wanted,
    /// Tells connections of peers apart.
    pub stamp: u64,
    /// The worker that sends for it.
    owner: AtomicU32,
    /// Its entry in the table of its owner.
    entry: AtomicU32,
    /// Workers that have it on their list of what to settle.
    touched: AtomicU32,
    /// The class that its traffic shows, plus one, until its owner has seen that.
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
    pub theirs: Option<Handle>,
    /// Its traffic.
    pub observer: Observer,
    /// The program here connected; otherwise the peer's did.
    active: bool,
    /// The program here was told that its connect came about.
    established: bool,
    closing: Option<Closing>,
    /// The lane was closed, and its anchor perhaps let go: who settles the socket looks at the link.
    pub let_go: bool,
    /// The channel that its last control frame took.
    pub last: Option<ChannelId>,
    /// The channel that its last bytes took.
    pub bytes_on: Option<ChannelId>,
    /// Bytes that the owner's scheduler thinks it may send.
    pub announced: u64,
    /// When the owner looks at it by itself.
    pub armed: u64,
    /// When what the program holds back is there in any case.
    held_until: u64,
    /// Its program is to be woken, and a worker knows.
    pub wake_up_waits: bool,
    /// In which window of time its worker sent the last large segment.
    pub large_sent: u32,
    /// In which window the last one came.
    pub large_came: u32,
    /// Channels that it takes.
    pub used: ChannelsUsed,
    /// The last bytes that the peer's program has sent as urgent, as far as is known.
    pub urgent: Row,
    /// Behind the last byte that was ever sent.
    sent_to: u64,
    /// Up to there the peer was asked what it has.
    asked_to: u64,
    /// What the program here says about the class, as last looked at.
    hints: Hints,
    hints_word: u32,
    /// The program has said something else.
    pub hinted: bool,
    /// What the other program has said, as it connected.
    theirs_said: Option<Class>,
}

impl Counted for Connection {
    fn user(&self) -> Option<u32> {
        self.link.user()
    }
}

impl Connection {
    /// A connection that begins: of a program here (`active`), or of the peer's.
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
            theirs,
            observer: Observer::new(),
            active: theirs.is_none(),
            established: false,
            closing: None,
            let_go: false,
            last: None,
            bytes_on: None,
            announced: 0,
            armed: NEVER,
            held_until: NEVER,
            wake_up_waits: false,
            large_sent: 0,
            large_came: 0,
            used: ChannelsUsed::default(),
            urgent: Row::default(),
            sent_to: 0,
            asked_to: 0,
            hints: Hints::default(),
            hints_word: 0,
            hinted: theirs.is_some() && wanted.class.is_some(),
            theirs_said: wanted.class.filter(|_| theirs.is_some()),
        };
        Self {
            peer,
            handle,
            link,
            wanted,
            stamp,
            owner: AtomicU32::new(0),
            entry: AtomicU32::new(NOWHERE),
            touched: AtomicU32::new(0),
            seen_class: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    /// Its state. Never held while a lock of the peer is taken.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker that sends for it.
    pub fn owner(&self) -> usize {
        usize::try_from(self.owner.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Its entry in the table of its owner; only the owner relies on it.
    pub fn entry(&self) -> u32 {
        self.entry.load(Ordering::Relaxed)
    }

    /// Worker `owner` owns it, under `entry`.
    pub fn set_owner(&self, owner: usize, entry: u32) {
        self.entry.store(entry, Ordering::Relaxed);
        let owner = u32::try_from(owner).unwrap_or(0);
        self.owner.store(owner, Ordering::Release);
    }

    /// Worker `owner` is going to own it. Until then no worker does.
    pub fn hand_over_to(&self, owner: usize) {
        self.entry.store(NOWHERE, Ordering::Relaxed);
        let owner = u32::try_from(owner).unwrap_or(0);
        self.owner.store(owner, Ordering::Release);
    }

    /// Whether a worker owns it. Asked under the lock, where it changes.
    pub fn has_owner(&self) -> bool {
        self.entry.load(Ordering::Relaxed) != NOWHERE
    }

    /// True for who must put it on the list of `worker`.
    pub fn touch(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 32);
        self.touched.load(Ordering::Relaxed) & bit == 0
            && self.touched.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// `worker` has taken it off its list.
    pub fn untouch(&self, worker: usize) {
        self.touched
            .fetch_and(!(1 << (worker % 32)), Ordering::AcqRel);
    }

    /// Its traffic is of this class.
    pub fn see_class(&self, class: Class) {
        let number = if class == Class::Latency { 1 } else { 2 };
        self.seen_class.store(number, Ordering::Relaxed);
    }

    /// Whether its owner has to look at the class.
    pub fn class_is_due(&self) -> bool {
        self.seen_class.load(Ordering::Relaxed) != 0
    }

    /// The class of its traffic, if it is news.
    pub fn take_class(&self) -> Option<Class> {
        if !self.class_is_due() {
            return None;
        }
        match self.seen_class.swap(0, Ordering::Relaxed) {
            1 => Some(Class::Latency),
            2 => Some(Class::Throughput),
            _ => None,
        }
    }

    /// Carries out what the state machine decided.
    pub fn follow(&self, state: &mut State, now: u64) {
        for _ in 0..3 {
            if state.apply(now) {
                break;
            }
        }
        state.close_lane();
    }

    /// Whether it does not wait for a program here to accept it.
    pub fn is_accepted(&self) -> bool {
        let state = self.lock();
        !state.lane.as_ref().is_some_and(Lane::waits_for_accept)
    }

    /// What was held was taken, or never will be. True if it is to be settled.
    pub fn release(&self, hold: Hold, now: u64) -> bool {
        let mut state = self.lock();
        state.socket.release(hold, now);
        self.follow(&mut state, now);
        state.closing.is_some()
    }

    /// Whether nothing of it is left but what its peer may still ask.
    pub fn is_over(&self, state: &State, now: u64) -> bool {
        state.lane.is_none() && state.socket.is_finished(now)
    }

    /// The frame that says it, DATA excepted.
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
        let Some(theirs) = state.theirs else {
            // Only a reset can be due, for which it is late: the peer will ask.
            let handle = self.handle;
            return Some(Frame::NoSocket(NoSocket { handle }));
        };
        frame_to(theirs, Some(self.handle), transmit)
    }

    /// What is remembered of it.
    pub fn tombstone(&self, state: &State) -> Tombstone {
        Tombstone {
            final_state: state.socket.final_state(),
            theirs: state.theirs,
            last: state.last,
        }
    }
}

/// A frame to the peer's socket `theirs`, of this host's socket `ours`.
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
    /// Its program is woken at the end of the pass: the caller touches the socket.
    pub const fn defer_wake_ups(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.defer_wake_ups();
        }
    }

    /// Whether its program is to be woken.
    pub const fn owes_wake_up(&mut self) -> bool {
        match &mut self.lane {
            Some(lane) => lane.has_deferred_wake_up(),
            None => false,
        }
    }

    /// Bytes from `sequence` on go to a channel; gives how many of them have gone before.
    pub fn note_sent(&mut self, sequence: u64, bytes: u32) -> u64 {
        let end = sequence.saturating_add(u64::from(bytes));
        let repeated = self.sent_to.min(end).saturating_sub(sequence);
        self.sent_to = self.sent_to.max(end);
        repeated
    }

    /// Half of the program's ring waits for acknowledgement, which may come late otherwise: asks for it.
    pub fn ask_for_room(&mut self, now: u64) {
        let Some(lane) = &self.lane else { return };
        let known = self.asked_to.max(lane.consumed());
        if self.sent_to.saturating_sub(known) >= lane.program_capacity() / 2 {
            self.asked_to = self.sent_to;
            self.socket.ask(now);
        }
    }

    /// Nearly all that the program's ring holds is on its way, and `unsent` of it at most waits in this host: a larger ring lets more be
    /// on its way.
    pub fn want_ring(&self, unsent: u64) {
        let Some(lane) = &self.lane else { return };
        let capacity = lane.program_capacity();
        let kept = self.sent_to.saturating_sub(lane.consumed());
        if kept.saturating_sub(unsent) >= capacity / 4 * 3 {
            lane.request_ring((capacity.ilog2() + GROWTH).min(MOST_RING_LOG2));
        }
    }

    /// The class that one of the two programs has said; the own one's word counts more.
    pub fn said_class(&self) -> Option<Class> {
        match classify(&self.hints) {
            (_, Source::Default) => self.theirs_said,
            (class, _) => Some(class),
        }
    }

    /// The class to serve it as, and what decided that. As long as nothing is known it is latency: a connection begins with
    /// few bytes, and those that are in a hurry can not wait until it has shown itself.
    pub fn class(&self) -> (Class, &'static str) {
        let (class, source) = classify(&self.hints);
        match (source, self.theirs_said, self.observer.class()) {
            (Source::Default, Some(class), _) => (class, "peer"),
            (Source::Default, None, Some(class)) => (class, "observed"),
            (Source::Default, None, None) => (Class::Latency, "default"),
            _ => (class, class::name(source)),
        }
    }

    /// Whether no program here has accepted it yet.
    pub fn waits_for_accept(&self) -> bool {
        !self.active && self.lane.as_ref().is_none_or(Lane::waits_for_accept)
    }

    /// What the traffic shows, if nobody has said anything.
    pub fn observed(&self, shown: Option<Class>) -> Option<Class> {
        shown.filter(|_| self.said_class().is_none())
    }

    /// True when nothing more came of it.
    fn apply(&mut self, now: u64) -> bool {
        let changes = self.socket.take_changes();
        if changes.is_empty() {
            return true;
        }
        let Some(lane) = &mut self.lane else {
            return true;
        };
        self.established |= changes.contains(Changes::ESTABLISHED);
        let told = tell_program(lane, &self.socket, changes, self.active, self.urgent);
        if changes.contains(Changes::CLOSED) {
            self.begin_closing();
        } else if told.is_err() {
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
                // TCP in CLOSE-WAIT.
                End::Reset(_) if self.socket.at_end() && !ends => Some(Errno::PIPE),
                // Nobody has reset it: there was no answer.
                End::Aborted(Reason::TimedOut | Reason::Unreachable) => Some(Errno::TIMEDOUT),
                _ => None,
            };
            if let Some(errno) = blamed {
                lane.set_reset_error(errno.raw_os_error().unsigned_abs());
            }
            let refused = end == End::Aborted(Reason::Aborted);
            if refused && lane.peer_flags() & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT {
                // TCP looks for an urgent byte in what it refuses.
                lane.announce_mark(self.urgent);
            }
            // Now, though the lane may have to wait.
            lane.set_flags(side_flags::RESET);
        }
        self.closing = Some(closing);
    }

    /// Gives the lane back, if it is over and nobody uses its rings.
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
            self.let_go = true;
        }
    }

    /// `channel` is gone with what was on it.
    pub fn on_channel_lost(&mut self, channel: ChannelId, now: u64) {
        self.socket.on_channel_lost(channel, now);
    }
}

fn tell_program(
    lane: &mut Lane,
    socket: &VirtualSocket,
    changes: Changes,
    active: bool,
    urgent: Row,
) -> Result<(), Fault> {
    if active && changes.contains(Changes::ESTABLISHED) {
        // A daemon that dies leaves a connection that is cut, not one that has ended.
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
