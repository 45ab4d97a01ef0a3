//! Corner 14, names, lengths and control data that are wrong: the returned error, and how many bytes were moved.

use std::ptr::{null, null_mut};

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, sockaddr, socklen_t};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_14_ended::leave_wrong_size;
use crate::corner_14_faults::forbidden;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_14_no_value_is_zero_to_ipv6,
        corner_14_negative_room_is_large_to_ipv6,
        corner_14_arguments_receive_with_a_bad_name,
        corner_14_arguments_receive_leaves_names_alone,
        corner_14_arguments_send_to_a_bad_name,
        corner_14_arguments_send_with_bad_control_data,
        corner_14_arguments_connect_and_bind_to_a_bad_name,
        corner_14_arguments_send_that_connects_to_a_bad_name,
        corner_14_arguments_names_nowhere,
        corner_14_arguments_options_nowhere,
        corner_14_arguments_receive_many_with_a_bad_time,
        corner_14_arguments_receive_many_leaves_an_error,
    ];
}

const NEGATIVE: socklen_t = socklen_t::MAX;
const FAULT: Errno = Errno(libc::EFAULT);
const INVALID: Errno = Errno(libc::EINVAL);

fn result_of<T: Into<i64>>(result: T) -> Result<i64, Errno> {
    let result = result.into();
    if result < 0 {
        return Err(sys::last_errno());
    }
    Ok(result)
}

/// A buffer for any name, which holds no address.
fn room() -> [u64; 32] {
    [0; 32]
}

fn message(name: *mut c_void, length: socklen_t, buffer: &mut iovec) -> msghdr {
    let mut message = sys::empty_message();
    message.msg_name = name;
    message.msg_namelen = length;
    message.msg_iov = buffer;
    message.msg_iovlen = 1;
    message
}

fn corner_14_arguments_receive_with_a_bad_name(family: Family) {
    let (client, server) = pair(family);
    let (mut bytes, mut name) = ([0_u8; 3], room());
    let from = |name: *mut u64, length: *mut socklen_t, bytes: &mut [u8; 3]| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe {
            libc::recvfrom(client, bytes.as_mut_ptr().cast(), 3, 0, name.cast(), length) as i64
        })
    };
    let mut length = NEGATIVE;
    send_and_wait(server, client, b"abcdef");
    let got = from(name.as_mut_ptr(), &raw mut length, &mut bytes);
    // The bytes are lost.
    assert_eq!((got, length), (Err(INVALID), NEGATIVE));
    let bad: *mut socklen_t = forbidden().cast();
    assert_eq!(from(name.as_mut_ptr(), bad, &mut bytes), Err(FAULT));
    expect_quiet(client, libc::POLLIN);
    send_and_wait(server, client, b"abcdef");
    length = 16;
    let got = from(forbidden().cast(), &raw mut length, &mut bytes);
    assert_eq!((got, length), (Ok(3), 0));
    assert_eq!(from(null_mut(), bad, &mut bytes), Ok(3));
    // A message returns the error before any byte is taken.
    send_and_wait(server, client, b"abc");
    let mut buffer = sys::entry_mut(&mut bytes);
    for place in [name.as_mut_ptr().cast(), forbidden().cast()] {
        let mut message = message(place, NEGATIVE, &mut buffer);
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let got = result_of(unsafe { libc::recvmsg(client, &raw mut message, 0) } as i64);
        assert_eq!((got, message.msg_namelen), (Err(INVALID), NEGATIVE));
    }
    expect_bytes(client, b"abc");
    expect_alive(client, server);
}

fn corner_14_arguments_receive_leaves_names_alone(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = [0_u8; 3];
    let mut buffer = sys::entry_mut(&mut bytes);
    let bad = forbidden();
    for (name, before, after) in [
        (null_mut(), NEGATIVE, NEGATIVE),
        (null_mut(), 77, 77),
        (bad, 16, 0),
    ] {
        send_and_wait(server, client, b"abc");
        let mut message = message(name.cast(), before, &mut buffer);
        message.msg_control = bad.cast();
        message.msg_controllen = 64;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let got = result_of(unsafe { libc::recvmsg(client, &raw mut message, 0) } as i64);
        assert_eq!((got, message.msg_namelen), (Ok(3), after));
        assert_eq!(message.msg_controllen, 0);
    }
    expect_alive(client, server);
}

