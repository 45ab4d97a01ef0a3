//! Arbitrary bytes as a channel: read at once, and in pieces by a reader with the smallest buffer.
//! Both must see the same. Run by `../properties.rs` with bytes from proptest, and by the target
//! `wire` of `fuzz/` with bytes from a fuzzer.
#![allow(dead_code, reason = "each user of the body calls some of it")]

pub mod arbitrary;

use netchannel_wire::{
    DataHeader, HEADER, Handle, Kind, Parser, Step, Violation, encode_data_header,
};

pub use self::arbitrary::Source;

/// Most payload of DATA that the reader takes.
pub const MOST: u32 = 1 << 13;

/// What a reader gets, in a form that does not depend on how the bytes came.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The bytes that a frame other than DATA becomes when it is encoded again.
    Frame(Vec<u8>),
    Data {
        handle: Handle,
        sequence: u64,
        length: usize,
        payload: Vec<u8>,
    },
    Refused(Violation),
}

/// Decisions, then the bytes of a channel: as they are, or made of frames and perhaps damaged.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let choice = source.byte();
    let open = choice & 1 == 0;
    let from_frames = choice & 2 == 0;
    let damaged = choice & 4 != 0;
    let splits = source.word();
    let (channel, expected) = match from_frames {
        true => arbitrary::channel(&mut source, open),
        false => (source.rest(), Vec::new()),
    };
    let mut bytes = channel;
    let damages = if from_frames && damaged { 3 } else { 0 };
    for _ in 0..damages {
        let at = usize::from(source.byte()) << 4 | usize::from(source.byte());
        let length = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % length) {
            *byte ^= source.byte();
        }
    }
    let whole = read_at_once(&bytes, open);
    assert_eq!(read_in_pieces(&bytes, open, splits), whole);
    if from_frames && !damaged {
        assert_eq!(whole, expected);
    }
}

/// All events, from a buffer that holds everything.
pub fn read_at_once(bytes: &[u8], open: bool) -> Vec<Event> {
    let mut reader = Reader::new(open);
    let consumed = reader.take(bytes);
    reader.check_end(bytes.len() - consumed);
    reader.events
}

/// All events, from a buffer of the least size into which arbitrary pieces are read. Sometimes the
/// reader takes what is missing of a payload past the buffer, as a ring would get it.
pub fn read_in_pieces(mut bytes: &[u8], open: bool, mut random: u64) -> Vec<Event> {
    let mut reader = Reader::new(open);
    let mut buffer: Vec<u8> = Vec::new();
    while !bytes.is_empty() && !reader.has_failed() {
        // xorshift64: the source may have run out.
        random |= 1;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if let Some(pending) = reader.parser.pending()
            && random & 0x300 == 0
        {
            assert!(buffer.is_empty());
            let (placed, rest) = bytes.split_at(pending.missing.min(bytes.len()));
            reader.add(pending.sequence, placed);
            reader.parser.placed(placed.len());
            bytes = rest;
            continue;
        }
        let room = Parser::LEAST_BUFFER - buffer.len();
        assert!(room > 0, "a full buffer must hold a frame");
        let most = if random & 0xc00 == 0 { room } else { 40 };
        let piece = usize::from(random.to_le_bytes()[7]) % most.min(room) + 1;
        let (read, rest) = bytes.split_at(piece.min(bytes.len()));
        bytes = rest;
        buffer.extend_from_slice(read);
        let consumed = reader.take(&buffer);
        buffer.drain(..consumed);
    }
    if !reader.has_failed() {
        reader.check_end(buffer.len());
    }
    reader.events
}

struct Reader {
    parser: Parser,
    events: Vec<Event>,
    /// Bytes that the parser asked for last.
    needed: usize,
}

impl Reader {
    fn new(open: bool) -> Self {
        let mut parser = Parser::new(MOST);
        if open {
            parser.open();
        }
        Self {
            parser,
            events: Vec::new(),
            needed: 0,
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.events.last(), Some(Event::Refused(_)))
    }

    /// Takes all that is whole; returns how many bytes that were.
    fn take(&mut self, unread: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let pending = self.parser.pending();
            let rest = &unread[at..];
            let step = match self.parser.next(rest) {
                Ok(step) => step,
                Err(violation) => {
                    assert_eq!(self.parser.next(rest), Err(violation), "it stays refused");
                    assert!(!violation.to_string().is_empty());
                    self.events.push(Event::Refused(violation));
                    return at;
                }
            };
            at += step.consumed();
            match step {
                Step::NeedMore { bytes } => {
                    assert!(bytes > rest.len() && bytes <= Parser::LEAST_BUFFER);
                    self.needed = bytes;
                    return at;
                }
                Step::Frame { frame, consumed } => {
                    let mut again = [0; Parser::LEAST_BUFFER];
                    let length = frame.encode(&mut again).unwrap();
                    // Every frame has one encoding only.
                    assert_eq!(again[..length], rest[..consumed], "{frame:?}");
                    self.events.push(Event::Frame(rest[..consumed].to_vec()));
                    if frame.kind() == Kind::HelloProof {
                        self.parser.open();
                    }
                }
                Step::Data {
                    handle,
                    sequence,
                    payload,
                    missing,
                } => {
                    if let Some(before) = pending {
                        assert_eq!(before.handle, handle);
                        assert_eq!(before.missing, payload.len() + missing);
                        assert_eq!(payload.start, 0);
                    } else {
                        let length = payload.len() + missing;
                        let mut header = [0; HEADER];
                        let data = DataHeader {
                            handle,
                            sequence,
                            length: u32::try_from(length).unwrap(),
                        };
                        encode_data_header(&mut header, &data);
                        assert_eq!(rest[..payload.start], header);
                        self.events.push(Event::Data {
                            handle,
                            sequence,
                            length,
                            payload: Vec::new(),
                        });
                    }
                    assert_eq!(
                        self.parser.pending().map_or(0, |pending| pending.missing),
                        missing
                    );
                    self.add(sequence, &rest[payload]);
                }
            }
        }
    }

    /// Places bytes of a stream where their sequence says.
    fn add(&mut self, at: u64, bytes: &[u8]) {
        let Some(Event::Data {
            sequence, payload, ..
        }) = self.events.last_mut()
        else {
            panic!("bytes without a header");
        };
        assert_eq!(at, *sequence + payload.len() as u64);
        payload.extend_from_slice(bytes);
    }

    /// After the last byte: what is left is less than what the parser asked for.
    fn check_end(&self, left: usize) {
        assert!(self.has_failed() || left < self.needed.max(1));
    }
}
