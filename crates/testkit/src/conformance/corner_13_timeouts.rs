//! Corner 13, time-outs of calls and masks of waits.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{interrupt, interrupting, restarting, send_until_error};

cases! {
    families: [
        corner_13_recv_timeout,
        corner_13_recv_timeout_is_interrupted_in_spite_of_restart,
        corner_13_recv_timeout_not_used_when_data_comes,
        corner_13_recv_timeout_partial_waitall,
        corner_13_send_timeout,
        corner_13_send_timeout_partial,
        corner_13_accept_timeout,
        corner_13_ppoll_mask,
        corner_13_pselect_mask,
        corner_13_epoll_pwait_mask,
        corner_13_poll_timeout_is_kept,
    ];
}

pub fn set_timeout(socket: Descriptor, option: libc::c_int, milliseconds: i64) {
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: milliseconds * 1000,
    };
    sys::set_option(socket, libc::SOL_SOCKET, option, timeout).expect("a time-out");
}

/// Measures a call, which must take about `milliseconds`.
#[track_caller]
fn expect_duration<T>(milliseconds: u64, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = call();
    let elapsed = start.elapsed();
    assert!(
        elapsed >= Duration::from_millis(milliseconds - milliseconds / 10),
        "{elapsed:?}"
    );
    assert!(
        elapsed < Duration::from_millis(milliseconds + 5_000),
        "{elapsed:?}"
    );
    answer
}

fn corner_13_recv_timeout(family: Family) {
    let (client, server) = pair(family);
    set_timeout(client, libc::SO_RCVTIMEO, 100);
    let answer = expect_duration(100, || sys::recv(client, &mut [0_u8; 4], 0));
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    let answer = expect_duration(100, || sys::read(client, &mut [0_u8; 4]));
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    expect_alive(client, server);
    let timeout: libc::timeval = sys::option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO).unwrap();
    assert_eq!((timeout.tv_sec, timeout.tv_usec), (0, 100_000));
    // Zero is no time-out.
    set_timeout(client, libc::SO_RCVTIMEO, 0);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 4], 0));
    await_asleep(task);
    std::thread::sleep(Duration::from_millis(120));
    assert!(!thread.is_finished());
    send_all(server, b"x");
    assert_eq!(join_thread(thread), Ok(1));
}

fn corner_13_recv_timeout_is_interrupted_in_spite_of_restart(family: Family) {
    restarting();
    let (client, server) = pair(family);
    let timeout = libc::timeval {
        tv_sec: 9,
        tv_usec: 0,
    };
    sys::set_option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeout).unwrap();
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    expect_alive(client, server);
}

fn corner_13_recv_timeout_not_used_when_data_comes(family: Family) {
    let (client, server) = pair(family);
    set_timeout(client, libc::SO_RCVTIMEO, 900);
    let (thread, task) = start_thread(move || {
        let start = Instant::now();
        (sys::recv(client, &mut [0_u8; 8], 0), start.elapsed())
    });
    await_asleep(task);
    send_all(server, b"abc");
    let (answer, elapsed) = join_thread(thread);
    assert_eq!(answer, Ok(3));
    assert!(elapsed < Duration::from_millis(890), "{elapsed:?}");
}

fn corner_13_recv_timeout_partial_waitall(family: Family) {
    let (client, server) = pair(family);
    set_timeout(client, libc::SO_RCVTIMEO, 100);
    send_all(server, b"abc");
    await_events(client, libc::POLLIN);
    let mut bytes = [0_u8; 10];
    let answer = expect_duration(100, || sys::recv(client, &mut bytes, libc::MSG_WAITALL));
    assert_eq!((answer, &bytes[..3]), (Ok(3), &b"abc"[..]));
}

fn corner_13_send_timeout(family: Family) {
    let (client, server) = small_pair(family);
    set_timeout(client, libc::SO_SNDTIMEO, 100);
    let (sent, errno, elapsed) = send_until_error(client);
    assert_eq!(errno, Errno(libc::EAGAIN));
    assert!(elapsed >= Duration::from_millis(90), "{elapsed:?}");
    expect_pattern(server, 0, sent);
    expect_alive(client, server);
}

