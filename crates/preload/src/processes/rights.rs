//! Descriptors that are passed to other processes in `SCM_RIGHTS` messages.

use libc::{c_int, cmsghdr, msghdr};

use crate::connections::connection::{self, Passing};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::user;
use crate::ground::real;
use crate::processes::pump::{self, Pump};
use crate::processes::{passing, peer_libraries};
use crate::sockets::rings;
use crate::sockets::socket::{self, Socket};

/// Size of the largest control part that is copied: more than the kernel takes descriptors.
const MOST: usize = 4096;
const HEADER: usize = size_of::<cmsghdr>();
/// Most control data that the kernel takes, unless `net.core.optmem_max` says otherwise.
const MOST_CONTROL: usize = 128 << 10;

/// Calls `each` with the address of every descriptor in the control part of a message.
///
/// # Safety
/// The control part is `length` bytes at `control`.
unsafe fn for_each_descriptor(control: *mut u8, length: usize, mut each: impl FnMut(*mut c_int)) {
    let mut at = 0;
    while at + HEADER <= length {
        // SAFETY: within the control part; read unaligned.
        unsafe {
            let header = control.add(at).cast::<cmsghdr>().read_unaligned();
            let size = header.cmsg_len;
            if size < HEADER || size > length - at {
                return;
            }
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
                for index in 0..(size - HEADER) / size_of::<c_int>() {
                    each(control.add(at + HEADER).cast::<c_int>().add(index));
                }
            }
            at += size.next_multiple_of(size_of::<usize>());
        }
    }
}

/// Checks the control part of a message as TCP would, which ignores its contents.
///
/// # Errors
/// `ENOBUFS`, `EFAULT`, or `EINVAL` for a control message that internet sockets do not know.
///
/// # Safety
/// The program gave the control part to be read.
#[cold]
pub unsafe fn check(message: &msghdr) -> Result<(), c_int> {
    let length = message.msg_controllen;
    if length > MOST_CONTROL {
        return Err(libc::ENOBUFS);
    }
    let mut control = vec![0u8; length];
    // SAFETY: a copy that is long enough; the program's control part.
    unsafe { user::copy_bytes(control.as_mut_ptr(), message.msg_control.cast(), length)? };
    let mut rest = &control[..];
    while rest.len() >= HEADER {
        // SAFETY: at least as long as the header.
        let header: cmsghdr = unsafe { rest.as_ptr().cast::<cmsghdr>().read_unaligned() };
        if header.cmsg_len < HEADER || header.cmsg_len > rest.len() {
            return Err(libc::EINVAL);
        }
        let known = header.cmsg_level != libc::SOL_SOCKET
            || matches!(
                header.cmsg_type,
                libc::SCM_RIGHTS | libc::SCM_CREDENTIALS | libc::SO_MARK | libc::SO_TIMESTAMPING
            );
        if !known {
            return Err(libc::EINVAL);
        }
        let size = header.cmsg_len.next_multiple_of(size_of::<usize>());
        rest = rest.get(size..).unwrap_or_default();
    }
    Ok(())
}

/// `sendmsg` on a descriptor that is not virtual, of a message that may carry virtual sockets.
///
/// # Safety
/// `message` is the program's, or null.
pub unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the program's message and its control part, copied before they are looked at.
    unsafe {
        if matches!(table::get(fd).kind(), Kind::Kernel | Kind::Listener) {
            // TCP passes no descriptors.
            return real::sendmsg(fd, message, flags);
        }
        let Some((header, mut control)) = copy_with_control(message) else {
            return real::sendmsg(fd, message, flags);
        };
        let mut sockets: Vec<(c_int, Socket)> = Vec::new();
        let mut passed = Vec::new();
        let mut refused = None;
        let start = control.as_mut_ptr().cast();
        for_each_descriptor(start, header.msg_controllen, |place| {
            let sent = place.read_unaligned();
            if table::get(sent).kind() == Kind::Deferred {
                connection::deferred::announce(sent);
            }
            match table::get(sent).kind() {
                Kind::Fresh | Kind::Kernel | Kind::Listener => {
                    match connection::before_passing(sent) {
                        Ok(one) => passed.extend(one),
                        Err(error) => refused = Some(error),
                    }
                }
                Kind::Virtual => sockets.extend(socket::of(sent).map(|found| (sent, found))),
                _ => {}
            }
        });
        let result = match refused {
            Some(error) => real::fail(error),
            None if sockets.is_empty() => real::sendmsg(fd, message, flags),
            None => send_sockets(fd, header, control, flags, &sockets),
        };
        if result < 0 && !passed.is_empty() {
            let error = real::errno();
            passed.into_iter().for_each(Passing::undo);
            return real::fail(error);
        }
        result
    }
}

