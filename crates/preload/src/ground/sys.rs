//! The system calls that the library makes for itself. They are raw, so they never enter the library's own hooks and
//! never change `errno`. A failure is returned as the errno.

mod control;
pub mod file;
mod limits;
pub mod local;
mod marked;
mod select;
pub mod watching;

use core::ffi::CStr;

use control::Control;
pub use control::MOST;
use libc::{c_int, c_void};
pub use limits::{is_limit, limit};
pub use local::{anchor_pair, socket_pair};
pub use marked::raw;
pub use netchannel_shm::system::{Sys, yield_now};
pub use select::poll as poll_by_select;

/// A descriptor or other int as a register.
#[inline]
pub fn int(value: c_int) -> usize {
    isize::try_from(value).unwrap_or(-1).cast_unsigned()
}

#[inline]
fn descriptor(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(-1)
}

/// Closes a descriptor.
#[inline]
pub fn close(fd: c_int) {
    // SAFETY: closing is memory safe; the caller owns the descriptor.
    let _ = unsafe { raw(libc::SYS_close, [int(fd), 0, 0, 0, 0, 0]) };
}

/// Random bits. Bits of the clock where the kernel gives none.
pub fn random() -> u64 {
    let mut word = 0_u64;
    let place = (&raw mut word).addr();
    // SAFETY: the kernel writes the eight bytes of `word`.
    let got = unsafe { raw(libc::SYS_getrandom, [place, size_of::<u64>(), 1, 0, 0, 0]) };
    if got == Ok(size_of::<u64>()) {
        word
    } else {
        crate::ground::clock::now() ^ u64::from(thread()) << 32
    }
}

/// Duplicates `fd` onto the lowest free descriptor from `least` on.
#[inline]
pub fn duplicate(fd: c_int, least: c_int, close_on_exec: bool) -> Sys<c_int> {
    let command = if close_on_exec {
        libc::F_DUPFD_CLOEXEC
    } else {
        libc::F_DUPFD
    };
    fcntl(fd, command, int(least)).map(descriptor)
}

/// `fcntl` with a plain argument.
#[inline]
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Sys<usize> {
    // SAFETY: only used with commands whose argument is a number.
    unsafe { raw(libc::SYS_fcntl, [int(fd), int(command), argument, 0, 0, 0]) }
}

/// Whether calls on a file do not wait.
pub fn is_nonblocking(fd: c_int) -> bool {
    fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & int(libc::O_NONBLOCK) != 0)
}

/// Makes `to` a duplicate of `from`, whatever `to` was.
#[inline]
pub fn replace(from: c_int, to: c_int, close_on_exec: bool) -> Sys<c_int> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_dup3, [int(from), int(to), int(flags), 0, 0, 0]) }.map(descriptor)
}

/// A new socket, which is the kernel's also under a supervisor of system calls.
pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Sys<c_int> {
    let words = [int(family), int(kind), int(protocol), 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_socket, words) }.map(descriptor)
}

/// A new eventfd that counts from 0, non-blocking, closed on exec.
pub fn event_counter(flags: c_int) -> Sys<c_int> {
    let flags = int(flags | libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) }.map(descriptor)
}

/// Receives into `buffer`.
#[inline]
pub fn receive(fd: c_int, buffer: &mut [u8], flags: c_int) -> Sys<usize> {
    let pointer = buffer.as_mut_ptr().addr();
    // SAFETY: the buffer is ours for its length.
    unsafe {
        raw(
            libc::SYS_recvfrom,
            [int(fd), pointer, buffer.len(), int(flags), 0, 0],
        )
    }
}

/// Sends `buffer` without a signal.
#[inline]
pub fn send(fd: c_int, buffer: &[u8], flags: c_int) -> Sys<usize> {
    let pointer = buffer.as_ptr().addr();
    let flags = int(flags | libc::MSG_NOSIGNAL);
    // SAFETY: the buffer is ours for its length.
    unsafe {
        raw(
            libc::SYS_sendto,
            [int(fd), pointer, buffer.len(), flags, 0, 0],
        )
    }
}

/// `getsockopt` of an int.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Sys<c_int> {
    let mut value: c_int = 0;
    let mut length: libc::socklen_t = 4;
    // SAFETY: both pointers are to locals of the right size.
    unsafe {
        raw(
            libc::SYS_getsockopt,
            [
                int(fd),
                int(level),
                int(name),
                (&raw mut value).addr(),
                (&raw mut length).addr(),
                0,
            ],
        )?;
    }
    Ok(value)
}

