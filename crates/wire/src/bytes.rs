//! Little-endian fields at fixed offsets. These functions can not panic: the sizes of payloads are checked before they
//! are decoded, and with constant offsets the compiler removes the rest.

/// The `N` bytes at `at`; zeros where `bytes` ends before them.
#[inline]
pub fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().unwrap_or([0; N])
}

/// The word of two bytes at `at`.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

/// The word of four bytes at `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

/// The word of eight bytes at `at`.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(take(bytes, at))
}

/// Writes `value` at `at`; nothing where `bytes` has no room for it.
#[inline]
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let room = bytes
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..value.len()));
    if let Some(room) = room {
        room.copy_from_slice(value);
    }
}
