//! Transfers that are copied by several threads: every byte at its place and nothing published before it is there,
//! faults included, and no thread more than there should be.
#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths of buffers, and remainders of 251"
)]

mod fault_handler;

use netchannel_shm::Region;
use netchannel_shm::split::{Direction, Plan, Pool, Transfer};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

const RING: usize = 1 << 20;
const PART: u64 = 16 << 10;
const PAGE: usize = 4096;

/// The tests count threads of the process, so they come one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn plan(helpers: u32) -> Plan {
    Plan {
        helpers,
        part: PART,
        local: 1,
        patience: 0,
    }
}

fn region() -> &'static Region {
    let (descriptor, region) = Region::create(c"split", 2 * RING).expect("memfd");
    // SAFETY: the descriptor is ours; the mapping does not need it.
    unsafe { libc::close(descriptor) };
    Box::leak(Box::new(region))
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) % 251) as u8).collect()
}

/// Bytes of the ring, from a sequence on.
fn in_ring(region: &Region, sequence: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let transfer = transfer(region, sequence, &mut bytes, Direction::Out);
    // SAFETY: the buffer is ours.
    assert_eq!(unsafe { transfer.copy() }, 0);
    bytes
}

fn transfer<'a>(
    region: &'a Region,
    sequence: u64,
    buffer: &mut [u8],
    direction: Direction,
) -> Transfer<'a> {
    Transfer {
        region,
        // Not at the start, so that it matters.
        ring: RING as u64 / 2,
        size: RING as u64,
        sequence,
        buffer: buffer.as_mut_ptr(),
        length: buffer.len() as u64,
        direction,
    }
}

fn helpers() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "nc-copy")
        .count()
}

/// Waits until there are `count` helpers.
fn settle(count: usize) {
    settle_while(count, || sleep(Duration::from_millis(1)));
}

/// Works until there are `count` helpers.
fn settle_while(count: usize, mut work: impl FnMut()) {
    let begun = Instant::now();
    while helpers() != count {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", helpers());
        work();
    }
}

#[test]
fn every_byte_is_at_its_place_and_nothing_is_published_too_early() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    let region = region();
    let lengths = [1, PAGE, 65_537, 200_000, 31 * PART as usize];
    for round in 0..60u64 {
        for length in lengths {
            let sequence = (u64::MAX - 300_000).wrapping_add(round * 77_777);
            let mut bytes = pattern(length, round as usize);
            let sent = transfer(region, sequence, &mut bytes, Direction::In);
            let mut last = 0;
            // SAFETY: buffer and region are ours.
            let copied = unsafe {
                POOL.copy(&sent, &plan(3), |there| {
                    assert!(there > last, "it only grows");
                    let from = sequence.wrapping_add(last);
                    let fresh = in_ring(region, from, (there - last) as usize);
                    assert!(fresh == pattern(fresh.len(), round as usize + last as usize));
                    last = there;
                })
            };
            assert_eq!((copied, last), (length as u64, length as u64));
            let mut back = vec![0; length];
            let received = transfer(region, sequence, &mut back, Direction::Out);
            // SAFETY: as above.
            let copied = unsafe { POOL.copy(&received, &plan(3), |_| {}) };
            assert_eq!(copied, length as u64);
            assert!(back == bytes);
        }
    }
    assert_eq!(POOL.left_to_helpers(), 0);
    settle(3);
    POOL.dismiss();
    settle(0);
}

#[test]
fn helpers_end_when_idle_when_fewer_are_wanted_and_when_dismissed() {
    static POOL: Pool = Pool::new(500_000_000);
    let _alone = alone();
    let region = region();
    let mut bytes = pattern(400_000, 1);
    let mut send = |helpers| {
        let sent = transfer(region, 9, &mut bytes, Direction::In);
        // SAFETY: buffer and region are ours.
        assert_eq!(unsafe { POOL.copy(&sent, &plan(helpers), |_| {}) }, 400_000);
    };
    assert_eq!(helpers(), 0);
    send(0);
    assert_eq!(helpers(), 0);
    // On a busy machine they may be gone again before they are seen.
    settle_while(2, || send(2));
    settle(0);
    settle_while(3, || send(3));
    POOL.dismiss();
    settle(0);
    send(3);
    assert_eq!(helpers(), 0, "none before they are admitted");
    POOL.admit();
    settle_while(2, || send(2));
    // A helper that is not wanted any more ends at its next look.
    settle_while(1, || send(1));
    POOL.dismiss();
}

#[test]
fn many_threads_share_few_helpers() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let region = region();
                for round in 0..100 {
                    let mut bytes = pattern(300_000, seed + round);
                    let sent = transfer(region, round as u64, &mut bytes, Direction::In);
                    // SAFETY: buffer and region are ours.
                    let copied = unsafe { POOL.copy(&sent, &plan(2), |_| {}) };
                    assert_eq!(copied, 300_000);
                    assert!(in_ring(region, round as u64, 300_000) == bytes);
                }
            });
        }
        for _ in 0..20 {
            sleep(Duration::from_millis(2));
            POOL.dismiss();
            assert_eq!(helpers(), 0);
            POOL.admit();
        }
    });
    POOL.dismiss();
}

/// A usable range, then an unusable one as long as a transfer.
struct Fenced {
    base: *mut u8,
    usable: usize,
    whole: usize,
}

