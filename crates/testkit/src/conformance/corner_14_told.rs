//! Corner 14, results of options and of calls about sets of descriptors, and which of several errors is returned.

use std::net::SocketAddr;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, IN};

use crate::case::cases;

cases! {
    families: [
        corner_14_told_window_clamp,
        corner_14_told_of_an_accepted_socket,
        corner_14_told_priority_of_an_accepted_socket,
        corner_14_told_only_v6,
        corner_14_told_without_a_value,
        corner_14_told_only_v6_of_a_connection_that_is_over,
        corner_14_told_values_longer_than_they_are,
        corner_14_told_what_nothing_comes_of,
        corner_14_told_which_error_of_an_option,
        corner_14_told_length_beside_a_bad_pointer,
        corner_14_told_which_error_of_a_set,
        corner_14_told_exclusive_members,
        corner_14_told_exceptions_of_what_has_ended,
        corner_14_told_numbers_beyond,
        corner_14_told_numbers_beyond_under_a_low_limit,
    ];
}

const INVALID: Errno = Errno(libc::EINVAL);
const FAULT: Errno = Errno(libc::EFAULT);
const BAD: *mut libc::c_void = std::ptr::without_provenance_mut(8);

fn corner_14_told_window_clamp(family: Family) {
    let (client, server) = pair(family);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
    for socket in [client, server] {
        assert_eq!(sys::option_int(socket, level, name), Ok(65_536));
        assert_eq!(sys::set_option(socket, level, name, 0), Err(INVALID));
        for (value, result) in [(1, 1152), (5000, 5000)] {
            set_int(socket, level, name, value);
            assert_eq!(sys::option_int(socket, level, name), Ok(result));
        }
    }
    let fresh = tcp(family);
    assert_eq!(sys::option_int(fresh, level, name), Ok(0));
    set_int(fresh, level, name, 0);
    set_int(fresh, libc::SOL_SOCKET, libc::SO_RCVBUF, 10_000);
    let (_listening, address) = listener(family);
    sys::connect(fresh, address).unwrap();
    assert_eq!(sys::option_int(fresh, level, name), Ok(10_000));
}

fn corner_14_told_of_an_accepted_socket(family: Family) {
    let (client, server) = pair(family);
    let option_value =
        |level, name| [client, server].map(|socket| sys::option_int(socket, level, name));
    match family {
        Family::V4 => {
            let limits = option_value(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL);
            assert_eq!(limits, [Ok(1), Ok(64)]);
        }
        Family::V6 => {
            let limits = option_value(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS);
            assert_eq!(limits, [Ok(1), Ok(64)]);
            let limits = option_value(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL);
            assert_eq!(limits, [Ok(1), Ok(1)]);
        }
    }
}

fn corner_14_told_priority_of_an_accepted_socket(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, libc::IPPROTO_IP, libc::IP_TOS, 16);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    let option_value = |socket| sys::option_int(socket, libc::SOL_SOCKET, libc::SO_PRIORITY);
    assert_eq!(
        [listening, client, server].map(option_value),
        [Ok(6), Ok(0), Ok(0)]
    );
    set_int(server, libc::IPPROTO_IP, libc::IP_TOS, 8);
    assert_eq!(option_value(server), Ok(2));
}

fn corner_14_told_only_v6(family: Family) {
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    let (client, server) = pair(family);
    let refused = match family {
        Family::V4 => Err(Errno(libc::ENOPROTOOPT)),
        Family::V6 => Err(INVALID),
    };
    for socket in [client, server] {
        for on in [0, 1] {
            assert_eq!(sys::set_option(socket, level, name, on), refused);
        }
    }
    if family == Family::V6 {
        assert_eq!(sys::option_int(client, level, name), Ok(0));
        let (_listening, address) = listener(family);
        let bound = tcp(family);
        sys::bind(bound, family.loopback(0)).unwrap();
        sys::connect(bound, address).unwrap();
        assert_eq!(sys::option_int(bound, level, name), Ok(1));
    }
}

