//! The violations of the wire format by a peer. Each one ends the channel.

use thiserror::Error;

use crate::kind::Kind;
use crate::reason::GoAwayReason;
use crate::{MAGIC, VERSION};

/// Why the parser refuses the bytes of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The first byte of a frame is no kind.
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
        /// The unknown flags.
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
    /// A payload that is not allowed for the kind.
    #[error("{kind} cannot have a payload of {length} bytes")]
    Length {
        /// The frame.
        kind: Kind,
        /// Bytes of payload.
        length: u32,
    },
    /// More payload than this host has announced to accept.
    #[error("DATA with {length} bytes, where at most {most} were announced")]
    TooMuchData {
        /// Bytes of payload.
        length: u32,
        /// The announced limit.
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
    /// An unknown code.
    #[error("{kind}: {field} cannot be {code}")]
    UnknownCode {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// The value.
        code: u32,
    },
    /// An address of an unknown family, or with bytes beyond those of its family.
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
        /// Its index, from 0.
        number: usize,
    },
    /// The window ends before the acknowledged sequence.
    #[error("WINDOW: filled to {filled}, but the limit is {limit}")]
    NegativeWindow {
        /// The acknowledged sequence.
        filled: u64,
        /// The limit.
        limit: u64,
    },
    /// A run of urgent bytes without any.
    #[error("URGENT: the row begins with {first}, and ends before {sequence}")]
    NegativeRow {
        /// The first of them.
        first: u64,
        /// The sequence after the last one.
        sequence: u64,
    },
    /// A list whose end precedes its beginning.
    #[error("LISTEN_END: the list ends with {serial}, but begins with {first}")]
    NegativeList {
        /// Serial of the first announcement.
        first: u64,
        /// Serial of the end.
        serial: u64,
    },
    /// The process at that port is no daemon of NetChannel.
    #[error("not a NetChannel daemon: HELLO does not begin with {:?}", MAGIC.escape_ascii().to_string())]
    NotNetChannel,
    /// The peer speaks another version of the wire format.
    #[error("the peer has version {theirs} of the wire format, this host has version {VERSION}")]
    Version {
        /// The version of the peer.
        theirs: u32,
    },
    /// A value out of its range.
    #[error("{kind}: {field} cannot be {value}")]
    OutOfRange {
        /// The frame.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// The value.
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
    /// A frame after the last one.
    #[error("{kind} behind GOAWAY")]
    AfterGoAway {
        /// The frame.
        kind: Kind,
    },
}

impl Violation {
    /// The reason that the peer is told before the channel is closed.
    #[must_use]
    pub const fn reason(&self) -> GoAwayReason {
        match self {
            Self::Version { .. } => GoAwayReason::Version,
            _ => GoAwayReason::Violation,
        }
    }
}
