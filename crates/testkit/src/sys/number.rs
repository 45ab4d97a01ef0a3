//! Calls by their number: through the C library's function `syscall`, as the runtimes of some languages make them, or
//! past the C library.

use std::mem::zeroed;
use std::net::SocketAddr;

use libc::{c_int, c_long};

use super::{Descriptor, Event, Outcome, RawAddress, check_size, last_errno, reported_events};
use crate::far;

fn int(value: c_int) -> usize {
    far::only_near(value, "a call by its number");
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// `syscall`, with up to six arguments.
///
/// # Safety
/// The safety rules of the call with this number apply.
unsafe fn call(number: c_long, arguments: &[usize]) -> Outcome<usize> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: the caller's promise; more arguments than the call takes do no harm.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    usize::try_from(result).map_err(|_| last_errno())
}

fn descriptor(result: Outcome<usize>) -> Outcome<Descriptor> {
    result.map(|value| Descriptor::try_from(value).expect("a descriptor"))
}

/// `syscall` with integers only, for calls that take no pointer.
pub fn number(number: c_long, arguments: &[c_int]) -> Outcome<Descriptor> {
    let arguments: Vec<usize> = arguments.iter().map(|value| int(*value)).collect();
    // SAFETY: used for calls that take integers.
    descriptor(unsafe { call(number, &arguments) })
}

/// `syscall(SYS_close)`
pub fn number_close(descriptor: Descriptor) -> Outcome<()> {
    number(libc::SYS_close, &[descriptor]).map(|_| ())
}

/// `close` without the C library, so that no preloaded library sees it.
pub fn close_unseen(descriptor: Descriptor) {
    // SAFETY: takes an integer; clobbers what a call clobbers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_close => _,
            in("rdi") i64::from(descriptor),
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    // SAFETY: takes an integer.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_close,
            inlateout("x0") i64::from(descriptor) => _,
            options(nostack)
        );
    }
}

/// `syscall(SYS_write)`
pub fn number_write(descriptor: Descriptor, bytes: &[u8]) -> Outcome<usize> {
    let arguments = [int(descriptor), bytes.as_ptr().addr(), bytes.len()];
    // SAFETY: bytes is readable for its length.
    unsafe { call(libc::SYS_write, &arguments) }
}

/// `syscall(SYS_read)`
pub fn number_read(descriptor: Descriptor, bytes: &mut [u8]) -> Outcome<usize> {
    let arguments = [int(descriptor), bytes.as_mut_ptr().addr(), bytes.len()];
    // SAFETY: bytes is writable for its length.
    unsafe { call(libc::SYS_read, &arguments) }
}

/// `syscall(SYS_sendto)` without an address
pub fn number_send(descriptor: Descriptor, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    let (start, length) = (bytes.as_ptr().addr(), bytes.len());
    // SAFETY: bytes is readable for its length.
    unsafe {
        call(
            libc::SYS_sendto,
            &[int(descriptor), start, length, int(flags), 0, 0],
        )
    }
}

/// `syscall(SYS_recvfrom)` without an address
pub fn number_recv(descriptor: Descriptor, bytes: &mut [u8], flags: c_int) -> Outcome<usize> {
    let (start, length) = (bytes.as_mut_ptr().addr(), bytes.len());
    // SAFETY: bytes is writable for its length.
    unsafe {
        call(
            libc::SYS_recvfrom,
            &[int(descriptor), start, length, int(flags), 0, 0],
        )
    }
}

/// `syscall(SYS_writev)`
pub fn number_writev(descriptor: Descriptor, parts: &[&[u8]]) -> Outcome<usize> {
    let vector: Vec<_> = parts.iter().map(|part| super::entry(part)).collect();
    let arguments = [int(descriptor), vector.as_ptr().addr(), vector.len()];
    // SAFETY: the parts are readable for their lengths.
    unsafe { call(libc::SYS_writev, &arguments) }
}

