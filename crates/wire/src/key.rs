//! The key that two hosts share, by which each proves its identity to the other.

use core::fmt;

use hmac::digest::{Digest, KeyInit};
use sha2::Sha256;
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hello::HmacSha256;

/// Fewest bytes of a key.
pub const LEAST_KEY: usize = 32;
/// The limit of a key file's size. A larger file is likely to be another file.
pub const MOST_KEY_FILE: usize = 4096;
/// The block size of SHA-256, to which HMAC pads every key.
const BLOCK: usize = 64;

/// A key that two hosts share. Wiped from memory when dropped; `Debug` does not show it.
#[derive(Clone)]
pub struct Key([u8; BLOCK]);

/// Why the contents of a file are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is empty.
    #[error("the key file is empty; `openssl rand -hex 32` makes a key")]
    Empty,
    /// Fewer than [`LEAST_KEY`] bytes.
    #[error("the key has {bytes} bytes, and must have at least {LEAST_KEY}")]
    TooShort {
        /// The number of bytes.
        bytes: usize,
    },
    /// Hexadecimal digits, but too few of them.
    #[error("the key has {digits} hexadecimal digits, and must have at least {}", 2 * LEAST_KEY)]
    TooFewDigits {
        /// The number of bytes.
        digits: usize,
    },
    /// An odd number of hexadecimal digits.
    #[error("the key has {digits} hexadecimal digits, an odd number: is one missing?")]
    OddDigits {
        /// The number of digits.
        digits: usize,
    },
    /// More than [`MOST_KEY_FILE`] bytes.
    #[error("{bytes} bytes are more than a key file has (at most {MOST_KEY_FILE})")]
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// The same byte over and over.
    #[error("the key is one byte repeated: anybody can guess it")]
    Repeated,
}

impl Key {
    /// Parses the contents of a key file. Text that consists of hexadecimal digits, with white space anywhere, stands
    /// for the bytes of those digits. Other text is used as it is, without white space at its ends. Contents that are
    /// not text are used byte for byte.
    ///
    /// # Errors
    /// The mistake, in words for the log.
    pub fn from_contents(contents: &[u8]) -> Result<Self, KeyError> {
        let bytes = contents.len();
        if bytes > MOST_KEY_FILE {
            return Err(KeyError::TooLong { bytes });
        }
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if !contents.iter().all(is_text) {
            return Self::from_bytes(contents);
        }
        let text = contents.trim_ascii();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        match digits(text) {
            Some(digits) => Self::from_digits(&digits),
            None => Self::from_bytes(text),
        }
    }

    /// A key of at least [`LEAST_KEY`] bytes, used as they are.
    ///
    /// # Errors
    /// Too few bytes, or the same byte over and over.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if bytes.len() < LEAST_KEY {
            let bytes = bytes.len();
            return Err(KeyError::TooShort { bytes });
        }
        if bytes.windows(2).all(|pair| pair[0] == pair[1]) {
            return Err(KeyError::Repeated);
        }
        let mut block = [0; BLOCK];
        match block.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            // As HMAC does itself with a key longer than a block.
            None => {
                let digest = Zeroizing::<[u8; 32]>::new(Sha256::digest(bytes).into());
                block[..32].copy_from_slice(&*digest);
            }
        }
        let key = Self(block);
        block.zeroize();
        Ok(key)
    }

    fn from_digits(digits: &[u8]) -> Result<Self, KeyError> {
        let count = digits.len();
        if !count.is_multiple_of(2) {
            return Err(KeyError::OddDigits { digits: count });
        }
        if count < 2 * LEAST_KEY {
            return Err(KeyError::TooFewDigits { digits: count });
        }
        let (pairs, _) = digits.as_chunks();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        Self::from_bytes(&Zeroizing::new(bytes))
    }

    /// A code that only a holder of the key can compute.
    pub(crate) fn code(&self) -> HmacSha256 {
        HmacSha256::new((&self.0).into())
    }
}

/// The values of hexadecimal digits with white space between them; `None` if there are other characters.
fn digits(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    // Allocated with the final size, so that growing leaves no copy of the key behind.
    let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
    for byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        digits.push(match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        });
    }
    Some(digits)
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

    fn raw() -> Vec<u8> {
        (0..32).collect()
    }

    #[test]
    fn digits_and_bytes_are_the_same_key() {
        let wanted = Key::from_bytes(&raw()).unwrap().0;
        let halves = DIGITS.split_at(20);
        let lines = format!("\n{}\r\n  {}\n", halves.0, halves.1);
        for contents in [DIGITS, &format!("{DIGITS}\n"), &lines] {
            assert_eq!(
                Key::from_contents(contents.as_bytes()).unwrap().0,
                wanted,
                "{contents:?}"
            );
        }
        // Not text: its last byte may be a line feed and belongs to it.
        let mut contents = raw();
        assert_eq!(Key::from_contents(&contents).unwrap().0, wanted);
        contents.push(b'\n');
        assert_ne!(Key::from_contents(&contents).unwrap().0, wanted);
    }

    #[test]
    fn text_is_taken_without_its_line_end() {
        let text = "correct horse battery staple, and so on";
        let with_line = format!("{text}\n");
        let plain = Key::from_contents(text.as_bytes()).unwrap();
        assert_eq!(plain.0, Key::from_contents(with_line.as_bytes()).unwrap().0);
    }

    #[test]
    fn long_keys_are_hashed_as_hmac_says() {
        let long: Vec<u8> = (0..100).collect();
        let key = Key::from_bytes(&long).unwrap();
        assert_eq!(key.0[..32], *Sha256::digest(&long));
        assert_eq!(key.0[32..], [0; 32]);
    }

    #[test]
    fn what_is_no_key_is_said() {
        let cases: [(&[u8], &str); 8] = [
            (
                b"",
                "the key file is empty; `openssl rand -hex 32` makes a key",
            ),
            (
                b" \n",
                "the key file is empty; `openssl rand -hex 32` makes a key",
            ),
            (b"secret", "the key has 6 bytes, and must have at least 32"),
            (
                b"deadbeef",
                "the key has 8 hexadecimal digits, and must have at least 64",
            ),
            // Enough bytes as text, but somebody meant digits.
            (
                &[b'a'; 40],
                "the key has 40 hexadecimal digits, and must have at least 64",
            ),
            (
                &[b'a'; 65],
                "the key has 65 hexadecimal digits, an odd number: is one missing?",
            ),
            (
                &[0; 32],
                "the key is one byte repeated: anybody can guess it",
            ),
            (
                &[1; 5000],
                "5000 bytes are more than a key file has (at most 4096)",
            ),
        ];
        for (contents, wanted) in cases {
            let error = Key::from_contents(contents).unwrap_err();
            assert_eq!(error.to_string(), wanted);
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::from_bytes(&raw()).unwrap();
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
