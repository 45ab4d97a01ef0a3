//! The copy routine: exact for every length, and exact about how far it came when memory faults.
#![cfg(target_arch = "x86_64")]

mod fault_handler;

use netchannel_shm::copy::{copy, resume_at};

/// Lengths on both sides of every branch of the routine.
const LENGTHS: [usize; 35] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 191, 255,
    256, 257, 300, 320, 511, 1000, 1023, 1024, 1025, 2048, 4096,
];
const PAGE: usize = 4096;

/// Two pages that can be used between two that cannot.
struct Fenced(*mut u8);

impl Fenced {
    fn new() -> Self {
        // SAFETY: a new anonymous mapping, and a change of a part of it.
        unsafe {
            let base = libc::mmap(
                core::ptr::null_mut(),
                4 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            let middle = base.cast::<u8>().add(PAGE);
            let usable = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(middle.cast(), 2 * PAGE, usable), 0);
            Self(middle)
        }
    }

    fn start(&self) -> *mut u8 {
        self.0
    }

    fn end(&self) -> *mut u8 {
        self.0.wrapping_add(2 * PAGE)
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(self.0.wrapping_sub(PAGE).cast(), 4 * PAGE) };
    }
}

/// Bytes that are never zero and do not repeat at any length that the routine treats apart.
fn pattern(length: usize) -> Vec<u8> {
    (1..=251).chain(3..=239).cycle().take(length).collect()
}

/// How many of `length` bytes lie before the fence: all counts near the ends, some between.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..length).filter(move |cut| *cut < 70 || length - cut < 70 || cut % 37 == 0)
}

#[test]
fn copies_every_length_at_every_alignment_and_nothing_beside() {
    for length in (0..=1100).chain([2047, 4096, 5000]) {
        let from = pattern(length + 16);
        for (skew_from, skew_to) in [(0, 0), (1, 0), (0, 3), (7, 5), (15, 15)] {
            let mut to = vec![0_u8; length + 32];
            // SAFETY: both ranges lie within their vectors.
            let left = unsafe {
                copy(
                    to.as_mut_ptr().add(skew_to),
                    from.as_ptr().add(skew_from),
                    length,
                )
            };
            assert_eq!(left, 0);
            assert_eq!(
                to[skew_to..skew_to + length],
                from[skew_from..skew_from + length]
            );
            assert!(to[..skew_to].iter().all(|byte| *byte == 0));
            assert!(to[skew_to + length..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn a_source_that_ends_stops_the_copy_at_its_last_byte() {
    fault_handler::install();
    let source = Fenced::new();
    for length in LENGTHS {
        for cut in cuts(length) {
            let from = source.end().wrapping_sub(cut);
            let wanted = pattern(cut);
            let mut to = vec![0_u8; length];
            // SAFETY: `cut` bytes are writable; the rest faults, which the handler mends.
            let left = unsafe {
                core::ptr::copy_nonoverlapping(wanted.as_ptr(), from, cut);
                copy(to.as_mut_ptr(), from, length)
            };
            assert_eq!(
                (left, &to[..cut]),
                (length - cut, &wanted[..]),
                "{length} {cut}"
            );
        }
    }
}

#[test]
fn a_target_that_ends_stops_the_copy_at_its_last_byte() {
    fault_handler::install();
    let target = Fenced::new();
    for length in LENGTHS {
        for cut in cuts(length) {
            let to = target.end().wrapping_sub(cut);
            let from = pattern(length);
            let mut written = vec![0_u8; cut];
            // SAFETY: `cut` bytes are usable; the rest faults, which the handler mends.
            let left = unsafe {
                core::ptr::write_bytes(to, 0, cut);
                let left = copy(to, from.as_ptr(), length);
                core::ptr::copy_nonoverlapping(to, written.as_mut_ptr(), cut);
                left
            };
            assert_eq!(
                (left, &written[..]),
                (length - cut, &from[..cut]),
                "{length} {cut}"
            );
        }
    }
}

#[test]
fn nothing_is_copied_where_the_first_byte_faults() {
    fault_handler::install();
    let fenced = Fenced::new();
    let mut buffer = vec![7_u8; PAGE];
    for length in LENGTHS.into_iter().filter(|length| *length > 0) {
        // The range begins one byte before usable memory, and wholly outside of it.
        for bad in [
            fenced.start().wrapping_sub(1),
            fenced.end(),
            core::ptr::null_mut(),
        ] {
            // SAFETY: what faults is mended by the handler.
            unsafe {
                assert_eq!(copy(buffer.as_mut_ptr(), bad, length), length);
                assert_eq!(copy(bad, buffer.as_ptr(), length), length);
            }
        }
    }
}

#[test]
fn nothing_behind_a_fault_is_written() {
    fault_handler::install();
    let fenced = Fenced::new();
    for length in LENGTHS {
        // Of each range the first bytes fault, the others do not.
        for before in cuts(length).filter(|before| *before > 0) {
            let to = fenced.start().wrapping_sub(before);
            let from = pattern(length);
            // SAFETY: what faults is mended by the handler; the rest is usable.
            let behind = unsafe {
                core::ptr::write_bytes(fenced.start(), 0, length);
                assert_eq!(copy(to, from.as_ptr(), length), length);
                core::slice::from_raw_parts(fenced.start(), length).to_vec()
            };
            assert!(behind.iter().all(|byte| *byte == 0), "{length} {before}");
        }
    }
}

#[test]
fn only_the_routine_itself_is_resumed() {
    let outside = only_the_routine_itself_is_resumed as *const () as usize;
    for instruction in [0, 1, outside, usize::MAX] {
        assert_eq!(resume_at(instruction), None);
    }
}
