//! Frames other than DATA, as values: encoding and decoding of each.

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use thiserror::Error;

use crate::address::{self, AddressList};
use crate::bytes::{put, take, u32_at, u64_at};
use crate::header::{HEADER, Header};
use crate::hello::{Hello, HelloAnswer, HelloProof};
use crate::kind::{Kind, flags};
use crate::layout::{
    self, goaway, listen, listen_end, ncrst, ncsyn, ncsyn_ack, rst, unlisten, window,
};
use crate::reason::{Class, GoAwayReason, Refusal, ResetReason};
use crate::violation::Violation;
use crate::{MOST_ADDRESSES, MOST_FIXED_FRAME};

/// Asks for a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcSyn {
    /// The initiator's socket: frames to it carry this handle.
    pub handle: Handle,
    /// The connecting program's address.
    pub client: Address,
    /// The address it connects to.
    pub server: Address,
    /// The initiator's first window: the responder may send up to this sequence.
    pub limit: u64,
    /// The listener as LISTEN numbered it, or 0: whoever listens at `server`.
    pub listener: u32,
    /// Class of the socket.
    pub class: Class,
}

/// Grants a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcSynAck {
    /// The initiator's socket.
    pub handle: Handle,
    /// The responder's socket: frames to it carry this handle.
    pub responder: Handle,
    /// The responder's first window: the initiator may send up to this sequence.
    pub limit: u64,
}

/// Refuses a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcRst {
    /// The initiator's socket.
    pub handle: Handle,
    /// Why.
    pub reason: Refusal,
}

/// How far the sender's ring for this socket is filled, and how far it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// All bytes before this sequence have arrived; the receiver of the frame may forget them.
    pub filled: u64,
    /// The receiver of the frame may send up to this sequence. Never less than `filled`.
    pub limit: u64,
    /// Whether the FIN has arrived too, and all bytes before it.
    pub fin: bool,
}

/// The stream of the frame's sender ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fin {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// The sequence behind the last byte.
    pub sequence: u64,
}

/// The connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rst {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// Why.
    pub reason: ResetReason,
}

/// A frame came for a handle that is no socket of this host, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSocket {
    /// The handle as that frame carried it: the *sender's* of NO_SOCKET. Its receiver finds the
    /// socket by the handle of its peer.
    pub handle: Handle,
}

/// A listener exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Greater than that of every announcement before.
    pub serial: u64,
    /// The sender's number for it, never 0.
    pub listener: u32,
    /// Where it listens; may be a wildcard.
    pub address: Address,
    /// An IPv6 listener that takes no IPv4.
    pub v6_only: bool,
}

/// A listener is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlisten {
    /// Greater than that of every announcement before.
    pub serial: u64,
    /// The listener.
    pub listener: u32,
}

/// All listeners were announced since `first`: what was announced before it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenEnd {
    /// Greater than that of every announcement before.
    pub serial: u64,
    /// Serial of the first announcement of the list.
    pub first: u64,
}

/// All addresses of a host, instead of those that it told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a> {
    /// Greater than that of every announcement before.
    pub serial: u64,
    /// The addresses; ports are zero.
    pub list: AddressList<'a>,
}

/// A frame other than DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named and documented as in `Kind`")]
pub enum Frame<'a> {
    Hello(Hello),
    HelloAnswer(HelloAnswer),
    HelloProof(HelloProof),
    GoAway(GoAwayReason),
    /// The number means something to its sender only.
    Ping(u64),
    /// The number of the PING.
    Pong(u64),
    NcSyn(NcSyn),
    NcSynAck(NcSynAck),
    NcRst(NcRst),
    Window(Window),
    Fin(Fin),
    Rst(Rst),
    NoSocket(NoSocket),
    Addresses(Addresses<'a>),
    Listen(Listen),
    Unlisten(Unlisten),
    ListenEnd(ListenEnd),
}

/// The buffer is too small for the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a frame of {needed} bytes does not fit")]
pub struct NoRoom {
    /// Bytes of the frame.
    pub needed: usize,
}

