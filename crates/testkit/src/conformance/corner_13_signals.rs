//! Corner 13, interrupted and restarted calls, cancellation.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{interrupt, interrupting, nothing, restarting, send_until_error};

cases! {
    families: [
        corner_13_recv_eintr,
        corner_13_recv_restarts,
        corner_13_send_eintr,
        corner_13_send_restarts,
        corner_13_send_partial_when_interrupted,
        corner_13_accept_eintr_and_restart,
        corner_13_accept_eintr_beside_relatives,
        corner_13_sleeps_beside_a_blocked_signal_that_is_pending,
        corner_13_poll_select_epoll_never_restart,
        corner_13_cancel_in_recv,
        corner_13_cancel_in_accept,
        corner_13_cancel_in_poll_and_epoll,
    ];
}

fn corner_13_recv_eintr(family: Family) {
    interrupting();
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    let (thread, task) = start_thread(move || sys::read(client, &mut [0_u8; 8]));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    expect_alive(client, server);
}

fn corner_13_recv_restarts(family: Family) {
    restarting();
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    for _ in 0..20 {
        sys::signal_thread(task, libc::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!thread.is_finished());
    send_all(server, b"abc");
    assert_eq!(join_thread(thread), Ok(3));
}

fn corner_13_send_eintr(family: Family) {
    interrupting();
    let (client, server) = small_pair(family);
    let (thread, task) = start_thread(move || send_until_error(client));
    let (sent, errno, _) = interrupt(thread, task);
    assert_eq!(errno, Errno(libc::EINTR));
    expect_pattern(server, 0, sent);
    expect_alive(client, server);
}

fn corner_13_send_restarts(family: Family) {
    const TOTAL: usize = 2 * 1024 * 1024;
    restarting();
    let (client, server) = small_pair(family);
    let (thread, task) = start_thread(move || send_pattern(client, 0, TOTAL));
    await_asleep(task);
    for _ in 0..20 {
        sys::signal_thread(task, libc::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!thread.is_finished());
    expect_pattern(server, 0, TOTAL);
    join_thread(thread);
}

fn corner_13_send_partial_when_interrupted(family: Family) {
    // Bytes taken before the signal count: the call returns a part, not EINTR.
    interrupting();
    let (client, server) = small_pair(family);
    let total = 8 * 1024 * 1024;
    let bytes = pattern(0, total);
    let (thread, task) = start_thread(move || sys::send(client, &bytes, libc::MSG_NOSIGNAL));
    let sent = interrupt(thread, task).expect("a part was sent");
    assert!(sent > 0 && sent < total, "{sent}");
    sys::close(client).unwrap();
    expect_pattern(server, 0, sent);
    expect_end(server);
}

fn corner_13_accept_eintr_and_restart(family: Family) {
    interrupting();
    let (listening, address) = listener(family);
    let (thread, task) = start_thread(move || sys::accept(listening));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    restarting();
    let (thread, task) = start_thread(move || sys::accept(listening));
    await_asleep(task);
    for _ in 0..20 {
        sys::signal_thread(task, libc::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!thread.is_finished());
    let client = connect_to(address);
    expect_alive(client, join_thread(thread).unwrap());
}

/// Accept of one of several threads where a relative accepts, too: handlers end it, cancellation ends it, and a
/// connection is told to somebody.
fn corner_13_accept_eintr_beside_relatives(family: Family) {
    interrupting();
    let (listening, address) = listener(family);
    let end = Baton::new();
    let relative = fork_child(|| end.take());
    for _ in 0..3 {
        let (thread, task) = start_thread(move || sys::accept(listening));
        assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
        cancel_in(cancelled::accept, listening);
        let threads = [0, 1].map(|_| start_thread(move || sys::accept(listening)));
        threads.iter().for_each(|(_, task)| await_asleep(*task));
        let clients = [0, 1].map(|_| connect_to(address));
        let servers = threads.map(|(thread, _)| join_thread(thread).unwrap());
        for server in servers {
            send_all(server, b"x");
            sys::close(server).unwrap();
        }
        for client in clients {
            expect_bytes(client, b"x");
            sys::close(client).unwrap();
        }
    }
    end.pass();
    relative.join();
}

fn corner_13_poll_select_epoll_never_restart(family: Family) {
    restarting();
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 0).unwrap();
    let (thread, task) = start_thread(move || {
        let mut entries = [libc::pollfd {
            fd: client,
            events: libc::POLLIN,
            revents: 0,
        }];
        sys::poll(&mut entries, 10_000)
    });
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    let (thread, task) = start_thread(move || {
        let mut read = sys::Set::of(&[client]);
        sys::select(client, Some(&mut read), None, None, 10_000)
    });
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    expect_alive(client, server);
}

/// Calls in which a thread can be cancelled, as plain frames that own nothing.
mod cancelled {
    use std::ffi::c_void;

    fn number(argument: *mut c_void) -> libc::c_int {
        libc::c_int::try_from(argument.addr()).unwrap_or(-1)
    }

    pub extern "C" fn recv(argument: *mut c_void) -> *mut c_void {
        let mut byte = 0_u8;
        // SAFETY: byte has room for one.
        unsafe { libc::recv(number(argument), (&raw mut byte).cast(), 1, 0) };
        std::ptr::null_mut()
    }

    pub extern "C" fn accept(argument: *mut c_void) -> *mut c_void {
        let none = std::ptr::null_mut();
        // SAFETY: no address is wanted.
        unsafe { libc::accept(number(argument), none, std::ptr::null_mut()) };
        std::ptr::null_mut()
    }

    pub extern "C" fn poll(argument: *mut c_void) -> *mut c_void {
        let mut entry = libc::pollfd {
            fd: number(argument),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut entry, 1, -1) };
        std::ptr::null_mut()
    }

    pub extern "C" fn epoll(argument: *mut c_void) -> *mut c_void {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event.
        unsafe { libc::epoll_wait(number(argument), &raw mut event, 1, -1) };
        std::ptr::null_mut()
    }
}

/// Starts a thread in the call, cancels it there, and checks that the thread ended by that.
fn cancel_in(
    body: extern "C" fn(*mut std::ffi::c_void) -> *mut std::ffi::c_void,
    descriptor: Descriptor,
) {
    let argument = std::ptr::without_provenance_mut(usize::try_from(descriptor).unwrap());
    let tasks = tasks_of_process();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: body takes the argument as a number.
    let result = unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), body, argument) };
    assert_eq!(result, 0, "pthread_create");
    let fresh = tasks_of_process()
        .into_iter()
        .find(|task| !tasks.contains(task));
    await_asleep(fresh.expect("the new thread"));
    let mut answer = std::ptr::null_mut();
    // SAFETY: the thread was created above and is joined once.
    unsafe {
        assert_eq!(libc::pthread_cancel(thread), 0, "pthread_cancel");
        assert_eq!(
            libc::pthread_join(thread, &raw mut answer),
            0,
            "pthread_join"
        );
    }
    // PTHREAD_CANCELED
    assert_eq!(
        answer.addr(),
        usize::MAX,
        "it returned instead of being cancelled"
    );
}

