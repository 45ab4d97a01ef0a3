//! The only place where payload is copied between a program's buffer and memory that a peer can write.
//!
//! The program's pointer may be invalid. As in the kernel, the copy then stops at the faulting byte instead of ending
//! the program: the library's fault handler asks [`resume_at`] where to continue, and the copy returns how many bytes
//! it could not move.
//!
//! ```text
//!  length <= 1024: through registers --fault--+
//!  else --------------------------------------+-> rep movsb --fault--> how many are left
//! ```
//!
//! Up to 1024 bytes the string instruction would take longer to start than the copy takes. Wherever the short path
//! accesses memory, its three argument registers contain the rest of the work, so that after a fault the string
//! instruction continues, whose own fault shows how far it came. Where several places of the target are written, the
//! first byte is among the first of them, and they are less than two pages apart: so no byte behind a fault is ever
//! written.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.netchannel_copy,\"ax\",@progbits",
    ".p2align 6",
    ".global netchannel_copy",
    ".hidden netchannel_copy",
    ".type netchannel_copy,@function",
    "netchannel_copy:",
    "cmp rdx, 16",
    "jb 3f",
    "cmp rdx, 64",
    "ja 2f",
    // 16 to 64: from both ends, overlapping in the middle.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "cmp rdx, 32",
    "jbe 1f",
    "movups xmm2, [rsi + 16]",
    "movups xmm3, [rsi + rdx - 32]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm2",
    "movups [rdi + rdx - 32], xmm3",
    "movups [rdi + rdx - 16], xmm1",
    "xor eax, eax",
    "ret",
    "1:",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "xor eax, eax",
    "ret",
    // 65 to 256.
    ".p2align 4",
    "2:",
    "cmp rdx, 256",
    "ja 6f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups xmm4, [rsi + rdx - 16]",
    "movups xmm5, [rsi + rdx - 32]",
    "movups xmm6, [rsi + rdx - 48]",
    "movups xmm7, [rsi + rdx - 64]",
    "movups [rdi], xmm0",
    "cmp rdx, 128",
    "jbe 1f",
    "movups xmm8, [rsi + 64]",
    "movups xmm9, [rsi + 80]",
    "movups xmm10, [rsi + 96]",
    "movups xmm11, [rsi + 112]",
    "movups xmm12, [rsi + rdx - 80]",
    "movups xmm13, [rsi + rdx - 96]",
    "movups xmm14, [rsi + rdx - 112]",
    "movups xmm15, [rsi + rdx - 128]",
    "movups [rdi + 64], xmm8",
    "movups [rdi + 80], xmm9",
    "movups [rdi + 96], xmm10",
    "movups [rdi + 112], xmm11",
    "movups [rdi + rdx - 80], xmm12",
    "movups [rdi + rdx - 96], xmm13",
    "movups [rdi + rdx - 112], xmm14",
    "movups [rdi + rdx - 128], xmm15",
    "1:",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "movups [rdi + rdx - 16], xmm4",
    "movups [rdi + rdx - 32], xmm5",
    "movups [rdi + rdx - 48], xmm6",
    "movups [rdi + rdx - 64], xmm7",
    "xor eax, eax",
    "ret",
    // 0 to 15.
    ".p2align 4",
    "3:",
    "cmp rdx, 8",
    "jae 5f",
    "cmp rdx, 4",
    "jae 4f",
    "test rdx, rdx",
    "je 1f",
    // 1 to 3: the first, the middle and the last byte.
    "mov r8, rdx",
    "shr r8",
    "movzx eax, byte ptr [rsi]",
    "movzx ecx, byte ptr [rsi + r8]",
    "movzx r9d, byte ptr [rsi + rdx - 1]",
    "mov [rdi], al",
    "mov [rdi + r8], cl",
    "mov [rdi + rdx - 1], r9b",
    "1:",
    "xor eax, eax",
    "ret",
    "4:",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "5:",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    // 257 to 1024: 64 at a time, with the arguments advanced after each step; the rest as above.
    ".p2align 4",
    "6:",
    "cmp rdx, 1024",
    "ja netchannel_copy_string",
    ".p2align 4",
    "7:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 7b",
    "jmp netchannel_copy",
    ".p2align 4",
    ".global netchannel_copy_string",
    ".hidden netchannel_copy_string",
    "netchannel_copy_string:",
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
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn netchannel_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    fn netchannel_copy_string();
    fn netchannel_copy_fault();
    fn netchannel_copy_end();
}

/// Copies `length` bytes and returns how many it could not copy because an address faulted (always 0 unless the process
/// has a fault handler that uses [`resume_at`]).
///
/// # Safety
/// The mapped parts of both ranges must be memory that may be read and written as raw bytes; the ranges do not overlap.
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

/// Where a thread that faulted at `instruction` must continue, if it faulted within [`copy`]. All other registers must
/// stay as they were. One copy may fault twice.
#[must_use]
pub fn resume_at(instruction: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        let begin: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = netchannel_copy;
        let string: unsafe extern "C" fn() = netchannel_copy_string;
        let fault: unsafe extern "C" fn() = netchannel_copy_fault;
        let end: unsafe extern "C" fn() = netchannel_copy_end;
        if (begin as usize..string as usize).contains(&instruction) {
            return Some(string as usize);
        }
        (instruction == fault as usize).then_some(end as usize)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = instruction;
        None
    }
}
