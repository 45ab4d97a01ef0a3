//! The functions behind the hooks: the next definition of each symbol, which is the C library's or
//! that of another preloaded library.

pub use crate::ground::error::set_errno;
use crate::ground::older;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{c_char, c_int, c_void, off64_t, size_t, ssize_t};

/// `errno` of the calling thread.
pub fn errno() -> c_int {
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` and returns -1, as a failing call does.
pub fn fail<T: From<i8>>(error: c_int) -> T {
    set_errno(error);
    T::from(-1)
}

/// Makes a call that no signal ends over TCP. A supervisor of the program may be asked about it, and a signal ends the wait
/// for its answer: then the call is made again.
pub fn uninterrupted(mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        let result = call();
        if result >= 0 || errno() != libc::EINTR {
            return result;
        }
    }
}

/// The C library's record of a clean-up routine: a routine, an argument, a type and a link.
#[repr(C)]
pub struct CleanUp([usize; 4]);

/// The functions of a stream, as `fopencookie` takes them.
#[repr(C)]
pub struct StreamFunctions {
    /// Reads.
    pub read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    /// Writes.
    pub write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    /// Seeks, which a socket can not.
    pub seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    /// Closes.
    pub close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// The next definition of `name`, looked up once.
///
/// # Safety
/// `name` ends with a zero byte.
#[inline]
pub unsafe fn next(cache: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a C string; the look-up has no other condition.
    let found = unsafe {
        let name = CStr::from_ptr(name.as_ptr().cast::<c_char>());
        older::find(libc::RTLD_NEXT, name)
    };
    cache.store(found, Ordering::Relaxed);
    found
}

/// Declares callers of the next definition of C functions.
#[macro_export]
macro_rules! real {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The addresses as far as they were looked up.
        mod found {
            $(
                // All of them together: they are written to in every program.
                #[allow(non_upper_case_globals, reason = "the names of the functions")]
                #[unsafe(link_section = ".data.netchannel_real")]
                pub static $name: core::sync::atomic::AtomicPtr<libc::c_void> =
                    core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
            )*
        }
        $(
            $(#[$meta])*
            /// The next definition of the C function of this name.
            ///
            /// # Safety
            /// As the C function.
            #[inline]
            pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
                // SAFETY: the symbol of this name has this type.
                unsafe {
                    let found = $crate::ground::real::next(&found::$name, concat!(stringify!($name), "\0"));
                    let function: Function =
                        core::mem::transmute::<*mut libc::c_void, Function>(found);
                    function($($argument),*)
                }
            }
        )*
    };
}

type Fd = c_int;
type Size = usize;
type Signed = isize;
type Length = libc::socklen_t;

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: Fd, address: *const libc::sockaddr, length: Length) -> c_int;
    fn listen(fd: Fd, backlog: c_int) -> c_int;
    fn accept4(fd: Fd, address: *mut libc::sockaddr, length: *mut Length, flags: c_int) -> c_int;
    fn connect(fd: Fd, address: *const libc::sockaddr, length: Length) -> c_int;
    fn shutdown(fd: Fd, how: c_int) -> c_int;
    fn fork() -> libc::pid_t;
    fn getsockname(fd: Fd, address: *mut libc::sockaddr, length: *mut Length) -> c_int;
    fn getpeername(fd: Fd, address: *mut libc::sockaddr, length: *mut Length) -> c_int;
    fn getsockopt(fd: Fd, level: c_int, name: c_int, value: *mut c_void, length: *mut Length)
        -> c_int;
    fn setsockopt(fd: Fd, level: c_int, name: c_int, value: *const c_void, length: Length)
        -> c_int;
    fn read(fd: Fd, buffer: *mut c_void, length: Size) -> Signed;
    fn readv(fd: Fd, vectors: *const libc::iovec, count: c_int) -> Signed;
    fn write(fd: Fd, buffer: *const c_void, length: Size) -> Signed;
    fn writev(fd: Fd, vectors: *const libc::iovec, count: c_int) -> Signed;
    fn recv(fd: Fd, buffer: *mut c_void, length: Size, flags: c_int) -> Signed;
    fn recvfrom(fd: Fd, buffer: *mut c_void, length: Size, flags: c_int,
        address: *mut libc::sockaddr, address_length: *mut Length) -> Signed;
    fn recvmsg(fd: Fd, message: *mut libc::msghdr, flags: c_int) -> Signed;
    fn recvmmsg(fd: Fd, messages: *mut libc::mmsghdr, count: libc::c_uint, flags: c_int,
        timeout: *mut libc::timespec) -> c_int;
    fn send(fd: Fd, buffer: *const c_void, length: Size, flags: c_int) -> Signed;
    fn sendto(fd: Fd, buffer: *const c_void, length: Size, flags: c_int,
        address: *const libc::sockaddr, address_length: Length) -> Signed;
    fn sendmsg(fd: Fd, message: *const libc::msghdr, flags: c_int) -> Signed;
    fn sendmmsg(fd: Fd, messages: *mut libc::mmsghdr, count: libc::c_uint, flags: c_int) -> c_int;
    fn sendfile(to: Fd, from: Fd, offset: *mut i64, count: Size) -> Signed;
    fn splice(from: Fd, from_offset: *mut i64, to: Fd, to_offset: *mut i64, length: Size,
        flags: libc::c_uint) -> Signed;
    fn pread(fd: Fd, buffer: *mut c_void, length: Size, offset: i64) -> Signed;
    fn close(fd: Fd) -> c_int;
    fn close_range(first: libc::c_uint, last: libc::c_uint, flags: c_int) -> c_int;
    fn dup(fd: Fd) -> c_int;
    fn dup2(from: Fd, to: Fd) -> c_int;
    fn dup3(from: Fd, to: Fd, flags: c_int) -> c_int;
    fn fcntl(fd: Fd, command: c_int, argument: usize) -> c_int;
    fn fcntl64(fd: Fd, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: Fd, request: libc::c_ulong, argument: usize) -> c_int;
    fn poll(set: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn ppoll(set: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
        mask: *const libc::sigset_t) -> c_int;
    fn select(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set,
        except: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int;
    fn pselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set,
        except: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const libc::sigset_t)
        -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: Fd, operation: c_int, fd: Fd, event: *mut libc::epoll_event) -> c_int;
    fn epoll_wait(set: Fd, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(set: Fd, events: *mut libc::epoll_event, most: c_int, timeout: c_int,
        mask: *const libc::sigset_t) -> c_int;
    fn epoll_pwait2(set: Fd, events: *mut libc::epoll_event, most: c_int,
        timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
    fn _pthread_cleanup_push(buffer: *mut CleanUp,
        routine: unsafe extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut CleanUp, execute: c_int);
    fn pthread_testcancel();
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn siginterrupt(signal: c_int, on: c_int) -> c_int;
    fn sigignore(signal: c_int) -> c_int;
    fn sigset(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn preadv2(fd: Fd, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int)
        -> Signed;
    fn pwritev2(fd: Fd, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int)
        -> Signed;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char,
        functions: StreamFunctions) -> *mut libc::FILE;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE)
        -> *mut libc::FILE;
    fn vdprintf(fd: Fd, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: Fd, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn vsnprintf(text: *mut c_char, room: Size, format: *const c_char, arguments: *mut c_void)
        -> c_int;
    fn getrlimit(resource: c_int, limit: *mut libc::rlimit) -> c_int;
    fn setrlimit(resource: c_int, limit: *const libc::rlimit) -> c_int;
    fn prlimit(process: libc::pid_t, resource: c_int, new: *const libc::rlimit,
        old: *mut libc::rlimit) -> c_int;
    fn sockatmark(fd: Fd) -> c_int;
    fn isfdtype(fd: Fd, kind: c_int) -> c_int;
    fn fdopen(fd: Fd, mode: *const c_char) -> *mut libc::FILE;
    fn execve(path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn fexecve(fd: Fd, arguments: *const *const c_char, environment: *const *const c_char)
        -> c_int;
    fn posix_spawn(process: *mut libc::pid_t, path: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t,
        attributes: *const libc::posix_spawnattr_t, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn posix_spawnp(process: *mut libc::pid_t, file: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t,
        attributes: *const libc::posix_spawnattr_t, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut libc::posix_spawn_file_actions_t,
        fd: c_int, to: c_int) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn setuid(user: libc::uid_t) -> c_int;
    fn setgid(group: libc::gid_t) -> c_int;
    fn seteuid(user: libc::uid_t) -> c_int;
    fn setegid(group: libc::gid_t) -> c_int;
    fn setreuid(real: libc::uid_t, effective: libc::uid_t) -> c_int;
    fn setregid(real: libc::gid_t, effective: libc::gid_t) -> c_int;
    fn setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) -> c_int;
    fn setresgid(real: libc::gid_t, effective: libc::gid_t, saved: libc::gid_t) -> c_int;
    fn setgroups(count: Size, groups: *const libc::gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: libc::gid_t) -> c_int;
    fn capset(header: *mut c_void, data: *const c_void) -> c_int;
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const libc::addrinfo,
        result: *mut *mut libc::addrinfo) -> c_int;
    fn getnameinfo(address: *const libc::sockaddr, length: Length, host: *mut c_char,
        host_room: Length, service: *mut c_char, service_room: Length, flags: c_int) -> c_int;
    fn gethostbyname(name: *const c_char) -> *mut libc::hostent;
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut libc::hostent;
    fn gethostbyname_r(name: *const c_char, host: *mut libc::hostent, buffer: *mut c_char,
        room: Size, result: *mut *mut libc::hostent, error: *mut c_int) -> c_int;
    fn gethostbyname2_r(name: *const c_char, family: c_int, host: *mut libc::hostent,
        buffer: *mut c_char, room: Size, result: *mut *mut libc::hostent, error: *mut c_int)
        -> c_int;
    fn gethostbyaddr(address: *const c_void, length: Length, family: c_int) -> *mut libc::hostent;
    #[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
    fn gethostbyaddr_r(address: *const c_void, length: Length, family: c_int,
        host: *mut libc::hostent, buffer: *mut c_char, room: Size,
        result: *mut *mut libc::hostent, error: *mut c_int) -> c_int;
    fn res_query(name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int)
        -> c_int;
    fn res_search(name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int)
        -> c_int;
    fn res_nquery(state: *mut c_void, name: *const c_char, class: c_int, kind: c_int,
        answer: *mut u8, room: c_int) -> c_int;
    fn res_nsearch(state: *mut c_void, name: *const c_char, class: c_int, kind: c_int,
        answer: *mut u8, room: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: Fd, kind: c_int) -> c_int;
    fn prctl(option: c_int, a: libc::c_ulong, b: libc::c_ulong, c: libc::c_ulong, d: libc::c_ulong)
        -> c_int;
}

/// Looks the functions up that children of a shell call before they execute another program. Each child would look them
/// up for itself.
pub fn find_for_children() {
    for (place, name) in [
        (&found::close, "close\0"),
        (&found::dup2, "dup2\0"),
        (&found::execve, "execve\0"),
        (&found::sigaction, "sigaction\0"),
    ] {
        // SAFETY: the names end with a zero byte.
        unsafe { next(place, name) };
    }
}