/// `syscall(SYS_bind)` or `syscall(SYS_connect)`
pub fn number_address(call_number: c_long, socket: Descriptor, to: SocketAddr) -> Outcome<()> {
    let raw = if call_number == libc::SYS_bind {
        RawAddress::from(far::to_bind(to, false))
    } else {
        far::route(&RawAddress::from(to)).0
    };
    let start = (&raw const raw.storage).addr();
    let length = usize::try_from(raw.length).unwrap_or(0);
    // SAFETY: raw holds an address of the length given.
    unsafe { call(call_number, &[int(socket), start, length]) }.map(|_| ())
}

/// `syscall(SYS_getsockname)` or `syscall(SYS_getpeername)`
pub fn number_name(call_number: c_long, socket: Descriptor) -> Outcome<Option<SocketAddr>> {
    let mut raw = RawAddress::empty();
    let start = (&raw mut raw.storage).addr();
    let length = (&raw mut raw.length).addr();
    // SAFETY: raw has room for the length that it holds.
    unsafe { call(call_number, &[int(socket), start, length]) }
        .map(|_| raw.decode().map(far::near_loopback))
}

/// `syscall(SYS_ppoll)`; `mask` as the kernel's 64 bits
pub fn number_ppoll(
    entries: &mut [libc::pollfd],
    timeout: libc::timespec,
    mask: Option<u64>,
) -> Outcome<usize> {
    let mask_at = mask
        .as_ref()
        .map_or(0, |mask| std::ptr::from_ref(mask).addr());
    let arguments = [
        entries.as_mut_ptr().addr(),
        entries.len(),
        (&raw const timeout).addr(),
        mask_at,
        size_of::<u64>(),
    ];
    // SAFETY: entries is writable for its length, the others are null or valid.
    unsafe { call(libc::SYS_ppoll, &arguments) }
}

/// `syscall(SYS_pselect6)` for reading from one descriptor; true when the descriptor is readable
pub fn number_pselect(read: Descriptor, timeout: libc::timespec, mask: u64) -> Outcome<bool> {
    // SAFETY: an fd_set of zeroes is the empty set, and the descriptor is below FD_SETSIZE.
    let mut set = unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(read, &raw mut set);
        set
    };
    let signals = [(&raw const mask).addr(), size_of::<u64>()];
    let arguments = [
        int(read) + 1,
        (&raw mut set).addr(),
        0,
        0,
        (&raw const timeout).addr(),
        signals.as_ptr().addr(),
    ];
    // SAFETY: the set has room, the others are valid.
    let count = unsafe { call(libc::SYS_pselect6, &arguments) }?;
    // SAFETY: as above.
    let is_set = unsafe { libc::FD_ISSET(read, &raw const set) };
    assert_eq!(count == 1, is_set);
    Ok(is_set)
}

/// `syscall(SYS_epoll_ctl)` to add
pub fn number_epoll_add(set: Descriptor, member: Descriptor, events: u32) -> Outcome<()> {
    let data = u64::try_from(member).unwrap_or(0);
    let event = libc::epoll_event { events, u64: data };
    let at = (&raw const event).addr();
    // SAFETY: the event is valid.
    unsafe {
        let arguments = [int(set), int(libc::EPOLL_CTL_ADD), int(member), at];
        call(libc::SYS_epoll_ctl, &arguments)
    }
    .map(|_| ())
}

/// `syscall(SYS_epoll_pwait)` for at most `room` events; `mask` as the kernel's 64 bits
pub fn number_epoll_wait(
    set: Descriptor,
    room: usize,
    timeout: c_int,
    mask: u64,
) -> Outcome<Vec<Event>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let arguments = [
        int(set),
        events.as_mut_ptr().addr(),
        room,
        int(timeout),
        (&raw const mask).addr(),
        size_of::<u64>(),
    ];
    // SAFETY: events is writable for its length, the mask is valid.
    let count = unsafe { call(libc::SYS_epoll_pwait, &arguments) }?;
    Ok(reported_events(
        &events,
        c_int::try_from(count).unwrap_or(0),
    ))
}

/// `sendmsg` of a plain message by number
pub fn number_sendmsg(descriptor: Descriptor, bytes: &[u8]) -> Outcome<usize> {
    let mut vector = [super::entry(bytes)];
    let mut message = super::empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = 1;
    // SAFETY: the vector is alive.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, descriptor, &raw const message, 0) };
    check_size(isize::try_from(sent).unwrap_or(-1))
}
