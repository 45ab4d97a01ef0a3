//! send, sendto, sendmsg, sendmmsg, sendfile, recv, recvfrom, recvmsg, recvmmsg.

use std::ptr::{null, null_mut};

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, socklen_t, timespec};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, RawAddress};

use super::{NOT_OPEN, any_name, expect, invalid_pointer, null_device, place, result_of};
use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        ltp_recv01,
        ltp_recvfrom01,
        ltp_recvmmsg01,
        ltp_recvmsg01,
        ltp_send01,
        ltp_sendfile03,
        ltp_sendfile04,
        ltp_sendfile05,
        ltp_sendfile06,
        ltp_sendfile07,
        ltp_sendmmsg01,
        ltp_sendmmsg02,
        ltp_sendmsg01,
        ltp_sendto01,
    ];
}

/// A connected socket whose peer has sent bytes.
fn spoken_to(family: Family) -> (Descriptor, Descriptor) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"hoser\n");
    (client, server)
}

fn recv(socket: Descriptor, to: *mut c_void, flags: c_int) -> Result<i64, Errno> {
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    result_of(unsafe { libc::recv(socket, to, 1024, flags) } as i64)
}

fn ltp_recv01(family: Family) {
    let (client, server) = spoken_to(family);
    let mut room = [0_u8; 1024];
    let to = room.as_mut_ptr().cast();
    expect(
        "recv",
        &[
            ("not open", recv(NOT_OPEN, to, 0), libc::EBADF),
            ("no socket", recv(null_device(), to, 0), libc::ENOTSOCK),
            (
                "a bad place",
                recv(client, invalid_pointer(), 0),
                libc::EFAULT,
            ),
            (
                "no urgent byte",
                recv(client, to, libc::MSG_OOB),
                libc::EINVAL,
            ),
            (
                "no error",
                recv(client, to, libc::MSG_ERRQUEUE),
                libc::EAGAIN,
            ),
        ],
    );
    expect_bytes(client, b"hoser\n");
    expect_alive(client, server);
}

fn ltp_recvfrom01(family: Family) {
    let (client, server) = spoken_to(family);
    let mut room = [0_u8; 1024];
    let to = room.as_mut_ptr().cast();
    let mut name = RawAddress::empty();
    let from: *mut libc::sockaddr = (&raw mut name.storage).cast();
    let mut length: socklen_t = 128;
    let mut receive = |socket, to, flags, from, mut with: socklen_t| {
        length = with;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let got = result_of(
            unsafe { libc::recvfrom(socket, to, 1024, flags, from, &raw mut with) } as i64,
        );
        length = with;
        got
    };
    expect(
        "recvfrom",
        &[
            ("not open", receive(NOT_OPEN, to, 0, from, 128), libc::EBADF),
            (
                "no socket",
                receive(null_device(), to, 0, from, 128),
                libc::ENOTSOCK,
            ),
            (
                "a bad place",
                receive(client, invalid_pointer(), 0, from, 128),
                libc::EFAULT,
            ),
            (
                "no urgent byte",
                receive(client, to, libc::MSG_OOB, from, 128),
                libc::EINVAL,
            ),
            (
                "no error",
                receive(client, to, libc::MSG_ERRQUEUE, from, 128),
                libc::EAGAIN,
            ),
        ],
    );
    // TCP returns no address.
    assert_eq!(receive(client, to, 0, invalid_pointer(), 128), Ok(6));
    expect_alive(client, server);
}

fn message(entries: *mut iovec, count: usize) -> msghdr {
    let mut message = sys::empty_message();
    message.msg_iov = entries;
    message.msg_iovlen = count;
    message
}

