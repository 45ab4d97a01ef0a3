//! The note of the library's file: by it a program that preloads the library knows beforehand whether that can attach
//! to a daemon of its own build.
//!
//! ```text
//!  | 4 bytes: length of the name | 4: of the content | 4: kind | 12: "NetChannel" | 8: LAYOUT_HASH, little endian |
//! ```

use crate::LAYOUT_HASH;

const NAME: [u8; 12] = *b"NetChannel\0\0";

/// An ELF note, as the linker lays it beside others.
#[repr(C, align(4))]
pub struct Note {
    name_length: u32,
    content_length: u32,
    kind: u32,
    name: [u8; 12],
    content: [u8; 8],
}

/// The note of this build.
pub const OWN: Note = Note {
    // The name ends with its first zero.
    name_length: 11,
    content_length: 8,
    kind: 1,
    name: NAME,
    content: LAYOUT_HASH.to_le_bytes(),
};

/// The layouts that the note among these notes of a file tells; `None` without such a note.
#[must_use]
pub fn layout_of(notes: &[u8]) -> Option<u64> {
    let at = notes.windows(NAME.len()).position(|name| name == NAME)?;
    let content = notes.get(at + NAME.len()..)?.first_chunk()?;
    Some(u64::from_le_bytes(*content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_is_found_among_others() {
        let mut notes = b"\x04\0\0\0\x08\0\0\0\x01\0\0\0GNU\0something".to_vec();
        assert_eq!(layout_of(&notes), None);
        notes.extend(NAME);
        assert_eq!(layout_of(&notes), None, "without content");
        notes.extend(OWN.content);
        assert_eq!(layout_of(&notes), Some(LAYOUT_HASH));
    }
}
