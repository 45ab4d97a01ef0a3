//! Corner 14: flags of the calls, counts of queued bytes, vectors, buffers that fault.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::registry::cases;

cases! {
    families: [
        corner_14_peek,
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
        corner_14_vectors,
        corner_14_vectors_with_zero_entries,
        corner_14_vectors_partial,
        corner_14_vectors_too_many,
        corner_14_sendmsg_recvmsg,
        corner_14_sendmmsg_recvmmsg,
        corner_14_recvfrom_leaves_no_address,
        corner_14_sendto_ignores_the_address,
        corner_14_preadv2_pwritev2,
        corner_14_pread_pwrite_lseek_fail,
        corner_14_fault_in_recv,
        corner_14_fault_in_recv_with_data_keeps_it,
        corner_14_fault_in_send,
        corner_14_fault_in_vectors,
        corner_14_fault_in_other_arguments,
        corner_14_nonblocking_by_fcntl_and_ioctl,
        corner_14_nonblocking_shared_by_dup,
        corner_14_nonblocking_shared_over_fork,
        corner_14_nonblocking_not_inherited_by_accept,
        corner_14_msg_more,
        corner_14_bad_flags_and_numbers,
    ];
}

fn send_and_wait(from: Descriptor, to: Descriptor, bytes: &[u8]) {
    send_all(from, bytes);
    let all = libc::c_int::try_from(bytes.len()).unwrap();
    eventually("all is there", || {
        sys::ioctl_int(to, libc::FIONREAD, 0).unwrap() >= all
    });
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
    // More than any buffer between the two holds.
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
    // It is for the one call only.
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
    // For TCP, MSG_TRUNC throws away what it would have copied.
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
    // Without data, recv waits even for nothing.
    let answer = sys::recv(client, &mut [], libc::MSG_DONTWAIT);
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    expect_alive(client, server);
}

fn corner_14_vectors(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::writev(server, &[b"ab", b"cde", b"f"]), Ok(6));
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(6)
    });
    let (mut one, mut two, mut three) = ([0_u8; 1], [0_u8; 4], [b'-'; 4]);
    assert_eq!(
        sys::readv(client, &mut [&mut one, &mut two, &mut three]),
        Ok(6)
    );
    assert_eq!((&one, &two, &three), (b"a", b"bcde", b"f---"));
    let parts: Vec<Vec<u8>> = (0..100).map(|index| pattern(index * 333, 333)).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let (reader, _) = start_thread(move || expect_pattern(client, 0, 33_300));
    assert_eq!(sys::writev(server, &slices), Ok(33_300));
    join_thread(reader);
}

fn corner_14_vectors_with_zero_entries(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(
        sys::writev(server, &[b"", b"ab", b"", b"", b"cd", b""]),
        Ok(4)
    );
    assert_eq!(sys::send_vector(server, &[b"", b"ef", b""], 0), Ok(2));
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(6)
    });
    let (mut one, mut two) = ([0_u8; 3], [0_u8; 9]);
    assert_eq!(
        sys::readv(client, &mut [&mut [], &mut one, &mut [], &mut two]),
        Ok(6)
    );
    assert_eq!((&one, &two[..3]), (b"abc", &b"def"[..]));
    assert_eq!(sys::writev(server, &[b"", b""]), Ok(0));
    expect_quiet(client, libc::POLLIN);
    // An entry of length zero may point anywhere.
    let message = b"xyz";
    let vector = [
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut(8),
            iov_len: 0,
        },
        sys::entry(message),
    ];
    // SAFETY: the first entry is empty, the second valid.
    let written = unsafe { libc::writev(server, vector.as_ptr(), 2) };
    assert_eq!(written, 3);
    expect_bytes(client, b"xyz");
}

fn corner_14_vectors_partial(family: Family) {
    let (client, server) = small_pair(family);
    set_nonblocking(client);
    let parts: Vec<Vec<u8>> = (0..64)
        .map(|index| pattern(index * 50_000, 50_000))
        .collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let sent = sys::writev(client, &slices).unwrap();
    assert!(sent > 0 && sent < 64 * 50_000, "{sent}");
    expect_pattern(server, 0, sent);
    let again = sys::send_vector(client, &slices, libc::MSG_NOSIGNAL).unwrap();
    assert!(again > 0 && again < 64 * 50_000, "{again}");
    expect_pattern(server, 0, again);
}

