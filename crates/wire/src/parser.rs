//! The bytes of a channel, as they come, into frames. It allocates nothing, and the size of the
//! reader's buffer does not depend on anything that a peer says.

use core::ops::Range;

use netchannel_abi::handle::Handle;

use crate::frame::{self, Frame, Window};
use crate::header::{HEADER, Header};
use crate::hello::{VERSION_END, check_version};
use crate::kind::{Kind, flags};
use crate::layout;
use crate::violation::Violation;
use crate::{LEAST_PAYLOAD, MOST_CONTROL_PAYLOAD, MOST_PAYLOAD, bytes};

/// What the parser found at the start of the unread bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nothing yet: there must be at least so many unread bytes. Never more than
    /// [`Parser::LEAST_BUFFER`].
    NeedMore {
        /// Bytes from the start of the unread ones.
        bytes: usize,
    },
    /// A whole frame other than DATA.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Its bytes.
        consumed: usize,
    },
    /// Bytes of a stream: a DATA frame, or the continuation of one. A reader need not tell these
    /// two apart.
    Data {
        /// The socket they are for.
        handle: Handle,
        /// Sequence of the first of them.
        sequence: u64,
        /// Where in the unread bytes they lie; empty if only the header has come. It ends where the
        /// unread bytes of the next step begin.
        payload: Range<usize>,
        /// How many more belong to the frame and are not in the buffer.
        missing: usize,
    },
}

impl Step<'_> {
    /// How many of the unread bytes the step takes away.
    #[must_use]
    pub const fn consumed(&self) -> usize {
        match self {
            Self::NeedMore { .. } => 0,
            Self::Frame { consumed, .. } => *consumed,
            Self::Data { payload, .. } => payload.end,
        }
    }
}

/// The rest of a DATA frame that the parser has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The socket.
    pub handle: Handle,
    /// Sequence of the next byte.
    pub sequence: u64,
    /// Bytes that are missing; not 0.
    pub missing: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handshake.
    Opening,
    Open,
    /// GOAWAY was read.
    Ended,
    Failed(Violation),
}

/// Reads one direction of one channel.
///
/// The reader keeps the buffer. It calls [`Parser::next`] with the bytes that were not consumed yet
/// until that asks for more, then reads more of the channel.
#[derive(Clone, Debug)]
pub struct Parser {
    most: u32,
    phase: Phase,
    pending: Option<Pending>,
}

impl Parser {
    /// A buffer of this size can hold any frame but DATA, whose payload need not be in one piece.
    pub const LEAST_BUFFER: usize = HEADER + MOST_CONTROL_PAYLOAD;