/// Sets an option that is one number.
pub fn set_option(fd: c_int, level: c_int, name: c_int, value: c_int) -> Sys<()> {
    // SAFETY: the pointer is to a local of the size that is given.
    unsafe {
        raw(
            libc::SYS_setsockopt,
            [
                int(fd),
                int(level),
                int(name),
                (&raw const value).addr(),
                size_of::<c_int>(),
                0,
            ],
        )
    }
    .map(drop)
}

/// The kernel's number for a socket, unique in its namespace.
pub fn cookie(fd: c_int) -> Sys<u64> {
    let mut value: u64 = 0;
    let mut length: libc::socklen_t = 8;
    // SAFETY: both pointers are to locals of the right size.
    unsafe {
        raw(
            libc::SYS_getsockopt,
            [
                int(fd),
                int(libc::SOL_SOCKET),
                int(libc::SO_COOKIE),
                (&raw mut value).addr(),
                (&raw mut length).addr(),
                0,
            ],
        )?;
    }
    Ok(value)
}

/// Polls `descriptors`, some of which may be closed.
///
/// # Errors
/// As `ppoll`, also where there are more than the limit of descriptors.
pub fn poll_all(descriptors: &mut [libc::pollfd]) -> Sys<usize> {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (set, count) = (descriptors.as_mut_ptr().addr(), descriptors.len());
    // SAFETY: the slice is ours, and the time is a local.
    unsafe {
        raw(
            libc::SYS_ppoll,
            [set, count, (&raw const time).addr(), 0, 8, 0],
        )
    }
}

/// Whether a number is open.
pub fn is_open(fd: c_int) -> bool {
    fd >= 0 && fcntl(fd, libc::F_GETFD, 0).is_ok()
}

/// Asks the kernel whether a descriptor is readable or, for a listener, has a connection to accept.
pub fn is_readable(fd: c_int) -> bool {
    let mut set = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    fd >= 0 && poll(&mut set, 0, core::ptr::null()) == Ok(1)
}

/// Waits on `descriptors` for at most `timeout` nanoseconds (negative: forever) under `mask`.
pub fn poll(
    descriptors: &mut [libc::pollfd],
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Sys<usize> {
    let time = libc::timespec {
        tv_sec: timeout / 1_000_000_000,
        tv_nsec: timeout % 1_000_000_000,
    };
    let time: *const libc::timespec = if timeout < 0 {
        core::ptr::null()
    } else {
        &raw const time
    };
    // SAFETY: the slice is ours; the mask is null or the caller's valid set.
    let polled = unsafe {
        raw(
            libc::SYS_ppoll,
            [
                descriptors.as_mut_ptr().addr(),
                descriptors.len(),
                time.addr(),
                mask.addr(),
                8,
                0,
            ],
        )
    };
    match polled {
        Err(libc::EINVAL) => poll_by_select(descriptors, timeout, mask),
        polled => polled,
    }
}

/// A new epoll set, closed on exec.
pub fn epoll_create() -> Sys<c_int> {
    // SAFETY: no pointers.
    unsafe {
        raw(
            libc::SYS_epoll_create1,
            [int(libc::EPOLL_CLOEXEC), 0, 0, 0, 0, 0],
        )
    }
    .map(descriptor)
}

/// `epoll_ctl`.
pub fn epoll_control(set: c_int, operation: c_int, fd: c_int, events: u32, data: u64) -> Sys<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event is a local.
    unsafe {
        raw(
            libc::SYS_epoll_ctl,
            [
                int(set),
                int(operation),
                int(fd),
                (&raw mut event).addr(),
                0,
                0,
            ],
        )
    }
    .map(|_| ())
}

/// Takes the ready events of `set` without waiting.
pub fn epoll_take(set: c_int, events: &mut [libc::epoll_event]) -> Sys<usize> {
    let count = events.len();
    // `epoll_wait` has no mask that the kernel must look at, where the architecture has that call.
    #[cfg(target_arch = "x86_64")]
    let number = libc::SYS_epoll_wait;
    #[cfg(not(target_arch = "x86_64"))]
    let number = libc::SYS_epoll_pwait;
    // SAFETY: the slice is ours.
    unsafe {
        raw(
            number,
            [int(set), events.as_mut_ptr().addr(), count, 0, 0, 8],
        )
    }
}

