//! The bytes of a channel: what two daemons say to each other over one transport connection. Frames,
//! their limits, an incremental parser, and the handshake with which a channel begins.
//!
//! Never: I/O, clocks, unsafe code, random numbers (nonces are passed in), or memory allocated by a
//! length that a peer told. What a frame *does* to a virtual socket stands in `vns`, where its bytes
//! go in `engine`. The contract is `docs/wire-format.md`; a test compares its tables with this crate.
//!
//! ```text
//!  sender                                                     receiver
//!  ------                                                     --------
//!  Frame::encode -------+                             +-----> Step::Frame   control, decoded
//!  encode_data_header --+--> transport --> Parser ----+
//!  bytes of the ring ---+   (any split)               +-----> Step::Data    a range of the buffer, and
//!                                                             how many bytes follow, which the reader
//!                                                             may read straight into a ring
//! ```
//!
//! ```text
//!  Initiator --- HELLO (fields, nonce) ----------------------> Responder
//!            <-- HELLO_ANSWER (fields, nonce, proof) ---------
//!            --- HELLO_PROOF (proof) ------------------------>
//!  Established                                                Established
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod announce;
mod bytes;
pub mod frame;
pub mod handshake;
pub mod header;
pub mod hello;
pub mod key;
pub mod kind;
pub mod layout;
pub mod parser;
pub mod reason;
mod violation;

pub use address::AddressList;
pub use frame::{
    Addresses, Fin, Frame, Listen, ListenEnd, NcRst, NcSyn, NcSynAck, NoRoom, NoSocket, Rst,
    Unlisten, Urgent, Window, encode_addresses,
};
pub use handshake::{Established, Identity, Initiator, Refused, Responder};
pub use header::{DataHeader, HEADER, encode_data_header};
pub use hello::{Hello, HelloAnswer, HelloProof, HostId, Limits, Nonce, Proof};
pub use key::{Key, KeyError};
pub use kind::Kind;
pub use netchannel_abi::address::Address;
pub use netchannel_abi::handle::Handle;
pub use parser::{Parser, Pending, Step};
pub use reason::{Class, GoAwayReason, Refusal, ResetReason};
pub use violation::Violation;

/// Version of the wire format. Both daemons must have the same.
pub const VERSION: u32 = 3;
/// First bytes of HELLO and HELLO_ANSWER.
pub const MAGIC: [u8; 8] = *b"NCWIRE01";
/// Most payload bytes of one DATA frame, whatever a host announces.
pub const MOST_PAYLOAD: u32 = 1 << 20;
/// Least payload of a DATA frame that every host takes, in bytes.
pub const LEAST_PAYLOAD: u32 = 1 << 12;
/// Most addresses in one ADDRESSES frame.
pub const MOST_ADDRESSES: usize = 256;
/// Most payload bytes of a frame other than DATA. A reader's buffer must hold [`HEADER`] and this.
pub const MOST_CONTROL_PAYLOAD: usize = MOST_ADDRESSES * layout::address::SIZE;
/// Bytes of the longest frame besides ADDRESSES and DATA: room for any [`Frame::encode`] of those.
pub const MOST_FIXED_FRAME: usize = HEADER + layout::hello_answer::SIZE;
