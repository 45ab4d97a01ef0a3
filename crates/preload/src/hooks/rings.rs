//! The functions of liburing that create a ring. Their system calls are inline, so no other hook sees them.

use core::sync::atomic::AtomicPtr;

use libc::{c_int, c_uint, c_void, size_t};

use crate::ground::real;
use crate::sockets::rings;

/// Defines functions that create rings, and that fail with a negative errno.
macro_rules! makers {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        hook! {
            $(fn $name($($argument: $type),*) -> c_int {
                static CACHE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                type Function = unsafe extern "C" fn($($type),*) -> c_int;
                let found = if rings::refuses() {
                    core::ptr::null_mut()
                } else {
                    real::next(&CACHE, concat!(stringify!($name), "\0"))
                };
                // A program may look for a function that only this library defines.
                if found.is_null() {
                    real::set_errno(libc::ENOSYS);
                    return -libc::ENOSYS;
                }
                core::mem::transmute::<*mut c_void, Function>(found)($($argument),*)
            })*
        }
    };
}

makers! {
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void);
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, size: size_t,
    );
}
