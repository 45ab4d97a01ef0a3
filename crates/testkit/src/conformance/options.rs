//! Socket options: values that can be set are returned as TCP returns them, and others are refused in the same way.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        options_identity,
        options_integers_round_trip,
        options_buffers_double,
        options_buffers_before_connect_are_inherited,
        options_keepalive_times,
        options_linger_round_trip,
        options_timeouts_round_trip,
        options_tcp_info_state,
        options_tcp_info_length,
        options_maxseg,
        options_congestion,
        options_user_timeout_and_quickack,
        options_defaults_of_fresh_socket,
        options_accepted_inherits,
        options_set_before_connect_stay,
        options_boolean_values,
        options_short_and_long_lengths,
        options_unknown,
        options_wrong_level,
        options_on_closed_and_other,
        options_accept_conn,
        options_incoming_cpu_and_cookie,
        options_priority_and_tos,
        options_defer_accept,
        options_reuse_and_rebind,
        options_peek_off_and_busy_poll,
        options_bind_to_device,
    ];
}

const SOCKET: libc::c_int = libc::SOL_SOCKET;
const TCP: libc::c_int = libc::IPPROTO_TCP;

#[track_caller]
fn expect_int(socket: Descriptor, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    assert_eq!(
        sys::option_int(socket, level, name),
        Ok(value),
        "option {level}/{name}"
    );
}

/// A fresh socket, a listener, and both ends of a connection.
fn sockets(family: Family) -> [Descriptor; 4] {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    [tcp(family), listening, client, server]
}

fn options_identity(family: Family) {
    for socket in sockets(family) {
        expect_int(socket, SOCKET, libc::SO_TYPE, libc::SOCK_STREAM);
        expect_int(socket, SOCKET, libc::SO_DOMAIN, family.domain());
        expect_int(socket, SOCKET, libc::SO_PROTOCOL, libc::IPPROTO_TCP);
        expect_int(socket, SOCKET, libc::SO_ERROR, 0);
    }
}

fn options_integers_round_trip(family: Family) {
    let options = [
        (SOCKET, libc::SO_KEEPALIVE),
        (SOCKET, libc::SO_REUSEADDR),
        (SOCKET, libc::SO_REUSEPORT),
        (SOCKET, libc::SO_OOBINLINE),
        (TCP, libc::TCP_NODELAY),
        (TCP, libc::TCP_CORK),
    ];
    for socket in sockets(family) {
        for (level, name) in options {
            if name == libc::TCP_CORK && is_connected(socket) {
                continue;
            }
            for value in [1, 0, 1, 0] {
                set_int(socket, level, name, value);
                expect_int(socket, level, name, value);
            }
        }
    }
}

fn is_connected(socket: Descriptor) -> bool {
    sys::getpeername(socket).is_ok()
}

fn options_buffers_double(family: Family) {
    for socket in sockets(family) {
        for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            set_int(socket, SOCKET, name, 50_000);
            expect_int(socket, SOCKET, name, 100_000);
            set_int(socket, SOCKET, name, 20_000);
            expect_int(socket, SOCKET, name, 40_000);
        }
        // The smallest size that the kernel gives.
        set_int(socket, SOCKET, libc::SO_RCVBUF, 1);
        expect_int(socket, SOCKET, libc::SO_RCVBUF, 2304);
        set_int(socket, SOCKET, libc::SO_SNDBUF, 1);
        expect_int(socket, SOCKET, libc::SO_SNDBUF, 4608);
    }
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_SNDBUF, 8192);
    set_int(server, SOCKET, libc::SO_RCVBUF, 8192);
    let (thread, _) = start_thread(move || send_pattern(client, 0, 500_000));
    expect_pattern(server, 0, 500_000);
    join_thread(thread);
}

fn options_buffers_before_connect_are_inherited(family: Family) {
    let listening = tcp(family);
    set_int(listening, SOCKET, libc::SO_RCVBUF, 30_000);
    set_int(listening, SOCKET, libc::SO_SNDBUF, 25_000);
    sys::bind(listening, family.loopback(0)).unwrap();
    sys::listen(listening, 4).unwrap();
    let client = connect_to(sys::getsockname(listening).unwrap());
    let server = sys::accept(listening).unwrap();
    expect_int(server, SOCKET, libc::SO_RCVBUF, 60_000);
    expect_int(server, SOCKET, libc::SO_SNDBUF, 50_000);
    expect_alive(client, server);
}

