//! Sending and receiving.

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t,
};

use super::{array, array_mut, lane, vector};
use crate::lane::Lane;
use crate::{real, rights, sys, transfer};

macro_rules! through {
    ($fd:expr, $kernel:expr, |$lane:ident| $virtual:expr) => {
        match lane($fd) {
            None => $kernel,
            Some($lane) => transfer::result($virtual),
        }
    };
}

/// Sends through a lane what a file or another descriptor gives, `length` bytes at most.
unsafe fn relay(
    lane: &Lane,
    length: usize,
    flags: c_int,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let mut buffer = vec![0u8; length.clamp(1, 65536)];
    let mut total = 0;
    while total < length {
        let most = (length - total).min(buffer.len());
        let got = match fill(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(got) => got,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        };
        // SAFETY: our own buffer.
        match unsafe { transfer::send(lane, &vector(buffer.as_ptr().cast(), got), flags) } {
            Ok(sent) => {
                total += sent;
                if sent < got {
                    break;
                }
            }
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

hook! {
    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        through!(fd, real::read(fd, buffer, length),
            |lane| transfer::receive(&lane, &vector(buffer, length), 0))
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
        through!(fd, real::readv(fd, vectors, count),
            |lane| transfer::receive(&lane, array(vectors, count as usize), 0))
    }

    fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        through!(fd, real::write(fd, buffer, length),
            |lane| transfer::send(&lane, &vector(buffer, length), 0))
    }

    fn __write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        write(fd, buffer, length)
    }

    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        if !(0..=1024).contains(&count) {
            return real::writev(fd, vectors, count);
        }
        through!(fd, real::writev(fd, vectors, count),
            |lane| transfer::send(&lane, array(vectors, count as usize), 0))
    }

    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        through!(fd, real::recv(fd, buffer, length, flags),
            |lane| transfer::receive(&lane, &vector(buffer, length), flags))
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
        through!(fd, real::recvfrom(fd, buffer, length, flags, address, address_length), |lane| {
            // TCP names nobody.
            if !address_length.is_null() {
                address_length.write_unaligned(0);
            }
            transfer::receive(&lane, &vector(buffer, length), flags)
        })
    }

    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, length: size_t, _room: size_t, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> ssize_t {
        recvfrom(fd, buffer, length, flags, address, address_length)
    }

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        match lane(fd) {
            None => {
                let got = real::recvmsg(fd, message, flags);
                if got >= 0 {
                    rights::received(message);
                }
                got
            }
            Some(lane) => {
                if message.is_null() {
                    return real::fail(libc::EFAULT);
                }
                let header = &mut *message;
                let got = transfer::receive(
                    &lane,
                    array(header.msg_iov, header.msg_iovlen as usize),
                    flags,
                );
                if got.is_ok() {
                    header.msg_namelen = 0;
                    header.msg_controllen = 0;
                    header.msg_flags = 0;
                }
                transfer::result(got)
            }
        }
    }

    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
        timeout: *mut libc::timespec,
    ) -> c_int {
        if lane(fd).is_none() {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let mut done = 0;
        let mut flags = flags;
        for message in array_mut(messages, count as usize) {
            let got = recvmsg(fd, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE);
            if got < 0 {
                break;
            }
            message.msg_len = c_uint::try_from(got).unwrap_or(0);
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            if got == 0 {
                break;
            }
        }
        if done == 0 && count > 0 { -1 } else { done }
    }

    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        through!(fd, real::send(fd, buffer, length, flags),
            |lane| transfer::send(&lane, &vector(buffer, length), flags))
    }

    fn __send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        send(fd, buffer, length, flags)
    }

    fn sendto(
        fd: c_int, buffer: *const c_void, length: size_t, flags: c_int,
        address: *const sockaddr, address_length: socklen_t,
    ) -> ssize_t {
        if !address.is_null() {
            crate::connection::before_kernel_use(fd);
        }
        through!(fd, real::sendto(fd, buffer, length, flags, address, address_length),
            |lane| transfer::send(&lane, &vector(buffer, length), flags))
    }

    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        match lane(fd) {
            None => {
                rights::sending(message);
                real::sendmsg(fd, message, flags)
            }
            Some(_) if message.is_null() => real::fail(libc::EFAULT),
            Some(lane) => transfer::result(transfer::send(
                &lane,
                array((*message).msg_iov, (*message).msg_iovlen as usize),
                flags,
            )),
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        if lane(fd).is_none() {
            return real::sendmmsg(fd, messages, count, flags);
        }
        let mut done = 0;
        for message in array_mut(messages, count as usize) {
            let sent = sendmsg(fd, &raw const message.msg_hdr, flags);
            if sent < 0 {
                break;
            }
            message.msg_len = c_uint::try_from(sent).unwrap_or(0);
            done += 1;
        }
        if done == 0 && count > 0 { -1 } else { done }
    }

    fn __sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        sendmmsg(fd, messages, count, flags)
    }

    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        let Some(lane) = lane(to) else { return real::sendfile(to, from, offset, count) };
        let start = if offset.is_null() { None } else { Some(offset.read_unaligned()) };
        let base = match start {
            Some(base) => base,
            // The file's own position, which the kernel would use too.
            None => libc::lseek(from, 0, libc::SEEK_CUR),
        };
        if base < 0 {
            return real::fail(libc::ESPIPE);
        }
        let mut position = base;
        let sent = relay(&lane, count, 0, |buffer| {
            let got = real::pread(from, buffer.as_mut_ptr().cast(), buffer.len(), position);
            if got < 0 {
                return Err(real::errno());
            }
            position += got as off_t;
            Ok(got.cast_unsigned())
        });
        if let Ok(sent) = sent {
            let end = base + sent as off_t;
            if offset.is_null() {
                libc::lseek(from, end, libc::SEEK_SET);
            } else {
                offset.write_unaligned(end);
            }
        }
        transfer::result(sent)
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        sendfile(to, from, offset, count)
    }

    fn splice(
        from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let wait = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
        if let Some(lane) = lane(to) {
            let sent = relay(&lane, length, wait, |buffer| {
                // One read: a pipe that is empty must not block what was already read.
                let got = real::read(from, buffer.as_mut_ptr().cast(), buffer.len());
                if got < 0 { Err(real::errno()) } else { Ok(got.cast_unsigned()) }
            });
            return transfer::result(sent);
        }
        let Some(lane) = lane(from) else {
            return real::splice(from, from_offset, to, to_offset, length, flags);
        };
        // What the pipe can not take must stay in the socket: never more than a pipe's worth, and
        // written whole.
        let mut buffer = vec![0u8; length.clamp(1, 65536)];
        let room = buffer.len().min(length);
        let got = transfer::receive(&lane, &vector(buffer.as_mut_ptr().cast(), room), wait);
        let Ok(got) = got else { return transfer::result(got) };
        let mut done = 0;
        while done < got {
            let put = real::write(to, buffer[done..got].as_ptr().cast(), got - done);
            if put < 0 {
                let error = real::errno();
                if error == libc::EAGAIN {
                    let mut set = [libc::pollfd { fd: to, events: libc::POLLOUT, revents: 0 }];
                    let _ = sys::poll(&mut set, -1, core::ptr::null());
                    continue;
                }
                return real::fail(error);
            }
            done += put.cast_unsigned();
        }
        transfer::result(Ok(done))
    }
}
