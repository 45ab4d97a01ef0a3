//! `vfork`.

use super::descriptors;
use crate::processes::vfork;

/// Takes the place of the C function of this name. In a process with sockets the child of `vfork`, which shares its
/// memory, would close its parent's sockets: there it is an ordinary child.
///
/// # Safety
/// As the C function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    // The child runs on the same stack and returns first: the return address is kept in a register.
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "test al, al",
        "jz {fork}",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "mov edi, eax",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "ret",
        before = sym vfork::before,
        after = sym vfork::after,
        fork = sym descriptors::fork,
        number = const libc::SYS_vfork,
    )
}

/// Takes the place of the C function of this name.
///
/// # Safety
/// As the C function.
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: as the C function. The child is an ordinary one.
    unsafe { descriptors::fork() }
}
