//! The kinds of frames, and the header fields that each of them uses.

use crate::MOST_CONTROL_PAYLOAD;
use crate::layout;

/// Bits of the header's flags.
pub mod flags {
    /// WINDOW: the FIN and all bytes before it have arrived.
    pub const FIN: u8 = 1;
    /// WINDOW: its receiver must send its own, without this flag.
    pub const ASK: u8 = 2;
    /// WINDOW: bytes beyond what is filled had come and were forgotten.
    pub const AGAIN: u8 = 4;
    /// WINDOW: all allowed flags.
    pub(crate) const OF_WINDOW: u8 = FIN | ASK | AGAIN;
    /// LISTEN: an IPv6 listener that takes no IPv4.
    pub const V6_ONLY: u8 = 1;
}

/// The allowed payload of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Exactly this many bytes.
    Exactly(usize),
    /// A list of elements of `size` bytes, at most [`MOST_CONTROL_PAYLOAD`] in all.
    List {
        /// Bytes of an element.
        size: usize,
    },
    /// Bytes of a stream: at least one, at most the announced limit of the receiver.
    Stream,
}

impl Payload {
    /// Whether a payload other than DATA's may have `length` bytes.
    #[must_use]
    pub const fn accepts(self, length: usize) -> bool {
        match self {
            Self::Exactly(size) => length == size,
            Self::List { size } => length <= MOST_CONTROL_PAYLOAD && length.is_multiple_of(size),
            Self::Stream => length > 0,
        }
    }
}

/// The header fields of a kind. Unused fields are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether it names a socket; then the generation is not zero.
    pub handle: bool,
    /// Whether the sequence is used.
    pub sequence: bool,
    /// The allowed flags.
    pub flags: u8,
    /// Its payload.
    pub payload: Payload,
}

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $code:literal $name:literal
        { $handle:ident, $sequence:ident, $flags:expr, $payload:expr },)+) => {
        /// The first byte of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$meta])* $kind = $code,)+
        }

        impl Kind {
            /// Every kind, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The kind of a code.
            #[must_use]
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// The name that documents and messages use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// The header fields that it uses.
            #[must_use]
            #[inline]
            pub const fn rules(self) -> Rules {
                match self {
                    $(Self::$kind => Rules {
                        handle: kinds!(@ $handle),
                        sequence: kinds!(@ $sequence),
                        flags: $flags,
                        payload: $payload,
                    },)+
                }
            }
        }
    };
    (@ handle) => { true };
    (@ sequence) => { true };
    (@ none) => { false };
}

kinds! {
    /// Begins a channel: who dials, which channel, a challenge.
    Hello = 1 "HELLO" { none, none, 0, Payload::Exactly(layout::hello::SIZE) },
    /// Who answers, a challenge, and the proof for HELLO's.
    HelloAnswer = 2 "HELLO_ANSWER" { none, none, 0, Payload::Exactly(layout::hello_answer::SIZE) },
    /// The proof for the challenge of HELLO_ANSWER; the channel is open.
    HelloProof = 3 "HELLO_PROOF" { none, none, 0, Payload::Exactly(layout::hello_proof::SIZE) },
    /// The last frame of its sender on this channel.
    GoAway = 4 "GOAWAY" { none, none, 0, Payload::Exactly(layout::goaway::SIZE) },
    /// Asks for a PONG.
    Ping = 5 "PING" { none, sequence, 0, Payload::Exactly(0) },
    /// Answers a PING with its sequence.
    Pong = 6 "PONG" { none, sequence, 0, Payload::Exactly(0) },
    /// Asks for a virtual connection.
    NcSyn = 16 "NCSYN" { handle, none, 0, Payload::Exactly(layout::ncsyn::SIZE) },
    /// Grants it.
    NcSynAck = 17 "NCSYN_ACK" { handle, none, 0, Payload::Exactly(layout::ncsyn_ack::SIZE) },
    /// Refuses it.
    NcRst = 18 "NCRST" { handle, none, 0, Payload::Exactly(layout::ncrst::SIZE) },
    /// Bytes of a stream, and where in the stream they belong.
    Data = 19 "DATA" { handle, sequence, 0, Payload::Stream },
    /// How far the receiver's ring is filled, and how far it may be.
    Window = 20 "WINDOW" { handle, sequence, flags::OF_WINDOW, Payload::Exactly(layout::window::SIZE) },
    /// The stream ends at this sequence.
    Fin = 21 "FIN" { handle, sequence, 0, Payload::Exactly(0) },
    /// The connection is reset.
    Rst = 22 "RST" { handle, none, 0, Payload::Exactly(layout::rst::SIZE) },
    /// The handle that a frame named is no socket of its receiver.
    NoSocket = 23 "NO_SOCKET" { handle, none, 0, Payload::Exactly(0) },
    /// The byte before this sequence is urgent, perhaps the last one of several in a row.
    Urgent = 24 "URGENT" { handle, sequence, 0, Payload::Exactly(layout::urgent::SIZE) },
    /// All addresses of the host.
    Addresses = 32 "ADDRESSES" { none, sequence, 0, Payload::List { size: layout::address::SIZE } },
    /// A listener exists.
    Listen = 33 "LISTEN" { none, sequence, flags::V6_ONLY, Payload::Exactly(layout::listen::SIZE) },
    /// A listener is gone.
    Unlisten = 34 "UNLISTEN" { none, sequence, 0, Payload::Exactly(layout::unlisten::SIZE) },
    /// A full list was said.
    ListenEnd = 35 "LISTEN_END" { none, sequence, 0, Payload::Exactly(layout::listen_end::SIZE) },
}

impl Kind {
    /// Whether the kind belongs to the handshake, before a channel is open.
    #[must_use]
    #[inline]
    pub const fn is_handshake(self) -> bool {
        matches!(self, Self::Hello | Self::HelloAnswer | Self::HelloProof)
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_again() {
        for code in 0..=u8::MAX {
            let found = Kind::ALL.iter().find(|kind| **kind as u8 == code);
            assert_eq!(Kind::from_code(code), found.copied());
        }
    }

    #[test]
    fn control_payloads_fit_a_readers_buffer() {
        for kind in Kind::ALL {
            match kind.rules().payload {
                Payload::Exactly(size) => assert!(size <= MOST_CONTROL_PAYLOAD, "{kind}"),
                Payload::List { size } => assert!(MOST_CONTROL_PAYLOAD.is_multiple_of(size)),
                Payload::Stream => assert_eq!(*kind, Kind::Data),
            }
        }
    }
}
