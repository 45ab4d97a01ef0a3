//! Corner 14, data that a socket returns beside the bytes: control data that options ask for, flags, counts, and names.

use libc::{c_int, c_ulong};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_14_beside_times,
        corner_14_beside_what_more_waits,
        corner_14_beside_without_room,
        corner_14_beside_at_a_bad_address,
        corner_14_beside_flags,
        corner_14_beside_counts,
        corner_14_beside_way_and_name,
    ];
}

const NO_ROOM: c_int = libc::MSG_CTRUNC;

/// A buffer for control data, aligned for a header.
type Room = [u64; 16];

/// Level, kind and data.
type ControlMessage = (c_int, c_int, Vec<u8>);

/// Receives up to `length` bytes with a buffer for control data. Returns the size, the flags, and the control messages.
fn receive(
    socket: Descriptor,
    length: usize,
    room: usize,
    flags: c_int,
) -> (usize, c_int, Vec<ControlMessage>) {
    let mut bytes = vec![0_u8; length];
    let mut control: Room = [0; 16];
    let mut buffer = sys::entry_mut(&mut bytes);
    let mut message = sys::empty_message();
    message.msg_iov = &raw mut buffer;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = room;
    // SAFETY: all of it is of this function.
    let size = unsafe { sys::recvmsg(socket, &mut message, flags) }.unwrap();
    let mut control_messages = Vec::new();
    // SAFETY: the headers lie in the room, as far as the kernel has filled it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let about = header.read();
            let data = libc::CMSG_DATA(header).cast_const();
            let length = about.cmsg_len - libc::CMSG_LEN(0) as usize;
            let data = std::slice::from_raw_parts(data, length).to_vec();
            control_messages.push((about.cmsg_level, about.cmsg_type, data));
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    (size, message.msg_flags, control_messages)
}

fn count(bytes: &[u8]) -> c_int {
    c_int::from_ne_bytes(bytes.try_into().expect("an int"))
}

fn corner_14_beside_times(family: Family) {
    for (name, parts) in [
        (libc::SO_TIMESTAMP, 1_000_000),
        (libc::SO_TIMESTAMPNS, 1_000_000_000),
    ] {
        let (client, server) = pair(family);
        set_int(client, libc::SOL_SOCKET, name, 1);
        assert_eq!(sys::option_int(client, libc::SOL_SOCKET, name), Ok(1));
        // Linux begins to note times a moment after the option was set.
        let mut control_messages = Vec::new();
        eventually("a time is told", || {
            send_and_wait(server, client, b"abcdef");
            let (size, flags, received) = receive(client, 6, 100, 0);
            assert_eq!((size, flags), (6, 0));
            control_messages = received;
            control_messages.len() == 1
        });
        let (level, kind, data) = &control_messages[0];
        assert_eq!((*level, *kind, data.len()), (libc::SOL_SOCKET, name, 16));
        let seconds = i64::from_ne_bytes(data[..8].try_into().unwrap());
        let fraction = i64::from_ne_bytes(data[8..].try_into().unwrap());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(now.abs_diff(seconds.cast_unsigned()) < 20);
        assert!((0..parts).contains(&fraction));
        set_int(client, libc::SOL_SOCKET, name, 0);
        send_and_wait(server, client, b"abc");
        assert_eq!(receive(client, 4, 100, 0), (3, 0, Vec::new()));
    }
}

fn corner_14_beside_what_more_waits(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_INQ, 1);
    let option = |value: c_int| sys::set_option(client, libc::IPPROTO_TCP, libc::TCP_INQ, value);
    assert_eq!(option(2), Err(Errno(libc::EINVAL)));
    assert_eq!(
        sys::option_int(client, libc::IPPROTO_TCP, libc::TCP_INQ),
        Ok(1)
    );
    let more = |length, flags| {
        let (size, message_flags, control_messages) = receive(client, length, 100, flags);
        assert_eq!((message_flags, control_messages.len()), (0, 1));
        let (level, kind, data) = &control_messages[0];
        assert_eq!((*level, *kind), (libc::IPPROTO_TCP, libc::TCP_CM_INQ));
        (size, count(data))
    };
    send_and_wait(server, client, b"abcdef");
    assert_eq!(more(4, libc::MSG_PEEK), (4, 6));
    assert_eq!(more(4, 0), (4, 2));
    assert_eq!(more(2, 0), (2, 0));
    // The end counts, too.
    send_and_wait(server, client, b"abc");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(more(2, 0), (2, 2));
    assert_eq!(more(2, 0), (1, 1));
    assert_eq!(more(2, 0), (0, 1));
}