/// What a header says besides its kind and length: handle, sequence, flags.
type Words = (Handle, u64, u8);
const NONE: Handle = Header::NO_HANDLE;

impl Frame<'_> {
    /// The kind of frame.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::HelloAnswer(_) => Kind::HelloAnswer,
            Self::HelloProof(_) => Kind::HelloProof,
            Self::GoAway(_) => Kind::GoAway,
            Self::Ping(_) => Kind::Ping,
            Self::Pong(_) => Kind::Pong,
            Self::NcSyn(_) => Kind::NcSyn,
            Self::NcSynAck(_) => Kind::NcSynAck,
            Self::NcRst(_) => Kind::NcRst,
            Self::Window(_) => Kind::Window,
            Self::Fin(_) => Kind::Fin,
            Self::Rst(_) => Kind::Rst,
            Self::NoSocket(_) => Kind::NoSocket,
            Self::Addresses(_) => Kind::Addresses,
            Self::Listen(_) => Kind::Listen,
            Self::Unlisten(_) => Kind::Unlisten,
            Self::ListenEnd(_) => Kind::ListenEnd,
        }
    }

    /// Writes the frame at the start of `buffer`, without allocating, and says how many bytes it
    /// has: at most [`MOST_FIXED_FRAME`], but for ADDRESSES.
    ///
    /// # Errors
    /// The buffer is too small; nothing was written.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, NoRoom> {
        if let Self::Addresses(it) = self {
            let list = it.list.as_bytes();
            let words = (NONE, it.serial, 0);
            begin(Kind::Addresses, words, list.len(), buffer)?.copy_from_slice(list);
            return Ok(HEADER + list.len());
        }
        let mut payload = [0; MOST_FIXED_FRAME - HEADER];
        let (length, words) = self.encode_payload(&mut payload);
        let payload = payload.get(..length).unwrap_or_default();
        begin(self.kind(), words, length, buffer)?.copy_from_slice(payload);
        Ok(HEADER + length)
    }

    /// Writes the payload; returns its length and what goes into the header.
    fn encode_payload(&self, out: &mut [u8]) -> (usize, Words) {
        let quiet = (NONE, 0, 0);
        match self {
            Self::Hello(it) => (fill(out, &it.to_bytes()), quiet),
            Self::HelloAnswer(it) => (fill(out, &it.to_bytes()), quiet),
            Self::HelloProof(it) => (fill(out, &it.to_bytes()), quiet),
            Self::GoAway(reason) => (fill(out, &reason.code().to_le_bytes()), quiet),
            Self::Ping(number) | Self::Pong(number) => (0, (NONE, *number, 0)),
            Self::NcSyn(it) => (it.encode(out), (it.handle, 0, 0)),
            Self::NcSynAck(it) => {
                put(out, ncsyn_ack::INDEX, &it.responder.index.to_le_bytes());
                let generation = it.responder.generation;
                put(out, ncsyn_ack::GENERATION, &generation.to_le_bytes());
                put(out, ncsyn_ack::LIMIT, &it.limit.to_le_bytes());
                (ncsyn_ack::SIZE, (it.handle, 0, 0))
            }
            Self::NcRst(it) => {
                let length = fill(out, &it.reason.code().to_le_bytes());
                (length, (it.handle, 0, 0))
            }
            Self::Window(it) => {
                let flags = if it.fin { flags::FIN } else { 0 };
                let length = fill(out, &it.limit.to_le_bytes());
                (length, (it.handle, it.filled, flags))
            }
            Self::Fin(it) => (0, (it.handle, it.sequence, 0)),
            Self::Rst(it) => {
                let length = fill(out, &it.reason.code().to_le_bytes());
                (length, (it.handle, 0, 0))
            }
            Self::NoSocket(it) => (0, (it.handle, 0, 0)),
            // Written by `encode`.
            Self::Addresses(it) => (0, (NONE, it.serial, 0)),
            Self::Listen(it) => {
                let flags = if it.v6_only { flags::V6_ONLY } else { 0 };
                put(out, listen::ADDRESS, &address::to_bytes(&it.address));
                put(out, listen::LISTENER, &it.listener.to_le_bytes());
                (listen::SIZE, (NONE, it.serial, flags))
            }
            Self::Unlisten(it) => {
                let length = fill(out, &it.listener.to_le_bytes());
                (length, (NONE, it.serial, 0))
            }
            Self::ListenEnd(it) => {
                let length = fill(out, &it.first.to_le_bytes());
                (length, (NONE, it.serial, 0))
            }
        }
    }
}

