//! getsockopt, setsockopt.

use std::ptr::null_mut;

use libc::{c_void, socklen_t};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use super::{NOT_OPEN, expect, nothing, null_device, result_of};
use crate::case::cases;

cases! {
    families: [
        ltp_getsockopt01,
        ltp_setsockopt01,
        ltp_setsockopt04,
    ];
}

fn ltp_getsockopt01(family: Family) {
    let socket = tcp(family);
    sys::bind(socket, family.any(0)).expect("bind");
    let mut value = 0;
    let at: *mut c_void = (&raw mut value).cast::<c_void>();
    let mut size: socklen_t = 4;
    let length = &raw mut size;
    let ask = |socket, level, name, at, length| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::getsockopt(socket, level, name, at, length) })
    };
    let inline = libc::SO_OOBINLINE;
    expect(
        "getsockopt",
        &[
            (
                "not open",
                ask(NOT_OPEN, libc::SOL_SOCKET, inline, at, length),
                libc::EBADF,
            ),
            (
                "no socket",
                ask(null_device(), libc::SOL_SOCKET, inline, at, length),
                libc::ENOTSOCK,
            ),
            (
                "a bad place",
                ask(socket, libc::SOL_SOCKET, inline, nothing(), length),
                libc::EFAULT,
            ),
            (
                "a length nowhere",
                ask(socket, libc::SOL_SOCKET, inline, at, null_mut()),
                libc::EFAULT,
            ),
            (
                "none of TCP",
                ask(socket, libc::IPPROTO_TCP, -1, at, length),
                libc::ENOPROTOOPT,
            ),
        ],
    );
    let (internet, no_level) = if family == Family::V4 {
        (libc::IPPROTO_IP, libc::EOPNOTSUPP)
    } else {
        (libc::IPPROTO_IPV6, libc::ENOPROTOOPT)
    };
    expect(
        "getsockopt",
        &[
            (
                "none of IP",
                ask(socket, internet, -1, at, length),
                libc::ENOPROTOOPT,
            ),
            ("no level", ask(socket, 500, inline, at, length), no_level),
            (
                "none of UDP",
                ask(socket, libc::IPPROTO_UDP, inline, at, length),
                no_level,
            ),
        ],
    );
}

fn ltp_setsockopt01(family: Family) {
    let socket = tcp(family);
    sys::bind(socket, family.any(0)).expect("bind");
    let value = 0;
    let at = (&raw const value).cast::<c_void>();
    let set = |socket, level, name, at, length| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::setsockopt(socket, level, name, at, length) })
    };
    let inline = libc::SO_OOBINLINE;
    expect(
        "setsockopt",
        &[
            (
                "not open",
                set(NOT_OPEN, libc::SOL_SOCKET, inline, at, 4),
                libc::EBADF,
            ),
            (
                "no socket",
                set(null_device(), libc::SOL_SOCKET, inline, at, 4),
                libc::ENOTSOCK,
            ),
            (
                "a bad place",
                set(socket, libc::SOL_SOCKET, inline, nothing(), 4),
                libc::EFAULT,
            ),
            (
                "no length",
                set(socket, libc::SOL_SOCKET, inline, at, 0),
                libc::EINVAL,
            ),
            (
                "no level",
                set(socket, 500, inline, at, 4),
                libc::ENOPROTOOPT,
            ),
            (
                "none of UDP",
                set(socket, libc::IPPROTO_UDP, inline, at, 4),
                libc::ENOPROTOOPT,
            ),
            (
                "none of TCP",
                set(socket, libc::IPPROTO_TCP, -1, at, 4),
                libc::ENOPROTOOPT,
            ),
        ],
    );
}

/// A buffer that is too large by force is not a negative one.
fn ltp_setsockopt04(family: Family) {
    let socket = tcp(family);
    let forced = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, -1);
    if forced == Err(Errno(libc::EPERM)) {
        skip("SO_SNDBUFFORCE needs CAP_NET_ADMIN");
    }
    assert_eq!(forced, Ok(()));
    let size = sys::option_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF);
    assert!(matches!(size, Ok(1..)), "{size:?}");
}
