//! Lazy binding of C library functions that are called rarely, mostly by the standard library. The dynamic linker
//! resolves every function that a library names before the program begins; these are resolved at their first call. Each
//! has a hidden definition of the same name within the library, which jumps to the definition that the dynamic linker
//! would have found: the first in the program's order.

use crate::ground::older;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The resolved address of a function, followed by its name.
#[repr(C)]
struct Entry {
    found: AtomicPtr<libc::c_void>,
    name: [libc::c_char; 0],
}

unsafe extern "C" fn find(entry: &Entry) -> *mut libc::c_void {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { older::find(libc::RTLD_DEFAULT, CStr::from_ptr(entry.name.as_ptr())) };
    // Relaxed: a reader needs nothing but the address.
    entry.found.store(found, Ordering::Relaxed);
    found
}

/// Defines the functions. None of them has a floating-point argument.
macro_rules! lazy_binding {
    ($($name:literal)*) => {
        core::arch::global_asm!(
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "mov r11, qword ptr [rip + 7f]",
                "test r11, r11",
                "jz 8f",
                "jmp r11",
                "8: lea r11, [rip + 7f]",
                "jmp netchannel_find",
                ".pushsection .data.netchannel_seldom,\"aw\",@progbits",
                ".p2align 3",
                "7: .quad 0",
                concat!(".asciz \"", $name, "\""),
                ".popsection",
            )*
            // Resolves the entry's function, with the arguments preserved, and jumps to it.
            "netchannel_find:",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "mov rdi, r11",
            "call {find}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
            find = sym find,
        );
    };
}

lazy_binding! {
    "__cxa_thread_atexit_impl" "__h_errno_location" "__xpg_strerror_r" "abort" "access" "calloc" "closedir" "dirfd"
    "dl_iterate_phdr" "fflush" "fgetxattr" "fileno" "free" "freeaddrinfo" "fstat" "fstat64" "fstatat64" "fstatfs"
    "ftruncate" "getcwd" "getegid" "getenv" "geteuid" "gethostname" "gettid" "lseek" "lseek64" "madvise" "malloc"
    "memfd_create" "mmap" "mmap64" "mremap" "munmap" "open" "open64" "opendir" "pread" "pread64" "pthread_key_create"
    "pthread_key_delete" "pthread_setcancelstate" "pthread_setspecific" "pthread_sigmask" "raise" "readdir64"
    "readlink" "realloc" "realpath" "setenv" "setvbuf" "sigaddset" "sigismember" "stat64" "statx" "strdup" "sysconf"
    "unsetenv"
}
