//! What the headers of an ELF file with 64-bit words in little endian tell, as far as this program asks.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Kinds of program headers: the dynamic linker's path, and notes.
pub const INTERPRETER: u32 = 3;
pub const NOTES: u32 = 4;

/// Bytes from the start of a file that hold the file's header.
pub const HEAD: u64 = 64;

/// The kinds and contents of program headers of the named kinds, as far as they are examined. `None` where the file is
/// damaged.
pub fn contents(file: &File, head: &[u8], kinds: &[u32]) -> Option<Vec<(u32, Vec<u8>)>> {
    let start = word(head, 32)?;
    let (size, count) = (half(head, 54)?, half(head, 56)?);
    let mut found = Vec::new();
    for index in 0..u64::from(count) {
        let mut header = [0_u8; 40];
        let offset = index.checked_mul(u64::from(size))?.checked_add(start)?;
        file.read_exact_at(&mut header, offset).ok()?;
        let kind = u32::from_le_bytes(header.get(..4)?.try_into().ok()?);
        if kinds.contains(&kind) {
            found.push((kind, content(file, &header)?));
        }
    }
    Some(found)
}

fn content(file: &File, header: &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(word(header, 32)?).ok()?.min(4096);
    let mut content = vec![0; length];
    file.read_exact_at(&mut content, word(header, 8)?).ok()?;
    Some(content)
}

/// The half word at an offset of the header.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A 64-bit file with one program header of `kind`.
#[cfg(test)]
pub fn sample(kind: u32, content: &[u8]) -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let mut bytes = vec![0; 120];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&kind.to_le_bytes());
    bytes[72..80].copy_from_slice(&120_u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes
}