fn tasks_of_process() -> Vec<libc::pid_t> {
    let entries = std::fs::read_dir("/proc/self/task").expect("/proc/self/task");
    let number =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

fn corner_13_cancel_in_recv(family: Family) {
    let (client, server) = pair(family);
    for _ in 0..3 {
        cancel_in(cancelled::recv, client);
        expect_alive(client, server);
    }
}

fn corner_13_cancel_in_accept(family: Family) {
    let (listening, address) = listener(family);
    for _ in 0..3 {
        cancel_in(cancelled::accept, listening);
        expect_alive(connect_to(address), sys::accept(listening).unwrap());
    }
}

fn corner_13_cancel_in_poll_and_epoll(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 0).unwrap();
    for _ in 0..3 {
        cancel_in(cancelled::poll, client);
        cancel_in(cancelled::epoll, set);
        expect_alive(client, server);
    }
}

/// Its handler would restart the call. It is blocked, so it never runs, and nobody is woken again and again.
fn corner_13_sleeps_beside_a_blocked_signal_that_is_pending(family: Family) {
    restarting();
    sys::handle_signal(libc::SIGUSR2, nothing, 0).unwrap();
    let (listening, address) = listener(family);
    let raise = || {
        sys::block_signals(&[libc::SIGUSR1]);
        sys::signal_thread(sys::gettid(), libc::SIGUSR1).unwrap();
    };
    let (thread, task) = start_thread(move || {
        raise();
        sys::accept(listening)
    });
    await_asleep(task);
    let client = connect_to(address);
    let server = join_thread(thread).unwrap();
    let (thread, task) = start_thread(move || {
        raise();
        sys::recv(server, &mut [0; 8], 0)
    });
    await_asleep(task);
    send_all(client, b"abc");
    assert_eq!(join_thread(thread), Ok(3));
}