    /// For a channel whose handshake has not begun. `most` is the payload of DATA that this host
    /// announces ([`crate::Limits::payload`]); it is brought within [`LEAST_PAYLOAD`] and
    /// [`MOST_PAYLOAD`].
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self {
            most: most.clamp(LEAST_PAYLOAD, MOST_PAYLOAD),
            phase: Phase::Opening,
            pending: None,
        }
    }

    /// The handshake is complete: from here on frames of the handshake are refused, and all others
    /// taken. Before, it is the other way round, but for GOAWAY.
    pub fn open(&mut self) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Open;
        }
    }

    /// Whether GOAWAY was read: nothing may follow.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// The bytes of a DATA frame that are still to come, if it is incomplete. A reader may read
    /// them past its buffer (straight into a ring), and say so with [`Parser::placed`].
    #[must_use]
    pub const fn pending(&self) -> Option<Pending> {
        self.pending
    }

    /// The reader has read `bytes` of the pending ones itself; more than are pending count as all.
    pub fn placed(&mut self, bytes: usize) {
        if let Some(pending) = self.pending {
            self.advance(pending, bytes.min(pending.missing));
        }
    }

    fn advance(&mut self, pending: Pending, taken: usize) {
        let missing = pending.missing - taken;
        self.pending = (missing > 0).then_some(Pending {
            // Checked with the header: the end of the payload is a sequence too.
            sequence: pending.sequence.wrapping_add(taken as u64),
            missing,
            ..pending
        });
    }

    /// The first frame of `unread`, or as much as there is of it if it is DATA.
    ///
    /// # Errors
    /// The bytes break the contract. The channel is of no use any more: every later call fails in
    /// the same way.
    #[inline]
    pub fn next<'a>(&mut self, unread: &'a [u8]) -> Result<Step<'a>, Violation> {
        if let Some(pending) = self.pending {
            return Ok(self.continuation(pending, unread));
        }
        if let Phase::Open = self.phase
            && let Some((front, behind)) = unread.split_first_chunk()
            && let Some(step) = self.frequent(front, behind)
        {
            return Ok(step);
        }
        let step = self.any(unread);
        if let Err(violation) = step {
            self.phase = Phase::Failed(violation);
        }
        step
    }

    /// DATA, and a WINDOW that is whole: small enough to become part of the reader's loop. What is
    /// not quite as it should be is left to [`Parser::any`], which says what is wrong with it.
    #[inline]
    fn frequent(&mut self, front: &[u8; HEADER], behind: &[u8]) -> Option<Step<'static>> {
        let header = Header::frequent(front, self.most)?;
        if header.kind == Kind::Data {
            return Some(self.data(&header, behind));
        }
        let (payload, _) = behind.split_first_chunk()?;
        let window = Window {
            handle: header.handle,
            filled: header.sequence,
            limit: u64::from_le_bytes(*payload),
            fin: header.flags & flags::FIN != 0,
            ask: header.flags & flags::ASK != 0,
            again: header.flags & flags::AGAIN != 0,
        };
        (window.filled <= window.limit).then_some(Step::Frame {
            frame: Frame::Window(window),
            consumed: HEADER + layout::window::SIZE,
        })
    }

    #[inline]
    fn data(&mut self, header: &Header, behind: &[u8]) -> Step<'static> {
        let length = header.length as usize;
        let pending = Pending {
            handle: header.handle,
            sequence: header.sequence,
            missing: length,
        };
        let taken = behind.len().min(length);
        self.advance(pending, taken);
        Step::Data {
            handle: pending.handle,
            sequence: pending.sequence,
            payload: HEADER..HEADER + taken,
            missing: length - taken,
        }
    }

    fn continuation(&mut self, pending: Pending, unread: &[u8]) -> Step<'static> {
        if unread.is_empty() {
            return Step::NeedMore { bytes: 1 };
        }
        let taken = unread.len().min(pending.missing);
        self.advance(pending, taken);
        Step::Data {
            handle: pending.handle,
            sequence: pending.sequence,
            payload: 0..taken,
            missing: pending.missing - taken,
        }
    }

    #[inline(never)]
    fn any<'a>(&mut self, unread: &'a [u8]) -> Result<Step<'a>, Violation> {
        if let Phase::Failed(violation) = self.phase {
            return Err(violation);
        }
        let Some((front, behind)) = unread.split_first_chunk() else {
            return Ok(Step::NeedMore { bytes: HEADER });
        };
        if self.phase == Phase::Opening
            && let Some(bytes) = needed_for_version(front, behind)?
        {
            return Ok(Step::NeedMore { bytes });
        }
        let header = Header::decode(front, self.most)?;
        self.check_phase(header.kind)?;
        if header.kind == Kind::Data {
            return Ok(self.data(&header, behind));
        }
        // At most `MOST_CONTROL_PAYLOAD`, so that no `usize` is too small.
        let length = header.length as usize;
        let consumed = HEADER + length;
        let Some(payload) = behind.get(..length) else {
            return Ok(Step::NeedMore { bytes: consumed });
        };
        let frame = frame::decode(&header, payload)?;
        if header.kind == Kind::GoAway {
            self.phase = Phase::Ended;
        }
        Ok(Step::Frame { frame, consumed })
    }

    fn check_phase(&self, kind: Kind) -> Result<(), Violation> {
        match self.phase {
            Phase::Open if kind.is_handshake() => Err(Violation::AlreadyOpen { kind }),
            Phase::Opening if !kind.is_handshake() && kind != Kind::GoAway => {
                Err(Violation::NotOpen { kind })
            }
            Phase::Ended => Err(Violation::AfterGoAway { kind }),
            _ => Ok(()),
        }
    }
}

/// Magic and version of a HELLO come before all else that is checked of it, as another version may
/// have another length. How many bytes are needed for that, if they are not there.
fn needed_for_version(front: &[u8; HEADER], behind: &[u8]) -> Result<Option<usize>, Violation> {
    let [code] = bytes::take(front, layout::header::KIND);
    let Some(kind @ (Kind::Hello | Kind::HelloAnswer)) = Kind::from_code(code) else {
        return Ok(None);
    };
    let length = bytes::u32_at(front, layout::header::LENGTH);
    if (length as usize) < VERSION_END {
        return Err(Violation::Length { kind, length });
    }
    match behind.get(..VERSION_END) {
        Some(start) => check_version(start).map(|()| None),
        None => Ok(Some(HEADER + VERSION_END)),
    }
}