impl Fenced {
    fn new(usable: usize, fence: usize) -> Self {
        let whole = usable.next_multiple_of(PAGE) + fence.next_multiple_of(PAGE);
        let open = whole - fence.next_multiple_of(PAGE);
        // SAFETY: a new anonymous mapping, and a change of a part of it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let none = core::ptr::null_mut();
            let start = libc::mmap(none, whole, libc::PROT_NONE, flags, -1, 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            assert!(open == 0 || libc::mprotect(start, open, protection) == 0);
            let base = start.cast::<u8>().add(open - usable);
            Self {
                base,
                usable,
                whole,
            }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are usable.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.usable) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        let past = self.usable.next_multiple_of(PAGE) - self.usable;
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(self.base.wrapping_sub(past).cast(), self.whole) };
    }
}

#[test]
fn a_fault_in_any_part_keeps_what_came_before_it() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    fault_handler::install();
    let region = region();
    let length = 20 * PART;
    for usable in (0..length as usize).step_by(9_973).chain([PAGE, 65_536]) {
        for direction in [Direction::In, Direction::Out] {
            let mut fenced = Fenced::new(usable, length as usize);
            fenced.bytes().copy_from_slice(&pattern(usable, usable));
            let sequence = usable as u64 * 7;
            if direction == Direction::Out {
                let mut bytes = pattern(length as usize, 5);
                let put = transfer(region, sequence, &mut bytes, Direction::In);
                // SAFETY: buffer and region are ours.
                assert_eq!(unsafe { put.copy() }, 0);
            }
            let whole = Transfer {
                buffer: fenced.base,
                length,
                ..transfer(region, sequence, &mut [], direction)
            };
            let mut last = 0;
            // SAFETY: what cannot be used faults.
            let copied = unsafe { POOL.copy(&whole, &plan(3), |there| last = there) };
            assert_eq!((copied, last), (usable as u64, usable as u64));
            match direction {
                Direction::In => {
                    assert!(in_ring(region, sequence, usable) == pattern(usable, usable));
                }
                Direction::Out => assert!(fenced.bytes() == pattern(usable, 5)),
            }
        }
    }
    POOL.dismiss();
}

#[test]
fn nothing_behind_a_fault_is_written() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    fault_handler::install();
    let region = region();
    let length = 20 * PART as usize;
    let mut sent = pattern(length, 5);
    let put = transfer(region, 77, &mut sent, Direction::In);
    // SAFETY: buffer and region are ours.
    assert_eq!(unsafe { put.copy() }, 0);
    for hole in [0, PAGE, 5 * PART as usize, length - PAGE] {
        let mut fenced = Fenced::new(length, length);
        fenced.bytes().fill(0);
        // SAFETY: a page of the mapping.
        let made = unsafe { libc::mprotect(fenced.base.add(hole).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(made, 0);
        let whole = Transfer {
            buffer: fenced.base,
            length: length as u64,
            ..transfer(region, 77, &mut [], Direction::Out)
        };
        // SAFETY: what cannot be used faults.
        let copied = unsafe { POOL.copy(&whole, &plan(3), |_| {}) };
        assert_eq!(copied, hole as u64);
        // SAFETY: as above.
        let made = unsafe {
            let usable = libc::PROT_READ | libc::PROT_WRITE;
            libc::mprotect(fenced.base.add(hole).cast(), PAGE, usable)
        };
        assert_eq!(made, 0);
        let (there, behind) = fenced.bytes().split_at(hole);
        assert!(there == &sent[..hole]);
        assert!(behind.iter().all(|byte| *byte == 0), "{hole}");
    }
    POOL.dismiss();
}

#[test]
fn a_forked_child_has_no_helpers_and_makes_its_own() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    let region = region();
    let mut bytes = pattern(400_000, 3);
    let sent = transfer(region, 1, &mut bytes, Direction::In);
    // SAFETY: buffer and region are ours; the child only copies, looks and ends.
    unsafe {
        assert_eq!(POOL.copy(&sent, &plan(2), |_| {}), 400_000);
        let child = libc::fork();
        if child == 0 {
            POOL.reset_in_child();
            let mut good = helpers() == 0;
            good &= POOL.copy(&sent, &plan(2), |_| {}) == 400_000;
            good &= in_ring(region, 1, 400_000) == pattern(400_000, 3);
            settle(2);
            POOL.dismiss();
            libc::_exit(if good && helpers() == 0 { 0 } else { 1 });
        }
        // A child that was made without the library's knowledge: no helper comes, and no thread waits forever.
        let silent = libc::fork();
        if silent == 0 {
            let good = POOL.copy(&sent, &plan(2), |_| {}) == 400_000;
            POOL.dismiss();
            libc::_exit(i32::from(!good));
        }
        for child in [child, silent] {
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
    }
    POOL.dismiss();
}

#[test]
fn no_signal_of_the_program_is_handled_by_a_helper() {
    static POOL: Pool = Pool::new(10_000_000_000);
    let _alone = alone();
    let region = region();
    let mut bytes = pattern(400_000, 3);
    let sent = transfer(region, 1, &mut bytes, Direction::In);
    // SAFETY: buffer and region are ours.
    assert_eq!(unsafe { POOL.copy(&sent, &plan(2), |_| {}) }, 400_000);
    settle(2);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        if status.contains("nc-copy") {
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
            let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
            // SIGKILL and SIGSTOP cannot be blocked; a fault must not be.
            let open = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS];
            let open = open.iter().fold(0, |bits, signal| bits | 1 << (signal - 1));
            assert_eq!(blocked, !open);
        }
    }
    POOL.dismiss();
}
