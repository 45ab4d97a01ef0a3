//! The memory that calls are given. Each actor has its own, and inaccessible pages follow its end.
//!
//! ```text
//!  0 .. COMMON    handed out step by step        COMMON .. EDGE    buffers that reach over the edge
//!  EDGE           a page that cannot be touched, one that cannot be written, one more that cannot be touched
//! ```

use super::program::Argument;

const COMMON: usize = 12 << 20;
const EDGE: usize = 14 << 20;
const PAGE: usize = 4096;

/// The bytes of a buffer before it is filled.
pub const UNTOUCHED: u8 = 0xa5;

/// An actor's memory.
pub struct Memory {
    start: usize,
    used: usize,
}

/// A buffer that was handed out.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The address that the call gets.
    pub at: usize,
    pub size: usize,
    /// How many bytes of the buffer are accessible.
    pub usable: usize,
    pub writable: bool,
}

impl Memory {
    pub fn new() -> Self {
        let size = EDGE + 3 * PAGE;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping; the pages behind the edge lie within it.
        let start = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                size,
                access,
                kind | libc::MAP_NORESERVE,
                -1,
                0,
            );
            assert!(at != libc::MAP_FAILED, "no memory");
            libc::mprotect(at.byte_add(EDGE), PAGE, libc::PROT_NONE);
            libc::mprotect(at.byte_add(EDGE + PAGE), PAGE, libc::PROT_READ);
            // The mapping that follows is not the same in every process.
            libc::mprotect(at.byte_add(EDGE + 2 * PAGE), PAGE, libc::PROT_NONE);
            at.addr()
        };
        Self { start, used: 0 }
    }

    /// Discards the buffers of the last step.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// An inaccessible address.
    pub fn bad(&self) -> usize {
        self.start + EDGE
    }

    /// A zeroed buffer of a given size.
    pub fn room(&mut self, size: usize) -> usize {
        let at = self.start + self.used;
        self.used = (self.used + size + 127) & !127;
        assert!(self.used <= COMMON, "a step asks for too much memory");
        // SAFETY: within the part that is handed out.
        unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(at), 0, size) };
        at
    }

    /// A buffer that holds a value.
    pub fn put<T: Copy>(&mut self, value: T) -> usize {
        let at = self.room(size_of::<T>());
        // SAFETY: room of that size, aligned to 128 bytes.
        unsafe { std::ptr::with_exposed_provenance_mut::<T>(at).write(value) };
        at
    }

    /// A buffer at a place by its word, holding a step's bytes from an offset on, or nothing yet.
    pub fn buffer(&mut self, place: i64, size: i64, content: Option<(i64, usize)>) -> Buffer {
        let claimed = usize::try_from(size).unwrap_or(usize::MAX);
        let real = claimed.min(2 << 20);
        let (at, usable, writable) = match place {
            1 => (0, 0, false),
            2 => (self.bad(), 0, false),
            3 => (self.start + EDGE - real / 2, real / 2, true),
            4 => (self.start + EDGE + PAGE, real.min(PAGE), false),
            _ => (self.room(real), real, true),
        };
        let buffer = Buffer {
            at,
            size: claimed,
            usable,
            writable,
        };
        if let Some(bytes) = buffer.bytes_mut() {
            match content {
                Some((step, offset)) => fill(bytes, step, offset),
                None => bytes.fill(UNTOUCHED),
            }
        }
        buffer
    }
}

impl Buffer {
    #[allow(
        clippy::mut_from_ref,
        reason = "memory that is handed out once per step"
    )]
    fn bytes_mut(&self) -> Option<&mut [u8]> {
        // SAFETY: as much as is there, and only this actor uses it.
        self.writable.then(|| unsafe {
            std::slice::from_raw_parts_mut(
                std::ptr::with_exposed_provenance_mut(self.at),
                self.usable,
            )
        })
    }

    /// The buffer's current bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.usable == 0 {
            return &[];
        }
        // SAFETY: as much as is there.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.at), self.usable)
        }
    }
}