fn corner_14_arguments_send_to_a_bad_name(family: Family) {
    let (client, server) = pair(family);
    let mut name = room();
    let (good, bad): (*mut c_void, *mut c_void) = (name.as_mut_ptr().cast(), forbidden().cast());
    let minus_one = std::ptr::without_provenance_mut(usize::MAX);
    let to = |name: *mut c_void, length| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(
            unsafe { libc::sendto(client, c"abc".as_ptr().cast(), 3, 0, name.cast(), length) }
                as i64,
        )
    };
    let mut bytes = *b"abc";
    let mut buffer = sys::entry_mut(&mut bytes);
    let mut tell = |name, length| {
        let message = message(name, length, &mut buffer);
        // SAFETY: as above.
        result_of(unsafe { libc::sendmsg(client, &raw const message, 0) } as i64)
    };
    for (name, length, error) in [
        (good, NEGATIVE, INVALID),
        (bad, 16, FAULT),
        (minus_one, 16, FAULT),
    ] {
        assert_eq!(to(name, length), Err(error));
        assert_eq!(tell(name, length), Err(error));
    }
    assert_eq!(to(good, 129), Err(INVALID));
    expect_quiet(server, libc::POLLIN);
    for (name, length) in [
        (good, 16),
        (bad, 0),
        (null_mut(), 16),
        (null_mut(), NEGATIVE),
    ] {
        assert_eq!(to(name, length), Ok(3));
        assert_eq!(tell(name, length), Ok(3));
        expect_bytes(server, b"abcabc");
    }
    assert_eq!(tell(good, 129), Ok(3));
    expect_bytes(server, b"abc");
    expect_alive(client, server);
}

fn corner_14_arguments_send_with_bad_control_data(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = *b"abc";
    let mut buffer = sys::entry_mut(&mut bytes);
    let mut tell = |control: *mut c_void, length| {
        let mut message = message(null_mut(), 0, &mut buffer);
        message.msg_control = control;
        message.msg_controllen = length;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::sendmsg(client, &raw const message, 0) } as i64)
    };
    let bad = forbidden().cast();
    assert_eq!(tell(null_mut(), 16), Err(FAULT));
    assert_eq!(tell(bad, 16), Err(FAULT));
    let much = Errno(libc::ENOBUFS);
    assert_eq!(tell(bad, 1 << 32), Err(much));
    let header = |length: u64, level: c_int, kind: c_int| {
        let words = u64::from(level.cast_unsigned()) | u64::from(kind.cast_unsigned()) << 32;
        [length, words, 0]
    };
    for (mut control, length) in [
        (header(0, libc::SOL_SOCKET, libc::SCM_RIGHTS), 16),
        (header(100, libc::SOL_SOCKET, libc::SCM_RIGHTS), 24),
        (header(100, libc::SOL_IP, libc::IP_PKTINFO), 24),
        (header(20, libc::SOL_SOCKET, 77), 24),
    ] {
        assert_eq!(tell(control.as_mut_ptr().cast(), length), Err(INVALID));
    }
    expect_quiet(server, libc::POLLIN);
    for (mut control, length) in [
        (header(20, libc::SOL_SOCKET, libc::SCM_RIGHTS), 24),
        (header(20, libc::SOL_SOCKET, libc::SCM_CREDENTIALS), 24),
        (header(20, libc::SOL_IP, libc::IP_PKTINFO), 24),
        (header(20, libc::SOL_SOCKET, 77), 15),
    ] {
        assert_eq!(tell(control.as_mut_ptr().cast(), length), Ok(3));
        expect_bytes(server, b"abc");
    }
    // An error that a call has left goes to the next one that is valid.
    send_and_wait(server, client, b"x");
    leave_wrong_size(client);
    let mut control = header(0, libc::SOL_SOCKET, libc::SCM_RIGHTS);
    assert_eq!(tell(control.as_mut_ptr().cast(), 16), Err(INVALID));
    assert_eq!(tell(null_mut(), 0), Err(Errno(libc::EMSGSIZE)));
    expect_alive(client, server);
}