fn corner_14_vectors_too_many(family: Family) {
    let (client, server) = pair(family);
    let parts: Vec<&[u8]> = vec![b"x"; 1025];
    assert_eq!(sys::writev(server, &parts), Err(Errno(libc::EINVAL)));
    assert_eq!(
        sys::send_vector(server, &parts, 0),
        Err(Errno(libc::EMSGSIZE))
    );
    assert_eq!(sys::writev(server, &parts[..1024]), Ok(1024));
    assert_eq!(receive_exact(client, 1024), vec![b'x'; 1024]);
    // SAFETY: the count is refused before anything is read.
    let answer = unsafe { libc::readv(client, std::ptr::null(), -1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EINVAL)));
}

fn corner_14_sendmsg_recvmsg(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::send_vector(server, &[b"hello ", b"world"], 0), Ok(11));
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(11)
    });
    let (mut one, mut two) = ([0_u8; 6], [0_u8; 20]);
    let peek = sys::recv_vector(client, &mut [&mut one, &mut two], libc::MSG_PEEK);
    assert_eq!(peek, Ok((11, 0)));
    let answer = sys::recv_vector(client, &mut [&mut one, &mut two], 0);
    assert_eq!(answer, Ok((11, 0)));
    assert_eq!((&one, &two[..5]), (b"hello ", &b"world"[..]));
    // A name and control data: nothing comes back in either.
    send_and_wait(server, client, b"x");
    let mut vector = [sys::entry_mut(&mut one)];
    let mut name = sys::RawAddress::empty();
    let mut control = [0_u64; 16];
    let mut message = sys::empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = 1;
    message.msg_name = (&raw mut name.storage).cast();
    message.msg_namelen = name.length;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all of it is valid for its length.
    assert_eq!(unsafe { sys::recvmsg(client, &mut message, 0) }, Ok(1));
    assert_eq!(
        (
            message.msg_namelen,
            message.msg_controllen,
            message.msg_flags
        ),
        (0, 0, 0)
    );
}

fn corner_14_sendmmsg_recvmmsg(family: Family) {
    let (client, server) = pair(family);
    let sent = sys::sendmmsg(server, &[b"ab", b"cde", b"f"], 0);
    assert_eq!(sent, Ok(vec![2, 3, 1]));
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(6)
    });
    let (mut one, mut two, mut three) = ([0_u8; 4], [0_u8; 4], [0_u8; 4]);
    let flags = libc::MSG_DONTWAIT;
    let received = sys::recvmmsg(client, &mut [&mut one, &mut two, &mut three], flags);
    assert_eq!(received, Ok(vec![4, 2]));
    assert_eq!((&one, &two[..2]), (b"abcd", &b"ef"[..]));
    let received = sys::recvmmsg(client, &mut [&mut one], flags);
    assert_eq!(received, Err(Errno(libc::EAGAIN)));
}

fn corner_14_recvfrom_leaves_no_address(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    let mut bytes = [0_u8; 8];
    assert_eq!(sys::recvfrom(client, &mut bytes, 0), Ok((3, 0)));
}

fn corner_14_sendto_ignores_the_address(family: Family) {
    let (client, server) = pair(family);
    let sent = sys::sendto(client, b"abc", 0, family.loopback(9));
    assert_eq!(sent, Ok(3));
    expect_bytes(server, b"abc");
}

fn corner_14_preadv2_pwritev2(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::pwritev2(server, &[b"ab", b"c"], 0), Ok(3));
    await_events(client, libc::POLLIN);
    let mut bytes = [0_u8; 8];
    assert_eq!(sys::preadv2(client, &mut [&mut bytes], 0), Ok(3));
    assert_eq!(&bytes[..3], b"abc");
    let answer = sys::preadv2(client, &mut [&mut bytes], libc::RWF_NOWAIT);
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
}

fn corner_14_pread_pwrite_lseek_fail(family: Family) {
    let (client, _server) = pair(family);
    assert_eq!(
        sys::pread(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ESPIPE))
    );
    assert_eq!(sys::pwrite(client, b"x", 0), Err(Errno(libc::ESPIPE)));
    assert_eq!(
        sys::lseek(client, 0, libc::SEEK_CUR),
        Err(Errno(libc::ESPIPE))
    );
}