/// Opens a file, closed on exec.
///
/// # Errors
/// Those of `open`.
pub fn open(path: &CStr, flags: c_int) -> Result<c_int, c_int> {
    let at = int(libc::AT_FDCWD);
    let flags = int(flags | libc::O_CLOEXEC);
    // SAFETY: the path is a C string.
    let opened = unsafe { raw(libc::SYS_openat, [at, path.as_ptr().addr(), flags, 0, 0, 0]) };
    opened.map(descriptor)
}

/// The open descriptors of this process, in no order.
pub fn open_descriptors() -> Vec<c_int> {
    let mut found = Vec::new();
    let Ok(directory) = open(c"/proc/self/fd", libc::O_RDONLY | libc::O_DIRECTORY) else {
        return found;
    };
    let mut buffer = [0u8; 4096];
    loop {
        let (pointer, length) = (buffer.as_mut_ptr().addr(), buffer.len());
        // SAFETY: the buffer is ours for its length.
        let got = unsafe {
            raw(
                libc::SYS_getdents64,
                [int(directory), pointer, length, 0, 0, 0],
            )
        };
        let Ok(got @ 1..) = got else { break };
        let mut rest = buffer.get(..got).unwrap_or(&[]);
        // Inode, offset (8 bytes each), length (2), type (1), name.
        while let [
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            low,
            high,
            _,
            name @ ..,
        ] = rest
        {
            let number = name
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .fold(0i64, |number, byte| number * 10 + i64::from(byte - b'0'));
            let is_number = name.first().is_some_and(u8::is_ascii_digit);
            if let (true, Ok(number)) = (is_number, c_int::try_from(number))
                && number != directory
            {
                found.push(number);
            }
            let length = usize::from(u16::from_ne_bytes([*low, *high])).max(19);
            rest = rest.get(length..).unwrap_or(&[]);
        }
    }
    close(directory);
    found
}

/// Processors that the calling thread may run on; 0 where the kernel does not say.
pub fn processors() -> u32 {
    // SAFETY: all zero is a valid set, and the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let words = [0, size, (&raw mut set).addr(), 0, 0, 0];
        let _ = raw(libc::SYS_sched_getaffinity, words);
        u32::try_from(libc::CPU_COUNT(&set)).unwrap_or(0)
    }
}

/// The processor that runs the calling thread.
pub fn processor() -> c_int {
    let mut processor: u32 = 0;
    // SAFETY: the pointer is to a local of the size that is written.
    let _ = unsafe {
        raw(
            libc::SYS_getcpu,
            [(&raw mut processor).addr(), 0, 0, 0, 0, 0],
        )
    };
    processor.cast_signed()
}

/// Sleeps for so many nanoseconds, or until a signal.
pub fn sleep(nanoseconds: i64) {
    let _ = poll(&mut [], nanoseconds, core::ptr::null());
}

/// Number of the calling process.
pub fn process() -> u32 {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_getpid, [0; 6]) }
        .ok()
        .and_then(|v| u32::try_from(v).ok())
        .unwrap_or(0)
}

/// Number of the calling thread.
pub fn thread() -> u32 {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_gettid, [0; 6]) }
        .ok()
        .and_then(|v| u32::try_from(v).ok())
        .unwrap_or(0)
}

/// Number of this process's parent, in the namespace of this process; 0 where it has none there.
pub fn parent_process() -> u32 {
    // SAFETY: no pointers.
    let parent = unsafe { raw(libc::SYS_getppid, [0; 6]) };
    parent.map_or(0, |number| u32::try_from(number).unwrap_or(0))
}

/// Whether a process or thread of this number exists.
pub fn exists(number: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { raw(libc::SYS_kill, [number as usize, 0, 0, 0, 0, 0]) };
    asked != Err(libc::ESRCH)
}

/// Inode of the namespace in which this process has its number; 0 where it can not be learned.
pub fn pid_namespace() -> u64 {
    // SAFETY: all zero is a valid `stat`.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let path = c"/proc/self/ns/pid".as_ptr().addr();
    let at = int(libc::AT_FDCWD);
    let place = (&raw mut found).addr();
    // SAFETY: a C string, and a local that is written to.
    let done = unsafe { raw(libc::SYS_newfstatat, [at, path, place, 0, 0, 0]) };
    done.map_or(0, |_| found.st_ino)
}

