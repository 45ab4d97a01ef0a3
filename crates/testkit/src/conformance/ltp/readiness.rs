//! poll, ppoll, select, pselect, epoll.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use libc::{c_int, pollfd, timeval};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use super::{NOT_OPEN, expect, invalid_pointer, result_of};
use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        ltp_epoll_ctl01, ltp_epoll_ctl02, ltp_epoll_ctl03, ltp_epoll_ctl04, ltp_epoll_ctl05, ltp_epoll_pwait01, ltp_epoll_wait01,
        ltp_epoll_wait02, ltp_epoll_wait03, ltp_epoll_wait05, ltp_epoll_wait06, ltp_epoll_wait07, ltp_poll01, ltp_poll02,
        ltp_ppoll01, ltp_select01, ltp_select02, ltp_select03,
    ];
}

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
/// Shorter than a wait that has to last.
const SHORT: Duration = Duration::from_millis(20);

fn set_with(member: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().expect("epoll_create");
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 1).expect("epoll_ctl");
    set
}

fn reported(set: Descriptor) -> Vec<(u64, u32)> {
    let reported = sys::epoll_wait(set, 4, 0).expect("epoll_wait");
    reported.iter().map(|one| (one.data, one.events)).collect()
}

/// An added member is reported, a changed one is reported otherwise, and a removed one is not reported.
fn ltp_epoll_ctl01(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"x");
    let set = set_with(client, IN);
    assert_eq!(reported(set), [(1, IN)]);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, OUT, 2).expect("epoll_ctl");
    assert_eq!(reported(set), [(2, OUT)]);
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).expect("epoll_ctl");
    assert_eq!(reported(set), []);
}

fn control(set: Descriptor, how: c_int, member: Descriptor) -> Result<i64, Errno> {
    sys::epoll_control(set, how, member, IN, 1).map(|()| 0)
}

fn ltp_epoll_ctl02(family: Family) {
    let (client, _server) = pair(family);
    let set = set_with(client, IN);
    let stranger = tcp(family);
    let nothing = |how| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::epoll_ctl(set, how, stranger, null_mut()) })
    };
    let (add, del, change) = (
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_DEL,
        libc::EPOLL_CTL_MOD,
    );
    expect(
        "epoll_ctl",
        &[
            ("no set", control(NOT_OPEN, add, client), libc::EBADF),
            (
                "a socket for a set",
                control(client, add, stranger),
                libc::EINVAL,
            ),
            ("not open", control(set, add, NOT_OPEN), libc::EBADF),
            ("no operation", control(set, 99, client), libc::EINVAL),
            ("itself", control(set, add, set), libc::EINVAL),
            ("no event", nothing(add), libc::EFAULT),
            (
                "no member is taken out",
                control(set, del, stranger),
                libc::ENOENT,
            ),
            (
                "no member is changed",
                control(set, change, stranger),
                libc::ENOENT,
            ),
            ("a member is added", control(set, add, client), libc::EEXIST),
        ],
    );
}

/// Any events may be asked for.
fn ltp_epoll_ctl03(family: Family) {
    let (client, _server) = pair(family);
    let set = set_with(client, 0);
    for bits in 0..64_u32 {
        let bit = |index: u32, event: c_int| if bits >> index & 1 == 1 { event } else { 0 };
        let events = bit(0, libc::EPOLLIN)
            | bit(1, libc::EPOLLOUT)
            | bit(2, libc::EPOLLPRI)
            | bit(3, libc::EPOLLRDHUP)
            | bit(4, libc::EPOLLET)
            | bit(5, libc::EPOLLONESHOT);
        let events = events.cast_unsigned();
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, events, 1).expect("epoll_ctl");
        let shown = reported(set);
        let expected = events & OUT;
        assert_eq!(
            shown.first().map_or(0, |one| one.1),
            expected,
            "{events:#x}"
        );
    }
}

/// Sets within sets, as deep as they may be.
fn ltp_epoll_ctl04(_: Family) {
    let [reads, _writes] = sys::pipe(0).expect("pipe");
    let mut set = set_with(reads, IN);
    for _ in 0..4 {
        set = set_with(set, IN);
    }
    let outer = sys::epoll_create().expect("epoll_create");
    let deeper = control(outer, libc::EPOLL_CTL_ADD, set);
    assert_eq!(deeper, Err(Errno(libc::ELOOP)));
}