/// A missing value is 0 for IPv6.
fn corner_14_told_without_a_value(family: Family) {
    let (client, server) = pair(family);
    for socket in [client, server] {
        let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        let none = core::ptr::null::<u8>();
        // SAFETY: the kernel looks at no value.
        let set = unsafe { libc::syscall(libc::SYS_setsockopt, socket, level, name, none, 0) };
        let refused = match family {
            Family::V4 => Errno(libc::ENOPROTOOPT),
            Family::V6 => INVALID,
        };
        assert_eq!((set, sys::last_errno()), (-1, refused));
    }
}

/// A socket without a connection has no port any more, unless the program has named one, so that the option is set as
/// of a new socket.
fn corner_14_told_only_v6_of_a_connection_that_is_over(family: Family) {
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    if family == Family::V4 {
        skip("an option of IPv6");
    }
    let option_value = |socket| sys::option_int(socket, level, name);
    let (listening, address) = listener(family);
    let reset = |bound: Option<SocketAddr>| {
        let client = tcp(family);
        if let Some(bound) = bound {
            sys::bind(client, bound).unwrap();
        }
        sys::connect(client, address).unwrap();
        let server = sys::accept(listening).unwrap();
        assert_eq!(sys::set_option(client, level, name, 1), Err(INVALID));
        close_with_reset(server);
        assert_eq!(sys::recv(client, &mut [0], 0), Err(Errno(libc::ECONNRESET)));
        client
    };
    for bound in [None, Some(family.any(0)), Some(family.loopback(0))] {
        let client = reset(bound);
        let only = i32::from(bound == Some(family.loopback(0)));
        assert_eq!(option_value(client), Ok(only));
        for value in [1, 0, 1] {
            set_int(client, level, name, value);
            assert_eq!(option_value(client), Ok(value));
        }
        // The socket has a port once more.
        sys::bind(client, family.any(0)).unwrap();
        assert_eq!(sys::set_option(client, level, name, 0), Err(INVALID));
        assert_eq!(option_value(client), Ok(1));
    }
    // An option that the kernel set by itself stays when the socket is bound to another address.
    let client = reset(Some(family.any(0)));
    sys::bind(client, family.loopback(0)).unwrap();
    assert_eq!(option_value(client), Ok(1));
    // A port that the program has named is kept.
    let (other, named) = listener_on_own_port(family);
    sys::close(other).unwrap();
    for bound in [named, family.any(named.port())] {
        let client = reset(Some(bound));
        let only = option_value(client);
        assert_eq!(only, Ok(i32::from(bound == named)));
        assert_eq!(sys::set_option(client, level, name, 1), Err(INVALID));
        assert_eq!(option_value(client), only);
        sys::close(client).unwrap();
    }
    // An accepted socket has no port of its own.
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    close_with_reset(client);
    assert_eq!(sys::recv(server, &mut [0], 0), Err(Errno(libc::ECONNRESET)));
    for value in [0, 1] {
        set_int(server, level, name, value);
        assert_eq!(option_value(server), Ok(value));
    }
}

fn corner_14_told_values_longer_than_they_are(family: Family) {
    let (client, server) = pair(family);
    let mut value = [0_u8; 100];
    value[0] = 1;
    for socket in [client, server, tcp(family)] {
        for [level, name] in [
            [libc::IPPROTO_TCP, libc::TCP_NODELAY],
            [libc::IPPROTO_IP, libc::IP_TTL],
            [libc::SOL_SOCKET, libc::SO_KEEPALIVE],
        ] {
            assert_eq!(sys::set_option_bytes(socket, level, name, &value), Ok(()));
            assert_eq!(sys::option_int(socket, level, name), Ok(1));
        }
    }
    expect_alive(client, server);
}

fn corner_14_told_what_nothing_comes_of(family: Family) {
    let (client, server) = pair(family);
    for value in [1, 0] {
        set_int(client, libc::SOL_SOCKET, libc::SO_ZEROCOPY, value);
        let answer = sys::option_int(client, libc::SOL_SOCKET, libc::SO_ZEROCOPY);
        assert_eq!(answer, Ok(value));
    }
    expect_alive(client, server);
}

