//! An alternate stack for signal handlers: where a thread's own stack is exhausted, a handler could not run on it.

use std::ptr::null_mut;

const SIZE: usize = 64 << 10;
const GUARD: usize = 4096;

/// The alternate stack of the thread that made it, until it is dropped. Empty where the thread already has one, or
/// there is no memory.
pub struct AlternateStack(Option<Made>);

struct Made {
    at: *mut libc::c_void,
    before: libc::stack_t,
}

impl AlternateStack {
    /// Sets up the stack for the calling thread, which must also drop it.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: all zero is a valid value.
        let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is a local.
        let asked = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut before) };
        let is_there = before.ss_flags & libc::SS_DISABLE == 0;
        if asked != 0 || is_there && before.ss_size >= SIZE {
            return Self(None);
        }
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
        );
        // SAFETY: new memory of ours; its first page is made unusable, the rest is the stack.
        unsafe {
            let at = libc::mmap(null_mut(), SIZE + GUARD, protection, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Self(None);
            }
            libc::mprotect(at, GUARD, libc::PROT_NONE);
            let stack = libc::stack_t {
                ss_sp: at.byte_add(GUARD),
                ss_flags: 0,
                ss_size: SIZE,
            };
            libc::sigaltstack(&raw const stack, null_mut());
            Self(Some(Made { at, before }))
        }
    }
}

impl Default for AlternateStack {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let Some(Made { at, before }) = self.0.take() else {
            return;
        };
        // SAFETY: the thread lets go of the memory before it goes; it is of the size that was mapped.
        unsafe {
            libc::sigaltstack(&raw const before, null_mut());
            libc::munmap(at, SIZE + GUARD);
        }
    }
}
