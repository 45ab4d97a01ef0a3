//! The 24 bytes with which every frame begins.

use netchannel_abi::handle::Handle;

use crate::bytes::{put, take, u32_at, u64_at};
use crate::kind::{Kind, Payload, flags};
use crate::layout;
use crate::layout::header::{FLAGS, GENERATION, INDEX, KIND, LENGTH, RESERVED, SEQUENCE, SIZE};
use crate::violation::Violation;

/// Bytes of a frame's header.
pub const HEADER: usize = SIZE;
const _: () = assert!(HEADER == 24);

/// A header, decoded and checked against the rules of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub flags: u8,
    /// Payload bytes behind the header.
    pub length: u32,
    pub handle: Handle,
    pub sequence: u64,
}

impl Header {
    pub(crate) const NO_HANDLE: Handle = Handle {
        index: 0,
        generation: 0,
    };

    #[inline]
    pub(crate) fn encode(&self, bytes: &mut [u8; HEADER]) {
        *bytes = [0; HEADER];
        put(bytes, KIND, &[self.kind as u8]);
        put(bytes, FLAGS, &[self.flags]);
        put(bytes, LENGTH, &self.length.to_le_bytes());
        put(bytes, INDEX, &self.handle.index.to_le_bytes());
        put(bytes, GENERATION, &self.handle.generation.to_le_bytes());
        put(bytes, SEQUENCE, &self.sequence.to_le_bytes());
    }

    /// Decodes valid headers of DATA and WINDOW, and no others. A fast path of [`Header::decode`].
    #[inline]
    pub(crate) fn frequent(bytes: &[u8; HEADER], most: u32) -> Option<Self> {
        let [code] = take(bytes, KIND);
        let [flags] = take(bytes, FLAGS);
        let reserved: [u8; 2] = take(bytes, RESERVED);
        let length = u32_at(bytes, LENGTH);
        let generation = u32_at(bytes, GENERATION);
        let sequence = u64_at(bytes, SEQUENCE);
        let (kind, known, fits) = if code == Kind::Data as u8 {
            let ends = sequence.checked_add(u64::from(length)).is_some();
            (Kind::Data, 0, length > 0 && length <= most && ends)
        } else if code == Kind::Window as u8 {
            let fits = length as usize == layout::window::SIZE;
            (Kind::Window, flags::OF_WINDOW, fits)
        } else {
            return None;
        };
        let well = fits && flags & !known == 0 && reserved == [0; 2] && generation != 0;
        well.then_some(Self {
            kind,
            flags,
            length,
            handle: Handle {
                index: u32_at(bytes, INDEX),
                generation,
            },
            sequence,
        })
    }

    /// Decodes and checks a header as far as possible without the payload. `most` is the largest payload of DATA that
    /// this host accepts.
    pub(crate) fn decode(bytes: &[u8; HEADER], most: u32) -> Result<Self, Violation> {
        let [code] = take(bytes, KIND);
        let Some(kind) = Kind::from_code(code) else {
            return Err(Violation::UnknownKind { code });
        };
        let [flags] = take(bytes, FLAGS);
        let header = Self {
            kind,
            flags,
            length: u32_at(bytes, LENGTH),
            handle: Handle {
                index: u32_at(bytes, INDEX),
                generation: u32_at(bytes, GENERATION),
            },
            sequence: u64_at(bytes, SEQUENCE),
        };
        let reserved: [u8; 2] = take(bytes, RESERVED);
        if reserved != [0; 2] {
            let field = "reserved";
            return Err(Violation::NotZero { kind, field });
        }
        header.check(most)?;
        Ok(header)
    }

    fn check(&self, most: u32) -> Result<(), Violation> {
        let Self { kind, length, .. } = *self;
        let rules = kind.rules();
        if self.flags & !rules.flags != 0 {
            let flags = self.flags & !rules.flags;
            return Err(Violation::UnknownFlags { kind, flags });
        }
        if rules.handle && self.handle.generation == 0 {
            return Err(Violation::NoGeneration { kind });
        }
        if !rules.handle && self.handle != Self::NO_HANDLE {
            let field = "handle";
            return Err(Violation::NotZero { kind, field });
        }
        if !rules.sequence && self.sequence != 0 {
            let field = "sequence";
            return Err(Violation::NotZero { kind, field });
        }
        if rules.payload == Payload::Stream {
            return self.check_stream(most);
        }
        match usize::try_from(length).is_ok_and(|length| rules.payload.accepts(length)) {
            true => Ok(()),
            false => Err(Violation::Length { kind, length }),
        }
    }

    fn check_stream(&self, most: u32) -> Result<(), Violation> {
        let Self {
            kind,
            length,
            sequence,
            ..
        } = *self;
        if length == 0 {
            return Err(Violation::Length { kind, length });
        }
        if length > most {
            return Err(Violation::TooMuchData { length, most });
        }
        match sequence.checked_add(u64::from(length)) {
            Some(_) => Ok(()),
            None => Err(Violation::BeyondTheEnd { sequence, length }),
        }
    }
}

/// The fields of a DATA frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The receiver's socket.
    pub handle: Handle,
    /// Sequence of the first byte of the payload.
    pub sequence: u64,
    /// The number of payload bytes; at least 1, at most what the receiver announced in its [`crate::Limits`].
    pub length: u32,
}

/// Writes the header of a DATA frame; the payload follows it on the channel.
#[inline]
pub fn encode_data_header(bytes: &mut [u8; HEADER], data: &DataHeader) {
    let header = Header {
        kind: Kind::Data,
        flags: 0,
        length: data.length,
        handle: data.handle,
        sequence: data.sequence,
    };
    header.encode(bytes);
}
