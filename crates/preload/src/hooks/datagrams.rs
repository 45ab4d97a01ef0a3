//! Calls on sockets of programs' own resolvers, which ask name servers ([`crate::connections::asking`]).

use libc::{c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, sockaddr, socklen_t};

use netchannel_abi::address::Address;

use crate::connections::asking::{self, Asker};
use crate::descriptors::{names, user};
use crate::ground::real;

/// Most buffers of a call.
const MOST_BUFFERS: usize = 1024;

/// How many buffers a message has.
const fn buffer_count(message: &msghdr) -> Result<usize, c_int> {
    // The address of the server takes one more.
    if message.msg_iovlen >= MOST_BUFFERS {
        return Err(libc::EMSGSIZE);
    }
    Ok(message.msg_iovlen)
}

/// Whose call it is.
type Caller<'a> = (c_int, &'a Asker);

/// Receives into one buffer; with a place for the server's address, and its length, there.
///
/// # Safety
/// As `recvfrom`.
pub unsafe fn receive(
    (fd, asker): Caller<'_>,
    (buffer, length): (*mut c_void, usize),
    flags: c_int,
    (address, room): (*mut sockaddr, *mut socklen_t),
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let got = asking::receive(fd, asker, &user::buffer(buffer, length)?, flags)?;
        if !address.is_null() {
            names::write(&got.from, address, room)?;
        }
        Ok(got.length)
    }
}

/// Receives into several.
///
/// # Safety
/// As `readv`.
pub unsafe fn read_vectors(
    (fd, asker): Caller<'_>,
    vectors: *const iovec,
    count: c_int,
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let buffers = user::vectors(vectors, usize::try_from(count).map_err(|_| libc::EINVAL)?)?;
        Ok(asking::receive(fd, asker, &buffers, 0)?.length)
    }
}

/// Receives a message.
///
/// # Safety
/// As `recvmsg`.
pub unsafe fn receive_message(
    (fd, asker): Caller<'_>,
    message: *mut msghdr,
    flags: c_int,
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let given = user::read(message)?;
        let buffers = user::vectors(given.msg_iov, buffer_count(&given)?)?;
        let got = asking::receive(fd, asker, &buffers, flags)?;
        if !given.msg_name.is_null() {
            let room = &raw mut (*message).msg_namelen;
            names::write(&got.from, given.msg_name.cast(), room)?;
        }
        user::write(&raw mut (*message).msg_controllen, 0)?;
        user::write(&raw mut (*message).msg_flags, got.flags)?;
        Ok(got.length)
    }
}

/// Receives messages: waits for the first, at most.
///
/// # Safety
/// As `recvmmsg`.
pub unsafe fn receive_messages(
    (fd, mut asker): (c_int, Asker),
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let mut flags = flags & !libc::MSG_WAITFORONE;
    let mut done = 0;
    for index in 0..count as usize {
        let message = messages.wrapping_add(index);
        // SAFETY: the program's arguments.
        let got = unsafe { receive_message((fd, &asker), &raw mut (*message).msg_hdr, flags) };
        // SAFETY: the same.
        let noted = got.and_then(|length| unsafe {
            user::write(
                &raw mut (*message).msg_len,
                c_uint::try_from(length).unwrap_or(0),
            )
        });
        match noted {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return real::fail(error),
            Err(_) => break,
        }
        flags |= libc::MSG_DONTWAIT;
        match asking::at(fd) {
            Some(now) => asker = now,
            None => break,
        }
    }
    done
}

/// Sends one buffer, to an address where there is one.
///
/// # Safety
/// As `sendto`.
pub unsafe fn send(
    (fd, asker): Caller<'_>,
    (buffer, length): (*const c_void, usize),
    flags: c_int,
    (address, size): (*const sockaddr, socklen_t),
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let to = target(address, size)?;
        asking::send(fd, asker, to, &user::buffer(buffer, length)?, flags)
    }
}

/// Sends several.
///
/// # Safety
/// As `writev`.
pub unsafe fn write_vectors(
    (fd, asker): Caller<'_>,
    vectors: *const iovec,
    count: c_int,
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let buffers = user::vectors(vectors, usize::try_from(count).map_err(|_| libc::EINVAL)?)?;
        asking::send(fd, asker, None, &buffers, 0)
    }
}

/// Sends a message.
///
/// # Safety
/// As `sendmsg`.
pub unsafe fn send_message(
    (fd, asker): Caller<'_>,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, c_int> {
    // SAFETY: the program's arguments.
    unsafe {
        let given = user::read(message)?;
        let count = buffer_count(&given)?;
        let to = target(given.msg_name.cast(), given.msg_namelen)?;
        let buffers = user::vectors(given.msg_iov, count)?;
        asking::send(fd, asker, to, &buffers, flags)
    }
}

/// The address that a datagram is sent to.
unsafe fn target(address: *const sockaddr, size: socklen_t) -> Result<Option<Address>, c_int> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: the program's address.
    match unsafe { names::read(address, size) } {
        None => Err(libc::EINVAL),
        named => Ok(named),
    }
}

/// The socket that has sent a message with `result`, where the stack is to have it.
///
/// # Safety
/// As `sendmsg`, which has returned the result.
pub unsafe fn taker_of_message(fd: c_int, message: *const msghdr, result: isize) -> Option<Asker> {
    if !asking::may_lead_nowhere(result) {
        return None;
    }
    // SAFETY: the kernel has read the message.
    unsafe {
        let (name, length) = ((*message).msg_name, (*message).msg_namelen);
        asking::taker(fd, (name.cast(), length), result)
    }
}

/// `SO_TYPE` and its like.
///
/// # Safety
/// As `getsockopt`.
pub unsafe fn give_option(
    answer: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<(), c_int> {
    let bytes = answer.to_ne_bytes();
    // SAFETY: the program's arguments.
    unsafe {
        let count = names::room(length)?.min(bytes.len());
        user::copy_bytes(value.cast(), bytes.as_ptr(), count)?;
        user::write(length, socklen_t::try_from(count).unwrap_or(0))
    }
}

/// After `fcntl` of what is no socket of the library: a duplicate asks, too.
pub fn after_control(fd: c_int, command: c_int, result: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && result >= 0 {
        asking::duplicated(fd, result);
    }
    result
}

/// After `ioctl` of what is no socket of the library: how long the next datagram is, without what stands before it.
///
/// # Safety
/// As `ioctl`, which has returned the result.
pub unsafe fn after_ioctl(fd: c_int, request: c_ulong, argument: usize, result: c_int) -> c_int {
    if request == libc::FIONREAD && result == 0 && asking::at(fd).is_some() {
        let place: *mut c_int = core::ptr::with_exposed_provenance_mut(argument);
        // SAFETY: the kernel has written there.
        unsafe { *place = asking::without_head(*place) };
    }
    result
}