/// `getsockopt` and `setsockopt` with these pointers.
fn refused(
    socket: Descriptor,
    [level, name]: [libc::c_int; 2],
    value: *mut libc::c_void,
    length: *mut libc::socklen_t,
) -> [Errno; 2] {
    // SAFETY: the kernel checks the pointers and refuses bad values.
    unsafe {
        let got = libc::getsockopt(socket, level, name, value, length);
        let got = if got < 0 { sys::last_errno() } else { Errno(0) };
        let set = libc::setsockopt(socket, level, name, value, 4);
        let set = if set < 0 { sys::last_errno() } else { Errno(0) };
        [got, set]
    }
}

fn corner_14_told_which_error_of_an_option(family: Family) {
    let (client, _server) = pair(family);
    let _near = sys::pwritev2(client, &[b""], 0);
    let unsupported = Errno(libc::EOPNOTSUPP);
    let unknown = Errno(libc::ENOPROTOOPT);
    let none = BAD.cast();
    let (socket_level, tcp_level) = (libc::SOL_SOCKET, libc::IPPROTO_TCP);
    let mut four: libc::socklen_t = 4;
    for (option, value, length, expected) in [
        ([socket_level, libc::SO_TYPE], BAD, none, [FAULT, FAULT]),
        ([tcp_level, libc::TCP_NODELAY], BAD, none, [FAULT, FAULT]),
        ([tcp_level, 9999], BAD, &raw mut four, [unknown, FAULT]),
        ([9999, 1], BAD, &raw mut four, [unsupported, unknown]),
        ([9999, 1], BAD, none, [unsupported, unknown]),
    ] {
        let [got, set] = refused(client, option, value, length);
        let known = |errno: Errno| errno == unsupported || errno == unknown;
        // Which of the two errors an unknown level gives depends on the family.
        let same = |one, other| one == other || known(one) && known(other);
        assert!(
            same(got, expected[0]) && same(set, expected[1]),
            "{option:?}: {got:?} {set:?}"
        );
    }
    let fresh = tcp(family);
    for name in [1, 9999] {
        let mut minus = libc::socklen_t::MAX;
        let kernel = refused(fresh, [tcp_level, name], BAD, &raw mut minus);
        let mut minus = libc::socklen_t::MAX;
        let refusals = refused(client, [tcp_level, name], BAD, &raw mut minus);
        assert_eq!(refusals, kernel, "{name}");
    }
}

fn corner_14_told_length_beside_a_bad_pointer(family: Family) {
    let (client, server) = pair(family);
    let _near = sys::pwritev2(client, &[b""], 0);
    let whole = match family {
        Family::V4 => 16,
        Family::V6 => 28,
    };
    let mut length: libc::socklen_t;
    for call in [libc::getsockname, libc::getpeername] {
        length = 100;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let named = unsafe { call(client, BAD.cast(), &raw mut length) };
        assert_eq!((named, sys::last_errno()), (-1, FAULT));
        assert_eq!(length, whole);
    }
    for (option, left) in [
        ([libc::SOL_SOCKET, libc::SO_TYPE], 100),
        ([libc::IPPROTO_TCP, libc::TCP_NODELAY], 4),
        ([libc::IPPROTO_TCP, libc::TCP_INFO], 100),
        ([libc::IPPROTO_IP, libc::IP_TTL], 4),
    ] {
        length = 100;
        let refusals = refused(client, option, BAD, &raw mut length);
        assert_eq!((refusals[0], length), (FAULT, left), "{option:?}");
    }
    expect_alive(client, server);
}

fn corner_14_told_which_error_of_a_set(family: Family) {
    let (client, _server) = pair(family);
    let _near = sys::pwritev2(client, &[b""], 0);
    let set = sys::epoll_create().unwrap();
    let control = |operation, fd, event: *mut libc::epoll_event| {
        // SAFETY: the kernel checks the event and refuses bad values.
        let answer = unsafe { libc::epoll_ctl(set, operation, fd, event) };
        assert_eq!(answer, -1);
        sys::last_errno()
    };
    let mut good = libc::epoll_event { events: IN, u64: 0 };
    for fd in [client, -1, 999] {
        for operation in [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, 99] {
            assert_eq!(control(operation, fd, BAD.cast()), FAULT);
        }
    }
    assert_eq!(control(99, client, &raw mut good), INVALID);
    let missing = control(libc::EPOLL_CTL_DEL, client, BAD.cast());
    assert_eq!(missing, Errno(libc::ENOENT));
}

