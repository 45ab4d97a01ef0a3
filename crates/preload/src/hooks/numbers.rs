//! The C library's function `syscall`. libuv closes with it, other runtimes use it for more: calls that have a hook go
//! to the hook, all others to the kernel as they are.
//!
//! Some allocators use it while they start: a call that does not concern the library runs no other code.

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::{c_int, c_long, c_uint, c_ulong, c_void, sigset_t, socklen_t};

use super::readiness::Timeout;
use super::{
    data, descriptors, ending, lifecycle, limits, privileges, processes, readiness, selecting,
    splicing,
};
use crate::descriptors::table::{self, Word};
use crate::descriptors::user;
use crate::ground::{real, sys};
use crate::processes::fork;
use crate::sockets::rings;

/// The arguments after the number. Only the lower half of an `int` is valid.
type Arguments = [usize; 6];

/// The size of a set of signals for the kernel.
const SIGNALS_BYTES: usize = size_of::<u64>();

#[inline]
const fn int(value: usize) -> c_int {
    (value as c_uint).cast_signed()
}

#[inline]
fn concerns_library(fd: usize) -> bool {
    table::get(int(fd)) != Word::FOREIGN
}

/// The kernel's set of signals as the C library's, which is longer. `None` for no set.
unsafe fn signals(mask: usize, size: usize) -> Result<Option<sigset_t>, c_int> {
    if mask == 0 {
        return Ok(None);
    }
    if size != SIGNALS_BYTES {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program's set; the first bits of both sets mean the same signals.
    unsafe {
        let bits: u64 = user::read(pointer(mask))?;
        let mut set: sigset_t = core::mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        Ok(Some(set))
    }
}

/// Runs `call` with the set of signals that a program gave as for the kernel.
unsafe fn with_signals(
    mask: usize,
    size: usize,
    call: impl FnOnce(*const sigset_t) -> Option<c_int>,
) -> Option<c_long> {
    // SAFETY: the program's set.
    match unsafe { signals(mask, size) } {
        Ok(set) => {
            let set = set.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            call(set).map(c_long::from)
        }
        Err(error) => Some(real::fail(error)),
    }
}

/// A set of signals and its size, as `pselect6` takes them.
unsafe fn read_mask(at: usize) -> Result<(usize, usize), c_int> {
    if at == 0 {
        return Ok((0, 0));
    }
    // SAFETY: the program's pair of words.
    unsafe { user::read::<[usize; 2]>(pointer(at)) }.map(|[mask, size]| (mask, size))
}

/// Calls on one descriptor, if it concerns the library.
unsafe fn call_on_descriptor(number: c_long, a: Arguments) -> Option<c_long> {
    let (fd, at) = (int(a[0]), pointer::<c_void>(a[1]));
    let (count, flags) = (int(a[2]), int(a[3]));
    // SAFETY: the program's arguments, as the call of this number takes them.
    let result = unsafe {
        match number {
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_read => data::read(fd, at, a[2]) as c_long,
            libc::SYS_write => data::write(fd, at, a[2]) as c_long,
            libc::SYS_readv => data::readv(fd, at.cast(), count) as c_long,
            libc::SYS_writev => data::writev(fd, at.cast(), count) as c_long,
            // The offset comes in two words, of which the first holds all of it.
            libc::SYS_preadv2 => {
                data::preadv2(fd, at.cast(), count, a[3] as i64, int(a[5])) as c_long
            }
            libc::SYS_pwritev2 => {
                data::pwritev2(fd, at.cast(), count, a[3] as i64, int(a[5])) as c_long
            }
            libc::SYS_recvfrom => {
                data::recvfrom(fd, at, a[2], flags, pointer(a[4]), pointer(a[5])) as c_long
            }
            libc::SYS_sendto => {
                data::sendto(fd, at, a[2], flags, pointer(a[4]), a[5] as socklen_t) as c_long
            }
            libc::SYS_fcntl => descriptors::fcntl(fd, int(a[1]), a[2]).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, a[1] as c_ulong, a[2]).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_bind => lifecycle::bind(fd, at.cast(), a[2] as socklen_t).into(),
            libc::SYS_listen => lifecycle::listen(fd, int(a[1])).into(),
            libc::SYS_connect => lifecycle::connect(fd, at.cast(), a[2] as socklen_t).into(),
            libc::SYS_shutdown => lifecycle::shutdown(fd, int(a[1])).into(),
            libc::SYS_getsockname => lifecycle::getsockname(fd, at.cast(), pointer(a[2])).into(),
            libc::SYS_getpeername => lifecycle::getpeername(fd, at.cast(), pointer(a[2])).into(),
            libc::SYS_setsockopt => {
                let length = a[4] as socklen_t;
                lifecycle::setsockopt(fd, int(a[1]), count, pointer(a[3]), length).into()
            }
            libc::SYS_getsockopt => {
                lifecycle::getsockopt(fd, int(a[1]), count, pointer(a[3]), pointer(a[4])).into()
            }
            _ => return None,
        }
    };
    Some(result)
}

