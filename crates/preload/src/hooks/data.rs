//! Sending and receiving.

use core::sync::atomic::Ordering;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::arguments::{self, buffers_of, check_target, sending};
use super::datagrams;
use super::readiness::Timeout;
use crate::connections::asking;
use crate::connections::connection::{deferred, lane, settled_lane};
use crate::connections::transfer;
use crate::descriptors::{limits, names, user};
use crate::ground::{clock, real, sys};
use crate::processes::rights;
use crate::sockets::lane::Lane;
use crate::sockets::{ancillary, options};
use crate::waiting::housekeeping;

macro_rules! through {
    ($fd:expr, $kernel:expr, |$lane:ident| $virtual:expr) => {
        match lane($fd) {
            None => $kernel,
            Some(mut $lane) => transfer::result($virtual),
        }
    };
}

/// What is no socket of the library: the kernel's, or one that asks name servers.
macro_rules! kernel {
    ($fd:expr, $kernel:expr, |$asker:ident| $asks:expr) => {
        match asking::at($fd) {
            None => $kernel,
            Some($asker) => transfer::result($asks),
        }
    };
}

/// Where no address is asked for.
const NO_PLACE: (*mut sockaddr, *mut socklen_t) = (core::ptr::null_mut(), core::ptr::null_mut());
const NO_ADDRESS: (*const sockaddr, socklen_t) = (core::ptr::null(), 0);

/// As `through`, for calls that receive: on a deferred connection they wait for the first bytes.
macro_rules! receiving {
    ($fd:expr, $flags:expr, $kernel:expr, |$lane:ident| $virtual:expr) => {
        if housekeeping::any_deferred() {
            match deferred::before_receive($fd, $flags) {
                Ok(true) => $kernel,
                Ok(false) => through!($fd, $kernel, |$lane| $virtual),
                Err(error) => transfer::result(Err(error)),
            }
        } else {
            through!($fd, $kernel, |$lane| $virtual)
        }
    };
}

/// Flags for a call of `read`'s kind on a deferred connection: of no byte it returns at once.
const fn waits_unless(is_empty: bool) -> c_int {
    if is_empty { libc::MSG_DONTWAIT } else { 0 }
}

fn has_no_byte(list: &[iovec]) -> bool {
    list.iter().all(|entry| entry.iov_len == 0)
}

/// Whether vectors of the program have no byte.
unsafe fn are_empty(vectors: *const iovec, count: c_int) -> bool {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the program's list.
    let list = unsafe { user::vectors(vectors, count) };
    list.is_ok_and(|list| has_no_byte(&list))
}

/// Most messages that one call sends, as in the kernel.
const MOST_MESSAGES: c_uint = 1024;