fn corner_14_told_exclusive_members(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let exclusive = IN | libc::EPOLLEXCLUSIVE.cast_unsigned();
    let control = |operation, fd, events| sys::epoll_control(set, operation, fd, events, 0);
    let (add, change) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD);
    for more in [libc::EPOLLONESHOT, libc::EPOLLRDHUP, 0x1000] {
        let asked = exclusive | more.cast_unsigned();
        assert_eq!(control(add, client, asked), Err(INVALID));
    }
    let edge = exclusive | libc::EPOLLET.cast_unsigned();
    assert_eq!(control(add, client, edge), Ok(()));
    assert_eq!(control(add, client, exclusive), Err(Errno(libc::EEXIST)));
    assert_eq!(control(change, client, IN), Err(INVALID));
    assert_eq!(control(change, server, exclusive), Err(INVALID));
    assert_eq!(control(99, client, exclusive), Err(INVALID));
}

fn corner_14_told_exceptions_of_what_has_ended(family: Family) {
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLHUP);
    let within = |read: bool, write: bool| {
        let start = std::time::Instant::now();
        let mut sets = [sys::Set::of(&[client]); 3];
        let [one, two, three] = &mut sets;
        let (one, two) = (read.then_some(one), write.then_some(two));
        let count = sys::select(client, one, two, Some(three), 50).unwrap();
        let waited = start.elapsed() >= std::time::Duration::from_millis(50);
        assert_eq!(waited, count == 0);
        (count, sets.map(|set| set.has(client)))
    };
    assert_eq!(within(false, false), (0, [true, true, false]));
    assert_eq!(within(true, false), (1, [true, true, false]));
    assert_eq!(within(true, true), (2, [true, true, false]));
}

fn corner_14_told_numbers_beyond(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    let select = |far: usize| {
        let mut words = [0_u64; 64];
        words[far / 64] |= 1 << (far % 64);
        words[usize::try_from(client).unwrap() / 64] |= 1 << (client % 64);
        let mut none = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let null = std::ptr::null_mut();
        // SAFETY: the set has room for that many numbers.
        let answer =
            unsafe { libc::select(4096, words.as_mut_ptr().cast(), null, null, &raw mut none) };
        if answer < 0 {
            Err(sys::last_errno())
        } else {
            Ok((answer, words[far / 64] >> (far % 64) & 1))
        }
    };
    assert_eq!(select(63), Err(Errno(libc::EBADF)));
    let mut far = [1_u64 << 8; 16];
    far[..15].fill(0);
    let null = std::ptr::null_mut();
    let mut none = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: the set has room for that many numbers.
    let result = unsafe { libc::select(1024, far.as_mut_ptr().cast(), null, null, &raw mut none) };
    assert_eq!((result, far[15]), (0, 1 << 8));
    // Nothing is read or written beyond the table of descriptors.
    assert_eq!(select(4000), Ok((1, 1)));
    let high = sys::dup2(client, 700).unwrap();
    assert_eq!(select(1000), Err(Errno(libc::EBADF)));
    assert_eq!(select(1100), Ok((1, 1)));
    sys::close(high).unwrap();
}

/// Also where the limit allows fewer descriptors to be polled.
fn corner_14_told_numbers_beyond_under_a_low_limit(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    let limit = sys::descriptor_limit().unwrap();
    for member in [client, tcp(family)] {
        let mut words = [0_u64; 16];
        words[0] = 1 << member;
        words[15] = 1 << 40;
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: 1000,
        };
        sys::set_descriptor_limit(1).unwrap();
        let null = std::ptr::null_mut();
        // SAFETY: the set has room for that many numbers.
        let answer =
            unsafe { libc::select(1024, words.as_mut_ptr().cast(), null, null, &raw mut time) };
        let error = sys::last_errno();
        sys::set_descriptor_limit(limit.rlim_cur).unwrap();
        assert_eq!((answer, words[15]), (1, 1 << 40), "{error:?}");
    }
}