fn options_keepalive_times(family: Family) {
    for socket in sockets(family) {
        for (name, value) in [
            (libc::TCP_KEEPIDLE, 77),
            (libc::TCP_KEEPINTVL, 11),
            (libc::TCP_KEEPCNT, 5),
        ] {
            set_int(socket, TCP, name, value);
            expect_int(socket, TCP, name, value);
            let answer = sys::set_option(socket, TCP, name, 0);
            assert_eq!(answer, Err(Errno(libc::EINVAL)));
            let answer = sys::set_option(socket, TCP, name, 100_000);
            assert_eq!(answer, Err(Errno(libc::EINVAL)));
            expect_int(socket, TCP, name, value);
        }
    }
}

fn options_linger_round_trip(family: Family) {
    for socket in sockets(family) {
        let linger = || {
            let value: libc::linger = sys::option(socket, SOCKET, libc::SO_LINGER).unwrap();
            (value.l_onoff, value.l_linger)
        };
        assert_eq!(linger(), (0, 0));
        set_linger(socket, 7);
        assert_eq!(linger(), (1, 7));
        let off = libc::linger {
            l_onoff: 0,
            l_linger: 9,
        };
        sys::set_option(socket, SOCKET, libc::SO_LINGER, off).unwrap();
        assert_eq!(linger(), (0, 7));
        let short = sys::set_option(socket, SOCKET, libc::SO_LINGER, 1);
        assert_eq!(short, Err(Errno(libc::EINVAL)));
    }
}

fn options_timeouts_round_trip(family: Family) {
    for socket in sockets(family) {
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let timeout = || {
                let value: libc::timeval = sys::option(socket, SOCKET, name).unwrap();
                (value.tv_sec, value.tv_usec)
            };
            assert_eq!(timeout(), (0, 0));
            let value = libc::timeval {
                tv_sec: 3,
                tv_usec: 500_000,
            };
            sys::set_option(socket, SOCKET, name, value).unwrap();
            assert_eq!(timeout(), (3, 500_000));
            let bad = libc::timeval {
                tv_sec: 0,
                tv_usec: 2_000_000,
            };
            let answer = sys::set_option(socket, SOCKET, name, bad);
            assert_eq!(answer, Err(Errno(libc::EDOM)));
            let none = libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            };
            sys::set_option(socket, SOCKET, name, none).unwrap();
            assert_eq!(timeout(), (0, 0));
        }
    }
}

fn tcp_state(socket: Descriptor) -> u8 {
    sys::option_bytes(socket, TCP, libc::TCP_INFO, 104).expect("TCP_INFO")[0]
}

fn options_tcp_info_state(family: Family) {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT2: u8 = 5;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    const LISTEN: u8 = 10;
    let [fresh, listening, client, server] = sockets(family);
    assert_eq!(tcp_state(fresh), CLOSE);
    assert_eq!(tcp_state(listening), LISTEN);
    assert_eq!(
        (tcp_state(client), tcp_state(server)),
        (ESTABLISHED, ESTABLISHED)
    );
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    eventually("FIN_WAIT2", || tcp_state(client) == FIN_WAIT2);
    eventually("CLOSE_WAIT", || tcp_state(server) == CLOSE_WAIT);
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(tcp_state(client), CLOSE);
}

fn options_tcp_info_length(family: Family) {
    let [_, _, client, _] = sockets(family);
    let whole = sys::option_bytes(client, TCP, libc::TCP_INFO, 4096).unwrap();
    assert!(whole.len() >= 192, "{}", whole.len());
    for room in [1, 8, 104] {
        assert_eq!(
            sys::option_bytes(client, TCP, libc::TCP_INFO, room)
                .unwrap()
                .len(),
            room
        );
    }
    let field = |offset: usize| {
        u32::from_ne_bytes(whole[offset..offset + 4].try_into().expect("four bytes"))
    };
    // tcpi_rto, tcpi_snd_mss, tcpi_rcv_mss, tcpi_rtt, tcpi_snd_cwnd, tcpi_pmtu
    assert!(field(8) > 0, "rto");
    assert!((500..=65_536).contains(&field(16)), "snd_mss {}", field(16));
    assert!(field(80) > 0, "snd_cwnd");
    assert!(field(60) >= 1_280, "pmtu {}", field(60));
}

fn options_maxseg(family: Family) {
    let [fresh, _, client, server] = sockets(family);
    assert!((500..=1500).contains(&sys::option_int(fresh, TCP, libc::TCP_MAXSEG).unwrap()));
    for socket in [client, server] {
        let size = sys::option_int(socket, TCP, libc::TCP_MAXSEG).unwrap();
        assert!((1_000..=65_536).contains(&size), "{size}");
    }
    set_int(fresh, TCP, libc::TCP_MAXSEG, 1000);
    expect_int(fresh, TCP, libc::TCP_MAXSEG, 1000);
    let bad = sys::set_option(fresh, TCP, libc::TCP_MAXSEG, 1);
    assert_eq!(bad, Err(Errno(libc::EINVAL)));
}

