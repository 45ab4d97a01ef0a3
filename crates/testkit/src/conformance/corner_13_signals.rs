//! Corner 13: interrupted calls, time-outs, masks, cancellation, socket calls in handlers.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::registry::cases;

cases! {
    families: [
        corner_13_recv_eintr,
        corner_13_recv_restarts,
        corner_13_send_eintr,
        corner_13_send_restarts,
        corner_13_send_partial_when_interrupted,
        corner_13_accept_eintr_and_restart,
        corner_13_poll_select_epoll_never_restart,
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
        corner_13_cancel_in_recv,
        corner_13_cancel_in_accept,
        corner_13_cancel_in_poll_and_epoll,
        corner_13_send_in_signal_handler,
        corner_13_signal_storm_during_transfer,
        corner_13_sigio,
        corner_13_sigchld_during_recv,
        corner_13_handler_wakes_poll_by_socket,
    ];
}

extern "C" fn nothing(_: libc::c_int) {}

fn interrupting() {
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
}

fn restarting() {
    sys::handle_signal(libc::SIGUSR1, nothing, libc::SA_RESTART).unwrap();
}

/// Signals a sleeping thread until it ends: a single signal could come before it sleeps.
fn interrupt<T>(thread: std::thread::JoinHandle<T>, task: libc::pid_t) -> T {
    await_asleep(task);
    eventually("it is interrupted", || {
        let _ = sys::signal_thread(task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(5));
        thread.is_finished()
    });
    join_thread(thread)
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

/// Sends the pattern in small pieces until an error; how much was sent, the error, and how long the
/// call lasted that told it.
fn send_until_error(socket: Descriptor) -> (usize, Errno, Duration) {
    let mut sent = 0;
    loop {
        let start = Instant::now();
        match sys::send(socket, &pattern(sent, 1000), libc::MSG_NOSIGNAL) {
            Ok(size) => sent += size,
            Err(errno) => return (sent, errno, start.elapsed()),
        }
    }
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
    // What was taken before the signal counts: a part, not EINTR.
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

fn set_timeout(socket: Descriptor, option: libc::c_int, milliseconds: i64) {
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: milliseconds * 1000,
    };
    sys::set_option(socket, libc::SOL_SOCKET, option, timeout).expect("a time-out");
}

/// How long a call took, which must be about so many milliseconds.
#[track_caller]
fn lasts<T>(milliseconds: u64, call: impl FnOnce() -> T) -> T {
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
    let answer = lasts(100, || sys::recv(client, &mut [0_u8; 4], 0));
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    let answer = lasts(100, || sys::read(client, &mut [0_u8; 4]));
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    expect_alive(client, server);
    let timeout: libc::timeval = sys::option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO).unwrap();
    assert_eq!((timeout.tv_sec, timeout.tv_usec), (0, 100_000));
    // Zero is for ever.
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
    let answer = lasts(100, || sys::recv(client, &mut bytes, libc::MSG_WAITALL));
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
        lasts(100, || sys::accept(listening)),
        Err(Errno(libc::EAGAIN))
    );
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
    // The accepted one inherits it.
    let answer = lasts(100, || sys::recv(server, &mut [0_u8; 4], 0));
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

/// Blocks SIGUSR1 and makes it pending; the answer is a mask that lets it through.
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
    assert_eq!(lasts(60, || poll_one(client, libc::POLLIN, 60)), 0);
    assert_eq!(lasts(60, || sys::epoll_wait(set, 4, 60)), Ok(Vec::new()));
    let mut read = sys::Set::of(&[client]);
    assert_eq!(
        lasts(60, || sys::select(client, Some(&mut read), None, None, 60)),
        Ok(0)
    );
    assert!(!read.has(client));
}

/// The calls a thread can be cancelled in, as plain frames that own nothing.
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

/// Starts a thread in the call, cancels it there, and sees that it ended by that.
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

static HANDLER_SOCKET: AtomicI32 = AtomicI32::new(-1);
static HANDLER_SENT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn send_one(_: libc::c_int) {
    let errno = sys::last_errno();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if sys::send(HANDLER_SOCKET.load(Ordering::Relaxed), b"s", flags) == Ok(1) {
        HANDLER_SENT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = errno.0 };
}

