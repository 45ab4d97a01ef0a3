//! The bytes the workloads send, and their verification at the other end.
//!
//! Small messages are verified whole. A stream is verified whole for its first
//! [`VERIFIED_WHOLE`] bytes; after that one word of each [`BLOCK`] carries the block's number,
//! so that loss, doubling and reordering are seen without the check becoming the thing measured.

/// Bytes of a small message, both directions; a multiple of a word, as all sizes of messages.
pub const MESSAGE: usize = 64;
/// A stamp opens each block of a stream.
pub const BLOCK: usize = 4096;
/// Bytes of a stream's call, the size that iperf3 uses.
pub const CALL: usize = 128 * 1024;
/// Bytes at a stream's beginning of which each is compared.
pub const VERIFIED_WHOLE: u64 = 8 * 1024 * 1024;

const STAMP: usize = size_of::<u64>();
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Request number `sequence` of sender `sender`.
pub fn request<const SIZE: usize>(sender: u64, sequence: u64) -> [u8; SIZE] {
    let mut message = [0; SIZE];
    let seed = sender.rotate_left(48) ^ sequence;
    for (index, word) in (0..).zip(message.chunks_exact_mut(STAMP)) {
        word.copy_from_slice(&word_of(seed, index).to_le_bytes());
    }
    message
}

/// Whether these bytes are a request that [`request`] could have made.
pub fn is_request<const SIZE: usize>(message: &[u8; SIZE]) -> bool {
    let mut words = message.chunks_exact(STAMP).map(|word| {
        let mut bytes = [0; STAMP];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    // The first word is the seed itself.
    let seed = words.next().unwrap_or_default();
    (1..)
        .zip(words)
        .all(|(index, word)| word == word_of(seed, index))
}

/// What the server answers to `request`.
pub fn reply<const SIZE: usize>(request: &[u8; SIZE]) -> [u8; SIZE] {
    request.map(|byte| !byte)
}

fn word_of(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index.wrapping_mul(ODD))
        .rotate_left(u32::try_from(index * 7 % 64).unwrap_or(0))
}

/// Makes the calls of a stream, one after the other.
pub struct StreamSource {
    buffer: Vec<u8>,
    block: u64,
}

impl StreamSource {
    /// A source at the stream's beginning.
    pub fn new() -> Self {
        let buffer = (0..CALL).map(filler).collect();
        StreamSource { buffer, block: 0 }
    }

    /// The bytes of the next call.
    pub fn next_call(&mut self) -> &[u8] {
        for block in self.buffer.chunks_exact_mut(BLOCK) {
            block[..STAMP].copy_from_slice(&self.block.to_le_bytes());
            self.block += 1;
        }
        &self.buffer
    }
}

/// Verifies a stream as it arrives, in pieces of any size.
pub struct StreamCheck {
    position: u64,
    /// A block as it must be, but for the stamp.
    block: Vec<u8>,
}

/// A stream had a wrong byte at this position, or in the piece of a block that begins there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("wrong byte in the stream at position {0}")]
pub struct WrongByte(pub u64);

impl StreamCheck {
    /// A check at the stream's beginning.
    pub fn new() -> Self {
        StreamCheck {
            position: 0,
            block: (0..BLOCK).map(filler).collect(),
        }
    }

    /// Bytes verified until now.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Takes the next piece.
    pub fn accept(&mut self, mut piece: &[u8]) -> Result<(), WrongByte> {
        while !piece.is_empty() {
            let within = within_block(self.position);
            let end = if within < STAMP { STAMP } else { BLOCK };
            let (part, rest) = piece.split_at((end - within).min(piece.len()));
            let range = within..within + part.len();
            let good = if within < STAMP {
                let number = self.position / BLOCK as u64;
                number.to_le_bytes()[range] == *part
            } else {
                self.position >= VERIFIED_WHOLE || self.block[range] == *part
            };
            if !good {
                return Err(WrongByte(self.position));
            }
            self.position += part.len() as u64;
            piece = rest;
        }
        Ok(())
    }
}

fn within_block(position: u64) -> usize {
    usize::try_from(position % BLOCK as u64).unwrap_or(0)
}

fn filler(index: usize) -> u8 {
    // A period of 251 within the block: a shift by a power of two is never the same text.
    u8::try_from(index % BLOCK % 251).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(calls: usize) -> Vec<u8> {
        let mut source = StreamSource::new();
        (0..calls)
            .flat_map(|_| source.next_call().to_vec())
            .collect()
    }

    #[test]
    fn each_byte_of_a_request_matters() {
        for (sender, sequence) in [(0, 0), (7, 1), (3, u64::MAX)] {
            let good = request::<MESSAGE>(sender, sequence);
            assert!(is_request(&good));
            for index in 0..MESSAGE {
                let mut bad = good;
                bad[index] ^= 0x10;
                assert!(!is_request(&bad), "byte {index}");
                assert_ne!(reply(&bad), reply(&good));
            }
        }
        assert_ne!(request::<MESSAGE>(1, 5), request(2, 5));
        let mut long = request::<4096>(3, 9);
        assert!(is_request(&long));
        long[4095] ^= 1;
        assert!(!is_request(&long));
    }

    #[test]
    fn a_stream_in_pieces_of_any_size_is_accepted() {
        let bytes = stream(80);
        for size in [1, 7, BLOCK, BLOCK + 1, CALL] {
            let mut check = StreamCheck::new();
            for piece in bytes.chunks(size) {
                check.accept(piece).unwrap();
            }
            assert_eq!(check.position(), bytes.len() as u64);
        }
    }

    #[test]
    fn any_wrong_byte_at_the_beginning_is_seen() {
        for position in [0, 7, 8, 9, BLOCK - 1, BLOCK, 70_001, CALL - 1] {
            let mut bytes = stream(1);
            bytes[position] ^= 1;
            assert!(StreamCheck::new().accept(&bytes).is_err(), "{position}");
        }
    }

    #[test]
    fn a_lost_or_doubled_byte_late_in_the_stream_is_seen() {
        let bytes = stream(80);
        let late = usize::try_from(VERIFIED_WHOLE).unwrap() + 10_000;
        let lost = [&bytes[..late], &bytes[late + 1..]].concat();
        assert!(StreamCheck::new().accept(&lost).is_err());
        let doubled = [&bytes[..late], &bytes[late - 1..]].concat();
        assert!(StreamCheck::new().accept(&doubled).is_err());
        let block_lost = [&bytes[..late], &bytes[late + BLOCK..]].concat();
        assert!(StreamCheck::new().accept(&block_lost).is_err());
    }
}
