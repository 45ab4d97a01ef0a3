//! Corner 14, `sendfile` and `splice` with files that they cannot move, or cannot move now.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_14_ended::leave_wrong_size;
use crate::helpers::{send_and_wait, send_urgent};

cases! {
    families: [
        corner_14_splicing_sendfile_from_what_is_no_file,
        corner_14_splicing_sendfile_lengths,
        corner_14_splicing_leaves_a_reset_for_the_next_call,
        corner_14_splicing_sendfile_of_endless_zeros,
        corner_14_splicing_into_a_full_socket_that_is_reset,
        corner_14_splicing_with_what_is_no_pipe,
        corner_14_splicing_at_a_position,
        corner_14_splicing_the_wrong_way,
        corner_14_splicing_waits_for_the_socket,
        corner_14_splicing_leaves_what_can_not_go,
        corner_14_splicing_all_that_is_there,
        corner_14_splicing_looks_at_the_pipe_first,
        corner_14_splicing_to_what_only_appends,
        corner_14_splicing_to_a_listener,
        corner_14_splicing_to_a_listener_of_a_parent,
        corner_14_splicing_to_a_listener_of_a_child,
        corner_14_splicing_sendfile_from_the_system,
        corner_14_splicing_sendfile_to_a_pipe,
        corner_14_splicing_at_a_mark_before_the_end,
        corner_14_splicing_at_a_mark_before_a_reset,
        corner_14_splicing_leaves_an_error_for_the_next_call,
    ];
}

fn corner_14_splicing_at_a_mark_before_the_end(family: Family) {
    for ends_itself in [false, true] {
        let (client, server) = pair(family);
        let [_reader, writer] = sys::pipe(0).unwrap();
        set_nonblocking(client);
        send_urgent(server, b"abc!");
        await_events(client, libc::POLLPRI);
        expect_bytes(client, b"abc");
        assert_eq!(sys::splice(client, writer, 8, 0), Err(LATER));
        if ends_itself {
            sys::shutdown(client, libc::SHUT_RD).unwrap();
        } else {
            sys::shutdown(server, libc::SHUT_WR).unwrap();
            await_events(client, libc::POLLRDHUP);
        }
        assert_eq!(sys::splice(client, writer, 8, 0), Ok(0));
    }
}

fn corner_14_splicing_at_a_mark_before_a_reset(family: Family) {
    for nonblocking in [false, true] {
        let (client, server) = pair(family);
        let [_reader, writer] = sys::pipe(0).unwrap();
        if nonblocking {
            set_nonblocking(client);
        }
        send_urgent(server, b"abc!");
        await_events(client, libc::POLLPRI);
        assert_eq!(sys::splice(client, writer, 8, 0), Ok(3));
        close_with_reset(server);
        await_events(client, libc::POLLHUP);
        let reset = Err(Errno(libc::ECONNRESET));
        assert_eq!(sys::splice(client, writer, 8, 0), reset);
        assert_eq!(sys::splice(client, writer, 8, 0), Ok(0));
    }
}

/// `recvmmsg` has left it.
fn corner_14_splicing_leaves_an_error_for_the_next_call(family: Family) {
    let (client, server) = pair(family);
    let [_reader, writer] = sys::pipe(0).unwrap();
    send_and_wait(server, client, b"xabc");
    leave_wrong_size(client);
    assert_eq!(sys::splice(client, writer, 100, 0), Ok(3));
    let answer = sys::recv(client, &mut [0_u8; 9], libc::MSG_DONTWAIT);
    assert_eq!(answer, Err(Errno(libc::EMSGSIZE)));
    expect_alive(client, server);
}

const INVALID: Errno = Errno(libc::EINVAL);
const BAD: Errno = Errno(libc::EBADF);
const SEEK: Errno = Errno(libc::ESPIPE);
const LATER: Errno = Errno(libc::EAGAIN);

fn open(path: &std::ffi::CStr, flags: libc::c_int) -> Descriptor {
    // SAFETY: the path is terminated.
    let opened = unsafe { libc::open(path.as_ptr(), flags) };
    assert!(opened >= 0, "open: {:?}", sys::last_errno());
    opened
}