unsafe fn read_vectors(
    lane: &mut Lane,
    vectors: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<usize, i32> {
    // SAFETY: the program's list.
    unsafe {
        let list = user::vectors(vectors, usize::try_from(count).map_err(|_| libc::EINVAL)?)?;
        if has_no_byte(&list) {
            return Ok(0);
        }
        transfer::receive(lane, &list, flags)
    }
}

unsafe fn write_vectors(
    lane: &mut Lane,
    vectors: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<usize, i32> {
    // SAFETY: the program's list.
    unsafe {
        let list = user::vectors(vectors, usize::try_from(count).map_err(|_| libc::EINVAL)?)?;
        if has_no_byte(&list) {
            return Ok(0);
        }
        transfer::send(lane, &list, flags)
    }
}

/// Sends a message. TCP ignores its address and control data, but checks them.
#[inline(always)]
unsafe fn send_message(
    lane: &mut Lane,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, i32> {
    // SAFETY: the program's message.
    unsafe {
        let message = user::read(message)?;
        names::check_in_message(&message)?;
        let list = buffers_of(&message)?;
        if message.msg_controllen > 0
            && let Err(error) = rights::check(&message)
        {
            // An error that ended the connection precedes that of an invalid control message, but not that of a bad
            // address.
            if error == libc::EINVAL && !lane.has_error_for_later() {
                transfer::send(lane, &[], flags)?;
            }
            return Err(error);
        }
        transfer::send(lane, &list, flags)
    }
}

/// Receives a message. It has no address, and control data only where an option asked for some.
#[inline(always)]
unsafe fn receive_message(
    lane: &mut Lane,
    message: *mut msghdr,
    flags: c_int,
) -> Result<usize, i32> {
    // SAFETY: the program's message.
    unsafe {
        let given = user::read(message)?;
        let named = !given.msg_name.is_null();
        if named && given.msg_namelen.cast_signed() < 0 {
            return Err(libc::EINVAL);
        }
        let count = transfer::receive(lane, &buffers_of(&given)?, flags)?;
        if named {
            user::write(&raw mut (*message).msg_namelen, 0)?;
        }
        // TCP reports an urgent byte as such, and whether there was room for it.
        let mut flags_out = flags & (libc::MSG_CMSG_CLOEXEC | libc::MSG_OOB);
        if flags & libc::MSG_OOB != 0 && count == 0 {
            flags_out |= libc::MSG_TRUNC;
        }
        let mut used = 0;
        if ancillary::is_asked_for(&lane.socket) {
            let ancillary =
                ancillary::write_control(lane, &given, count, flags & libc::MSG_PEEK != 0);
            (used, flags_out) = (ancillary.used, flags_out | ancillary.flags);
        }
        user::write(&raw mut (*message).msg_controllen, used)?;
        user::write(&raw mut (*message).msg_flags, flags_out)?;
        Ok(count)
    }
}

/// The flags of `preadv2` and `pwritev2` at the stream's own position; `None` where the kernel must answer: for a
/// position, or flags that sockets do not know.
fn positioned(offset: i64, count: c_int, flags: c_int) -> Option<c_int> {
    let append = libc::RWF_APPEND | libc::RWF_NOAPPEND;
    let known = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | append;
    if flags & append == append {
        return None;
    }
    if offset != -1 || !(0..=1024).contains(&count) || flags & !(known | NO_SIGNAL) != 0 {
        return None;
    }
    let quiet = flags & NO_SIGNAL != 0;
    if quiet && !knows_no_signal() {
        return None;
    }
    let flag_if = |on: bool, flag: c_int| if on { flag } else { 0 };
    let is_nonblocking = flags & libc::RWF_NOWAIT != 0;
    Some(flag_if(is_nonblocking, libc::MSG_DONTWAIT) | flag_if(quiet, libc::MSG_NOSIGNAL))
}

/// `RWF_NOSIGNAL`, which the libc crate does not name.
const NO_SIGNAL: c_int = 0x100;

/// Whether the kernel knows `RWF_NOSIGNAL`.
#[cold]
fn knows_no_signal() -> bool {
    let Ok((one, other)) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM)) else {
        return false;
    };
    let mut byte = 0u8;
    let room = iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let flags = NO_SIGNAL | libc::RWF_NOWAIT;
    // SAFETY: a local byte.
    let known = unsafe { real::preadv2(one, &raw const room, 1, -1, flags) } >= 0
        || real::errno() == libc::EAGAIN;
    sys::close(one);
    sys::close(other);
    known
}

hook! {
    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        receiving!(fd, waits_unless(length == 0), kernel!(fd, real::read(fd, buffer, length),
            |asker| datagrams::receive((fd, &asker), (buffer, length), 0, NO_PLACE)), |lane| if length == 0 {
            Ok(0)
        } else {
            user::read_write_buffer(buffer, length)
                .and_then(|buffer| transfer::receive(&mut lane, &buffer, 0))
        })
    }

    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, _room: size_t) -> ssize_t {
        read(fd, buffer, length)
    }

    fn __read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        read(fd, buffer, length)
    }

    fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        if !(0..=1024).contains(&count) {
            return real::readv(fd, vectors, count);
        }
        receiving!(fd, waits_unless(are_empty(vectors, count)), kernel!(fd, real::readv(fd, vectors, count),
            |asker| datagrams::read_vectors((fd, &asker), vectors, count)), |lane| read_vectors(&mut lane, vectors, count, 0))
    }

    fn preadv2(
        fd: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int,
    ) -> ssize_t {
        match positioned(offset, count, flags) {
            Some(as_received) => receiving!(fd, as_received | waits_unless(are_empty(vectors, count)), real::preadv2(fd, vectors, count, offset, flags),
                |lane| read_vectors(&mut lane, vectors, count, as_received)),
            None => real::preadv2(fd, vectors, count, offset, flags),
        }
    }

    fn preadv64v2(
        fd: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int,
    ) -> ssize_t {
        preadv2(fd, vectors, count, offset, flags)
    }

    fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        sending!(fd, 0, user::read_write_buffer(buffer, length)
                .and_then(|buffer| arguments::has_byte(&buffer)),
            kernel!(fd, real::write(fd, buffer, length),
                |asker| datagrams::send((fd, &asker), (buffer, length), 0, NO_ADDRESS)),
            |lane| user::read_write_buffer(buffer, length)
                .and_then(|buffer| transfer::send(&mut lane, &buffer, 0)))
    }

    fn __write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        write(fd, buffer, length)
    }

    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        if !(0..=1024).contains(&count) {
            return real::writev(fd, vectors, count);
        }
        sending!(fd, 0, arguments::vectors_have_byte(vectors, count), kernel!(fd, real::writev(fd, vectors, count),
                |asker| datagrams::write_vectors((fd, &asker), vectors, count)),
            |lane| write_vectors(&mut lane, vectors, count, 0))
    }

    fn pwritev2(
        fd: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int,
    ) -> ssize_t {
        match positioned(offset, count, flags) {
            Some(as_sent) => sending!(fd, as_sent, arguments::vectors_have_byte(vectors, count),
                real::pwritev2(fd, vectors, count, offset, flags),
                |lane| write_vectors(&mut lane, vectors, count, as_sent)),
            None => real::pwritev2(fd, vectors, count, offset, flags),
        }
    }

    fn pwritev64v2(
        fd: c_int, vectors: *const iovec, count: c_int, offset: i64, flags: c_int,
    ) -> ssize_t {
        pwritev2(fd, vectors, count, offset, flags)
    }

    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        receiving!(fd, flags, kernel!(fd, real::recv(fd, buffer, length, flags),
                |asker| datagrams::receive((fd, &asker), (buffer, length), flags, NO_PLACE)),
            |lane| user::buffer(buffer, length)
                .and_then(|buffer| transfer::receive(&mut lane, &buffer, flags)))
    }

    fn __recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        recv(fd, buffer, length, flags)
    }

    fn __recv_chk(
        fd: c_int, buffer: *mut c_void, length: size_t, _room: size_t, flags: c_int,
    ) -> ssize_t {
        recv(fd, buffer, length, flags)
    }

    fn recvfrom(
        fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> ssize_t {
        let place = (address, address_length);
        receiving!(fd, flags, kernel!(fd, real::recvfrom(fd, buffer, length, flags, address, address_length),
            |asker| datagrams::receive((fd, &asker), (buffer, length), flags, place)), |lane| {
            // TCP returns no address, and checks the room for one after receiving.
            let got = user::buffer(buffer, length)
                .and_then(|buffer| transfer::receive(&mut lane, &buffer, flags));
            if got.is_ok() && !address.is_null() {
                names::room(address_length)
                    .and_then(|_| user::write(address_length, 0))
                    .and(got)
            } else {
                got
            }
        })
    }

    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, length: size_t, _room: size_t, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> ssize_t {
        recvfrom(fd, buffer, length, flags, address, address_length)
    }

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        if housekeeping::any_deferred() {
            match deferred::before_receive(fd, flags) {
                Ok(true) => return real::recvmsg(fd, message, flags),
                Ok(false) => {}
                Err(error) => return real::fail(error),
            }
        }
        match lane(fd) {
            None => kernel!(fd, {
                let got = real::recvmsg(fd, message, flags);
                if got >= 0 {
                    rights::received(message, flags);
                }
                got
            }, |asker| datagrams::receive_message((fd, &asker), message, flags)),
            Some(mut lane) => transfer::result(receive_message(&mut lane, message, flags)),
        }
    }

    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
        timeout: *mut libc::timespec,
    ) -> c_int {
        if housekeeping::any_deferred() {
            // For no message nothing is waited for.
            let flags = if count == 0 { libc::MSG_DONTWAIT } else { flags };
            match deferred::before_receive(fd, flags) {
                Ok(true) => return real::recvmmsg(fd, messages, count, flags, timeout),
                Ok(false) => {}
                Err(error) => return real::fail(error),
            }
        }
        let Some(lane) = settled_lane(fd) else {
            if let Some(asker) = asking::at(fd) {
                return datagrams::receive_messages((fd, asker), messages, count, flags);
            }
            let got = real::recvmmsg(fd, messages, count, flags, timeout);
            for index in 0..usize::try_from(got).unwrap_or(0) {
                rights::received(&raw mut (*messages.wrapping_add(index)).msg_hdr, flags);
            }
            return got;
        };
        let time = Timeout::Timespec(timeout);
        let limit = match time.limit() {
            Ok(limit) => limit,
            Err(error) => return real::fail(error),
        };
        // An error of the connection is reported before any of its bytes.
        if flags & libc::MSG_ERRQUEUE == 0 {
            let error = options::take_error(&lane.socket, fd);
            if error != 0 {
                return real::fail(error);
            }
        }
        let start = if limit > 0 { clock::nanoseconds() } else { 0 };
        let mut done = 0;
        let mut flags = flags;
        transfer::take_interruption();
        for index in 0..count as usize {
            let message = messages.wrapping_add(index);
            let got = recvmsg(fd, &raw mut (*message).msg_hdr, flags & !libc::MSG_WAITFORONE);
            let failed = match c_uint::try_from(got) {
                Ok(length) => user::write(&raw mut (*message).msg_len, length).err(),
                Err(_) => Some(real::errno()),
            };
            if let Some(error) = failed {
                if done == 0 {
                    return real::fail(error);
                }
                // The next call reports it.
                if !matches!(error, libc::EAGAIN | libc::EINTR) {
                    lane.put_back_error(error);
                }
                break;
            }
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            if flags & libc::MSG_OOB != 0 {
                // There is at most one urgent byte.
                break;
            }
            let waits_on = lane.socket.entry.receive_timeout.load(Ordering::Relaxed) == 0;
            if got == 0 && waits_on && !lane.has_input() {
                // A signal has ended the wait without a byte, and would end the next one, too.
                break;
            }
            if transfer::take_interruption() {
                // In the kernel the signal is pending until the call returns: nothing is waited for any more.
                flags |= libc::MSG_DONTWAIT;
                if lane.is_at_mark() {
                    break;
                }
            }
            // The time is checked between messages only, as in the kernel.
            if limit == 0 || limit > 0 && clock::remaining(limit, start) == 0 {
                break;
            }
        }
        if done > 0 {
            time.write_rest(limit, start);
        }
        done
    }

    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        sending!(fd, flags, user::buffer(buffer, length)
                .and_then(|buffer| arguments::has_byte(&buffer)),
            kernel!(fd, real::send(fd, buffer, length, flags),
                |asker| datagrams::send((fd, &asker), (buffer, length), flags, NO_ADDRESS)),
            |lane| user::buffer(buffer, length)
                .and_then(|buffer| transfer::send(&mut lane, &buffer, flags)))
    }

    fn __send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        send(fd, buffer, length, flags)
    }

    fn sendto(
        fd: c_int, buffer: *const c_void, length: size_t, flags: c_int,
        address: *const sockaddr, address_length: socklen_t,
    ) -> ssize_t {
        if !address.is_null()
            && deferred::at(fd).is_none()
            && let Err(error) = crate::connections::connection::before_kernel_use(fd)
        {
            return real::fail(error);
        }
        let to = (address, address_length);
        let asks = |asker| datagrams::send((fd, &asker), (buffer, length), flags, to);
        sending!(fd, flags, user::buffer(buffer, length)
            .and_then(|buffer| arguments::has_byte_for(&buffer, address, address_length, flags)),
        kernel!(fd, {
            let sent = real::sendto(fd, buffer, length, flags, address, address_length);
            match asking::taker(fd, to, sent) {
                None => sent,
                Some(asker) => transfer::result(asks(asker)),
            }
        }, |asker| asks(asker)), |lane| {
            let named = |buffer| match address.is_null() {
                true => Ok(buffer),
                false => check_target(address, address_length, flags).map(|()| buffer),
            };
            user::buffer(buffer, length)
                .and_then(named)
                .and_then(|buffer| transfer::send(&mut lane, &buffer, flags))
        })
    }

    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        sending!(fd, flags, arguments::message_has_byte(message), kernel!(fd, {
            let sent = rights::send(fd, message, flags);
            match datagrams::taker_of_message(fd, message, sent) {
                None => sent,
                Some(asker) => transfer::result(datagrams::send_message((fd, &asker), message, flags)),
            }
        }, |asker| datagrams::send_message((fd, &asker), message, flags)),
            |lane| send_message(&mut lane, message, flags))
    }

    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let carries = |index: usize| {
            user::read(messages.wrapping_add(index))
                .is_ok_and(|message| message.msg_hdr.msg_controllen > 0)
        };
        if deferred::at(fd).is_none() && lane(fd).is_none() && asking::at(fd).is_none()
            && !(0..count.min(MOST_MESSAGES) as usize).any(carries)
        {
            let sent = real::sendmmsg(fd, messages, count, flags);
            let first = &raw const (*messages).msg_hdr;
            let taken = count > 0 && datagrams::taker_of_message(fd, first, sent as isize).is_some();
            if !taken {
                return sent;
            }
        }
        let mut done = 0;
        for index in 0..count.min(MOST_MESSAGES) as usize {
            let message = messages.wrapping_add(index);
            let sent = sendmsg(fd, &raw const (*message).msg_hdr, flags);
            if sent < 0 {
                break;
            }
            let length = c_uint::try_from(sent).unwrap_or(0);
            if let Err(error) = user::write(&raw mut (*message).msg_len, length) {
                if done == 0 {
                    return real::fail(error);
                }
                break;
            }
            done += 1;
            if sent.cast_unsigned() < arguments::size_of_message(&raw const (*message).msg_hdr) {
                // The rest of this one comes first.
                break;
            }
        }
        if done == 0 && count > 0 { -1 } else { done }
    }

    fn __sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        sendmmsg(fd, messages, count, flags)
    }
}