/// Memory that can not be touched.
fn forbidden() -> *mut u8 {
    // SAFETY: an anonymous mapping of one page.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            65_536,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

fn corner_14_fault_in_recv(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    for pointer in [
        forbidden(),
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut(8),
    ] {
        // SAFETY: nothing is mapped there.
        let answer = unsafe { sys::recv_raw(client, pointer, 3, 0) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
        // SAFETY: nothing is mapped there.
        let answer = unsafe { libc::read(client, pointer.cast(), 3) };
        assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    }
    expect_alive(server, {
        expect_bytes(client, b"abc");
        client
    });
}

fn corner_14_fault_in_recv_with_data_keeps_it(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, &pattern(0, 20_000));
    let bad = forbidden();
    // SAFETY: nothing is mapped there.
    let answer = unsafe { sys::recv_raw(client, bad, 20_000, libc::MSG_PEEK) };
    assert_eq!(answer, Err(Errno(libc::EFAULT)));
    expect_pattern(client, 0, 20_000);
    expect_alive(client, server);
}

fn corner_14_fault_in_send(family: Family) {
    let (client, server) = pair(family);
    for pointer in [
        forbidden(),
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut(8),
    ] {
        // SAFETY: nothing is mapped there.
        let answer = unsafe { sys::send_raw(client, pointer, 3, libc::MSG_NOSIGNAL) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
        // SAFETY: nothing is mapped there.
        let answer = unsafe { libc::write(client, pointer.cast(), 3) };
        assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    }
    expect_quiet(server, libc::POLLIN);
    expect_alive(client, server);
}

fn corner_14_fault_in_vectors(family: Family) {
    let (client, server) = pair(family);
    let bad = forbidden();
    let vector = [libc::iovec {
        iov_base: bad.cast(),
        iov_len: 10,
    }];
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::writev(client, vector.as_ptr(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::writev(client, bad.cast(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    send_and_wait(server, client, b"abc");
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::readv(client, vector.as_ptr(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::recvmsg(client, bad.cast(), 0) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    expect_bytes(client, b"abc");
    expect_quiet(server, libc::POLLIN);
    expect_alive(client, server);
}

fn corner_14_fault_in_other_arguments(family: Family) {
    let (client, server) = pair(family);
    let bad = forbidden();
    let mut length: libc::socklen_t = 128;
    // SAFETY: nothing is mapped at bad.
    let answers = unsafe {
        [
            libc::getsockname(client, bad.cast(), &raw mut length),
            libc::getpeername(client, bad.cast(), &raw mut length),
            libc::getsockopt(
                client,
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                bad.cast(),
                &raw mut length,
            ),
            libc::setsockopt(client, libc::SOL_SOCKET, libc::SO_KEEPALIVE, bad.cast(), 4),
            libc::ioctl(client, libc::FIONBIO, bad),
            libc::ioctl(client, libc::FIONREAD, bad),
            libc::poll(bad.cast(), 1, 0),
        ]
    };
    assert_eq!(answers, [-1; 7]);
    assert_eq!(sys::last_errno(), Errno(libc::EFAULT));
    // SAFETY: nothing is mapped at bad.
    let answer = unsafe { libc::connect(tcp(family), bad.cast(), 16) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    expect_alive(client, server);
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

fn corner_14_bad_flags_and_numbers(family: Family) {
    let mut bytes = [0_u8; 4];
    assert_eq!(sys::recv(-1, &mut bytes, 0), Err(Errno(libc::EBADF)));
    assert_eq!(sys::send(1_000_000, b"x", 0), Err(Errno(libc::EBADF)));
    let [reader, _writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::recv(reader, &mut bytes, 0), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(sys::listen(reader, 1), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(sys::accept(reader), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(
        sys::shutdown(reader, libc::SHUT_WR),
        Err(Errno(libc::ENOTSOCK))
    );
    assert_eq!(sys::getpeername(reader), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(
        sys::connect(reader, family.loopback(1)),
        Err(Errno(libc::ENOTSOCK))
    );
    let bad_protocol = sys::socket(family.domain(), libc::SOCK_STREAM, libc::IPPROTO_UDP);
    assert_eq!(bad_protocol, Err(Errno(libc::EPROTONOSUPPORT)));
    let (client, server) = pair(family);
    // Nothing out of band is there.
    assert_eq!(
        sys::recv(client, &mut bytes, libc::MSG_OOB),
        Err(Errno(libc::EINVAL))
    );
    let queue = sys::recv(client, &mut bytes, libc::MSG_ERRQUEUE);
    assert_eq!(queue, Err(Errno(libc::EAGAIN)));
    assert_eq!(
        sys::ioctl_int(client, libc::TCGETS, 0),
        Err(Errno(libc::ENOTTY))
    );
    expect_alive(client, server);
}
