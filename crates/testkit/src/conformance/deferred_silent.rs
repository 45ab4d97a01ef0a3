//! `TCP_DEFER_ACCEPT`: calls by which a client says nothing, and which announce it to nobody.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_14_faults::forbidden;
use crate::deferred::{LONG, accept_saying, expect_none, nonblocking_deferring};

cases! {
    families: [
        deferred_silent_questions,
        deferred_silent_faults,
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
    });
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