fn corner_14_splicing_sendfile_from_what_is_no_file(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    let folder = open(c"/tmp", libc::O_RDONLY);
    let named = open(c"/tmp", libc::O_PATH);
    let nothing = open(c"/dev/null", libc::O_RDONLY);
    let counter = sys::eventfd(3, 0).unwrap();
    for (from, plain, positioned) in [
        (reader, INVALID, SEEK),
        (server, INVALID, SEEK),
        (client, INVALID, SEEK),
        (counter, INVALID, SEEK),
        (folder, INVALID, INVALID),
        (nothing, INVALID, INVALID),
        (named, BAD, BAD),
        (writer, BAD, BAD),
        (-1, BAD, BAD),
    ] {
        assert_eq!(sys::sendfile(client, from, None, 5), Err(plain), "{from}");
        let mut offset = 0;
        let sent = sys::sendfile(client, from, Some(&mut offset), 5);
        assert_eq!((sent, offset), (Err(positioned), 0), "{from}");
    }
    expect_quiet(server, libc::POLLIN);
    let mut bytes = [0_u8; 5];
    assert_eq!(sys::read(reader, &mut bytes), Ok(5));
    expect_alive(client, server);
}

fn corner_14_splicing_sendfile_lengths(family: Family) {
    let (client, server) = pair(family);
    let file = file_of(b"0123456789");
    let most = usize::try_from(i64::MAX).unwrap();
    for (at, length, expected) in [
        (0, usize::MAX, Err(INVALID)),
        (-1, 5, Err(INVALID)),
        (i64::MAX, 5, Err(INVALID)),
        (0, 0, Ok(0)),
        (10, 5, Ok(0)),
        (100, 5, Ok(0)),
        (4, 3, Ok(3)),
        (4, most - 4, Ok(6)),
    ] {
        let mut offset = at;
        let sent = sys::sendfile(client, file, Some(&mut offset), length);
        assert_eq!(sent, expected, "{length} at {at}");
        let moved = i64::try_from(sent.unwrap_or(0)).unwrap();
        assert_eq!(offset, at.saturating_add(moved));
    }
    expect_bytes(server, b"456456789");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(sys::sendfile(client, file, None, 0), Ok(0));
    // The type of the file is not checked for a length of zero.
    for (from, expected) in [
        (sys::epoll_create().unwrap(), Ok(0)),
        (open(c"/tmp", libc::O_RDONLY), Ok(0)),
        (server, Err(INVALID)),
    ] {
        assert_eq!(sys::sendfile(client, from, None, 0), expected, "{from}");
    }
}

fn corner_14_splicing_leaves_a_reset_for_the_next_call(family: Family) {
    let (client, server) = pair(family);
    send_all(client, b"x");
    send_all(server, b"unread");
    await_events(client, libc::POLLIN);
    await_events(server, libc::POLLIN);
    sys::close(client).unwrap();
    await_events(server, libc::POLLHUP);
    let [_reader, writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::splice(server, writer, 100, 0), Ok(1));
    let sent = sys::send(server, b"y", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::ECONNRESET)));
}

/// Bytes that a connection takes no more stay in the pipe.
fn corner_14_splicing_into_a_full_socket_that_is_reset(family: Family) {
    let (client, server) = pair(family);
    let _ = fill(client);
    set_blocking(client);
    let [output, input] = sys::pipe(0).unwrap();
    sys::write(input, &pattern(0, 3000)).unwrap();
    let (splicing, task) = start_thread(move || sys::splice(output, client, 3000, 0));
    await_asleep(task);
    close_with_reset(server);
    assert_eq!(join_thread(splicing), Err(Errno(libc::ECONNRESET)));
    assert_eq!(sys::ioctl_int(output, libc::FIONREAD, 0), Ok(3000));
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let again = sys::splice(output, client, 3000, 0);
    assert_eq!(again, Err(Errno(libc::EPIPE)));
}

fn corner_14_splicing_sendfile_of_endless_zeros(family: Family) {
    let (client, server) = pair(family);
    let zeros = open(c"/dev/zero", libc::O_RDONLY);
    let mut offset = 0;
    let sent = sys::sendfile(client, zeros, Some(&mut offset), 1000);
    assert_eq!((sent, offset), (Ok(1000), 0));
    assert_eq!(sys::sendfile(client, zeros, None, 1000), Ok(1000));
    expect_bytes(server, &[0_u8; 2000]);
}

fn corner_14_splicing_with_what_is_no_pipe(family: Family) {
    let (client, server) = pair(family);
    let file = file_of(b"file");
    for other in [client, server, file] {
        assert_eq!(sys::splice(other, client, 5, 0), Err(INVALID));
        assert_eq!(sys::splice(client, other, 5, 0), Err(INVALID));
    }
    assert_eq!(sys::splice(-1, client, 5, 0), Err(BAD));
    assert_eq!(sys::splice(client, -1, 5, 0), Err(BAD));
    assert_eq!(sys::splice(client, -1, 0, 0), Ok(0));
    expect_alive(client, server);
}