/// Sets cannot form a circle.
fn ltp_epoll_ctl05(family: Family) {
    let (client, _server) = pair(family);
    let first = set_with(client, IN);
    let mut set = first;
    for _ in 0..3 {
        set = set_with(set, IN);
    }
    assert_eq!(
        control(first, libc::EPOLL_CTL_ADD, set),
        Err(Errno(libc::ELOOP))
    );
}

/// An unblocked signal ends the wait, a blocked one does not.
fn ltp_epoll_pwait01(family: Family) {
    extern "C" fn on_signal(_: c_int) {}
    sys::handle_signal(libc::SIGUSR1, on_signal, 0).expect("sigaction");
    let (client, _server) = pair(family);
    let set = set_with(client, IN);
    sys::block_signals(&[libc::SIGUSR1]);
    sys::signal_self(libc::SIGUSR1);
    let (none, all) = (sys::signal_set(&[]), sys::signal_set(&[libc::SIGUSR1]));
    assert_eq!(sys::epoll_pwait(set, 4, 10, &all), Ok(vec![]));
    let ended = sys::epoll_pwait(set, 4, PATIENCE_MILLISECONDS, &none);
    assert_eq!(ended, Err(Errno(libc::EINTR)));
}

/// Room, bytes, both.
fn ltp_epoll_wait01(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | OUT);
    assert_eq!(reported(set), [(1, OUT)]);
    send_and_wait(server, client, b"x");
    assert_eq!(reported(set), [(1, IN | OUT)]);
    set_nonblocking(client);
    let _ = fill(client);
    assert_eq!(reported(set), [(1, IN)]);
}

/// The wait lasts as long as its time-out.
fn ltp_epoll_wait02(family: Family) {
    let (client, _server) = pair(family);
    let set = set_with(client, IN);
    let start = Instant::now();
    assert_eq!(sys::epoll_wait(set, 4, 30), Ok(vec![]));
    assert!(start.elapsed() >= SHORT);
}

fn ltp_epoll_wait03(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"x");
    let set = set_with(client, IN);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    let at = events.as_mut_ptr();
    let wait = |set, at, room| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::epoll_wait(set, at, room, 0) })
    };
    expect(
        "epoll_wait",
        &[
            ("not open", wait(NOT_OPEN, at, 1), libc::EBADF),
            ("no set", wait(client, at, 1), libc::EINVAL),
            ("no room", wait(set, at, 0), libc::EINVAL),
            ("negative room", wait(set, at, -1), libc::EINVAL),
            ("nowhere", wait(set, invalid_pointer(), 1), libc::EFAULT),
        ],
    );
    assert_eq!(wait(set, at, 2), Ok(1));
}

/// The end of the peer is reported to a set that asks for it.
fn ltp_epoll_wait05(family: Family) {
    let (client, server) = pair(family);
    let hang_up = libc::EPOLLRDHUP.cast_unsigned();
    let set = set_with(client, hang_up);
    assert_eq!(reported(set), []);
    sys::close(server).expect("close");
    let ended = sys::epoll_wait(set, 4, PATIENCE_MILLISECONDS).expect("epoll_wait");
    assert_eq!(ended.first().map(|one| one.events), Some(hang_up));
}

/// An edge is reported once, and again after new bytes have arrived.
fn ltp_epoll_wait06(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | libc::EPOLLET.cast_unsigned());
    send_and_wait(server, client, b"ab");
    assert_eq!(reported(set), [(1, IN)]);
    assert_eq!(reported(set), []);
    expect_bytes(client, b"a");
    assert_eq!(reported(set), []);
    send_and_wait(server, client, b"c");
    let again = sys::epoll_wait(set, 4, PATIENCE_MILLISECONDS).expect("epoll_wait");
    assert_eq!(again.len(), 1);
    expect_bytes(client, b"bc");
}

/// A one-shot event is reported once, until the member is armed again.
fn ltp_epoll_wait07(family: Family) {
    let (client, server) = pair(family);
    let once = IN | libc::EPOLLONESHOT.cast_unsigned();
    let set = set_with(client, once);
    send_and_wait(server, client, b"x");
    assert_eq!(reported(set), [(1, IN)]);
    send_and_wait(server, client, b"y");
    assert_eq!(reported(set), []);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, once, 1).expect("epoll_ctl");
    assert_eq!(reported(set), [(1, IN)]);
}

fn entry(fd: Descriptor, events: libc::c_short) -> pollfd {
    pollfd {
        fd,
        events,
        revents: 0,
    }
}

