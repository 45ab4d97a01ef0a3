//! The encoder of frames, into buffers of the caller.

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use thiserror::Error;

use super::{Frame, NcSyn};
use crate::bytes::put;
use crate::header::{HEADER, Header};
use crate::kind::{Kind, flags};
use crate::layout::{self, listen, ncsyn, ncsyn_ack};
use crate::{MOST_ADDRESSES, MOST_FIXED_FRAME, address};

/// The buffer is too small for the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a frame of {needed} bytes does not fit")]
pub struct NoRoom {
    /// Bytes of the frame.
    pub needed: usize,
}

/// The header's fields besides kind and length: handle, sequence, flags.
type Words = (Handle, u64, u8);
const NONE: Handle = Header::NO_HANDLE;

impl Frame<'_> {
    /// Writes the frame at the start of `buffer`, without allocating. Returns its length: at most [`MOST_FIXED_FRAME`],
    /// except for ADDRESSES.
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

    /// Writes the payload. Returns its length and the fields of the header.
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
                let fin = if it.fin { flags::FIN } else { 0 };
                let ask = if it.ask { flags::ASK } else { 0 };
                let again = if it.again { flags::AGAIN } else { 0 };
                let length = fill(out, &it.limit.to_le_bytes());
                (length, (it.handle, it.filled, fin | ask | again))
            }
            Self::Fin(it) => (0, (it.handle, it.sequence, 0)),
            Self::Urgent(it) => {
                let length = fill(out, &it.first.to_le_bytes());
                (length, (it.handle, it.sequence, 0))
            }
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
        put(
            out,
            ncsyn::CLASS,
            &[self.class.map_or(0, crate::reason::Class::code)],
        );
        ncsyn::SIZE
    }
}

/// Writes an ADDRESSES frame from addresses, without their ports and scopes. Only the first [`MOST_ADDRESSES`] fit into
/// a frame.
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

/// Writes the header of a frame, and returns the room for its payload.
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

/// Writes `bytes` at the start of `out` and returns their number.
fn fill(out: &mut [u8], bytes: &[u8]) -> usize {
    put(out, 0, bytes);
    bytes.len()
}