/// Calls that concern the library where either descriptor does.
unsafe fn call_on_pair(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: the program's arguments, as the call of this number takes them.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 if concerns_library(a[0]) || concerns_library(a[1]) => {
                descriptors::dup2(int(a[0]), int(a[1])).into()
            }
            libc::SYS_dup3 if concerns_library(a[0]) || concerns_library(a[1]) => {
                descriptors::dup3(int(a[0]), int(a[1]), int(a[2])).into()
            }
            libc::SYS_sendfile if concerns_library(a[0]) || concerns_library(a[1]) => {
                splicing::sendfile(int(a[0]), int(a[1]), pointer(a[2]), a[3]) as c_long
            }
            libc::SYS_splice if concerns_library(a[0]) || concerns_library(a[2]) => {
                let (from, to) = (int(a[0]), int(a[2]));
                splicing::splice(from, pointer(a[1]), to, pointer(a[3]), a[4], a[5] as c_uint)
                    as c_long
            }
            _ => return None,
        }
    };
    Some(result)
}

/// Calls whose hook itself finds out whether they concern the library.
unsafe fn call_on_any(number: c_long, a: Arguments) -> Option<c_long> {
    let (fd, at) = (int(a[0]), pointer::<c_void>(a[1]));
    // SAFETY: the program's arguments, as the call of this number takes them.
    let result = unsafe {
        match number {
            libc::SYS_socket => lifecycle::socket(fd, int(a[1]), int(a[2])).into(),
            libc::SYS_accept => lifecycle::accept(fd, at.cast(), pointer(a[2])).into(),
            libc::SYS_accept4 => lifecycle::accept4(fd, at.cast(), pointer(a[2]), int(a[3])).into(),
            libc::SYS_sendmsg => data::sendmsg(fd, at.cast(), int(a[2])) as c_long,
            libc::SYS_recvmsg => data::recvmsg(fd, at.cast(), int(a[2])) as c_long,
            libc::SYS_sendmmsg => data::sendmmsg(fd, at.cast(), a[2] as c_uint, int(a[3])).into(),
            libc::SYS_recvmmsg => {
                let count = a[2] as c_uint;
                data::recvmmsg(fd, at.cast(), count, int(a[3]), pointer(a[4])).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_getrlimit => limits::getrlimit(fd, at.cast()).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_setrlimit => limits::setrlimit(fd, at.cast()).into(),
            libc::SYS_prlimit64 => {
                limits::prlimit(fd, int(a[1]), pointer(a[2]), pointer(a[3])).into()
            }
            libc::SYS_close_range => {
                descriptors::close_range(a[0] as c_uint, a[1] as c_uint, int(a[2])).into()
            }
            libc::SYS_execve => {
                processes::execve(pointer(a[0]), pointer(a[1]), pointer(a[2])).into()
            }
            libc::SYS_execveat => {
                processes::execveat(fd, at.cast(), pointer(a[2]), pointer(a[3]), int(a[4])).into()
            }
            _ => return call_that_waits(number, a),
        }
    };
    Some(result)
}

/// Calls that wait on a list of descriptors. The C library's functions would read a bad time: so calls that do not
/// concern the library go to the kernel as they are.
unsafe fn call_that_waits(number: c_long, a: Arguments) -> Option<c_long> {
    let sets = [pointer(a[1]), pointer(a[2]), pointer(a[3])];
    // SAFETY: the program's arguments, as the call of this number takes them.
    unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => {
                let timeout = Timeout::Milliseconds(int(a[2]));
                let count = a[1] as libc::nfds_t;
                let result = readiness::try_poll(pointer(a[0]), count, timeout, core::ptr::null())?;
                Some(readiness::count(result).into())
            }
            libc::SYS_ppoll => with_signals(a[3], a[4], |mask| {
                let timeout = Timeout::Timespec(pointer(a[2]));
                let count = a[1] as libc::nfds_t;
                readiness::try_poll(pointer(a[0]), count, timeout, mask).map(readiness::count)
            }),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                let timeout = Timeout::Timeval(pointer(a[4]));
                let result = selecting::try_select(int(a[0]), sets, timeout, core::ptr::null());
                let result = result.map(readiness::count).unwrap_or_else(|| {
                    let by_kernel = sys::raw(number, [a[0], a[1], a[2], a[3], a[4], 0]);
                    let result = by_kernel.map_or_else(real::fail, int);
                    selecting::corrected_result(result, int(a[0]), sets, timeout, core::ptr::null())
                });
                Some(result.into())
            }
            libc::SYS_pselect6 => match read_mask(a[5]) {
                Ok((mask, size)) => with_signals(mask, size, |mask| {
                    let timeout = Timeout::Timespec(pointer(a[4]));
                    selecting::try_select(int(a[0]), sets, timeout, mask).map(readiness::count)
                }),
                Err(error) => Some(real::fail(error)),
            },
            _ => call_on_set(number, a),
        }
    }
}