fn corner_13_send_in_signal_handler(family: Family) {
    // The handler sends on the very connection whose calls it interrupts.
    sys::handle_signal(libc::SIGUSR1, send_one, libc::SA_RESTART).unwrap();
    let (client, server) = pair(family);
    // Or every small answer would wait for a delayed acknowledgement.
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    set_int(server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    HANDLER_SOCKET.store(client, Ordering::Relaxed);
    let (thread, task) = start_thread(move || {
        for round in 0..3000_usize {
            send_all(client, b"n");
            if round % 10 == 0 {
                expect_bytes(client, b"ok");
            }
        }
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    });
    let (reader, _) = start_thread(move || {
        let mut normal = 0;
        let mut extra = 0;
        let mut buffer = [0_u8; 512];
        loop {
            let size = uninterrupted(|| sys::recv(server, &mut buffer, 0)).unwrap();
            if size == 0 {
                return (normal, extra);
            }
            for byte in &buffer[..size] {
                match byte {
                    b'n' => {
                        if normal % 10 == 0 {
                            send_all(server, b"ok");
                        }
                        normal += 1;
                    }
                    b's' => extra += 1,
                    other => panic!("byte {other} was never sent"),
                }
            }
        }
    });
    while !thread.is_finished() {
        let _ = sys::signal_thread(task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_micros(200));
    }
    join_thread(thread);
    let (normal, extra) = join_thread(reader);
    assert_eq!(normal, 3000);
    assert_eq!(extra, HANDLER_SENT.load(Ordering::Relaxed));
    assert!(extra > 0, "no signal came");
}

fn corner_13_signal_storm_during_transfer(family: Family) {
    const TOTAL: usize = 4 * 1024 * 1024;
    interrupting();
    let (client, server) = small_pair(family);
    let (sender, sender_task) = start_thread(move || {
        let bytes = pattern(0, TOTAL);
        let mut sent = 0;
        while sent < TOTAL {
            sent += uninterrupted(|| sys::send(client, &bytes[sent..], 0)).unwrap();
        }
    });
    let (receiver, receiver_task) = start_thread(move || {
        let mut buffer = vec![0_u8; 30_000];
        let mut received = 0;
        while received < TOTAL {
            let size = uninterrupted(|| sys::recv(server, &mut buffer, 0)).unwrap();
            assert_ne!(size, 0, "an end after {received} bytes");
            assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
            received += size;
        }
    });
    while !sender.is_finished() || !receiver.is_finished() {
        let _ = sys::signal_thread(sender_task, libc::SIGUSR1);
        let _ = sys::signal_thread(receiver_task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_micros(100));
    }
    join_thread(sender);
    join_thread(receiver);
}

static IO_SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_io(_: libc::c_int) {
    IO_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn corner_13_sigio(family: Family) {
    sys::handle_signal(libc::SIGIO, count_io, libc::SA_RESTART).unwrap();
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    assert_eq!(sys::fcntl(client, libc::F_GETOWN, 0), Ok(sys::getpid()));
    let flags = sys::fcntl(client, libc::F_GETFL, 0).unwrap();
    sys::fcntl(client, libc::F_SETFL, flags | libc::O_ASYNC).unwrap();
    IO_SIGNALS.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        send_all(server, b"x");
        eventually("a signal for the data", || {
            IO_SIGNALS.load(Ordering::Relaxed) > 0
        });
        expect_bytes(client, b"x");
        IO_SIGNALS.store(0, Ordering::Relaxed);
    }
}

fn corner_13_sigchld_during_recv(family: Family) {
    sys::handle_signal(libc::SIGCHLD, nothing, 0).unwrap();
    let (client, server) = pair(family);
    let go = Baton::new();
    let child = fork_child(|| go.take());
    let (starter, _) = start_thread(move || {
        std::thread::sleep(Duration::from_millis(30));
        go.pass();
        std::thread::sleep(Duration::from_millis(30));
        send_all(server, b"x");
    });
    // Interrupted by the child's end or woken by data, never anything else.
    let answer = sys::recv(client, &mut [0_u8; 1], 0);
    match answer {
        Ok(size) => assert_eq!(size, 1),
        Err(errno) => {
            assert_eq!(errno, Errno(libc::EINTR));
            expect_bytes(client, b"x");
        }
    }
    join_thread(starter);
    child.join();
}

static SELF_PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn write_self_pipe(_: libc::c_int) {
    let _ = sys::write(SELF_PIPE.load(Ordering::Relaxed), b"!");
}

fn corner_13_handler_wakes_poll_by_socket(family: Family) {
    // The event loop's classic: a handler writes to a socket pair of our own that the loop polls.
    let (wake_reader, wake_writer) = pair(family);
    SELF_PIPE.store(wake_writer, Ordering::Relaxed);
    sys::handle_signal(libc::SIGUSR1, write_self_pipe, libc::SA_RESTART).unwrap();
    let (client, _server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut entries = [
            libc::pollfd {
                fd: client,
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: wake_reader,
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        let _ = uninterrupted(|| sys::poll(&mut entries, 10_000)).unwrap();
        (entries[0].revents, entries[1].revents)
    });
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(thread), (0, libc::POLLIN));
    expect_bytes(wake_reader, b"!");
}
