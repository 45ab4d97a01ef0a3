//! The library's own heap. A hook must never enter the program's allocator: it may not be ready yet, or a signal
//! handler may have interrupted it.
//!
//! Powers of two from 32 bytes to 64 KiB come from free lists; larger blocks are mapped.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;

use crate::ground::{lock, sys};

const LEAST_LOG2: usize = 5;
const MOST_LOG2: usize = 16;
const CLASSES: usize = MOST_LOG2 - LEAST_LOG2 + 1;
const CHUNK: usize = 1 << 18;

/// The allocations of a short program fit in here: a mapping costs more than everything else at a program's start.
const INITIAL_BYTES: usize = 1 << 10;

#[repr(align(64))]
struct InitialChunk(core::cell::UnsafeCell<[u8; INITIAL_BYTES]>);

// SAFETY: its bytes are given out like those of any chunk.
unsafe impl Sync for InitialChunk {}

#[unsafe(link_section = ".data.netchannel_chunk")]
static INITIAL_CHUNK: InitialChunk = InitialChunk(core::cell::UnsafeCell::new([0; INITIAL_BYTES]));

/// The allocator.
pub struct Heap {
    lock: AtomicU32,
    state: core::cell::UnsafeCell<State>,
}

struct State {
    free: [*mut u8; CLASSES],
    next: usize,
    end: usize,
}

// SAFETY: the state is only touched under the lock.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    pub const fn new() -> Self {
        let state = State {
            free: [null_mut(); CLASSES],
            next: 0,
            end: 0,
        };
        Self {
            lock: AtomicU32::new(0),
            state: core::cell::UnsafeCell::new(state),
        }
    }

    /// Opens the lock in a forked child.
    pub fn reset(&self) {
        lock::reopen(&self.lock);
    }

    fn class(layout: Layout) -> Option<usize> {
        let size = layout
            .size()
            .max(layout.align())
            .max(1 << LEAST_LOG2)
            .next_power_of_two();
        let log2 = size.trailing_zeros() as usize;
        (log2 <= MOST_LOG2).then(|| log2 - LEAST_LOG2)
    }
}

// SAFETY: blocks are disjoint, sized and aligned to their class, which covers size and alignment.
unsafe impl GlobalAlloc for Heap {
    #[unsafe(link_section = ".text.netchannel_start")]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Self::class(layout) else {
            return sys::reserve(layout.size()).map_or(null_mut(), |pointer| pointer.cast());
        };
        let held = lock::acquire(&self.lock);
        // SAFETY: under the lock. Where the calling thread already holds it, this is a signal handler that interrupted
        // the allocator: it gets a mapping of its own.
        if !held {
            return sys::reserve(1 << MOST_LOG2).map_or(null_mut(), |pointer| pointer.cast());
        }
        // SAFETY: under the lock.
        let state = unsafe { &mut *self.state.get() };
        let head = state.free[class];
        let block = if head.is_null() {
            let size = 1 << (class + LEAST_LOG2);
            if state.end == 0 {
                state.next = INITIAL_CHUNK.0.get().expose_provenance();
                state.end = state.next + INITIAL_BYTES;
            }
            if state.next.next_multiple_of(size) + size > state.end {
                if let Some(chunk) = sys::reserve(CHUNK) {
                    state.next = chunk.expose_provenance();
                    state.end = state.next + CHUNK;
                } else {
                    lock::release(&self.lock);
                    return null_mut();
                }
            }
            let start = state.next.next_multiple_of(size);
            state.next = start + size;
            core::ptr::with_exposed_provenance_mut(start)
        } else {
            // SAFETY: a free block holds the pointer to the next one.
            state.free[class] = unsafe { head.cast::<*mut u8>().read() };
            head
        };
        lock::release(&self.lock);
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some(class) = Self::class(layout) else {
            // SAFETY: the block was mapped with this size.
            let _ = unsafe {
                sys::raw(
                    libc::SYS_munmap,
                    [pointer.expose_provenance(), layout.size(), 0, 0, 0, 0],
                )
            };
            return;
        };
        if !lock::acquire(&self.lock) {
            return;
        }
        // SAFETY: under the lock; the block is free and large enough for a pointer.
        unsafe {
            let state = &mut *self.state.get();
            pointer.cast::<*mut u8>().write(state.free[class]);
            state.free[class] = pointer;
        }
        lock::release(&self.lock);
    }
}