fn options_congestion(family: Family) {
    for socket in sockets(family) {
        let name = || {
            let bytes = sys::option_bytes(socket, TCP, libc::TCP_CONGESTION, 16).unwrap();
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let first = name();
        assert!(!first.is_empty());
        sys::set_option_bytes(socket, TCP, libc::TCP_CONGESTION, b"reno").unwrap();
        assert_eq!(name(), "reno");
        let bad = sys::set_option_bytes(socket, TCP, libc::TCP_CONGESTION, b"nosuch");
        assert_eq!(bad, Err(Errno(libc::ENOENT)));
        sys::set_option_bytes(socket, TCP, libc::TCP_CONGESTION, first.as_bytes()).unwrap();
        assert_eq!(name(), first);
    }
}

fn options_user_timeout_and_quickack(family: Family) {
    let [fresh, _, client, server] = sockets(family);
    for socket in [fresh, client, server] {
        set_int(socket, TCP, libc::TCP_USER_TIMEOUT, 12_345);
        expect_int(socket, TCP, libc::TCP_USER_TIMEOUT, 12_345);
        set_int(socket, TCP, libc::TCP_SYNCNT, 4);
        expect_int(socket, TCP, libc::TCP_SYNCNT, 4);
        set_int(socket, TCP, libc::TCP_LINGER2, 10);
        expect_int(socket, TCP, libc::TCP_LINGER2, 10);
        set_int(socket, TCP, libc::TCP_NOTSENT_LOWAT, 16_384);
        expect_int(socket, TCP, libc::TCP_NOTSENT_LOWAT, 16_384);
        set_int(socket, TCP, libc::TCP_WINDOW_CLAMP, 100_000);
        expect_int(socket, TCP, libc::TCP_WINDOW_CLAMP, 100_000);
    }
    set_int(client, TCP, libc::TCP_QUICKACK, 1);
    expect_int(client, TCP, libc::TCP_QUICKACK, 1);
    expect_alive(client, server);
}

fn options_defaults_of_fresh_socket(family: Family) {
    let fresh = tcp(family);
    for (level, name) in [
        (SOCKET, libc::SO_KEEPALIVE),
        (SOCKET, libc::SO_REUSEADDR),
        (SOCKET, libc::SO_REUSEPORT),
        (SOCKET, libc::SO_BROADCAST),
        (SOCKET, libc::SO_ACCEPTCONN),
        (TCP, libc::TCP_NODELAY),
        (TCP, libc::TCP_CORK),
        (TCP, libc::TCP_DEFER_ACCEPT),
    ] {
        expect_int(fresh, level, name, 0);
    }
    expect_int(fresh, SOCKET, libc::SO_RCVLOWAT, 1);
    let file = |path: &str| {
        let text = std::fs::read_to_string(path).expect("a kernel with this file");
        text.split_whitespace()
            .nth(1)
            .unwrap_or(text.trim())
            .parse()
            .expect("a number")
    };
    expect_int(
        fresh,
        SOCKET,
        libc::SO_RCVBUF,
        file("/proc/sys/net/ipv4/tcp_rmem"),
    );
    expect_int(
        fresh,
        SOCKET,
        libc::SO_SNDBUF,
        file("/proc/sys/net/ipv4/tcp_wmem"),
    );
    expect_int(
        fresh,
        TCP,
        libc::TCP_KEEPIDLE,
        file("/proc/sys/net/ipv4/tcp_keepalive_time"),
    );
}

fn options_accepted_inherits(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, TCP, libc::TCP_NODELAY, 1);
    set_int(listening, SOCKET, libc::SO_KEEPALIVE, 1);
    set_int(listening, TCP, libc::TCP_KEEPIDLE, 99);
    set_int(listening, SOCKET, libc::SO_PRIORITY, 3);
    set_linger(listening, 5);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    expect_int(server, TCP, libc::TCP_NODELAY, 1);
    expect_int(server, SOCKET, libc::SO_KEEPALIVE, 1);
    expect_int(server, TCP, libc::TCP_KEEPIDLE, 99);
    let linger: libc::linger = sys::option(server, SOCKET, libc::SO_LINGER).unwrap();
    assert_eq!((linger.l_onoff, linger.l_linger), (1, 5));
    expect_int(server, SOCKET, libc::SO_ACCEPTCONN, 0);
    expect_alive(client, server);
    // The client has none of these options.
    expect_int(client, TCP, libc::TCP_NODELAY, 0);
}

