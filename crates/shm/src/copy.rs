//! The one place where payload is copied between a program's buffer and memory a peer writes.
//!
//! The program's pointer may be bad. As the kernel does, the copy then stops at the faulting byte
//! instead of ending the program: the fault handler of the library asks [`resume_at`] where to go
//! on, and the copy returns how much it could not move.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".global netchannel_copy",
    ".hidden netchannel_copy",
    ".type netchannel_copy,@function",
    "netchannel_copy:",
    "mov rcx, rdx",
    ".global netchannel_copy_fault",
    ".hidden netchannel_copy_fault",
    "netchannel_copy_fault:",
    "rep movsb",
    ".global netchannel_copy_end",
    ".hidden netchannel_copy_end",
    "netchannel_copy_end:",
    "mov rax, rcx",
    "ret",
    ".size netchannel_copy, . - netchannel_copy",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn netchannel_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    fn netchannel_copy_fault();
    fn netchannel_copy_end();
}

/// Copies `length` bytes and returns how many it could not copy because an address faulted (always
/// 0 unless the process has a fault handler that uses [`resume_at`]).
///
/// # Safety
/// Whatever of both ranges is mapped must be memory that may be read and written as raw bytes; the
/// ranges do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the caller's promise is this function's.
        unsafe { netchannel_copy(to, from, length) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the caller's promise is this function's.
        unsafe { core::ptr::copy_nonoverlapping(from, to, length) };
        0
    }
}

/// Where a thread that faulted at `instruction` must go on, when it faulted within [`copy`].
#[must_use]
pub fn resume_at(instruction: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        let fault: unsafe extern "C" fn() = netchannel_copy_fault;
        let end: unsafe extern "C" fn() = netchannel_copy_end;
        (instruction == fault as usize).then_some(end as usize)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = instruction;
        None
    }
}