impl NcSyn {
    fn encode(&self, out: &mut [u8]) -> usize {
        put(out, ncsyn::CLIENT, &address::to_bytes(&self.client));
        put(out, ncsyn::SERVER, &address::to_bytes(&self.server));
        put(out, ncsyn::LIMIT, &self.limit.to_le_bytes());
        put(out, ncsyn::LISTENER, &self.listener.to_le_bytes());
        put(out, ncsyn::CLASS, &[self.class.code()]);
        ncsyn::SIZE
    }
}

/// Writes an ADDRESSES frame from addresses; their ports and scopes are not told. Only the first
/// [`MOST_ADDRESSES`] fit into a frame.
///
/// # Errors
/// The buffer is too small; nothing was written.
pub fn encode_addresses(
    serial: u64,
    addresses: &[Address],
    buffer: &mut [u8],
) -> Result<usize, NoRoom> {
    let told = addresses.get(..MOST_ADDRESSES).unwrap_or(addresses);
    let length = told.len() * layout::address::SIZE;
    let room = begin(Kind::Addresses, (NONE, serial, 0), length, buffer)?;
    let (elements, _) = room.as_chunks_mut();
    for (element, told) in elements.iter_mut().zip(told) {
        *element = address::to_bytes(&Address { port: 0, ..*told });
    }
    Ok(HEADER + length)
}

/// Writes the header of a frame, and gives the room for its payload.
fn begin(kind: Kind, words: Words, length: usize, buffer: &mut [u8]) -> Result<&mut [u8], NoRoom> {
    let (handle, sequence, flags) = words;
    let no_room = NoRoom {
        needed: HEADER + length,
    };
    let room = buffer.get_mut(..HEADER + length).ok_or(no_room)?;
    let (front, behind) = room.split_first_chunk_mut().ok_or(no_room)?;
    let header = Header {
        kind,
        flags,
        length: u32::try_from(length).map_err(|_| no_room)?,
        handle,
        sequence,
    };
    header.encode(front);
    Ok(behind)
}

/// Writes `bytes` at the start of `out` and returns how many they are.
fn fill(out: &mut [u8], bytes: &[u8]) -> usize {
    put(out, 0, bytes);
    bytes.len()
}