fn ltp_recvmsg01(family: Family) {
    let (client, server) = spoken_to(family);
    let mut room = [0_u8; 1024];
    let receive = |socket, mut message: msghdr, flags| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::recvmsg(socket, &raw mut message, flags) } as i64)
    };
    let mut entry = sys::entry_mut(&mut room);
    let mut bad = iovec {
        iov_base: invalid_pointer(),
        iov_len: 1024,
    };
    let good = message(&raw mut entry, 1);
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    let no_message = result_of(unsafe { libc::recvmsg(client, null_mut(), 0) } as i64);
    expect(
        "recvmsg",
        &[
            ("not open", receive(NOT_OPEN, good, 0), libc::EBADF),
            ("no socket", receive(null_device(), good, 0), libc::ENOTSOCK),
            (
                "a bad place",
                receive(client, message(&raw mut bad, 1), 0),
                libc::EFAULT,
            ),
            (
                "no urgent byte",
                receive(client, good, libc::MSG_OOB),
                libc::EINVAL,
            ),
            (
                "no error",
                receive(client, good, libc::MSG_ERRQUEUE),
                libc::EAGAIN,
            ),
            (
                "entries nowhere",
                receive(client, message(invalid_pointer(), 1), 0),
                libc::EFAULT,
            ),
            (
                "too many entries",
                receive(client, message(&raw mut entry, 1025), 0),
                libc::EMSGSIZE,
            ),
            ("no message", no_message, libc::EFAULT),
        ],
    );
    assert_eq!(receive(client, good, 0), Ok(6));
    expect_alive(client, server);
}

fn ltp_recvmmsg01(family: Family) {
    let (client, server) = spoken_to(family);
    let mut room = [0_u8; 1024];
    let mut entry = sys::entry_mut(&mut room);
    let one = mmsghdr {
        msg_hdr: message(&raw mut entry, 1),
        msg_len: 0,
    };
    let mut list = [one];
    let mut receive = |socket, at: Option<*mut mmsghdr>, seconds, nanoseconds| {
        let mut time = timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let at = at.unwrap_or(list.as_mut_ptr());
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::recvmmsg(socket, at, 1, 0, &raw mut time) })
    };
    expect(
        "recvmmsg",
        &[
            ("not open", receive(NOT_OPEN, None, 1, 0), libc::EBADF),
            (
                "no socket",
                receive(null_device(), None, 1, 0),
                libc::ENOTSOCK,
            ),
            (
                "messages nowhere",
                receive(client, Some(invalid_pointer()), 1, 0),
                libc::EFAULT,
            ),
            (
                "a negative time",
                receive(client, None, -1, 0),
                libc::EINVAL,
            ),
            (
                "no time at all",
                receive(client, None, 1, 1_000_000_001),
                libc::EINVAL,
            ),
        ],
    );
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    let nowhere =
        result_of(unsafe { libc::recvmmsg(client, list.as_mut_ptr(), 1, 0, invalid_pointer()) });
    assert_eq!(nowhere, Err(Errno(libc::EFAULT)));
    let mut list = [one];
    // SAFETY: one message with its buffer.
    let got = result_of(unsafe { libc::recvmmsg(client, list.as_mut_ptr(), 1, 0, null_mut()) });
    assert_eq!((got, list[0].msg_len), (Ok(1), 6));
    expect_alive(client, server);
}

fn ltp_send01(family: Family) {
    let (client, server) = pair(family);
    let send = |socket, from: *const c_void, flags| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::send(socket, from, 1024, flags | libc::MSG_NOSIGNAL) } as i64)
    };
    let bytes = [7_u8; 1024];
    let from = bytes.as_ptr().cast();
    expect(
        "send",
        &[
            ("not open", send(NOT_OPEN, from, 0), libc::EBADF),
            ("no socket", send(null_device(), from, 0), libc::ENOTSOCK),
            (
                "a bad place",
                send(client, invalid_pointer(), 0),
                libc::EFAULT,
            ),
        ],
    );
    assert_eq!(send(client, from, 0), Ok(1024));
    expect_bytes(server, &bytes);
    sys::shutdown(client, libc::SHUT_WR).expect("shutdown");
    assert_eq!(send(client, from, 0), Err(Errno(libc::EPIPE)));
    expect_end(server);
}