fn ltp_poll01(family: Family) {
    let (client, server) = pair(family);
    let mut entries = [
        entry(client, libc::POLLOUT),
        entry(server, libc::POLLIN),
        entry(NOT_OPEN, 1),
    ];
    assert_eq!(sys::poll(&mut entries, 0), Ok(2));
    let shown = entries.map(|entry| entry.revents);
    assert_eq!(shown, [libc::POLLOUT, 0, libc::POLLNVAL]);
    send_and_wait(client, server, b"x");
    assert_eq!(sys::poll(&mut entries[1..2], PATIENCE_MILLISECONDS), Ok(1));
    assert_eq!(entries[1].revents, libc::POLLIN);
}

fn ltp_poll02(family: Family) {
    let (client, _server) = pair(family);
    let start = Instant::now();
    assert_eq!(sys::poll(&mut [entry(client, libc::POLLIN)], 30), Ok(0));
    assert!(start.elapsed() >= SHORT);
}

fn ltp_ppoll01(family: Family) {
    let (client, server) = pair(family);
    let poll = |at: *mut pollfd, count, seconds, nanoseconds| {
        let time = libc::timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::ppoll(at, count, &raw const time, std::ptr::null()) })
    };
    let mut entries = [entry(client, libc::POLLIN)];
    let at = entries.as_mut_ptr();
    expect(
        "ppoll",
        &[
            ("nowhere", poll(invalid_pointer(), 1, 0, 0), libc::EFAULT),
            ("a negative time", poll(at, 1, -1, 0), libc::EINVAL),
            (
                "no time at all",
                poll(at, 1, 0, 1_000_000_000),
                libc::EINVAL,
            ),
            ("too many", poll(at, libc::nfds_t::MAX, 0, 0), libc::EINVAL),
        ],
    );
    assert_eq!(poll(at, 1, 0, 1_000_000), Ok(0));
    send_and_wait(server, client, b"x");
    assert_eq!(poll(at, 1, 1, 0), Ok(1));
}

/// A set of numbers for `select`.
fn numbers(of: &[Descriptor]) -> libc::fd_set {
    // SAFETY: a set of zeroes is an empty one.
    let mut set = unsafe { std::mem::zeroed() };
    for number in of {
        // SAFETY: small numbers.
        unsafe { libc::FD_SET(*number, &raw mut set) };
    }
    set
}

fn select(count: c_int, read: *mut libc::fd_set, time: &mut timeval) -> Result<i64, Errno> {
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    result_of(unsafe { libc::select(count, read, null_mut(), null_mut(), time) })
}

const NO_TIME: timeval = timeval {
    tv_sec: 0,
    tv_usec: 0,
};

fn ltp_select01(family: Family) {
    let (client, server) = pair(family);
    let mut set = numbers(&[client]);
    assert_eq!(select(client + 1, &raw mut set, &mut { NO_TIME }), Ok(0));
    send_and_wait(server, client, b"x");
    let mut set = numbers(&[client]);
    assert_eq!(select(client + 1, &raw mut set, &mut { NO_TIME }), Ok(1));
    // SAFETY: a small number.
    assert!(unsafe { libc::FD_ISSET(client, &raw const set) });
}

fn ltp_select02(family: Family) {
    let (client, _server) = pair(family);
    let mut set = numbers(&[client]);
    let mut time = timeval {
        tv_sec: 0,
        tv_usec: 30_000,
    };
    let start = Instant::now();
    assert_eq!(select(client + 1, &raw mut set, &mut time), Ok(0));
    assert!(start.elapsed() >= SHORT);
    assert_eq!((time.tv_sec, time.tv_usec), (0, 0));
}

fn ltp_select03(family: Family) {
    let (client, _server) = pair(family);
    let set = || numbers(&[client]);
    let closed = sys::dup(client).expect("dup");
    sys::close(closed).expect("close");
    let (mut one, mut two, mut three) = (set(), set(), numbers(&[closed]));
    let mut bad = timeval {
        tv_sec: -1,
        tv_usec: 0,
    };
    expect(
        "select",
        &[
            (
                "a negative count",
                select(-1, &raw mut one, &mut { NO_TIME }),
                libc::EINVAL,
            ),
            (
                "not open",
                select(closed + 1, &raw mut three, &mut { NO_TIME }),
                libc::EBADF,
            ),
            (
                "nowhere",
                select(client + 1, invalid_pointer(), &mut { NO_TIME }),
                libc::EFAULT,
            ),
            (
                "a negative time",
                select(client + 1, &raw mut two, &mut bad),
                libc::EINVAL,
            ),
        ],
    );
}
