//! A channel whose handshake is not complete: the frames of `wire`'s handshake over a transport that may still be
//! connecting.
//!
//! ```text
//!  dialled   connecting, HELLO ------> HELLO_ANSWER received, HELLO_PROOF sent --> open
//!  accepted  HELLO received, HELLO_ANSWER sent --> HELLO_PROOF received ---------> open
//!  refused   GOAWAY sent, input is discarded until the other end closes ---------> closed
//! ```

use super::settings::PerClass;
use crate::class::from_wire;
use netchannel_driver::{Channel, Dequeued, Room, Run};
use netchannel_wire::{
    Established, Frame, GoAwayReason, HEADER, Identity, Initiator, Key, LEAST_PAYLOAD,
    MOST_FIXED_FRAME, Parser, Refused, Responder, Step,
};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::{fmt, io};

/// Bytes read at once: a frame of the handshake, and a few bytes that follow it.
const BUFFER: usize = 512;
/// A refused channel is closed after this many ignored bytes.
const MOST_IGNORED: usize = 16 << 10;

/// Why a channel did not come up.
#[derive(Debug)]
pub enum Failure {
    /// The transport failed.
    Transport(io::Error),
    /// The transport ended.
    Ended,
    /// The handshake failed.
    Refused(Refused),
    /// This host refuses the channel.
    Denied(GoAwayReason),
    /// The handshake timed out.
    TimedOut,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Failure {
    /// The reason that is sent to the other end.
    pub const fn reason(&self) -> Option<GoAwayReason> {
        match self {
            Self::Transport(_) | Self::Ended => None,
            Self::Refused(refused) => refused.reason(),
            Self::Denied(reason) => Some(*reason),
            Self::TimedOut => Some(GoAwayReason::TimedOut),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(formatter, "{error}"),
            Self::Ended => formatter.write_str("the other end closed it"),
            Self::Refused(refused) => write!(formatter, "{refused}"),
            Self::Denied(reason) => write!(formatter, "refused: {reason}"),
            Self::TimedOut => formatter.write_str("the other end timed out"),
        }
    }
}

/// The conditions for a channel to be admitted.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// The key shared with that peer.
    pub key: Option<Arc<Key>>,
    /// The limit of channels of each class: their numbers are less.
    pub most: PerClass<u16>,
}

/// The result of an advance.
#[derive(Debug)]
pub enum Progress {
    /// The handshake waits for the other end.
    Waits,
    /// The channel is open. The bytes followed its handshake.
    Open(Box<Established>, Vec<u8>),
    /// The handshake failed. If [`HalfOpen::is_refused`], the other end is being told.
    Failed(Failure),
    /// The other end was told, and has closed.
    Closed,
}

enum State {
    Dialled(Initiator),
    Accepted(Identity),
    Answered(Responder),
    Open(Box<Established>),
    Refused { ignored: usize },
}

/// One channel that is not open yet, with all its memory.
pub struct HalfOpen {
    channel: Box<dyn Channel>,
    admission: Admission,
    state: Option<State>,
    parser: Parser,
    unread: [u8; BUFFER],
    length: usize,
    unsent: [u8; 2 * MOST_FIXED_FRAME],
    sent: usize,
    queued: usize,
}

impl HalfOpen {
    fn new(channel: Box<dyn Channel>, state: State, admission: Admission) -> Self {
        Self {
            channel,
            admission,
            state: Some(state),
            // No frame of the handshake has a payload that depends on the announced limits.
            parser: Parser::new(LEAST_PAYLOAD),
            unread: [0; BUFFER],
            length: 0,
            unsent: [0; 2 * MOST_FIXED_FRAME],
            sent: 0,
            queued: 0,
        }
    }

    /// A channel that this host has dialled.
    pub fn dialled(channel: Box<dyn Channel>, initiator: Initiator, admission: Admission) -> Self {
        let hello = initiator.hello();
        let mut half_open = Self::new(channel, State::Dialled(initiator), admission);
        half_open.queue_frame(&hello);
        half_open
    }

    /// A channel that another host has dialled.
    pub fn accepted(channel: Box<dyn Channel>, identity: Identity, admission: Admission) -> Self {
        Self::new(channel, State::Accepted(identity), admission)
    }

    /// A channel that is refused without reading its frames.
    pub fn refused(channel: Box<dyn Channel>, reason: GoAwayReason) -> Self {
        let state = State::Refused { ignored: 0 };
        let mut half_open = Self::new(channel, state, Admission::default());
        half_open.queue_frame(&Frame::GoAway(reason));
        half_open
    }

    /// The descriptor for epoll.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Whether it waits for room in the transport.
    pub const fn has_unsent(&self) -> bool {
        self.sent < self.queued
    }

    /// Whether it was refused and only waits for the other end to close.
    pub const fn is_refused(&self) -> bool {
        matches!(self.state, Some(State::Refused { .. }))
    }

    /// The channel, when it is open.
    pub fn into_channel(self) -> Box<dyn Channel> {
        self.channel
    }