fn corner_14_splicing_at_a_position(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    send_and_wait(server, client, b"sent");
    let at = |from, to, [of_from, of_to]: [bool; 2]| {
        let (mut one, mut other) = (0_i64, 0_i64);
        let pointer = |place: &mut i64, on| if on { place } else { std::ptr::null_mut() };
        let [one, other] = [pointer(&mut one, of_from), pointer(&mut other, of_to)];
        // SAFETY: null or a local.
        let moved = unsafe { libc::splice(from, one, to, other, 5, 0) };
        if moved < 0 {
            Err(sys::last_errno())
        } else {
            Ok(moved)
        }
    };
    assert_eq!(at(reader, client, [true, false]), Err(SEEK));
    assert_eq!(at(reader, client, [false, true]), Err(INVALID));
    assert_eq!(at(client, writer, [true, false]), Err(INVALID));
    assert_eq!(at(client, writer, [false, true]), Err(SEEK));
    assert_eq!(at(reader, client, [false, false]), Ok(5));
    expect_bytes(server, b"piped");
    expect_bytes(client, b"sent");
}

fn corner_14_splicing_the_wrong_way(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::splice(writer, client, 5, 0), Err(BAD));
    assert_eq!(sys::splice(client, reader, 5, 0), Err(BAD));
    assert_eq!(sys::splice(reader, client, 5, 0x100), Err(INVALID));
    assert_eq!(sys::splice(client, writer, usize::MAX, 0), Err(INVALID));
    expect_alive(client, server);
}

fn corner_14_splicing_waits_for_the_socket(family: Family) {
    let (client, server) = small_pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 100_000,
    };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        sys::set_option(client, libc::SOL_SOCKET, name, limit).unwrap();
    }
    let now = libc::SPLICE_F_NONBLOCK;
    let long = |call: &dyn Fn() -> sys::Outcome<usize>| {
        let start = Instant::now();
        let answer = call();
        (answer, start.elapsed() > Duration::from_millis(80))
    };
    // The flag concerns the pipe. A blocking socket is waited for.
    assert_eq!(sys::splice(reader, client, 5, now), Err(LATER));
    let empty = || sys::splice(client, writer, 5, now);
    assert_eq!(long(&empty), (Err(LATER), true));
    let _ = fill(client);
    set_blocking(client);
    sys::write(writer, b"x").unwrap();
    let full = || sys::splice(reader, client, 1, now);
    assert_eq!(long(&full), (Err(LATER), true));
    set_nonblocking(client);
    assert_eq!(sys::splice(reader, client, 1, 0), Err(LATER));
    assert_eq!(sys::splice(client, writer, 1, 0), Err(LATER));
    assert!(sys::recv(server, &mut [0_u8; 64], 0).is_ok());
}

