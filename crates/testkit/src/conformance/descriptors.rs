//! Duplicates, flags of descriptors, and out-of-band bytes.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;

cases! {
    families: [
        descriptors_dup_is_the_same_connection,
        descriptors_dup_close_original,
        descriptors_dup_shutdown_is_for_all,
        descriptors_fcntl_dupfd,
        descriptors_dup_of_listener,
        descriptors_dup_in_two_threads,
        descriptors_many_dups,
        descriptors_cloexec_flags,
        descriptors_socket_flags,
        descriptors_getfl_access_mode,
        descriptors_getfl_of_many,
        descriptors_flags_without_use_are_kept,
        descriptors_linger_only_at_last_close,
        descriptors_options_are_shared,
        descriptors_count_returns,
        descriptors_stay_with_unrelated_pipes,
        descriptors_out_of_band,
        descriptors_out_of_band_inline,
        descriptors_udp_and_unix_untouched,
    ];
}

fn descriptors_dup_is_the_same_connection(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    assert_eq!(sys::getsockname(copy), sys::getsockname(client));
    assert_eq!(sys::getpeername(copy), sys::getpeername(client));
    send_all(client, b"one ");
    send_all(copy, b"two ");
    send_all(client, b"three");
    expect_bytes(server, b"one two three");
    send_pattern(server, 0, 1_000);
    for round in 0..10_usize {
        expect_pattern(if round % 2 == 0 { client } else { copy }, round * 100, 100);
    }
}

fn descriptors_dup_close_original(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"before");
    await_events(client, libc::POLLIN);
    let copy = sys::dup(client).unwrap();
    sys::close(client).unwrap();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    expect_bytes(copy, b"before");
    expect_alive(copy, server);
    sys::close(copy).unwrap();
    expect_end(server);
}

fn descriptors_dup_shutdown_is_for_all(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    sys::shutdown(copy, libc::SHUT_WR).unwrap();
    let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
    expect_end(server);
}