fn corner_13_send_timeout_partial(family: Family) {
    let (client, server) = small_pair(family);
    set_timeout(client, libc::SO_SNDTIMEO, 150);
    let bytes = pattern(0, 8 * 1024 * 1024);
    let sent = sys::send(client, &bytes, libc::MSG_NOSIGNAL).expect("a part");
    assert!(sent > 0 && sent < bytes.len(), "{sent}");
    sys::close(client).unwrap();
    expect_pattern(server, 0, sent);
    expect_end(server);
}

fn corner_13_accept_timeout(family: Family) {
    let (listening, address) = listener(family);
    set_timeout(listening, libc::SO_RCVTIMEO, 100);
    assert_eq!(
        expect_duration(100, || sys::accept(listening)),
        Err(Errno(libc::EAGAIN))
    );
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
    // The accepted socket inherits the time-out.
    let answer = expect_duration(100, || sys::recv(server, &mut [0_u8; 4], 0));
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
}

const LONG: libc::timespec = libc::timespec {
    tv_sec: 9,
    tv_nsec: 0,
};
const SHORT: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Blocks SIGUSR1 and makes it pending. Returns a mask that lets it through.
fn pending_signal() -> libc::sigset_t {
    interrupting();
    sys::block_signals(&[libc::SIGUSR1]);
    sys::signal_thread(sys::gettid(), libc::SIGUSR1).unwrap();
    sys::signal_set(&[])
}

fn corner_13_ppoll_mask(family: Family) {
    let (client, server) = pair(family);
    let open = pending_signal();
    let closed = sys::signal_set(&[libc::SIGUSR1]);
    let mut entries = [libc::pollfd {
        fd: client,
        events: libc::POLLIN,
        revents: 0,
    }];
    assert_eq!(sys::ppoll(&mut entries, Some(SHORT), Some(&closed)), Ok(0));
    assert_eq!(sys::ppoll(&mut entries, Some(SHORT), None), Ok(0));
    assert_eq!(
        sys::ppoll(&mut entries, Some(LONG), Some(&open)),
        Err(Errno(libc::EINTR))
    );
    send_all(server, b"x");
    assert_eq!(sys::ppoll(&mut entries, None, Some(&open)), Ok(1));
    assert_eq!(entries[0].revents, libc::POLLIN);
}

fn corner_13_pselect_mask(family: Family) {
    let (client, server) = pair(family);
    let open = pending_signal();
    let mut read = sys::Set::of(&[client]);
    assert_eq!(sys::pselect(client, &mut read, Some(SHORT), None), Ok(0));
    let mut read = sys::Set::of(&[client]);
    let answer = sys::pselect(client, &mut read, Some(LONG), Some(&open));
    assert_eq!(answer, Err(Errno(libc::EINTR)));
    send_all(server, b"x");
    let mut read = sys::Set::of(&[client]);
    assert_eq!(sys::pselect(client, &mut read, None, Some(&open)), Ok(1));
    assert!(read.has(client));
}

fn corner_13_epoll_pwait_mask(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 0).unwrap();
    let open = pending_signal();
    let closed = sys::signal_set(&[libc::SIGUSR1]);
    assert_eq!(sys::epoll_pwait(set, 4, 20, &closed), Ok(Vec::new()));
    assert_eq!(
        sys::epoll_pwait(set, 4, 9_000, &open),
        Err(Errno(libc::EINTR))
    );
    send_all(server, b"x");
    assert_eq!(sys::epoll_pwait(set, 4, 9_000, &open).unwrap().len(), 1);
}

fn corner_13_poll_timeout_is_kept(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 0).unwrap();
    assert_eq!(
        expect_duration(60, || poll_one(client, libc::POLLIN, 60)),
        0
    );
    assert_eq!(
        expect_duration(60, || sys::epoll_wait(set, 4, 60)),
        Ok(Vec::new())
    );
    let mut read = sys::Set::of(&[client]);
    assert_eq!(
        expect_duration(60, || sys::select(client, Some(&mut read), None, None, 60)),
        Ok(0)
    );
    assert!(!read.has(client));
}
