//! `TCP_DEFER_ACCEPT`: calls by which a client says nothing, and which announce it to nobody.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_14_faults::forbidden;
use crate::deferred::{LONG, accept_saying, deferring, expect_none, nonblocking_deferring};

cases! {
    families: [
        deferred_silent_questions,
        deferred_silent_files,
        deferred_silent_faults,
        deferred_silent_fast_opens,
        deferred_silent_reader_beside_a_writer,
        deferred_silent_poller_beside_a_writer,
        deferred_silent_reader_is_shut,
    ];
}

const NOW: libc::c_int = libc::MSG_DONTWAIT;
const SIOCATMARK: libc::Ioctl = 0x8905;
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

fn expect_silent(family: Family, ask: impl FnOnce(Descriptor)) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    ask(client);
    expect_quiet(listening, libc::POLLIN);
    expect_none(listening);
    send_all(client, b"now");
    let server = accept_saying(listening, b"now");
    expect_alive(client, server);
}

fn deferred_silent_questions(family: Family) {
    expect_silent(family, |client| {
        for request in [SIOCATMARK, SIOCOUTQNSD, libc::TIOCOUTQ, libc::FIONREAD] {
            assert_eq!(sys::ioctl_int(client, request, -1), Ok(0));
        }
        assert_eq!(sys::listen(client, 1), Err(Errno(libc::EINVAL)));
        assert_eq!(sys::shutdown(client, 77), Err(Errno(libc::EINVAL)));
        assert_eq!(sys::send(client, b"", 0), Ok(0));
        assert_eq!(sys::read(client, &mut []), Ok(0));
        assert_eq!(sys::readv(client, &mut [&mut [], &mut []]), Ok(0));
        for flags in [0, libc::MSG_WAITALL] {
            assert_eq!(sys::recvmmsg(client, &mut [], flags), Ok(Vec::new()));
        }
    });
}

fn deferred_silent_files(family: Family) {
    let [reader, _writer] = sys::pipe(libc::O_CLOEXEC).unwrap();
    let empty = std::fs::File::open("/dev/null").unwrap();
    expect_silent(family, |client| {
        let refused = sys::sendfile(client, reader, Some(&mut 1), 100);
        assert_eq!(refused, Err(Errno(libc::ESPIPE)));
        let refused = sys::sendfile(client, -1, None, 100);
        assert_eq!(refused, Err(Errno(libc::EBADF)));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(sys::sendfile(client, file.as_raw_fd(), None, 0), Ok(0));
        let refused = sys::sendfile(client, empty.as_raw_fd(), None, 10);
        assert_eq!(refused, Err(Errno(libc::EINVAL)));
        let end = i64::try_from(file.metadata().unwrap().len()).unwrap();
        let sent = sys::sendfile(client, file.as_raw_fd(), Some(&mut end.clone()), 10);
        assert_eq!(sent, Ok(0));
    });
}

/// A send that would connect, too, is refused where the program knows that it is connected.
fn deferred_silent_fast_opens(family: Family) {
    let connected = Err(Errno(libc::EISCONN));
    expect_silent(family, |client| {
        assert_eq!(sys::send(client, b"x", libc::MSG_FASTOPEN), connected);
        assert_eq!(sys::send(client, b"", libc::MSG_FASTOPEN), connected);
        let sent = sys::send_vector(client, &[b"x", b"y"], libc::MSG_FASTOPEN);
        assert_eq!(sent, connected);
    });
    for first in [&b""[..], b"one"] {
        let (listening, address) = nonblocking_deferring(family, LONG);
        let client = tcp_nonblocking(family);
        let begun = sys::connect(client, address);
        assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
        await_events(client, libc::POLLOUT);
        // The first one learns that it is.
        let sent = sys::send(client, first, libc::MSG_FASTOPEN);
        assert_eq!(sent, Ok(first.len()));
        assert_eq!(sys::send(client, b"two", libc::MSG_FASTOPEN), connected);
        send_all(client, b"now");
        let said = [first, b"now"].concat();
        expect_alive(client, accept_saying(listening, &said));
    }
}

fn deferred_silent_faults(family: Family) {
    let bad = forbidden();
    let mut vector = libc::iovec {
        iov_base: bad.cast(),
        iov_len: 3,
    };
    let mut message = sys::empty_message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    let mut messages = [libc::mmsghdr {
        msg_hdr: message,
        msg_len: 0,
    }];
    let fault = |answer: isize| assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    // SAFETY: nothing is mapped at bad; all else is a local.
    expect_silent(family, |client| unsafe {
        fault(libc::send(client, bad.cast(), 3, NOW));
        fault(libc::write(client, bad.cast(), 3));
        fault(libc::writev(client, bad.cast(), 3));
        fault(libc::writev(client, &raw const vector, 1));
        fault(libc::pwritev2(client, &raw const vector, 1, -1, 0));
        fault(libc::sendmsg(client, bad.cast(), NOW));
        fault(libc::sendmsg(client, &raw const message, NOW));
        fault(libc::sendto(
            client,
            b"x".as_ptr().cast(),
            1,
            NOW,
            bad.cast(),
            16,
        ));
        let sent = libc::sendmmsg(client, messages.as_mut_ptr(), 1, NOW);
        fault(isize::try_from(sent).unwrap());
        assert_eq!(libc::write(client, bad.cast(), 0), 0);
        let later = libc::preadv2(client, &raw const vector, 1, -1, libc::RWF_NOWAIT);
        assert_eq!((later, sys::last_errno()), (-1, Errno(libc::EAGAIN)));
    });
}

/// Less than the time after which a silent client is looked at.
const SOON: Duration = Duration::from_millis(500);

/// A client of which one thread does `wait` while another one speaks, with a server that answers.
fn beside_a_writer(family: Family, wait: fn(Descriptor)) {
    let (listening, address) = deferring(family, LONG);
    expect_within(SOON, || {
        let client = connect_to(address);
        let (thread, task) = start_thread(move || wait(client));
        await_asleep(task);
        send_all(client, b"now");
        let server = accept_saying(listening, b"now");
        send_all(server, b"answer");
        let answered = Instant::now();
        join_thread(thread);
        let waited = answered.elapsed();
        expect_alive(client, server);
        waited
    });
}

fn deferred_silent_reader_beside_a_writer(family: Family) {
    beside_a_writer(family, |client| expect_bytes(client, b"answer"));
    // With a time-out.
    beside_a_writer(family, |client| {
        sys::set_option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, [9_i64, 0]).unwrap();
        expect_bytes(client, b"answer");
    });
}

fn deferred_silent_poller_beside_a_writer(family: Family) {
    beside_a_writer(family, |client| {
        assert_eq!(await_events(client, libc::POLLIN), libc::POLLIN);
        expect_bytes(client, b"answer");
    });
    beside_a_writer(family, |client| {
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 7).unwrap();
        let told = sys::epoll_wait(set, 8, PATIENCE_MILLISECONDS).unwrap();
        assert_eq!(told.len(), 1);
        expect_bytes(client, b"answer");
    });
}

fn deferred_silent_reader_is_shut(family: Family) {
    for how in [libc::SHUT_RD, libc::SHUT_RDWR] {
        let (_listening, address) = deferring(family, LONG);
        expect_within(SOON, || {
            let client = connect_to(address);
            let (thread, task) = start_thread(move || sys::recv(client, &mut [0; 8], 0));
            await_asleep(task);
            let shut = Instant::now();
            sys::shutdown(client, how).unwrap();
            assert_eq!(join_thread(thread), Ok(0));
            shut.elapsed()
        });
    }
}