/// Decodes a frame from its checked header and its whole payload.
pub(crate) fn decode<'a>(header: &Header, payload: &'a [u8]) -> Result<Frame<'a>, Violation> {
    let Header {
        kind,
        flags,
        handle,
        sequence,
        ..
    } = *header;
    Ok(match kind {
        Kind::Hello => Frame::Hello(Hello::decode(kind, payload)?),
        Kind::HelloAnswer => Frame::HelloAnswer(HelloAnswer::decode(payload)?),
        Kind::HelloProof => Frame::HelloProof(HelloProof::decode(payload)),
        Kind::GoAway => {
            let code = u32_at(payload, goaway::REASON);
            Frame::GoAway(GoAwayReason::from_code(code).ok_or(unknown(kind, code))?)
        }
        Kind::Ping => Frame::Ping(sequence),
        Kind::Pong => Frame::Pong(sequence),
        Kind::NcSyn => Frame::NcSyn(decode_ncsyn(handle, payload)?),
        Kind::NcSynAck => Frame::NcSynAck(decode_ncsyn_ack(handle, payload)?),
        Kind::NcRst => {
            let code = u32_at(payload, ncrst::REASON);
            let reason = Refusal::from_code(code).ok_or(unknown(kind, code))?;
            Frame::NcRst(NcRst { handle, reason })
        }
        Kind::Window => {
            let (filled, limit) = (sequence, u64_at(payload, window::LIMIT));
            if limit < filled {
                return Err(Violation::NegativeWindow { filled, limit });
            }
            Frame::Window(Window {
                handle,
                filled,
                limit,
                fin: flags & flags::FIN != 0,
            })
        }
        Kind::Fin => Frame::Fin(Fin { handle, sequence }),
        Kind::Rst => {
            let code = u32_at(payload, rst::REASON);
            let reason = ResetReason::from_code(code).ok_or(unknown(kind, code))?;
            Frame::Rst(Rst { handle, reason })
        }
        Kind::NoSocket => Frame::NoSocket(NoSocket { handle }),
        Kind::Addresses => {
            let list =
                AddressList::new(payload).map_err(|number| Violation::NotAnAddressOf { number })?;
            Frame::Addresses(Addresses {
                serial: sequence,
                list,
            })
        }
        Kind::Listen => Frame::Listen(Listen {
            serial: sequence,
            listener: listener(kind, u32_at(payload, listen::LISTENER))?,
            address: address_at(kind, "address", payload, listen::ADDRESS)?,
            v6_only: flags & flags::V6_ONLY != 0,
        }),
        Kind::Unlisten => Frame::Unlisten(Unlisten {
            serial: sequence,
            listener: listener(kind, u32_at(payload, unlisten::LISTENER))?,
        }),
        Kind::ListenEnd => {
            let (serial, first) = (sequence, u64_at(payload, listen_end::FIRST));
            if serial < first {
                return Err(Violation::NegativeList { first, serial });
            }
            Frame::ListenEnd(ListenEnd { serial, first })
        }
        // The parser yields DATA by itself.
        Kind::Data => return Err(Violation::NotOpen { kind }),
    })
}

fn decode_ncsyn(handle: Handle, payload: &[u8]) -> Result<NcSyn, Violation> {
    let kind = Kind::NcSyn;
    let reserved: [u8; 3] = take(payload, ncsyn::RESERVED);
    if reserved != [0; 3] {
        let field = "reserved";
        return Err(Violation::NotZero { kind, field });
    }
    let [class] = take(payload, ncsyn::CLASS);
    let Some(class) = Class::from_code(class) else {
        return Err(Violation::UnknownCode {
            kind,
            field: "class",
            code: u32::from(class),
        });
    };
    Ok(NcSyn {
        handle,
        client: address_at(kind, "client", payload, ncsyn::CLIENT)?,
        server: address_at(kind, "server", payload, ncsyn::SERVER)?,
        limit: u64_at(payload, ncsyn::LIMIT),
        listener: u32_at(payload, ncsyn::LISTENER),
        class,
    })
}

fn decode_ncsyn_ack(handle: Handle, payload: &[u8]) -> Result<NcSynAck, Violation> {
    let responder = Handle {
        index: u32_at(payload, ncsyn_ack::INDEX),
        generation: u32_at(payload, ncsyn_ack::GENERATION),
    };
    if responder.generation == 0 {
        let kind = Kind::NcSynAck;
        return Err(Violation::NoGeneration { kind });
    }
    Ok(NcSynAck {
        handle,
        responder,
        limit: u64_at(payload, ncsyn_ack::LIMIT),
    })
}

fn listener(kind: Kind, number: u32) -> Result<u32, Violation> {
    match number {
        0 => Err(Violation::OutOfRange {
            kind,
            field: "listener",
            value: 0,
        }),
        _ => Ok(number),
    }
}

fn address_at(
    kind: Kind,
    field: &'static str,
    payload: &[u8],
    at: usize,
) -> Result<Address, Violation> {
    address::from_bytes(&take(payload, at)).ok_or(Violation::NotAnAddress { kind, field })
}

const fn unknown(kind: Kind, code: u32) -> Violation {
    Violation::UnknownCode {
        kind,
        field: "reason",
        code,
    }
}