/// A copy of a message that has a control part, and of that part.
unsafe fn copy_with_control(message: *const msghdr) -> Option<(msghdr, Vec<u64>)> {
    // SAFETY: the program's message; the copy is long enough.
    unsafe {
        let length = user::read(&raw const (*message).msg_controllen).ok()?;
        if !(HEADER..=MOST).contains(&length) {
            return None;
        }
        let header = user::read(message).ok()?;
        let length = header.msg_controllen;
        if !(HEADER..=MOST).contains(&length) || header.msg_control.is_null() {
            return None;
        }
        let mut control = vec![0u64; length.div_ceil(size_of::<u64>())];
        user::copy_bytes(
            control.as_mut_ptr().cast(),
            header.msg_control.cast(),
            length,
        )
        .ok()?;
        Some((header, control))
    }
}

/// Sends a message that carries `sockets` in its copied control part.
unsafe fn send_sockets(
    fd: c_int,
    mut header: msghdr,
    mut control: Vec<u64>,
    flags: c_int,
    sockets: &[(c_int, Socket)],
) -> isize {
    let mut deposited: Vec<(c_int, Socket)> = Vec::new();
    let mut diverted: Vec<(c_int, Socket)> = Vec::new();
    let knows_us = peer_libraries::has_library(fd);
    for (sent, found) in sockets {
        if knows_us && passing::deposit(*sent, found).is_ok() {
            deposited.push((*sent, *found));
        } else {
            diverted.push((*sent, *found));
        }
    }
    let pump: Option<Pump> = if diverted.is_empty() {
        None
    } else {
        pump::start(&diverted)
    };
    let start: *mut u8 = control.as_mut_ptr().cast();
    // SAFETY: the control part is ours.
    let result = unsafe {
        if let Some(pump) = &pump {
            let mut ends = pump.ends.iter().zip(&diverted).peekable();
            for_each_descriptor(start, header.msg_controllen, |place| {
                let sent = place.read_unaligned();
                if let Some((end, _)) = ends.next_if(|(_, (next, _))| *next == sent) {
                    place.write_unaligned(*end);
                }
            });
        }
        header.msg_control = start.cast();
        real::sendmsg(fd, &raw const header, flags)
    };
    if result < 0 {
        let error = real::errno();
        for (sent, found) in &deposited {
            passing::withdraw(*sent, found);
        }
        if let Some(pump) = &pump {
            pump.cancel();
        }
        return real::fail(error);
    }
    if let Some(pump) = &pump {
        pump.begin();
    }
    result
}

/// Called after a message was received.
///
/// # Safety
/// `message` is the program's, filled in by the kernel.
pub unsafe fn received(message: *mut msghdr, flags: c_int) {
    // SAFETY: the kernel filled it in.
    unsafe {
        let (control, length) = ((*message).msg_control, (*message).msg_controllen);
        if length < HEADER || control.is_null() {
            return;
        }
        for_each_descriptor(control.cast(), length, |place| {
            let fd = place.read_unaligned();
            connection::forget_closed(fd);
            passing::adopt_kernel_socket(fd);
            passing::adopt(fd, flags & libc::MSG_PEEK != 0);
            rings::received(fd);
        });
    }
}