    /// Tells the other end why it does not become a channel.
    pub fn refuse(&mut self, reason: GoAwayReason) {
        if !self.is_refused() {
            self.state = Some(State::Refused { ignored: 0 });
            self.queue_frame(&Frame::GoAway(reason));
            // A failure has no consequence: the frame only helps the other end.
            let _ = self.flush();
        }
    }

    /// Goes on as far as possible.
    pub fn advance(&mut self) -> Progress {
        match self.try_advance() {
            Ok(progress) => progress,
            Err(_) if self.is_refused() => Progress::Closed,
            Err(failure) => {
                if let Some(reason) = failure.reason() {
                    self.refuse(reason);
                }
                Progress::Failed(failure)
            }
        }
    }

    fn try_advance(&mut self) -> Result<Progress, Failure> {
        self.flush()?;
        loop {
            if self.is_refused() {
                return self.ignore();
            }
            self.take_frames()?;
            self.flush()?;
            if let Some(State::Open(_)) = &self.state {
                // HELLO_PROOF must have been sent: the worker sends the frames that follow it.
                return Ok(match self.state.take() {
                    Some(State::Open(established)) if !self.has_unsent() => {
                        let rest = self.unread.get(..self.length).unwrap_or_default().to_vec();
                        Progress::Open(established, rest)
                    }
                    state => {
                        self.state = state;
                        Progress::Waits
                    }
                });
            }
            if !self.read()? {
                return Ok(Progress::Waits);
            }
        }
    }

    /// Reads once. True where bytes came.
    fn read(&mut self) -> Result<bool, Failure> {
        let spare = self.unread.get_mut(self.length..).unwrap_or_default();
        match self.channel.dequeue(&[Room::from(spare)]) {
            Ok(Dequeued::Bytes(count)) => {
                self.length = (self.length + count).min(BUFFER);
                Ok(true)
            }
            Ok(Dequeued::Waits) => Ok(false),
            Ok(Dequeued::End) => Err(Failure::Ended),
            Err(error) => Err(Failure::Transport(error)),
        }
    }

    /// Handles the received frames, up to the end of the handshake.
    fn take_frames(&mut self) -> Result<(), Failure> {
        while !matches!(self.state, Some(State::Open(_))) {
            let unread = self.unread.get(..self.length).unwrap_or_default();
            let step = self.parser.next(unread).map_err(Refused::from)?;
            let Step::Frame { frame, consumed } = step else {
                return Ok(());
            };
            let Some(state) = self.state.take() else {
                return Ok(());
            };
            let (state, answer) = handle(state, &frame, &self.admission)?;
            self.state = Some(state);
            self.unread.copy_within(consumed..self.length, 0);
            self.length -= consumed;
            if let Some(answer) = answer {
                self.queue_frame(&answer);
            }
        }
        Ok(())
    }

    /// Reads and ignores bytes, until the other end has closed or has sent too much.
    fn ignore(&mut self) -> Result<Progress, Failure> {
        loop {
            self.length = 0;
            if !self.read()? {
                return Ok(Progress::Waits);
            }
            if let Some(State::Refused { ignored }) = &mut self.state {
                *ignored += self.length;
                if *ignored > MOST_IGNORED {
                    return Ok(Progress::Closed);
                }
            }
        }
    }

    fn queue_frame(&mut self, frame: &Frame<'_>) {
        // At most two frames wait: an answer, and GOAWAY after it.
        let room = self.unsent.get_mut(self.queued..).unwrap_or_default();
        if let Ok(bytes) = frame.encode(room) {
            self.queued += bytes;
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let unsent = self.unsent.get(self.sent..self.queued).unwrap_or_default();
        if !unsent.is_empty() {
            let taken = self.channel.enqueue(&[Run::from(unsent)]);
            self.sent += taken.map_err(Failure::Transport)?;
        }
        if self.sent == self.queued {
            (self.sent, self.queued) = (0, 0);
        }
        Ok(())
    }
}

/// One step of the handshake: returns the next state and the frame to send.
fn handle(
    state: State,
    frame: &Frame<'_>,
    admission: &Admission,
) -> Result<(State, Option<Frame<'static>>), Failure> {
    let Some(key) = &admission.key else {
        return Err(Failure::Denied(GoAwayReason::UnknownPeer));
    };
    Ok(match state {
        State::Dialled(initiator) => {
            let (proof, established) = initiator.handle_answer(frame, key)?;
            (State::Open(Box::new(established)), Some(proof))
        }
        State::Accepted(identity) => {
            let responder = Responder::new(identity, frame)?;
            let hello = responder.peer();
            if hello.number >= u32::from(*admission.most.get(from_wire(hello.class))) {
                return Err(Failure::Denied(GoAwayReason::TooMany));
            }
            let answer = responder.answer(key);
            (State::Answered(responder), Some(answer))
        }
        State::Answered(responder) => {
            let established = responder.handle_proof(frame, key)?;
            (State::Open(Box::new(established)), None)
        }
        State::Open(_) | State::Refused { .. } => (state, None),
    })
}

const _: () = assert!(BUFFER > HEADER + MOST_FIXED_FRAME);
