//! Corner 14, flags of the calls, counts of queued bytes, O_NONBLOCK.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_14_peek,
        corner_14_listener_looked_at_without_waiting,
        corner_14_write_of_more_than_any_memory,
        corner_14_write_that_appends,
        corner_14_peek_larger_than_there_is,
        corner_14_peek_blocks,
        corner_14_peek_then_epoll_edge,
        corner_14_peek_across_large_data,
        corner_14_waitall,
        corner_14_waitall_ends_at_end_of_stream,
        corner_14_waitall_large,
        corner_14_waitall_with_nonblocking,
        corner_14_dontwait,
        corner_14_dontwait_send,
        corner_14_trunc_discards,
        corner_14_fionread,
        corner_14_tiocoutq,
        corner_14_zero_length,
        corner_14_zero_length_leaves_a_reset,
        corner_14_nonblocking_by_fcntl_and_ioctl,
        corner_14_nonblocking_shared_by_dup,
        corner_14_nonblocking_shared_over_fork,
        corner_14_nonblocking_not_inherited_by_accept,
        corner_14_msg_more,
    ];
}

fn corner_14_peek(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abcdef");
    let mut bytes = [0_u8; 4];
    for _ in 0..3 {
        assert_eq!(sys::recv(client, &mut bytes, libc::MSG_PEEK), Ok(4));
        assert_eq!(&bytes, b"abcd");
    }
    assert_eq!(sys::recv(client, &mut bytes[..2], 0), Ok(2));
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_PEEK), Ok(4));
    assert_eq!(&bytes, b"cdef");
    expect_bytes(client, b"cdef");
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    assert_eq!(
        sys::recv(client, &mut bytes, flags),
        Err(Errno(libc::EAGAIN))
    );
}

fn corner_14_peek_larger_than_there_is(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    let mut bytes = [0_u8; 100];
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_PEEK), Ok(3));
    send_and_wait(server, client, b"abc");
    eventually("six bytes", || {
        sys::recv(client, &mut bytes, libc::MSG_PEEK) == Ok(6)
    });
    assert_eq!(&bytes[..6], b"abcabc");
    expect_bytes(client, b"abcabc");
}

fn corner_14_peek_blocks(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], libc::MSG_PEEK));
    await_asleep(task);
    send_all(server, b"abc");
    assert_eq!(join_thread(thread), Ok(3));
    expect_bytes(client, b"abc");
}

fn corner_14_peek_then_epoll_edge(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN | sys::ET, 0).unwrap();
    send_all(server, b"a");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    assert_eq!(sys::recv(client, &mut [0_u8; 4], libc::MSG_PEEK), Ok(1));
    assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
    send_all(server, b"b");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    expect_bytes(client, b"ab");
}

fn corner_14_peek_across_large_data(family: Family) {
    let (client, server) = pair(family);
    let total = 50_000;
    send_and_wait(server, client, &pattern(0, total));
    let mut bytes = vec![0_u8; total];
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_PEEK), Ok(total));
    assert_eq!(pattern_mismatch(0, &bytes), None);
    expect_pattern(client, 0, 33_333);
    assert_eq!(
        sys::recv(client, &mut bytes, libc::MSG_PEEK),
        Ok(total - 33_333)
    );
    assert_eq!(pattern_mismatch(33_333, &bytes[..total - 33_333]), None);
    expect_pattern(client, 33_333, total - 33_333);
}

fn corner_14_waitall(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 9];
        (sys::recv(client, &mut bytes, libc::MSG_WAITALL), bytes)
    });
    for part in [b"abc", b"def", b"ghi"] {
        await_asleep(task);
        assert!(!thread.is_finished());
        send_all(server, part);
    }
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes), (Ok(9), b"abcdefghi"));
}

fn corner_14_waitall_ends_at_end_of_stream(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"abc");
    sys::close(server).unwrap();
    let mut bytes = [0_u8; 9];
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_WAITALL), Ok(3));
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_WAITALL), Ok(0));
}

fn corner_14_waitall_large(family: Family) {
    // More bytes than any buffers between the two ends hold.
    const TOTAL: usize = 16 * 1024 * 1024;
    let (client, server) = pair(family);
    let (thread, _) = start_thread(move || send_pattern(server, 0, TOTAL));
    let mut bytes = vec![0_u8; TOTAL];
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_WAITALL), Ok(TOTAL));
    assert_eq!(pattern_mismatch(0, &bytes), None);
    join_thread(thread);
}

fn corner_14_waitall_with_nonblocking(family: Family) {
    let (client, server) = pair(family);
    set_nonblocking(client);
    let mut bytes = [0_u8; 9];
    let flags = libc::MSG_WAITALL;
    assert_eq!(
        sys::recv(client, &mut bytes, flags),
        Err(Errno(libc::EAGAIN))
    );
    send_and_wait(server, client, b"abc");
    assert_eq!(sys::recv(client, &mut bytes, flags), Ok(3));
}