fn corner_14_beside_without_room(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_INQ, 1);
    eventually("times are noted", || {
        send_and_wait(server, client, b"x");
        receive(client, 1, 100, 0).2.len() == 2
    });
    send_and_wait(server, client, b"abcdef");
    for (room, flags, expected) in [
        (0, NO_ROOM, 0),
        (8, NO_ROOM, 0),
        (32, NO_ROOM, 1),
        (52, 0, 2),
    ] {
        let (size, message_flags, kinds) = receive(client, 1, room, 0);
        assert_eq!(
            (size, message_flags, kinds.len()),
            (1, flags, expected),
            "{room}"
        );
    }
    // Cut in the middle of the timestamp.
    let (size, message_flags, control_messages) = receive(client, 1, 24, 0);
    assert_eq!(
        (size, message_flags, control_messages.len()),
        (1, NO_ROOM, 1)
    );
    assert_eq!(control_messages[0].2.len(), 8);
    expect_bytes(client, b"f");
}

/// What can not be written is left out: the bytes have been taken.
fn corner_14_beside_at_a_bad_address(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_INQ, 1);
    send_and_wait(server, client, b"abcdef");
    for (room, flags) in [(100, 0), (17, NO_ROOM)] {
        let mut byte = 0_u8;
        let mut vector = [sys::entry_mut(std::slice::from_mut(&mut byte))];
        let mut message = sys::empty_message();
        (message.msg_iov, message.msg_iovlen) = (vector.as_mut_ptr(), 1);
        message.msg_control = std::ptr::without_provenance_mut(8);
        message.msg_controllen = room;
        // SAFETY: nothing can be written at the address of the control data.
        let size = unsafe { libc::recvmsg(client, &raw mut message, 0) };
        assert_eq!(
            (size, message.msg_flags, message.msg_controllen),
            (1, flags, 0),
            "{room}"
        );
    }
    expect_bytes(client, b"cdef");
}

fn corner_14_beside_flags(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abcdef");
    let closing = libc::MSG_CMSG_CLOEXEC;
    assert_eq!(receive(client, 2, 100, closing), (2, closing, Vec::new()));
    assert_eq!(receive(client, 2, 0, closing), (2, closing, Vec::new()));
    assert_eq!(receive(client, 2, 100, 0), (2, 0, Vec::new()));
}

fn corner_14_beside_counts(family: Family) {
    const UNSENT: c_ulong = 0x894b;
    const STAMPS: [c_ulong; 2] = [0x8906, 0x8907];
    let (client, server) = pair(family);
    let queued = |socket| {
        [libc::TIOCOUTQ, UNSENT].map(|request| sys::ioctl_int(socket, request, 0).unwrap())
    };
    assert_eq!(queued(client), [0, 0]);
    send_all(client, &[1; 3000]);
    eventually("what the peer has is acknowledged", || {
        queued(client) == [0, 0]
    });
    let _ = receive_exact(server, 3000);
    for request in STAMPS {
        let stamp = sys::ioctl_int(client, request, 0);
        assert_eq!(stamp, Err(Errno(libc::ENOENT)));
    }
    // Bytes that find no room at the peer are not.
    let _ = fill(client);
    assert!(queued(client)[0] > 0);
}

fn corner_14_beside_way_and_name(family: Family) {
    let (client, server) = pair(family);
    let (level, name, most, length) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU, 65535, 16),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 65536, 28),
    };
    for socket in [client, server] {
        assert_eq!(sys::option_int(socket, level, name), Ok(most));
        let raw = |length| {
            let mut room = [0_u8; 128];
            let mut size = length;
            // SAFETY: there is room for that many bytes.
            let got = unsafe {
                libc::getsockopt(
                    socket,
                    libc::SOL_SOCKET,
                    libc::SO_PEERNAME,
                    room.as_mut_ptr().cast(),
                    &raw mut size,
                )
            };
            if got < 0 {
                return Err(sys::last_errno());
            }
            Ok(room[..size as usize].to_vec())
        };
        let whole = raw(length).unwrap();
        assert_eq!(
            whole[..2],
            u16::try_from(family.domain()).unwrap().to_ne_bytes()
        );
        let port = sys::getpeername(socket).unwrap().port();
        assert_eq!(whole[2..4], port.to_be_bytes());
        assert_eq!(raw(4).unwrap(), whole[..4]);
        assert_eq!(raw(length + 1), Err(Errno(libc::EINVAL)));
    }
    let not = Err(Errno(libc::ENOTCONN));
    assert_eq!(sys::option_int(tcp(family), level, name), not);
    let unnamed = sys::option_int(tcp(family), libc::SOL_SOCKET, libc::SO_PEERNAME);
    assert_eq!(unnamed, not);
}