/// A private zeroed mapping, never unmapped.
pub fn reserve(bytes: usize) -> Option<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address the kernel chooses.
    unsafe {
        raw(
            libc::SYS_mmap,
            [0, bytes, int(protection), int(flags), usize::MAX, 0],
        )
    }
    .ok()
    .map(core::ptr::with_exposed_provenance_mut)
}

/// Whether the peer of a local socket is closed. Takes no bytes off it.
pub fn has_hung_up(fd: c_int) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // A peer that was killed with unread bytes shows as a reset, once.
    matches!(
        receive(fd, &mut [0], flags),
        Ok(0) | Err(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)
    )
}

/// Sends one message with descriptors. No signal ends the wait for room.
pub fn send_message(fd: c_int, bytes: &[u8], descriptors: &[c_int], flags: c_int) -> Sys<usize> {
    let mut control = Control::default();
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    let count = descriptors.len().min(MOST);
    if count > 0 {
        control.length = 16 + 4 * count;
        control.level = libc::SOL_SOCKET;
        control.kind = libc::SCM_RIGHTS;
        for (to, from) in control.descriptors.iter_mut().zip(descriptors) {
            *to = *from;
        }
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = (16 + 4 * count).next_multiple_of(8) as _;
    }
    let flags = int(flags | libc::MSG_NOSIGNAL);
    let words = [int(fd), (&raw const header).addr(), flags, 0, 0, 0];
    loop {
        // SAFETY: the header points at locals that outlive the call.
        match unsafe { raw(libc::SYS_sendmsg, words) } {
            Err(libc::EINTR) => {}
            sent => return sent,
        }
    }
}

/// Peeks at the next message, which stays in the queue, and receives own descriptors for those that it carries
/// (close-on-exec). Returns the numbers of bytes and descriptors.
///
/// # Errors
/// `EMFILE` where not all descriptors found a number, `EPROTO` where the message carries more than any of the
/// library's. Then none is left open.
pub fn peek_message(
    fd: c_int,
    bytes: &mut [u8],
    descriptors: &mut [c_int; MOST],
) -> Sys<(usize, usize)> {
    let (length, count, whole) = message(fd, bytes, descriptors, libc::MSG_PEEK)?;
    if whole {
        return Ok((length, count));
    }
    descriptors.iter().take(count).for_each(|fd| close(*fd));
    Err(if count < MOST {
        libc::EMFILE
    } else {
        libc::EPROTO
    })
}

/// Receives a message. Returns its length, the number of descriptors, and whether all of them found a number.
///
/// # Errors
/// Those of `recvmsg`.
pub fn message(
    fd: c_int,
    bytes: &mut [u8],
    descriptors: &mut [c_int; MOST],
    flags: c_int,
) -> Sys<(usize, usize, bool)> {
    let mut control = Control::default();
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    let flags = int(flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC);
    // SAFETY: the header points at locals that outlive the call.
    let length = unsafe {
        raw(
            libc::SYS_recvmsg,
            [int(fd), (&raw mut header).addr(), flags, 0, 0, 0],
        )
    }?;
    let mut count = 0;
    if header.msg_controllen >= 16
        && control.level == libc::SOL_SOCKET
        && control.kind == libc::SCM_RIGHTS
    {
        count = (control.length.saturating_sub(16) / 4).min(MOST);
        descriptors[..count].copy_from_slice(&control.descriptors[..count]);
    }
    let whole = header.msg_flags & libc::MSG_CTRUNC == 0;
    Ok((length, count, whole))
}

/// Runs `work` under a lock of the file, which several processes have open.
///
/// # Errors
/// Those of `work`; `EAGAIN` where another process holds the lock.
pub fn with_file_lock<R>(fd: c_int, work: impl FnOnce() -> Sys<R>) -> Sys<R> {
    let set = |kind: c_int| {
        // SAFETY: all zero is a valid lock: of the whole file.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = i16::try_from(kind).unwrap_or(0);
        fcntl(fd, libc::F_SETLK, (&raw const lock).addr())
    };
    // Where the kernel has no room for a lock, all processes go without one.
    if let Err(libc::EACCES | libc::EAGAIN) = set(libc::F_WRLCK) {
        return Err(libc::EAGAIN);
    }
    let done = work();
    let _ = set(libc::F_UNLCK);
    done
}