fn corner_14_splicing_leaves_what_can_not_go(family: Family) {
    let (client, server) = pair(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    let broken = Errno(libc::EPIPE);
    assert_eq!(sys::splice(reader, client, 5, 0), Err(broken));
    let mut bytes = [0_u8; 5];
    assert_eq!(sys::read(reader, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"piped");
    // The socket does not lose bytes that the pipe cannot take, either.
    send_and_wait(server, client, b"sent");
    sys::close(reader).unwrap();
    assert_eq!(sys::splice(client, writer, 4, 0), Err(broken));
    expect_bytes(client, b"sent");
}

fn corner_14_splicing_all_that_is_there(family: Family) {
    let (client, server) = pair(family);
    for socket in [client, server] {
        set_nonblocking(socket);
    }
    let [reader, writer] = sys::pipe(0).unwrap();
    let bytes = pattern(0, 40_000);
    assert_eq!(sys::write(writer, &bytes), Ok(40_000));
    assert_eq!(sys::splice(reader, client, 40_000, 0), Ok(40_000));
    eventually("all is there", || {
        sys::ioctl_int(server, libc::FIONREAD, 0) == Ok(40_000)
    });
    assert_eq!(sys::splice(server, writer, 40_000, 0), Ok(40_000));
    let mut moved = vec![0_u8; 40_000];
    assert_eq!(sys::read(reader, &mut moved), Ok(40_000));
    assert!(moved == bytes);
    assert_eq!(
        sys::sendfile(client, file_of(&bytes), None, 50_000),
        Ok(40_000)
    );
    set_blocking(server);
    expect_pattern(server, 0, 40_000);
}

fn corner_14_splicing_looks_at_the_pipe_first(family: Family) {
    let (client, _server) = pair(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    set_nonblocking(client);
    let [reader, writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::splice(client, writer, 4, 0), Err(LATER));
    sys::close(reader).unwrap();
    let broken = Errno(libc::EPIPE);
    assert_eq!(sys::splice(client, writer, 4, 0), Err(broken));
}

fn corner_14_splicing_to_what_only_appends(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    sys::fcntl(client, libc::F_SETFL, libc::O_APPEND).unwrap();
    assert_eq!(sys::splice(reader, client, 5, 0), Err(INVALID));
    let file = file_of(b"file");
    assert_eq!(sys::sendfile(client, file, None, 4), Err(INVALID));
    sys::fcntl(client, libc::F_SETFL, 0).unwrap();
    assert_eq!(sys::splice(reader, client, 5, 0), Ok(5));
    assert_eq!(sys::sendfile(client, file, None, 4), Ok(4));
    expect_bytes(server, b"pipedfile");
}

fn corner_14_splicing_to_a_listener(family: Family) {
    let (listening, _) = listener(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    let broken = Err(Errno(libc::EPIPE));
    assert_eq!(sys::splice(reader, listening, 5, 0), broken);
    assert_eq!(sys::sendfile(listening, file_of(b"file"), None, 4), broken);
}

/// To a socket that both processes have, and on which the parent listens later.
fn corner_14_splicing_to_a_listener_of_a_parent(family: Family) {
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let go = Baton::new();
    let child = fork_child(|| {
        go.take();
        let [reader, writer] = sys::pipe(0).unwrap();
        sys::write(writer, b"piped").unwrap();
        assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(libc::O_RDWR));
        let broken = Err(Errno(libc::EPIPE));
        assert_eq!(sys::sendfile(socket, file_of(b"file"), None, 4), broken);
        assert_eq!(sys::splice(reader, socket, 5, 0), broken);
        let flags = libc::O_APPEND | libc::O_NONBLOCK;
        sys::fcntl(socket, libc::F_SETFL, flags).unwrap();
        assert_eq!(
            sys::fcntl(socket, libc::F_GETFL, 0),
            Ok(libc::O_RDWR | flags)
        );
        assert_eq!(sys::splice(reader, socket, 5, 0), Err(INVALID));
        assert_eq!(
            sys::sendfile(socket, file_of(b"file"), None, 4),
            Err(INVALID)
        );
    });
    sys::listen(socket, 16).unwrap();
    go.pass();
    child.join();
    let flags = libc::O_RDWR | libc::O_APPEND | libc::O_NONBLOCK;
    assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(flags));
    assert_eq!(sys::accept(socket), Err(LATER));
}

/// From each file as many bytes as the kernel gives to any socket.
fn corner_14_splicing_sendfile_from_the_system(family: Family) {
    let (client, server) = pair(family);
    let [near, _far] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    for name in [
        c"/proc/self/status",
        c"/proc/self/maps",
        c"/proc/version",
        c"/proc/sys/kernel/ostype",
        c"/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        // SAFETY: the name is terminated.
        let file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY) };
        if file < 0 {
            continue;
        }
        let mut start = 0;
        let expected = sys::sendfile(near, file, Some(&mut start), 2);
        assert_eq!(sys::sendfile(client, file, None, 2), expected, "{name:?}");
        if expected.is_ok() {
            assert_eq!(receive_exact(server, 2).len(), 2);
        }
        sys::close(file).unwrap();
    }
}

fn corner_14_splicing_sendfile_to_a_pipe(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    send_and_wait(server, client, b"sent");
    let mut offset = 0;
    let sent = sys::sendfile(writer, client, Some(&mut offset), 4);
    assert_eq!(sent, Err(SEEK));
    assert_eq!(sys::sendfile(reader, client, None, 4), Err(BAD));
    assert_eq!(sys::sendfile(writer, client, None, 9), Ok(4));
    let mut bytes = [0_u8; 4];
    assert_eq!(sys::read(reader, &mut bytes), Ok(4));
    assert_eq!(&bytes, b"sent");
    expect_alive(client, server);
}

/// To a socket that nobody has bound, and on which a child listens.
fn corner_14_splicing_to_a_listener_of_a_child(family: Family) {
    let socket = tcp(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let child = fork_child(|| sys::listen(socket, 16).unwrap());
    child.join();
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    let broken = Err(Errno(libc::EPIPE));
    assert_eq!(sys::sendfile(socket, file_of(b"file"), None, 4), broken);
    assert_eq!(sys::splice(reader, socket, 5, 0), broken);
    assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(libc::O_RDWR));
}