/// Calls on epoll sets.
unsafe fn call_on_set(number: c_long, a: Arguments) -> Option<c_long> {
    let (set, at) = (int(a[0]), pointer::<c_void>(a[1]));
    // SAFETY: the program's arguments, as the call of this number takes them.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => readiness::epoll_create(set).into(),
            libc::SYS_epoll_create1 => readiness::epoll_create1(set).into(),
            libc::SYS_epoll_ctl => {
                readiness::epoll_ctl(set, int(a[1]), int(a[2]), pointer(a[3])).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                readiness::epoll_wait(set, at.cast(), int(a[2]), int(a[3])).into()
            }
            libc::SYS_epoll_pwait => {
                return with_signals(a[4], a[5], |mask| {
                    let (most, timeout) = (int(a[2]), int(a[3]));
                    Some(readiness::epoll_pwait(set, at.cast(), most, timeout, mask))
                });
            }
            libc::SYS_epoll_pwait2 => {
                return with_signals(a[4], a[5], |mask| {
                    let (most, timeout) = (int(a[2]), pointer(a[3]));
                    Some(readiness::epoll_pwait2(set, at.cast(), most, timeout, mask))
                });
            }
            _ => return None,
        }
    };
    Some(result)
}

/// Whether this `clone3` makes a child like that of `fork`.
unsafe fn is_clone3_fork(at: usize) -> bool {
    // Flags and stack: the first and the sixth word of its arguments.
    // SAFETY: the program's arguments, read as the kernel does.
    let arguments = unsafe { user::read::<[u64; 6]>(pointer(at)) };
    arguments.is_ok_and(|words| fork::is_fork(words[0] as usize, words[5] as usize))
}

unsafe fn fork_by_system_call(number: c_long, a: Arguments) -> c_long {
    // SAFETY: the program's arguments.
    match unsafe { fork::by_system_call(number, a) } {
        Ok(child) => child.cast_signed() as c_long,
        Err(error) => real::fail(error),
    }
}

/// The result of a hook, if the call concerns the library by its number or its first descriptor.
#[inline]
unsafe fn dispatch(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: the program's arguments.
    unsafe {
        match number {
            // Called often, and never for the library.
            libc::SYS_futex | libc::SYS_gettid | libc::SYS_getrandom | libc::SYS_openat => None,
            libc::SYS_clone if fork::is_fork(a[0], a[1]) => Some(fork_by_system_call(number, a)),
            libc::SYS_clone3 if is_clone3_fork(a[0]) => Some(fork_by_system_call(number, a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => Some(fork_by_system_call(number, a)),
            libc::SYS_exit_group => ending::end(int(a[0])),
            libc::SYS_io_uring_setup if rings::refuses() => Some(real::fail(libc::ENOSYS)),
            _ => {
                let ours = if concerns_library(a[0]) {
                    call_on_descriptor(number, a)
                } else {
                    None
                };
                ours.or_else(|| call_on_pair(number, a))
                    .or_else(|| call_on_any(number, a))
                    .or_else(|| privileges::by_number(number, a))
            }
        }
    }
}

hook! {
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long {
        // The C library's function has variable arguments, which are passed in the same registers.
        let arguments = [a, b, c, d, e, f];
        if let Some(result) = dispatch(number, arguments) {
            return result;
        }
        match sys::raw(number, arguments) {
            Ok(result) => result.cast_signed() as c_long,
            Err(error) => real::fail(error),
        }
    }
}
