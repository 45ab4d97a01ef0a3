//! C libraries older than the one that this library is built with, back to 2.28 (RHEL 8): the library lies in the images of tenants, too.
//! `dlsym` is found where such a C library has it, and what it lacks is made by system calls.
//!
//! ```text
//!   C library    dlsym
//!   from 2.34    its own
//!   before       that of libdl.so.2, where the program has loaded that; otherwise it is loaded
//! ```

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};
use netchannel_shm::system::{Sys, raw};

use crate::ground::error::set_errno;

/// `dlsym`, or null.
fn found_by_linker() -> *mut c_void {
    #[cfg(not(all(not(test), target_arch = "x86_64")))]
    return (libc::dlsym as *const ()).cast_mut().cast();
    #[cfg(all(not(test), target_arch = "x86_64"))]
    weak::address!("netchannel_dlsym")
}

#[cfg(all(not(test), target_arch = "x86_64"))]
mod weak {
    // The version that `dlsym` has had since the first C library for this processor, whichever library holds it: that which a linker takes
    // by default is 2.34. The others are C libraries' own before that.
    core::arch::global_asm!(
        ".weak netchannel_dlsym",
        ".symver netchannel_dlsym, dlsym@GLIBC_2.2.5",
        ".weak __libc_dlopen_mode",
        ".weak __libc_dlsym",
    );

    /// The address of a symbol that need not exist, or null.
    macro_rules! address {
        ($name:literal) => {{
            let address: *mut libc::c_void;
            // SAFETY: reads what the dynamic linker has written into this library's own table.
            unsafe {
                core::arch::asm!(
                    concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                    out(reg) address,
                    options(nostack, preserves_flags, pure, readonly)
                );
            }
            address
        }};
    }
    pub(super) use address;
}

/// `dlsym` of a C library that has it in another library.
#[cfg(all(not(test), target_arch = "x86_64"))]
fn loaded() -> *mut c_void {
    /// A call from within the C library, as `__libc_dlopen_mode` expects.
    const WITHIN: c_int = 0x8000_0000_u32.cast_signed();
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let (open, find) = (
        weak::address!("__libc_dlopen_mode"),
        weak::address!("__libc_dlsym"),
    );
    if open.is_null() || find.is_null() {
        return null_mut();
    }
    // SAFETY: these are their types in every C library that has them; a library that is loaded stays.
    unsafe {
        let open: Open = core::mem::transmute::<*mut c_void, Open>(open);
        let find: Find = core::mem::transmute::<*mut c_void, Find>(find);
        let library = open(c"libdl.so.2".as_ptr(), libc::RTLD_NOW | WITHIN);
        if library.is_null() {
            return null_mut();
        }
        find(library, c"dlsym".as_ptr())
    }
}

#[cfg(not(all(not(test), target_arch = "x86_64")))]
fn loaded() -> *mut c_void {
    null_mut()
}

/// A function of the C library, found by `dlsym`, which finds out from where it is called: by this library. What the C library lacks is
/// one of the functions below, never null.
///
/// # Safety
/// As `dlsym`.
pub unsafe fn find(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's promise.
    let found = unsafe { find_if_there(handle, name) };
    if found.is_null() {
        return substitute(name);
    }
    found
}

/// A function or variable of the C library, or null.
///
/// # Safety
/// As `dlsym`.
pub unsafe fn find_if_there(handle: *mut c_void, name: &CStr) -> *mut c_void {
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // Relaxed: a reader needs nothing but the address.
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function.is_null() {
        function = found_by_linker();
        if function.is_null() {
            function = loaded();
        }
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        return null_mut();
    }
    // SAFETY: the type of dlsym, and the caller's promise.
    unsafe {
        let function = core::mem::transmute::<*mut c_void, Find>(function);
        match function(handle, name.as_ptr()) {
            found if !found.is_null() => found,
            _ => match older_name(name) {
                Some(older) => function(handle, older.as_ptr()),
                None => null_mut(),
            },
        }
    }
}

/// Under which name an older C library has a function.
fn older_name(name: &CStr) -> Option<&'static CStr> {
    Some(match name.to_bytes() {
        b"res_query" => c"__res_query",
        b"res_search" => c"__res_search",
        b"res_nquery" => c"__res_nquery",
        b"res_nsearch" => c"__res_nsearch",
        _ => return None,
    })
}

fn substitute(name: &CStr) -> *mut c_void {
    let function = match name.to_bytes() {
        b"gettid" => gettid as *const (),
        b"fstat" | b"fstat64" => fstat as *const (),
        b"stat64" => stat as *const (),
        b"fstatat64" => fstatat as *const (),
        b"close_range" => close_range as *const (),
        b"epoll_pwait2" => epoll_pwait2 as *const (),
        _ => lacking as *const (),
    };
    function.cast_mut().cast()
}

/// A result as functions of the C library return it.
fn returned(result: Sys<usize>) -> c_int {
    match result {
        Ok(value) => c_int::try_from(value).unwrap_or(c_int::MAX),
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

fn word(value: c_int) -> usize {
    isize::try_from(value).unwrap_or(-1).cast_unsigned()
}

extern "C" fn lacking() -> c_int {
    returned(Err(libc::ENOSYS))
}

extern "C" fn gettid() -> c_int {
    // SAFETY: no arguments.
    returned(unsafe { raw(libc::SYS_gettid, [0; 6]) })
}

unsafe extern "C" fn fstat(fd: c_int, place: *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    returned(unsafe { raw(libc::SYS_fstat, [word(fd), place.addr(), 0, 0, 0, 0]) })
}

unsafe extern "C" fn stat(path: *const c_char, place: *mut c_void) -> c_int {
    // SAFETY: the caller's path and place.
    unsafe { fstatat(libc::AT_FDCWD, path, place, 0) }
}

unsafe extern "C" fn fstatat(
    fd: c_int,
    path: *const c_char,
    place: *mut c_void,
    flags: c_int,
) -> c_int {
    let words = [word(fd), path.addr(), place.addr(), word(flags), 0, 0];
    // SAFETY: the caller's path and place.
    returned(unsafe { raw(libc::SYS_newfstatat, words) })
}

extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    let words = [first as usize, last as usize, word(flags), 0, 0, 0];
    // SAFETY: what the descriptors are for is the caller's to know.
    returned(unsafe { raw(libc::SYS_close_range, words) })
}

unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut c_void,
    most: c_int,
    timeout: *const c_void,
    mask: *const c_void,
) -> c_int {
    /// Bytes of the kernel's set of signals.
    const MASK: usize = 8;
    let words = [
        word(set),
        events.addr(),
        word(most),
        timeout.addr(),
        mask.addr(),
        MASK,
    ];
    // SAFETY: the caller's room for events, time and mask.
    returned(unsafe { raw(libc::SYS_epoll_pwait2, words) })
}
