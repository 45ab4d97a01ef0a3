//! What a call of a sender or a receiver did.

use netchannel_testkit::support::{Random, set_int};
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes were moved, or another call may move some.
    Moved,
    /// No progress is possible now.
    Wait,
    /// All bytes are sent, or the stream has ended.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// Gives the calls of a blocking socket a time limit, `option`, or takes it back. Returns whether they have one.
pub fn set_time_limit(socket: Descriptor, option: libc::c_int, random: &mut Random) -> bool {
    let flags = sys::fcntl(socket, libc::F_GETFL, 0).expect("F_GETFL");
    let limited = flags & libc::O_NONBLOCK == 0 && random.once_in(2);
    let microseconds = if limited { random.between(1, 3_000) } else { 0 };
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: i64::try_from(microseconds).unwrap_or(0),
    };
    sys::set_option(socket, libc::SOL_SOCKET, option, limit).expect("setsockopt");
    limited
}

/// Changes an option that no byte may depend on. A broken connection takes it, too.
pub fn change_an_option(socket: Descriptor, random: &mut Random) {
    const TCP: libc::c_int = libc::IPPROTO_TCP;
    // In steps of less than a few segments of the loopback device kernel TCP waits for delayed acknowledgements.
    let size = random.between(200_000, 400_000);
    let size = libc::c_int::try_from(size).unwrap_or(0);
    match random.below(4) {
        0 => {
            let flags = sys::fcntl(socket, libc::F_GETFL, 0).expect("F_GETFL");
            sys::fcntl(socket, libc::F_SETFL, flags ^ libc::O_ASYNC).expect("F_SETFL");
        }
        1 => {
            let on = libc::c_int::from(random.once_in(2));
            set_int(socket, TCP, libc::TCP_NODELAY, on);
        }
        2 => set_int(socket, TCP, libc::TCP_NOTSENT_LOWAT, size),
        _ => set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, size),
    }
}

/// Leaves urgent bytes in the streams of a socket, and of what a listener accepts.
pub fn keep_urgent_bytes(socket: Descriptor) {
    set_int(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
}

/// A new connection has nothing of what was changed at an earlier one, but what its listener hands down
/// (`SO_OOBINLINE`).
pub fn expect_as_new(socket: Descriptor, inline: libc::c_int) {
    use libc::{IPPROTO_TCP as TCP, SOL_SOCKET as SOCKET};
    assert_eq!(sys::fcntl(socket, libc::F_GETFL, 0), Ok(libc::O_RDWR));
    for (level, name, new) in [
        (SOCKET, libc::SO_RCVLOWAT, 1),
        (SOCKET, libc::SO_KEEPALIVE, 0),
        (SOCKET, libc::SO_OOBINLINE, inline),
        (TCP, libc::TCP_NODELAY, 0),
        (TCP, libc::TCP_CORK, 0),
        (TCP, libc::TCP_NOTSENT_LOWAT, 0),
    ] {
        let value = sys::option_int(socket, level, name);
        assert_eq!(value, Ok(new), "option {level}, {name}");
    }
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let value = sys::option::<[i64; 2]>(socket, SOCKET, name);
        assert_eq!(value, Ok([0; 2]), "option {SOCKET}, {name}");
    }
    let lingers = sys::option::<[i32; 2]>(socket, SOCKET, libc::SO_LINGER);
    assert_eq!(lingers, Ok([0; 2]));
}

/// Whether `poll` tells of the event at once. A signal may come in its place.
pub fn is_ready(fd: Descriptor, events: libc::c_short) -> bool {
    let mut entry = [libc::pollfd {
        fd,
        events,
        revents: 0,
    }];
    sys::poll(&mut entry, 0).is_ok() && entry[0].revents & events != 0
}

/// Waits in `poll` without end. A signal may end the wait.
pub fn wait_in_poll(fd: Descriptor, events: u32) {
    let entry = libc::pollfd {
        fd,
        events: libc::c_short::try_from(events).expect("a small number"),
        revents: 0,
    };
    expect_woken(sys::poll(&mut [entry], -1).map(drop));
}

/// Waits in a set without end. A signal may end the wait.
pub fn wait_in_set(set: Descriptor) {
    expect_woken(sys::epoll_wait(set, 1, -1).map(drop));
}

fn expect_woken(waited: Outcome<()>) {
    assert!(
        matches!(waited, Ok(()) | Err(Errno(libc::EINTR))),
        "{waited:?}"
    );
}

impl Step {
    /// The step of a call that failed.
    pub fn of(errno: Errno) -> Self {
        match errno.0 {
            libc::EAGAIN => Self::Wait,
            libc::EINTR => Self::Moved,
            _ => Self::Broken(errno),
        }
    }
}
