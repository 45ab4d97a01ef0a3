//! Copies through a lane, and the copy routine against the compiler's, on one thread.
//!
//! A transfer is the work of one `send` and its `recv` on payload and indices: room is computed from the reader's
//! index, the bytes are copied from the sender's buffer into the ring (in two runs at the wrap), the tail is published;
//! the tail is read and checked, the bytes are copied from the ring into the receiver's buffer, the head is published.
//! Gbit/s counts each payload byte once per transfer, though it is copied twice. No thread sleeps, so there is no fence
//! and no token in it.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_abi::link::{Layout, Role, Side};
use netchannel_ring::bytes;
use netchannel_shm::{Region, Shared, copy};

/// How long one figure is measured, and how often. The best round counts, since everything else that runs on the
/// machine only adds time.
const SPAN: Duration = Duration::from_millis(50);
const ROUNDS: usize = 5;

fn main() {
    let wanted = 144.0;
    for (size, ring_log2) in [(64, 14), (1024, 14), (8192, 16), (8192, 18), (65536, 18)] {
        let rate = lane(size, ring_log2);
        let name = format!("lane, {size} B through {} KiB", (1u64 << ring_log2) / 1024);
        let note = if size == 8192 && ring_log2 == 16 {
            format!("   (must be >= {wanted}: {})", verdict(rate >= wanted))
        } else {
            String::new()
        };
        println!("{name:<36} {rate:>9.1} Gbit/s{note}");
    }
    println!();
    println!(
        "{:<12} {:>16} {:>24}",
        "copy of", "shm::copy", "copy_nonoverlapping"
    );
    for size in [1, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 65536] {
        let ours = raw(size, |to, from| {
            // SAFETY: both buffers have `size` bytes and are different.
            unsafe { copy::copy(to, from, size) };
        });
        let theirs = raw(size, |to, from| {
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(from, to, size) };
        });
        println!("{size:>10} B {ours:>13.1} ns {theirs:>21.1} ns");
    }
}

const fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}

/// Seconds of one call of `work`, in the best round.
fn seconds_per(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut times = 0u32;
        while begun.elapsed() < SPAN {
            for _ in 0..256 {
                work();
            }
            times += 256;
        }
        best = best.min(begun.elapsed().as_secs_f64() / f64::from(times));
    }
    best
}

fn word<T: Shared>(region: &Region, offset: usize) -> &T {
    region
        .at(offset)
        .expect("the layout lies within its region")
}

fn lane(length: usize, ring_log2: u32) -> f64 {
    let layout = Layout {
        slots: 1,
        arena: 1 << 22,
    };
    let (descriptor, region) = Region::create(c"bench", layout.size()).expect("memfd");
    // SAFETY: the descriptor is ours; the mapping does not need it.
    unsafe { libc::close(descriptor) };
    let side = layout.slot(0);
    let tail: &AtomicU64 = word(&region, side + core::mem::offset_of!(Side, tail));
    let head: &AtomicU64 = word(
        &region,
        side + size_of::<Side>() + core::mem::offset_of!(Side, head),
    );
    let ring = layout.arena_start(Role::Client);
    let size = 1u64 << ring_log2;
    let from = vec![0x5a_u8; length];
    let mut to = vec![0_u8; length];
    let seconds = seconds_per(|| {
        let sequence = tail.load(Ordering::Relaxed);
        let room = bytes::writable(sequence, head.load(Ordering::Acquire), size).expect("honest");
        let count = room.min(length as u64);
        let runs = bytes::runs(sequence, count, size);
        let (offset, first, second) = sizes(runs);
        // SAFETY: `from` has `first + second` bytes.
        unsafe {
            region.copy_in(ring + offset, black_box(from.as_ptr()), first);
            if second > 0 {
                region.copy_in(ring, from.as_ptr().add(first), second);
            }
        }
        tail.store(sequence + count, Ordering::Release);

        let read = head.load(Ordering::Relaxed);
        let count = bytes::readable(read, tail.load(Ordering::Acquire), size).expect("honest");
        let runs = bytes::runs(read, count, size);
        let (offset, first, second) = sizes(runs);
        // SAFETY: `to` has `first + second` bytes.
        unsafe {
            region.copy_out(ring + offset, black_box(to.as_mut_ptr()), first);
            if second > 0 {
                region.copy_out(ring, to.as_mut_ptr().add(first), second);
            }
        }
        head.store(read + count, Ordering::Release);
    });
    assert_eq!(from, to, "the bytes arrived");
    length as f64 * 8.0 / seconds / 1e9
}

fn sizes(runs: bytes::Runs) -> (usize, usize, usize) {
    let size = |value: u64| usize::try_from(value).expect("a ring fits in memory");
    (size(runs.offset), size(runs.first), size(runs.second))
}

/// Nanoseconds of one copy between two warm buffers.
fn raw(size: usize, work: impl Fn(*mut u8, *const u8)) -> f64 {
    let from = vec![1_u8; size];
    let mut to = vec![0_u8; size];
    let seconds = seconds_per(|| work(black_box(to.as_mut_ptr()), black_box(from.as_ptr())));
    assert_eq!(from, to, "the bytes arrived");
    seconds * 1e9
}