fn corner_14_dontwait(family: Family) {
    let (client, server) = pair(family);
    let mut bytes = [0_u8; 9];
    let flags = libc::MSG_DONTWAIT;
    assert_eq!(
        sys::recv(client, &mut bytes, flags),
        Err(Errno(libc::EAGAIN))
    );
    send_and_wait(server, client, b"abc");
    assert_eq!(sys::recv(client, &mut bytes, flags), Ok(3));
    assert_eq!(
        sys::recv(client, &mut bytes, flags),
        Err(Errno(libc::EAGAIN))
    );
    // The flag holds for the one call only.
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    send_all(server, b"x");
    assert_eq!(join_thread(thread), Ok(1));
}

fn corner_14_dontwait_send(family: Family) {
    let (client, server) = small_pair(family);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut sent = 0;
    loop {
        match sys::send(client, &pattern(sent, 100_000), flags) {
            Ok(size) => sent += size,
            Err(errno) => {
                assert_eq!(errno, Errno(libc::EAGAIN));
                break;
            }
        }
    }
    expect_pattern(server, 0, sent);
    expect_alive(client, server);
}

fn corner_14_trunc_discards(family: Family) {
    // For TCP, MSG_TRUNC discards the bytes that it would have copied.
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abcdefghij");
    let mut bytes = [b'-'; 4];
    assert_eq!(sys::recv(client, &mut bytes, libc::MSG_TRUNC), Ok(4));
    assert_eq!(&bytes, b"----", "nothing is copied");
    // SAFETY: nothing is written.
    let size = unsafe { sys::recv_raw(client, std::ptr::null_mut(), 3, libc::MSG_TRUNC) };
    assert_eq!(size, Ok(3));
    expect_bytes(client, b"hij");
}

fn corner_14_fionread(family: Family) {
    let (client, server) = pair(family);
    let unread = || sys::ioctl_int(client, libc::FIONREAD, -1).unwrap();
    assert_eq!(unread(), 0);
    send_and_wait(server, client, b"abcdef");
    assert_eq!(unread(), 6);
    expect_bytes(client, b"ab");
    assert_eq!(unread(), 4);
    let mut bytes = [0_u8; 4];
    sys::recv(client, &mut bytes, libc::MSG_PEEK).unwrap();
    assert_eq!(unread(), 4);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(unread(), 4, "the end of the stream does not count");
    expect_bytes(client, b"cdef");
    assert_eq!(unread(), 0);
    let (listening, _) = listener(family);
    assert_eq!(
        sys::ioctl_int(listening, libc::FIONREAD, 0),
        Err(Errno(libc::EINVAL))
    );
}

fn corner_14_tiocoutq(family: Family) {
    let (client, server) = small_pair(family);
    let unsent = || sys::ioctl_int(client, libc::TIOCOUTQ, -1).unwrap();
    assert_eq!(unsent(), 0);
    let filled = fill(client);
    let queued = unsent();
    assert!(
        queued > 0 && usize::try_from(queued).unwrap() <= filled,
        "{queued} of {filled}"
    );
    expect_pattern(server, 0, filled);
    eventually("nothing is queued", || unsent() == 0);
}

fn corner_14_zero_length(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::send(client, b"", 0), Ok(0));
    assert_eq!(sys::write(client, b""), Ok(0));
    assert_eq!(sys::read(client, &mut []), Ok(0));
    assert_eq!(sys::writev(client, &[]), Ok(0));
    assert_eq!(sys::readv(client, &mut []), Ok(0));
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    send_and_wait(server, client, b"abc");
    assert_eq!(sys::read(client, &mut []), Ok(0));
    assert_eq!(sys::recv(client, &mut [], 0), Ok(0));
    expect_bytes(client, b"abc");
    // Without data, recv waits even with an empty buffer.
    let answer = sys::recv(client, &mut [], libc::MSG_DONTWAIT);
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    expect_alive(client, server);
}

/// A receive with an empty buffer waits only once, whatever ends the wait.
fn corner_14_zero_length_leaves_a_reset(family: Family) {
    let (listening, address) = listener(family);
    let waiting = connect_to(address);
    let (client, server) = pair(family);
    for (socket, reset) in [(waiting, listening), (client, server)] {
        let (thread, task) = start_thread(move || sys::recv(socket, &mut [], 0));
        await_asleep(task);
        if reset == listening {
            sys::close(listening).unwrap();
        } else {
            close_with_reset(server);
        }
        assert_eq!(join_thread(thread), Ok(0));
        let next = sys::recv(socket, &mut [0_u8; 4], 0);
        assert_eq!(next, Err(Errno(libc::ECONNRESET)));
    }
}

