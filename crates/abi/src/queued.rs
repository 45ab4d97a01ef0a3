//! What a client says of a connection that it brings to the queue of a listener: the abstract name of its own end of the
//! anchor. Who accepts has it together with the connection, and waits for no word of a client that may never say one.
//!
//! ```text
//!  netchannel-connection- | 75 characters: seven words of 8 bytes, little endian, six bits in each from '0' on
//! ```

const MARK: &[u8; 23] = b"\0netchannel-connection-";
const WORDS: usize = 7;
const BYTES: usize = WORDS * size_of::<u64>();
const CHARACTERS: usize = (BYTES * 8).div_ceil(6);
/// Bytes of such a name.
pub const NAME: usize = MARK.len() + CHARACTERS;
/// Beside the number of the memory.
const SENDS_MEMORY: u64 = 1 << 63;

/// A connection in a queue, as its client describes it. Nothing of it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedConnection {
    /// Number of the link.
    pub link: u64,
    /// Slots of the link.
    pub slots: u64,
    /// Bytes of one arena of the link.
    pub arena: u64,
    /// The slot, as [`crate::handle::Handle::to_word`].
    pub handle: u64,
    /// Geometry of a ring in the server's arena that whoever accepts may use for what it sends; 0 for none.
    pub ring: u64,
    /// The link's memory among the client's descriptors.
    pub memory: u32,
    /// Whether the memory comes in a message, for acceptors of the client's own user.
    pub sends_memory: bool,
    /// When the client came, in ticks of its clock.
    pub announced: u64,
}

impl QueuedConnection {
    /// The name that says so.
    #[must_use]
    pub fn to_name(&self) -> [u8; NAME] {
        let flag = if self.sends_memory { SENDS_MEMORY } else { 0 };
        let words: [u64; WORDS] = [
            self.link,
            self.slots,
            self.arena,
            self.handle,
            self.ring,
            u64::from(self.memory) | flag,
            self.announced,
        ];
        // One byte more, so that the last six bits end within.
        let mut bytes = [0; BYTES + 1];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let mut name = [0; NAME];
        let (mark, characters) = name.split_at_mut(MARK.len());
        mark.copy_from_slice(MARK);
        for (index, character) in characters.iter_mut().enumerate() {
            let (at, shift) = (index * 6 / 8, index * 6 % 8);
            let pair = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            *character = b'0' + (pair >> shift & 63) as u8;
        }
        name
    }

    /// What a name says; `None` where it is no such name.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let characters = name.strip_prefix(MARK)?;
        if characters.len() != CHARACTERS {
            return None;
        }
        let mut bytes = [0_u8; BYTES + 1];
        for (index, character) in characters.iter().enumerate() {
            let six = character.checked_sub(b'0').filter(|six| *six < 64)?;
            let (at, shift) = (index * 6 / 8, index * 6 % 8);
            let [low, high] = (u16::from(six) << shift).to_le_bytes();
            bytes[at] |= low;
            bytes[at + 1] |= high;
        }
        let mut words = [0; WORDS];
        for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(eight.try_into().ok()?);
        }
        let [link, slots, arena, handle, ring, memory, announced] = words;
        Some(Self {
            link,
            slots,
            arena,
            handle,
            ring,
            memory: u32::try_from(memory & !SENDS_MEMORY).ok()?,
            sends_memory: memory & SENDS_MEMORY != 0,
            announced,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: QueuedConnection = QueuedConnection {
        link: 0x0123_4567_89ab_cdef,
        slots: 1024,
        arena: 1 << 32,
        handle: u64::MAX,
        ring: 1 << 63 | 1,
        memory: u32::MAX,
        sends_memory: true,
        announced: 0xfedc_ba98_7654_3210,
    };

    #[test]
    fn a_name_says_what_was_said() {
        for sends_memory in [false, true] {
            let said = QueuedConnection {
                sends_memory,
                ..SAID
            };
            assert_eq!(QueuedConnection::of_name(&said.to_name()), Some(said));
        }
    }

    #[test]
    fn a_name_fits_into_an_address_and_into_a_line() {
        let name = SAID.to_name();
        assert!(name.len() < 108);
        assert!(name.get(1..).unwrap().iter().all(u8::is_ascii_graphic));
    }

    #[test]
    fn other_names_say_nothing() {
        let name = SAID.to_name();
        assert_eq!(QueuedConnection::of_name(&[]), None);
        assert_eq!(QueuedConnection::of_name(&name[1..]), None);
        assert_eq!(QueuedConnection::of_name(&name[..NAME - 1]), None);
        for (place, byte) in [(5, b'x'), (MARK.len(), b' '), (NAME - 1, b'p')] {
            let mut other = name;
            other[place] = byte;
            assert_eq!(QueuedConnection::of_name(&other), None);
        }
        // The number of a descriptor has 32 bits.
        let mut other = name;
        other[MARK.len() + 60] = b'o';
        assert_eq!(QueuedConnection::of_name(&other), None);
    }
}