fn ltp_sendto01(family: Family) {
    let (client, server) = pair(family);
    let bytes = [7_u8; 1024];
    let from = bytes.as_ptr().cast();
    let name = any_name(family);
    let send = |socket, from: *const c_void, to, length| {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::sendto(socket, from, 1024, flags, to, length) } as i64)
    };
    let (to, length) = (place(&name), name.length);
    expect(
        "sendto",
        &[
            ("not open", send(NOT_OPEN, from, to, length), libc::EBADF),
            (
                "no socket",
                send(null_device(), from, to, length),
                libc::ENOTSOCK,
            ),
            (
                "a bad place",
                send(client, invalid_pointer(), to, length),
                libc::EFAULT,
            ),
            (
                "not connected",
                send(tcp(family), from, to, length),
                libc::EPIPE,
            ),
            (
                "a bad length",
                send(client, from, to, socklen_t::MAX),
                libc::EINVAL,
            ),
            (
                "to nowhere",
                send(client, from, invalid_pointer(), length),
                libc::EFAULT,
            ),
        ],
    );
    // A connected socket sends to its peer.
    assert_eq!(send(client, from, to, length), Ok(1024));
    expect_bytes(server, &bytes);
    sys::shutdown(client, libc::SHUT_WR).expect("shutdown");
    assert_eq!(send(client, from, to, length), Err(Errno(libc::EPIPE)));
}

fn ltp_sendmsg01(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = [7_u8; 1024];
    let mut entry = sys::entry_mut(&mut bytes);
    let mut bad = iovec {
        iov_base: invalid_pointer(),
        iov_len: 1024,
    };
    let send = |socket, message: msghdr| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) } as i64)
    };
    let good = message(&raw mut entry, 1);
    let mut controlled = good;
    controlled.msg_control = invalid_pointer();
    controlled.msg_controllen = 24;
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    let no_message = result_of(unsafe { libc::sendmsg(client, null(), 0) } as i64);
    expect(
        "sendmsg",
        &[
            ("not open", send(NOT_OPEN, good), libc::EBADF),
            ("no socket", send(null_device(), good), libc::ENOTSOCK),
            (
                "a bad place",
                send(client, message(&raw mut bad, 1)),
                libc::EFAULT,
            ),
            ("not connected", send(tcp(family), good), libc::EPIPE),
            (
                "no entries",
                send(client, message(null_mut(), 1)),
                libc::EFAULT,
            ),
            ("no message", no_message, libc::EFAULT),
            (
                "too many entries",
                send(client, message(&raw mut entry, 1025)),
                libc::EMSGSIZE,
            ),
            (
                "control data nowhere",
                send(client, controlled),
                libc::EFAULT,
            ),
        ],
    );
    let mut elsewhere = good;
    let mut name = any_name(family);
    elsewhere.msg_name = (&raw mut name.storage).cast();
    elsewhere.msg_namelen = name.length;
    assert_eq!(send(client, elsewhere), Ok(1024));
    expect_bytes(server, &[7; 1024]);
    sys::shutdown(client, libc::SHUT_WR).expect("shutdown");
    assert_eq!(send(client, good), Err(Errno(libc::EPIPE)));
}

fn ltp_sendmmsg01(family: Family) {
    let (client, server) = pair(family);
    let (mut first, mut second, mut third) = (*b"one", *b"two", *b"three");
    let mut one = [sys::entry_mut(&mut first), sys::entry_mut(&mut second)];
    let mut two = [sys::entry_mut(&mut third)];
    let mut list = [
        mmsghdr {
            msg_hdr: message(one.as_mut_ptr(), 2),
            msg_len: 0,
        },
        mmsghdr {
            msg_hdr: message(two.as_mut_ptr(), 1),
            msg_len: 0,
        },
    ];
    // SAFETY: two messages with their buffers.
    let sent = result_of(unsafe { libc::sendmmsg(client, list.as_mut_ptr(), 2, 0) });
    assert_eq!((sent, list[0].msg_len, list[1].msg_len), (Ok(2), 6, 5));
    expect_bytes(server, b"onetwothree");
}