fn options_set_before_connect_stay(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    set_int(client, TCP, libc::TCP_NODELAY, 1);
    set_int(client, SOCKET, libc::SO_KEEPALIVE, 1);
    set_int(client, SOCKET, libc::SO_RCVBUF, 40_000);
    set_int(client, TCP, libc::TCP_KEEPCNT, 4);
    set_linger(client, 3);
    set_nonblocking(client);
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EINPROGRESS)));
    await_events(client, libc::POLLOUT);
    expect_int(client, TCP, libc::TCP_NODELAY, 1);
    expect_int(client, SOCKET, libc::SO_KEEPALIVE, 1);
    expect_int(client, SOCKET, libc::SO_RCVBUF, 80_000);
    expect_int(client, TCP, libc::TCP_KEEPCNT, 4);
    let linger: libc::linger = sys::option(client, SOCKET, libc::SO_LINGER).unwrap();
    assert_eq!((linger.l_onoff, linger.l_linger), (1, 3));
    expect_alive(client, sys::accept(listening).unwrap());
}

fn options_boolean_values(family: Family) {
    for socket in sockets(family) {
        set_int(socket, SOCKET, libc::SO_KEEPALIVE, 17);
        expect_int(socket, SOCKET, libc::SO_KEEPALIVE, 1);
        set_int(socket, TCP, libc::TCP_NODELAY, -5);
        expect_int(socket, TCP, libc::TCP_NODELAY, 1);
    }
}

fn options_short_and_long_lengths(family: Family) {
    for socket in sockets(family) {
        let keep = libc::SO_KEEPALIVE;
        let short = sys::set_option_bytes(socket, SOCKET, keep, &[1, 0]);
        assert_eq!(short, Err(Errno(libc::EINVAL)));
        let none = sys::set_option_bytes(socket, TCP, libc::TCP_NODELAY, &[]);
        assert_eq!(none, Err(Errno(libc::EINVAL)));
        sys::set_option_bytes(socket, SOCKET, keep, &[1, 0, 0, 0, 9, 9, 9, 9]).unwrap();
        assert_eq!(
            sys::option_bytes(socket, SOCKET, keep, 8).unwrap(),
            [1, 0, 0, 0]
        );
        assert_eq!(sys::option_bytes(socket, SOCKET, keep, 2).unwrap(), [1, 0]);
        assert_eq!(
            sys::option_bytes(socket, TCP, libc::TCP_NODELAY, 8)
                .unwrap()
                .len(),
            4
        );
    }
}

fn options_unknown(family: Family) {
    for socket in sockets(family) {
        let unknown = Err(Errno(libc::ENOPROTOOPT));
        assert_eq!(sys::option_int(socket, SOCKET, 9_999), unknown);
        assert_eq!(sys::option_int(socket, TCP, 9_999), unknown);
        let unknown = Err(Errno(libc::ENOPROTOOPT));
        assert_eq!(sys::set_option(socket, SOCKET, 9_999, 1), unknown);
        assert_eq!(sys::set_option(socket, TCP, 9_999, 1), unknown);
        let read_only = sys::set_option(socket, SOCKET, libc::SO_ERROR, 1);
        assert_eq!(read_only, unknown);
        assert_eq!(sys::set_option(socket, SOCKET, libc::SO_TYPE, 1), unknown);
        assert_eq!(
            sys::set_option(socket, SOCKET, libc::SO_ACCEPTCONN, 1),
            unknown
        );
    }
}

fn options_wrong_level(family: Family) {
    for socket in sockets(family) {
        let bad = sys::option_int(socket, 4_242, libc::SO_TYPE);
        assert!(
            bad == Err(Errno(libc::EOPNOTSUPP)) || bad == Err(Errno(libc::ENOPROTOOPT)),
            "{bad:?}"
        );
        assert_eq!(bad, sys::option_int(tcp(family), 4_242, libc::SO_TYPE));
    }
}

fn options_on_closed_and_other(family: Family) {
    let socket = tcp(family);
    sys::close(socket).unwrap();
    assert_eq!(
        sys::option_int(socket, SOCKET, libc::SO_TYPE),
        Err(Errno(libc::EBADF))
    );
    let [reader, _writer] = sys::pipe(0).unwrap();
    let answer = sys::option_int(reader, SOCKET, libc::SO_TYPE);
    assert_eq!(answer, Err(Errno(libc::ENOTSOCK)));
    let answer = sys::set_option(reader, TCP, libc::TCP_NODELAY, 1);
    assert_eq!(answer, Err(Errno(libc::ENOTSOCK)));
}