fn corner_14_arguments_connect_and_bind_to_a_bad_name(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    // Its port is taken by connections, too, which are checked last.
    let _connected = (connect_to(address), sys::accept(listening).unwrap());
    let mut name = room();
    let mut length = 128;
    let at = &raw mut length;
    // SAFETY: longer than any name.
    let named = result_of(unsafe { libc::getsockname(listening, name.as_mut_ptr().cast(), at) });
    assert_eq!(named, Ok(0));
    let good: *const sockaddr = name.as_ptr().cast();
    let bad: *const sockaddr = forbidden().cast();
    let minus_one = std::ptr::without_provenance(usize::MAX);
    let both = |socket: Descriptor, name, length, error| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let connected = result_of(unsafe { libc::connect(socket, name, length) });
        assert_eq!(connected, Err(error), "connect {socket} {name:?} {length}");
        // SAFETY: as above.
        let bound = result_of(unsafe { libc::bind(socket, name, length) });
        assert_eq!(bound, Err(error), "bind {socket} {name:?} {length}");
    };
    let fresh = tcp(family);
    for socket in [client, fresh] {
        for length in [NEGATIVE, 129, 0, 1] {
            both(socket, good, length, INVALID);
        }
        both(socket, bad, 0, INVALID);
        both(socket, null(), 0, INVALID);
        for name in [null(), bad, minus_one] {
            both(socket, name, length, FAULT);
        }
    }
    // SAFETY: a good name in more room than it needs.
    assert_eq!(result_of(unsafe { libc::connect(fresh, good, 128) }), Ok(0));
    expect_alive(client, server);
}

fn corner_14_arguments_names_nowhere(family: Family) {
    let (client, _server) = pair(family);
    let whole = socklen_t::try_from(match family {
        Family::V4 => size_of::<libc::sockaddr_in>(),
        Family::V6 => size_of::<libc::sockaddr_in6>(),
    });
    let whole = whole.unwrap();
    let mut name = room();
    for ask in [libc::getsockname, libc::getpeername] {
        for (place, before, expected) in [
            (null_mut(), 0, Ok(0)),
            (null_mut(), NEGATIVE, Err(INVALID)),
            (null_mut(), 4, Err(FAULT)),
            (name.as_mut_ptr(), 0, Ok(0)),
            (name.as_mut_ptr(), 4, Ok(0)),
            (name.as_mut_ptr(), NEGATIVE, Err(INVALID)),
        ] {
            let mut length = before;
            // SAFETY: the kernel checks the pointers and refuses bad ones.
            let got = result_of(unsafe { ask(client, place.cast(), &raw mut length) });
            assert_eq!(got, expected, "length {before}");
            if got.is_ok() {
                assert_eq!(length, whole);
            }
        }
        // SAFETY: as above.
        let got = result_of(unsafe { ask(client, name.as_mut_ptr().cast(), null_mut()) });
        assert_eq!(got, Err(FAULT));
    }
}

fn corner_14_arguments_options_nowhere(family: Family) {
    let (client, server) = pair(family);
    let mut value = room();
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_ERROR),
        (libc::SOL_SOCKET, libc::SO_RCVBUF),
        (libc::SOL_SOCKET, libc::SO_LINGER),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::IPPROTO_TCP, libc::TCP_INFO),
    ] {
        let set = |value: *const c_void, length| {
            // SAFETY: the kernel checks the pointers and refuses bad ones.
            result_of(unsafe { libc::setsockopt(client, level, name, value, length) })
        };
        for (place, before, expected, after) in [
            (null_mut(), 0, Ok(0), 0),
            (value.as_mut_ptr(), 0, Ok(0), 0),
            (value.as_mut_ptr(), 2, Ok(0), 2),
            (null_mut(), NEGATIVE, Err(INVALID), NEGATIVE),
            (null_mut(), 4, Err(FAULT), 4),
        ] {
            let mut length = before;
            let at = &raw mut length;
            // SAFETY: as above.
            let got = result_of(unsafe { libc::getsockopt(client, level, name, place.cast(), at) });
            assert_eq!((got, length), (expected, after), "{level} {name} {before}");
        }
        // SAFETY: as above.
        let got =
            unsafe { libc::getsockopt(client, level, name, value.as_mut_ptr().cast(), null_mut()) };
        assert_eq!(result_of(got), Err(FAULT));
        if name != libc::SO_ERROR && name != libc::TCP_INFO {
            assert_eq!(set(null(), NEGATIVE), Err(INVALID), "{level} {name}");
            assert_eq!(set(null(), 0), Err(INVALID), "{level} {name}");
        }
    }
    expect_alive(client, server);
}

