//! Corner 14, vectors, messages and addresses with them.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::helpers::{nothing, send_and_wait};

cases! {
    families: [
        corner_14_vectors_of_several_threads,
        corner_14_vectors,
        corner_14_vectors_with_zero_entries,
        corner_14_vectors_partial,
        corner_14_vectors_too_many,
        corner_14_vectors_leave_an_error,
        corner_14_sendmsg_recvmsg,
        corner_14_sendmmsg_recvmmsg,
        corner_14_sendmmsg_ends_with_a_part,
        corner_14_recvmmsg_leaves_an_error,
        corner_14_recvfrom_leaves_no_address,
        corner_14_sendto_ignores_the_address,
        corner_14_preadv2_pwritev2,
        corner_14_pread_pwrite_lseek_fail,
        corner_14_preadv2_without_a_signal,
    ];
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
    // Between hosts the room is known a little after it was made.
    await_events(client, libc::POLLOUT);
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

/// What a call finds after it has received something, in a later buffer, the next call reports.
fn corner_14_vectors_leave_an_error(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(client, server, b"x");
    assert_eq!(sys::send(client, b"held", libc::MSG_MORE), Ok(4));
    // The end lets go of what is held back, which meets a reset.
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    eventually("the reset", || poll_one(server, 0, 0) & libc::POLLERR != 0);
    let (mut one, mut two) = ([0_u8; 1], [0_u8; 4]);
    assert_eq!(sys::readv(server, &mut [&mut one, &mut two]), Ok(1));
    let received = sys::recv(server, &mut [0; 4], 0);
    assert_eq!(received, Err(Errno(libc::ECONNRESET)));
    assert_eq!(sys::recv(server, &mut [0; 4], 0), Ok(0));
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
    // A name and control data: neither is returned.
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

/// Of a message that is sent in part, the rest comes before the next message, however much room there is by then.
fn corner_14_sendmmsg_ends_with_a_part(family: Family) {
    let (client, server) = pair(family);
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
    let (sender, task) = start_thread(move || {
        let large = vec![b'x'; 32 << 20];
        sys::sendmmsg(server, &[b"first", &large, b"last"], 0)
    });
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    let sent = join_thread(sender).unwrap();
    assert_eq!((sent.len(), sent[0]), (2, 5));
    assert!(sent[1] < 32 << 20);
    sys::close(server).unwrap();
    let total = u64::from(sent[0] + sent[1]);
    assert_eq!(receive_to_end(client).len() as u64, total);
}

/// An error behind the first message is returned by the next call, after the bytes, and not where the connection has
/// ended.
fn corner_14_recvmmsg_leaves_an_error(family: Family) {
    for killed in [false, true] {
        let (client, server) = pair(family);
        let child = fork_child(|| {
            sys::close(server).unwrap();
            send_all(client, b"abc");
            loop {
                std::thread::park();
            }
        });
        sys::close(client).unwrap();
        await_events(server, libc::POLLIN);
        if killed {
            child.kill();
            await_events(server, libc::POLLRDHUP);
        }
        let mut byte = 0_u8;
        let bad = std::ptr::without_provenance_mut(8);
        let mut parts = [(&raw mut byte).cast(), bad].map(|iov_base| libc::iovec {
            iov_base,
            iov_len: 1,
        });
        let mut messages = [0, 1].map(|index| {
            let mut header = sys::empty_message();
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            libc::mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            }
        });
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: two messages; the kernel refuses the bad second one.
        let got = unsafe {
            libc::recvmmsg(
                server,
                messages.as_mut_ptr(),
                2,
                flags,
                std::ptr::null_mut(),
            )
        };
        assert_eq!((got, byte), (1, b'a'));
        expect_bytes(server, b"bc");
        let then = if killed {
            Ok(0)
        } else {
            Err(Errno(libc::EFAULT))
        };
        assert_eq!(sys::recv(server, &mut [0_u8; 4], flags), then);
        if !killed {
            child.kill();
        }
        sys::close(server).unwrap();
    }
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

/// `RWF_NOSIGNAL`, which kernels before 6.18 do not know.
fn corner_14_preadv2_without_a_signal(family: Family) {
    const NO_SIGNAL: libc::c_int = 0x100;
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    let answer = sys::preadv2(client, &mut [&mut [0_u8; 8]], NO_SIGNAL);
    assert!(
        answer == Ok(3) || answer == Err(Errno(libc::EOPNOTSUPP)),
        "{answer:?}"
    );
}

/// What one call sends or receives belongs together, whatever other threads send or receive at the same time.
fn corner_14_vectors_of_several_threads(family: Family) {
    const SIZE: usize = 6000;
    const COUNT: usize = 8;
    for _ in 0..20 {
        let (client, server) = pair(family);
        let senders = [b'a', b'b'].map(|byte| {
            start_thread(move || {
                let bytes = [byte; SIZE];
                let (first, second) = bytes.split_at(2500);
                for _ in 0..COUNT {
                    assert_eq!(sys::writev(client, &[first, second]), Ok(SIZE));
                }
            })
        });
        let all = receive_exact(server, 2 * COUNT * SIZE);
        let torn = all
            .chunks(SIZE)
            .position(|call| call.iter().any(|byte| *byte != call[0]));
        assert_eq!(torn, None);
        senders
            .into_iter()
            .for_each(|(thread, _)| join_thread(thread));
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
}