fn ltp_sendmmsg02(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = *b"one";
    let mut entry = sys::entry_mut(&mut bytes);
    let mut list = [mmsghdr {
        msg_hdr: message(&raw mut entry, 1),
        msg_len: 0,
    }];
    let at = list.as_mut_ptr();
    let send = |socket, at: *mut mmsghdr| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::sendmmsg(socket, at, 1, 0) })
    };
    expect(
        "sendmmsg",
        &[
            ("not open", send(NOT_OPEN, at), libc::EBADF),
            ("no socket", send(null_device(), at), libc::ENOTSOCK),
            (
                "messages nowhere",
                send(client, invalid_pointer()),
                libc::EFAULT,
            ),
        ],
    );
    assert_eq!(send(client, at), Ok(1));
    expect_bytes(server, b"one");
}

/// An unnamed file with these bytes.
fn file(bytes: &[u8], flags: c_int) -> Descriptor {
    // SAFETY: the name ends with a zero.
    let made = unsafe { libc::memfd_create(c"ltp".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(made >= 0, "memfd_create: {:?}", sys::last_errno());
    assert_eq!(sys::write(made, bytes), Ok(bytes.len()));
    let path = std::ffi::CString::new(format!("/proc/self/fd/{made}")).expect("no zero");
    // SAFETY: the path ends with a zero.
    let opened = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    assert!(opened >= 0, "open: {:?}", sys::last_errno());
    opened
}

fn sendfile(
    to: Descriptor,
    from: Descriptor,
    offset: *mut i64,
    count: usize,
) -> Result<i64, Errno> {
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    result_of(unsafe { libc::sendfile(to, from, offset, count) } as i64)
}

fn ltp_sendfile03(family: Family) {
    let (client, server) = pair(family);
    let readable = file(b"Test", libc::O_RDONLY);
    let writable = file(b"Test", libc::O_WRONLY);
    let at = |to, from| sendfile(to, from, null_mut(), 4);
    expect(
        "sendfile",
        &[
            ("from none", at(client, -1), libc::EBADF),
            (
                "from what cannot be read",
                at(client, writable),
                libc::EBADF,
            ),
            ("to none", at(-1, readable), libc::EBADF),
            ("from a socket", at(client, client), libc::EINVAL),
        ],
    );
    assert_eq!(at(client, readable), Ok(4));
    expect_bytes(server, b"Test");
}

fn ltp_sendfile04(family: Family) {
    let (client, server) = pair(family);
    let readable = file(b"Test", libc::O_RDONLY);
    let result = sendfile(client, readable, invalid_pointer(), 4);
    assert_eq!(result, Err(Errno(libc::EFAULT)));
    expect_quiet(server, libc::POLLIN);
}

fn ltp_sendfile05(family: Family) {
    let (client, server) = pair(family);
    let readable = file(b"Test", libc::O_RDONLY);
    let mut offset = -1;
    let result = sendfile(client, readable, &raw mut offset, 4);
    assert_eq!((result, offset), (Err(Errno(libc::EINVAL)), -1));
    expect_quiet(server, libc::POLLIN);
}

/// With an offset the file's own position does not move, without one it does.
fn ltp_sendfile06(family: Family) {
    let (client, server) = pair(family);
    let readable = file(b"abcdefgh", libc::O_RDONLY);
    let mut offset = 2;
    assert_eq!(sendfile(client, readable, &raw mut offset, 3), Ok(3));
    assert_eq!(
        (offset, sys::lseek(readable, 0, libc::SEEK_CUR)),
        (5, Ok(0))
    );
    assert_eq!(sendfile(client, readable, null_mut(), 3), Ok(3));
    assert_eq!(sys::lseek(readable, 0, libc::SEEK_CUR), Ok(3));
    expect_bytes(server, b"cdeabc");
}

fn ltp_sendfile07(family: Family) {
    let (client, server) = pair(family);
    set_nonblocking(client);
    let _ = fill(client);
    let readable = file(b"Test", libc::O_RDONLY);
    let result = sendfile(client, readable, null_mut(), 4);
    assert_eq!(result, Err(Errno(libc::EAGAIN)));
    assert_eq!(sys::lseek(readable, 0, libc::SEEK_CUR), Ok(0));
    sys::close(server).expect("close");
}