fn corner_14_arguments_receive_many_with_a_bad_time(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = [[0_u8; 3]; 2];
    let [one, two] = &mut bytes;
    let mut buffers = [sys::entry_mut(one), sys::entry_mut(two)];
    let [one, two] = &mut buffers;
    let mut messages = [one, two].map(|buffer| mmsghdr {
        msg_hdr: message(null_mut(), 0, buffer),
        msg_len: 0,
    });
    let mut receive = |time: *mut libc::timespec| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::recvmmsg(client, messages.as_mut_ptr(), 2, 0, time) })
    };
    send_and_wait(server, client, b"abcdef");
    assert_eq!(receive(forbidden().cast()), Err(FAULT));
    for (tv_sec, tv_nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
        let mut time = libc::timespec { tv_sec, tv_nsec };
        assert_eq!(receive(&raw mut time), Err(INVALID));
    }
    // The call checks the time after each message.
    let mut none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    assert_eq!(receive(&raw mut none), Ok(1));
    let mut long = libc::timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    send_and_wait(server, client, b"abcdef");
    assert_eq!(receive(&raw mut long), Ok(2));
    assert!((5..10).contains(&long.tv_sec), "{} s", long.tv_sec);
    expect_bytes(client, b"def");
    expect_alive(client, server);
}

/// The error of a later one of several messages is the next call's. A reset that comes before that takes its place.
fn corner_14_arguments_receive_many_leaves_an_error(family: Family) {
    for is_reset in [false, true] {
        let (client, server) = pair(family);
        let mut byte = [0_u8; 1];
        let mut buffer = sys::entry_mut(&mut byte);
        let good = message(null_mut(), 0, &mut buffer);
        let mut bad = good;
        // More buffers than a call may have.
        bad.msg_iovlen = 2000;
        let mut messages = [good, bad].map(|msg_hdr| mmsghdr {
            msg_hdr,
            msg_len: 0,
        });
        send_and_wait(server, client, b"a");
        // SAFETY: the kernel refuses the second message before it reads its list.
        let got = unsafe { libc::recvmmsg(client, messages.as_mut_ptr(), 2, 0, null_mut()) };
        assert_eq!(result_of(got), Ok(1));
        let mut expected = Errno(libc::EMSGSIZE);
        if is_reset {
            expected = Errno(libc::ECONNRESET);
            close_with_reset(server);
            eventually("the reset comes", || {
                poll_one(client, 0, 0) & libc::POLLHUP != 0
            });
        }
        let sent = sys::send(client, b"b", libc::MSG_NOSIGNAL);
        assert_eq!(sent, Err(expected));
    }
}

/// The kernel reads a missing value of an option of IPv6 as 0, and of others as a fault.
fn corner_14_no_value_is_zero_to_ipv6(family: Family) {
    let (level, name, outcome) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, -1),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 0),
    };
    let (client, _server) = pair(family);
    for socket in [tcp(family), client] {
        let usual = sys::option_int(socket, level, name).unwrap();
        assert_eq!(usual, 1);
        // SAFETY: the kernel checks the null pointer.
        let result = unsafe { libc::setsockopt(socket, level, name, std::ptr::null(), 4) };
        assert_eq!(result, outcome);
        let left = if result == 0 { 0 } else { usual };
        assert_eq!(sys::option_int(socket, level, name), Ok(left));
    }
}

fn corner_14_negative_room_is_large_to_ipv6(family: Family) {
    let (level, name, outcome) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, -1),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM, 0),
    };
    let (client, _server) = pair(family);
    let mut value = [0_u8; 256];
    let mut length = socklen_t::MAX;
    let at = value.as_mut_ptr().cast();
    // SAFETY: room for more than the option has.
    let result = unsafe { libc::getsockopt(client, level, name, at, &raw mut length) };
    assert_eq!(result, outcome);
    if result == 0 {
        let number = c_int::from_ne_bytes([value[0], value[1], value[2], value[3]]);
        assert_eq!((number, length), (libc::AF_INET6, 4));
    }
}

/// A send that also connects checks the name even where there is a connection.
fn corner_14_arguments_send_that_connects_to_a_bad_name(family: Family) {
    let (client, _server) = pair(family);
    let name = [0_u8; 16];
    let send = |length: socklen_t| {
        let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
        let (buffer, name) = (b"x".as_ptr().cast(), name.as_ptr().cast());
        // SAFETY: the buffer and the name are locals of that length.
        let sent = unsafe { libc::sendto(client, buffer, 1, flags, name, length) };
        result_of(i64::try_from(sent).unwrap())
    };
    assert_eq!(send(0), Err(INVALID));
    assert_eq!(send(1), Err(INVALID));
    assert_eq!(send(16), Err(Errno(libc::EOPNOTSUPP)));
}