/// Fills a buffer with the bytes that a step sends, from an offset on. Each position and step has its own.
pub fn fill(bytes: &mut [u8], step: i64, offset: usize) {
    let seed = step.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let eight = |place: usize| {
        let mixed = (place as u64 / 8 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ seed;
        (mixed ^ (mixed >> 29)).to_le_bytes()
    };
    let begun = offset % 8;
    let (head, rest) = bytes.split_at_mut(bytes.len().min((8 - begun) % 8));
    head.copy_from_slice(&eight(offset)[begun % 8..begun + head.len()]);
    let start = offset + head.len();
    for (index, part) in rest.chunks_mut(8).enumerate() {
        part.copy_from_slice(&eight(start + index * 8)[..part.len()]);
    }
}

/// A few letters that identify bytes.
pub fn digest(parts: &[&[u8]]) -> String {
    let mut sum: u32 = 0x811c_9dc5;
    for byte in parts.iter().copied().flatten() {
        sum = (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    format!("{sum:08x}")
}

/// The shapes of vectors: sizes of the parts.
const SHAPES: [&[usize]; 10] = [
    &[10, 20],
    &[100],
    &[0, 5, 0, 3],
    &[1000, 1000, 1000],
    &[1; 16],
    &[],
    &[5000, 3000],
    &[30_000, 30_000],
    &[64, 64],
    &[7, 0],
];

/// How many shapes there are, odd ones included.
pub const ALL_SHAPES: usize = SHAPES.len() + 6;

/// The sizes of the parts of a shape that is not an odd one.
pub fn shape_sizes(shape: i64) -> Option<&'static [usize]> {
    usize::try_from(shape)
        .ok()
        .and_then(|index| SHAPES.get(index))
        .copied()
}

/// A vector of a shape: its address, the count that the call gets, and its parts.
pub fn vector(
    memory: &mut Memory,
    shape: i64,
    content: Option<i64>,
) -> (usize, usize, Vec<Buffer>) {
    let index = usize::try_from(shape).unwrap_or(0);
    let (sizes, oddity) = match SHAPES.get(index) {
        Some(sizes) => (*sizes, None),
        None => (&[40_usize, 40] as &[usize], Some(index - SHAPES.len())),
    };
    let mut offset = 0;
    let mut parts = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        // The second part may be an inaccessible one.
        let word = match oddity {
            Some(0) if place == 1 => 2,
            Some(1) if place == 1 => 1,
            Some(5) if place == 0 => 2,
            _ => 0,
        };
        let claimed = size.cast_signed() as i64;
        parts.push(memory.buffer(word, claimed, content.map(|step| (step, offset))));
        offset += size;
    }
    let at = memory.room(16 * parts.len().max(1));
    for (place, part) in parts.iter().enumerate() {
        // SAFETY: there is room for that many pairs of words.
        unsafe {
            std::ptr::with_exposed_provenance_mut::<[usize; 2]>(at + place * 16)
                .write([part.at, part.size])
        };
    }
    match oddity {
        Some(2) => (memory.bad(), parts.len(), Vec::new()),
        Some(3) => (at, 1025, Vec::new()),
        Some(4) => (at, usize::MAX, Vec::new()),
        _ => (at, parts.len(), parts),
    }
}

/// The first number of an argument.
pub fn first(argument: &Argument) -> i64 {
    argument.first().copied().unwrap_or(0)
}

/// A further number of an argument.
pub fn at(argument: &Argument, place: usize) -> i64 {
    argument.get(place).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn bytes_are_the_same_from_wherever_one_begins() {
        let mut all = [0; 100];
        fill(&mut all, 7, 0);
        for start in 0..40 {
            for end in start..100 {
                let mut part = vec![0; end - start];
                fill(&mut part, 7, start);
                assert_eq!(part, all[start..end], "{start}..{end}");
            }
        }
        let mut other = [0; 100];
        fill(&mut other, 8, 0);
        assert!(all != other && all[..8] != all[8..16]);
    }
}