fn corner_14_nonblocking_by_fcntl_and_ioctl(family: Family) {
    let (client, server) = pair(family);
    let recv = || sys::recv(client, &mut [0_u8; 4], 0);
    let flag = || sys::fcntl(client, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK;
    assert_eq!(flag(), 0);
    sys::ioctl_int(client, libc::FIONBIO, 1).unwrap();
    assert_eq!(flag(), libc::O_NONBLOCK);
    assert_eq!(recv(), Err(Errno(libc::EAGAIN)));
    sys::ioctl_int(client, libc::FIONBIO, 0).unwrap();
    assert_eq!(flag(), 0);
    set_nonblocking(client);
    assert_eq!(recv(), Err(Errno(libc::EAGAIN)));
    assert_eq!(
        sys::fcntl(client, libc::F_GETFL, 0).unwrap() & libc::O_ACCMODE,
        libc::O_RDWR
    );
    set_blocking(client);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    // A flag set meanwhile is for later calls.
    set_nonblocking(client);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!thread.is_finished());
    send_all(server, b"x");
    assert_eq!(join_thread(thread), Ok(1));
    assert_eq!(recv(), Err(Errno(libc::EAGAIN)));
}

fn corner_14_nonblocking_shared_by_dup(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    set_nonblocking(copy);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::EAGAIN))
    );
    sys::ioctl_int(client, libc::FIONBIO, 0).unwrap();
    let (thread, task) = start_thread(move || sys::recv(copy, &mut [0_u8; 8], 0));
    await_asleep(task);
    send_all(server, b"x");
    assert_eq!(join_thread(thread), Ok(1));
}

fn corner_14_nonblocking_shared_over_fork(family: Family) {
    let (client, server) = pair(family);
    fork_child(|| set_nonblocking(client)).join();
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::EAGAIN))
    );
    let flags = sys::fcntl(client, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    fork_child(|| {
        sys::ioctl_int(client, libc::FIONBIO, 0).unwrap();
    })
    .join();
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    send_all(server, b"x");
    assert_eq!(join_thread(thread), Ok(1));
}

fn corner_14_nonblocking_not_inherited_by_accept(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    let _client = connect_to(address);
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    assert_eq!(
        sys::fcntl(server, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK,
        0
    );
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let _second = connect_to(address);
    await_events(listening, libc::POLLIN);
    let server = sys::accept4(listening, flags).unwrap();
    let status = sys::fcntl(server, libc::F_GETFL, 0).unwrap();
    assert_eq!(status & libc::O_NONBLOCK, libc::O_NONBLOCK);
    assert_eq!(sys::fcntl(server, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert_eq!(sys::accept4(listening, 0x7), Err(Errno(libc::EINVAL)));
}

fn corner_14_msg_more(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::send(client, b"held ", libc::MSG_MORE), Ok(5));
    assert_eq!(sys::send(client, b"back", 0), Ok(4));
    expect_bytes(server, b"held back");
    assert_eq!(
        sys::send(client, b"only for a while", libc::MSG_MORE),
        Ok(16)
    );
    expect_bytes(server, b"only for a while");
}

fn corner_14_listener_looked_at_without_waiting(family: Family) {
    let (listening, address) = listener(family);
    let connected = Baton::new();
    let child = fork_child(|| {
        let client = connect_to(address);
        connected.pass();
        expect_end(client);
    });
    connected.take();
    assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    assert_eq!(poll_one(listening, libc::POLLIN, 0), 0);
    sys::close(server).unwrap();
    child.join();
}

fn corner_14_write_of_more_than_any_memory(family: Family) {
    let (client, server) = pair(family);
    let bytes = [7_u8; 64];
    // SAFETY: the kernel refuses the length before it reads; NetChannel reads what there is at most.
    let written = unsafe { libc::write(client, bytes.as_ptr().cast(), usize::MAX) };
    assert_eq!((written, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    expect_alive(client, server);
}

fn corner_14_write_that_appends(family: Family) {
    let (client, server) = pair(family);
    let vector = libc::iovec {
        iov_base: b"appended".as_ptr().cast_mut().cast(),
        iov_len: 8,
    };
    for flags in [libc::RWF_APPEND, libc::RWF_NOAPPEND] {
        // SAFETY: the vector names bytes that live on.
        let written = unsafe { libc::pwritev2(client, &raw const vector, 1, -1, flags) };
        assert_eq!(written, 8);
        expect_bytes(server, b"appended");
    }
    let both = libc::RWF_APPEND | libc::RWF_NOAPPEND;
    // SAFETY: as above.
    let refused = unsafe { libc::pwritev2(client, &raw const vector, 1, -1, both) };
    assert_eq!((refused, sys::last_errno()), (-1, Errno(libc::EINVAL)));
    expect_quiet(server, libc::POLLIN);
}