fn descriptors_fcntl_dupfd(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::fcntl(client, libc::F_DUPFD, 100).unwrap();
    assert_eq!(copy, 100);
    let closing = sys::fcntl(client, libc::F_DUPFD_CLOEXEC, 100).unwrap();
    assert_eq!(closing, 101);
    assert_eq!(sys::fcntl(copy, libc::F_GETFD, 0), Ok(0));
    assert_eq!(sys::fcntl(closing, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    sys::close(client).unwrap();
    expect_alive(copy, server);
    expect_alive(closing, server);
    let bad = sys::fcntl(copy, libc::F_DUPFD, -1);
    assert_eq!(bad, Err(Errno(libc::EINVAL)));
}

fn descriptors_dup_of_listener(family: Family) {
    let (listening, address) = listener(family);
    let copy = sys::dup(listening).unwrap();
    expect_alive(connect_to(address), sys::accept(copy).unwrap());
    expect_alive(connect_to(address), sys::accept(listening).unwrap());
    assert_eq!(sys::getsockname(copy), Ok(address));
}

fn descriptors_dup_in_two_threads(family: Family) {
    // One thread only reads, by its own number; the other only writes.
    const TOTAL: usize = 1_000_000;
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    let (reader, _) = start_thread(move || expect_pattern(copy, 5, TOTAL));
    let (writer, _) = start_thread(move || send_pattern(client, 9, TOTAL));
    let (peer, _) = start_thread(move || send_pattern(server, 5, TOTAL));
    expect_pattern(server, 9, TOTAL);
    for thread in [reader, writer, peer] {
        join_thread(thread);
    }
}

fn descriptors_many_dups(family: Family) {
    let (client, server) = pair(family);
    let copies: Vec<_> = (0..200).map(|_| sys::dup(client).unwrap()).collect();
    sys::close(client).unwrap();
    for copy in &copies {
        send_all(*copy, b"x");
    }
    assert_eq!(receive_exact(server, 200), vec![b'x'; 200]);
    let (last, others) = copies.split_last().unwrap();
    others.iter().for_each(|copy| sys::close(*copy).unwrap());
    expect_alive(*last, server);
    sys::close(*last).unwrap();
    expect_end(server);
}

fn descriptors_cloexec_flags(family: Family) {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let socket = sys::socket(family.domain(), kind, 0).unwrap();
    assert_eq!(sys::fcntl(socket, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    sys::ioctl_none(socket, libc::FIONCLEX).unwrap();
    assert_eq!(sys::fcntl(socket, libc::F_GETFD, 0), Ok(0));
    sys::ioctl_none(socket, libc::FIOCLEX).unwrap();
    assert_eq!(sys::fcntl(socket, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    let copy = sys::dup(socket).unwrap();
    assert_eq!(
        sys::fcntl(copy, libc::F_GETFD, 0),
        Ok(0),
        "of the number, not of the socket"
    );
    // The flag is kept across connect.
    let (listening, address) = listener(family);
    sys::connect(socket, address).unwrap();
    assert_eq!(sys::fcntl(socket, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::fcntl(server, libc::F_GETFD, 0), Ok(0));
}

fn descriptors_socket_flags(family: Family) {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    let socket = sys::socket(family.domain(), kind, libc::IPPROTO_TCP).unwrap();
    let flags = sys::fcntl(socket, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    let bad = sys::socket(family.domain(), libc::SOCK_STREAM | 0x100_0000, 0);
    assert_eq!(bad, Err(Errno(libc::EINVAL)));
}

/// `O_APPEND` and `O_NOATIME` have no effect on a socket, in any state.
fn descriptors_flags_without_use_are_kept(family: Family) {
    let idle = libc::O_APPEND | libc::O_NOATIME;
    let shown = |socket| sys::fcntl(socket, libc::F_GETFL, 0);
    let set = |socket, flags| sys::fcntl(socket, libc::F_SETFL, flags).unwrap();
    let (listening, address) = (tcp(family), family.loopback(0));
    let direct = sys::fcntl(listening, libc::F_SETFL, libc::O_DIRECT);
    assert_eq!(direct, Err(Errno(libc::EINVAL)));
    set(listening, libc::O_APPEND);
    sys::bind(listening, address).unwrap();
    assert_eq!(shown(listening), Ok(libc::O_RDWR | libc::O_APPEND));
    sys::listen(listening, 16).unwrap();
    let address = sys::getsockname(listening).unwrap();
    assert_eq!(shown(listening), Ok(libc::O_RDWR | libc::O_APPEND));
    let client = tcp(family);
    set(client, idle);
    assert_eq!(shown(client), Ok(libc::O_RDWR | idle));
    sys::connect(client, address).unwrap();
    assert_eq!(shown(client), Ok(libc::O_RDWR | idle));
    let server = sys::accept(listening).unwrap();
    assert_eq!(shown(server), Ok(libc::O_RDWR));
    set(server, libc::O_NOATIME | libc::O_NONBLOCK);
    let flags = libc::O_RDWR | libc::O_NOATIME | libc::O_NONBLOCK;
    assert_eq!(shown(server), Ok(flags));
    set(listening, libc::O_NONBLOCK | idle);
    let flags = libc::O_RDWR | libc::O_NONBLOCK | idle;
    assert_eq!(shown(listening), Ok(flags));
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    expect_alive(client, {
        set_blocking(server);
        server
    });
    // No state is left for later connections.
    sys::close(client).unwrap();
    expect_end(server);
    sys::close(server).unwrap();
    let next = connect_to(address);
    await_events(listening, libc::POLLIN);
    assert_eq!(shown(next), Ok(libc::O_RDWR));
    assert_eq!(shown(sys::accept(listening).unwrap()), Ok(libc::O_RDWR));
    sys::shutdown(listening, libc::SHUT_RD).unwrap();
    assert_eq!(shown(listening), Ok(flags));
}

fn descriptors_getfl_access_mode(family: Family) {
    let (client, server) = pair(family);
    for socket in [client, server] {
        assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(libc::O_RDWR));
        set_nonblocking(socket);
        assert_eq!(
            sys::fcntl(socket, libc::F_GETFL, 0),
            Ok(libc::O_RDWR | libc::O_NONBLOCK)
        );
    }
}

/// None of many connections that are there at once is other than the rest.
fn descriptors_getfl_of_many(family: Family) {
    for (client, server) in pairs(family, 40) {
        for socket in [client, server] {
            assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(libc::O_RDWR));
        }
    }
}

fn descriptors_linger_only_at_last_close(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    set_linger(client, 0);
    sys::close(client).unwrap();
    expect_alive(copy, server);
    sys::close(copy).unwrap();
    await_events(server, libc::POLLERR);
    assert_eq!(
        sys::recv(server, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

fn descriptors_options_are_shared(family: Family) {
    let (client, _server) = pair(family);
    let copy = sys::dup(client).unwrap();
    set_int(copy, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    assert_eq!(
        sys::option_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY),
        Ok(1)
    );
    fork_child(|| set_int(client, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)).join();
    assert_eq!(
        sys::option_int(copy, libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        Ok(1)
    );
}

fn descriptors_count_returns(family: Family) {
    let round = || {
        let (listening, address) = listener(family);
        let pairs: Vec<_> = (0..20)
            .map(|_| {
                let client = connect_to(address);
                (client, sys::accept(listening).unwrap())
            })
            .collect();
        for (client, server) in pairs {
            expect_alive(client, server);
            sys::close(client).unwrap();
            sys::close(server).unwrap();
        }
        sys::close(listening).unwrap();
    };
    // The first round may open descriptors that are kept for later use.
    round();
    let before = count_descriptors();
    (0..10).for_each(|_| round());
    let after = count_descriptors();
    assert!(
        after <= before + 16,
        "descriptors leak: {before} became {after}"
    );
}

fn descriptors_stay_with_unrelated_pipes(family: Family) {
    // Numbers that are sockets now and pipes or files then.
    for round in 0..30_usize {
        let (client, server) = pair(family);
        send_pattern(client, round, 100);
        sys::close(client).unwrap();
        let [reader, writer] = sys::pipe(0).unwrap();
        sys::write(writer, b"pipe").unwrap();
        let mut bytes = [0_u8; 4];
        assert_eq!(sys::read(reader, &mut bytes), Ok(4));
        assert_eq!(&bytes, b"pipe");
        let file = file_of(b"file");
        assert_eq!(sys::read(file, &mut bytes), Ok(4));
        assert_eq!(&bytes, b"file");
        expect_pattern(server, round, 100);
        expect_end(server);
        for descriptor in [server, reader, writer, file] {
            sys::close(descriptor).unwrap();
        }
    }
}

fn descriptors_out_of_band(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::at_mark(client), Ok(false));
    send_all(server, b"ab");
    assert_eq!(sys::send(server, b"!", libc::MSG_OOB), Ok(1));
    send_all(server, b"cd");
    await_events(client, libc::POLLPRI);
    let mut byte = [0_u8; 8];
    eventually("the urgent byte", || {
        sys::recv(client, &mut byte, libc::MSG_OOB) == Ok(1)
    });
    assert_eq!(byte[0], b'!');
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0).unwrap() >= 2
    });
    // A read stops at the mark.
    assert_eq!(sys::recv(client, &mut byte, 0), Ok(2));
    assert_eq!(&byte[..2], b"ab");
    assert_eq!(sys::at_mark(client), Ok(true));
    expect_bytes(client, b"cd");
    expect_alive(client, server);
}

fn descriptors_out_of_band_inline(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
    send_all(server, b"ab");
    assert_eq!(sys::send(server, b"!", libc::MSG_OOB), Ok(1));
    send_all(server, b"cd");
    expect_bytes(client, b"ab!cd");
    expect_alive(client, server);
}

fn descriptors_udp_and_unix_untouched(family: Family) {
    let one = sys::socket(family.domain(), libc::SOCK_DGRAM, 0).unwrap();
    let other = sys::socket(family.domain(), libc::SOCK_DGRAM, 0).unwrap();
    sys::bind(one, family.loopback(0)).unwrap();
    let address = sys::getsockname(one).unwrap();
    assert_eq!(sys::sendto(other, b"datagram", 0, address), Ok(8));
    await_events(one, libc::POLLIN);
    let mut bytes = [0_u8; 4];
    assert_eq!(
        sys::recv(one, &mut bytes, libc::MSG_TRUNC),
        Ok(8),
        "the datagram's size"
    );
    sys::connect(other, address).unwrap();
    assert_eq!(sys::send(other, b"", 0), Ok(0));
    await_events(one, libc::POLLIN);
    assert_eq!(sys::recv(one, &mut bytes, 0), Ok(0), "an empty datagram");
    let [left, right] = sys::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET).unwrap();
    sys::send(left, b"packet", 0).unwrap();
    assert_eq!(sys::recv(right, &mut bytes, 0), Ok(4));
    assert_eq!(
        sys::recv(right, &mut bytes, libc::MSG_DONTWAIT),
        Err(Errno(libc::EAGAIN))
    );
}