fn options_accept_conn(family: Family) {
    let [fresh, listening, client, server] = sockets(family);
    for (socket, expected) in [(fresh, 0), (listening, 1), (client, 0), (server, 0)] {
        expect_int(socket, SOCKET, libc::SO_ACCEPTCONN, expected);
    }
    sys::listen(fresh, 1).unwrap();
    expect_int(fresh, SOCKET, libc::SO_ACCEPTCONN, 1);
}

fn options_incoming_cpu_and_cookie(family: Family) {
    let [_, _, client, server] = sockets(family);
    expect_alive(client, server);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for socket in [client, server] {
        let cpu = sys::option_int(socket, SOCKET, libc::SO_INCOMING_CPU).unwrap();
        assert!(
            cpu >= -1 && cpu < libc::c_int::try_from(cpus).unwrap().max(1024),
            "{cpu}"
        );
    }
    let cookie = |socket: Descriptor| sys::option::<u64>(socket, SOCKET, libc::SO_COOKIE).unwrap();
    assert_ne!(cookie(client), 0);
    assert_eq!(cookie(client), cookie(client));
    assert_ne!(cookie(client), cookie(server));
    let copy = sys::dup(client).unwrap();
    assert_eq!(cookie(copy), cookie(client));
}

fn options_priority_and_tos(family: Family) {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_TOS),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let (level_hops, name_hops) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_TTL),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    let [fresh, _, client, server] = sockets(family);
    for socket in [fresh, client, server] {
        set_int(socket, SOCKET, libc::SO_PRIORITY, 4);
        expect_int(socket, SOCKET, libc::SO_PRIORITY, 4);
        set_int(socket, level, name, 0x10);
        expect_int(socket, level, name, 0x10);
        set_int(socket, level_hops, name_hops, 33);
        expect_int(socket, level_hops, name_hops, 33);
    }
    expect_alive(client, server);
}

fn options_defer_accept(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, 5);
    assert!(sys::option_int(listening, TCP, libc::TCP_DEFER_ACCEPT).unwrap() > 0);
    let client = connect_to(address);
    // The connection is not accepted before the client has sent bytes.
    expect_quiet(listening, libc::POLLIN);
    send_all(client, b"now");
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    await_events(server, libc::POLLIN);
    expect_bytes(server, b"now");
    expect_alive(client, server);
}

fn options_reuse_and_rebind(family: Family) {
    let first = tcp(family);
    set_int(first, SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(first, family.loopback(0)).unwrap();
    let address = sys::getsockname(first).unwrap();
    let second = tcp(family);
    set_int(second, SOCKET, libc::SO_REUSEADDR, 1);
    // Two sockets may share a port while neither listens.
    sys::bind(second, address).unwrap();
    sys::listen(first, 4).unwrap();
    assert_eq!(sys::listen(second, 4), Err(Errno(libc::EADDRINUSE)));
    // A port with connections that are still open can be listened on again.
    let client = connect_to(address);
    let server = sys::accept(first).unwrap();
    sys::close(first).unwrap();
    sys::close(second).unwrap();
    let third = tcp(family);
    set_int(third, SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(third, address).unwrap();
    sys::listen(third, 4).unwrap();
    expect_alive(connect_to(address), sys::accept(third).unwrap());
    expect_alive(client, server);
}

fn options_peek_off_and_busy_poll(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_BUSY_POLL, 0);
    expect_int(client, SOCKET, libc::SO_BUSY_POLL, 0);
    set_int(client, SOCKET, libc::SO_MARK, 0);
    expect_int(client, SOCKET, libc::SO_MARK, 0);
    expect_alive(client, server);
}

fn options_bind_to_device(family: Family) {
    let [fresh, ..] = sockets(family);
    let name = sys::option_bytes(fresh, SOCKET, libc::SO_BINDTODEVICE, 16);
    assert_eq!(name.unwrap().len(), 0);
    let bad = sys::set_option_bytes(fresh, SOCKET, libc::SO_BINDTODEVICE, b"nosuchdevice");
    assert_eq!(bad, Err(Errno(libc::ENODEV)));
    sys::set_option_bytes(fresh, SOCKET, libc::SO_BINDTODEVICE, b"lo\0").unwrap();
    let (listening, address) = listener(family);
    sys::connect(fresh, address).unwrap();
    expect_alive(fresh, sys::accept(listening).unwrap());
}
