//! What a peer can do wrong in the bytes of a channel. Every one ends the channel.

use thiserror::Error;

use crate::kind::Kind;
use crate::reason::GoAwayReason;
use crate::{MAGIC, VERSION};

/// Why the parser refuses the bytes of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The first byte of a frame names no kind.
    #[error("no frame has the kind {code}")]
    UnknownKind {
        /// The byte.
        code: u8,
    },
    /// Flags that the kind does not have.
    #[error("{kind} has unknown flags {flags:#04x}")]
    UnknownFlags {
        /// The frame.
        kind: Kind,
        /// The unknown ones.
        flags: u8,
    },
    /// A field that the kind does not use, or that is reserved, is not zero.
    #[error("{kind}: {field} must be zero")]
    NotZero {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
    },
    /// A handle with generation 0, which names no socket.
    #[error("{kind} names a socket of generation 0")]
    NoGeneration {
        /// The frame.
        kind: Kind,
    },
    /// A payload that the kind cannot have.
    #[error("{kind} cannot have a payload of {length} bytes")]
    Length {
        /// The frame.
        kind: Kind,
        /// Bytes of payload.
        length: u32,
    },
    /// More payload than this host announced that it takes.
    #[error("DATA with {length} bytes, where at most {most} were announced")]
    TooMuchData {
        /// Bytes of payload.
        length: u32,
        /// What was announced.
        most: u32,
    },
    /// The end of the payload is beyond the last sequence.
    #[error("DATA with {length} bytes at sequence {sequence} goes beyond 2^64")]
    BeyondTheEnd {
        /// Sequence of the first byte.
        sequence: u64,
        /// Bytes of payload.
        length: u32,
    },
    /// A code that means nothing.
    #[error("{kind}: {field} cannot be {code}")]
    UnknownCode {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// What it says.
        code: u32,
    },
    /// An address of another family, or with bytes where its family has none.
    #[error("{kind}: {field} is not an address")]
    NotAnAddress {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
    },
    /// An element of ADDRESSES is not an address, or has a port.
    #[error("ADDRESSES: number {number} is not an address without a port")]
    NotAnAddressOf {
        /// Which, from 0.
        number: usize,
    },
    /// The window ends before what it says is filled.
    #[error("WINDOW: filled to {filled}, but the limit is {limit}")]
    NegativeWindow {
        /// How far the ring is filled.
        filled: u64,
        /// How far it may be.
        limit: u64,
    },
    /// A row of urgent bytes without one.
    #[error("URGENT: the row begins with {first}, and ends before {sequence}")]
    NegativeRow {
        /// The first of them.
        first: u64,
        /// Behind the last one.
        sequence: u64,
    },
    /// A list that ends before it began.
    #[error("LISTEN_END: the list ends with {serial}, but begins with {first}")]
    NegativeList {
        /// Serial of the first announcement.
        first: u64,
        /// Serial of the end.
        serial: u64,
    },
    /// What answers on that port is not a daemon of NetChannel.
    #[error("not a NetChannel daemon: HELLO does not begin with {:?}", MAGIC.escape_ascii().to_string())]
    NotNetChannel,
    /// The peer speaks another version of the wire format.
    #[error("the peer has version {theirs} of the wire format, this host has version {VERSION}")]
    Version {
        /// The peer's.
        theirs: u32,
    },
    /// A value out of its range.
    #[error("{kind}: {field} cannot be {value}")]
    OutOfRange {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// A frame of an open channel before the handshake was complete.
    #[error("{kind} before the handshake was complete")]
    NotOpen {
        /// The frame.
        kind: Kind,
    },
    /// A frame of the handshake on an open channel.
    #[error("{kind} on a channel that is open")]
    AlreadyOpen {
        /// The frame.
        kind: Kind,
    },
    /// A frame behind the last one.
    #[error("{kind} behind GOAWAY")]
    AfterGoAway {
        /// The frame.
        kind: Kind,
    },
}

impl Violation {
    /// What the peer is told before the channel is closed.
    #[must_use]
    pub const fn reason(&self) -> GoAwayReason {
        match self {
            Self::Version { .. } => GoAwayReason::Version,
            _ => GoAwayReason::Violation,
        }
    }
}
