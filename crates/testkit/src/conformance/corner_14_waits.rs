//! Corner 14, waiting calls with memory that faults or is read-only, and their remaining time.

use std::ptr::{null, null_mut};

use libc::{c_long, fd_set, pollfd, timespec, timeval};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

use crate::case::cases;
use crate::corner_14_faults::forbidden;

cases! {
    families: [
        corner_14_waits_with_a_bad_time,
        corner_14_waits_on_bad_lists,
        corner_14_waits_on_read_only_lists,
        corner_14_waits_on_long_lists,
        corner_14_waits_with_a_read_only_time,
        corner_14_waits_tell_what_is_left,
        corner_14_waits_clear_what_is_not_ready,
        corner_14_waits_for_events_nowhere,
        corner_14_waits_for_nothing_of_a_listener,
        corner_14_waits_for_the_low_water_mark,
    ];
}

/// `syscall`, of which any argument may be bad.
fn number(number: c_long, arguments: [usize; 6]) -> Outcome<c_long> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        return Err(sys::last_errno());
    }
    Ok(result)
}

/// A value in read-only memory.
fn constant<T>(value: T) -> *mut T {
    let page: *mut T = forbidden().cast();
    // SAFETY: pages of our own.
    unsafe {
        assert_eq!(libc::mprotect(page.cast(), 4096, 3), 0);
        page.write(value);
        assert_eq!(libc::mprotect(page.cast(), 4096, libc::PROT_READ), 0);
    }
    page
}

fn entry(fd: Descriptor) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0x55,
    }
}

fn set_of(fd: Descriptor) -> fd_set {
    // SAFETY: the descriptor is less than the set is long.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::FD_SET(fd, &raw mut set);
        set
    }
}

fn none() -> fd_set {
    // SAFETY: all zero is an empty set.
    unsafe { std::mem::zeroed() }
}

fn ppoll<T>(fd: Descriptor, time: *const T) -> Outcome<c_long> {
    let mut entries = [entry(fd)];
    let at = entries.as_mut_ptr().addr();
    number(libc::SYS_ppoll, [at, 1, time.addr(), 0, 8, 0])
}

fn pselect<T>(fd: Descriptor, time: *const T) -> Outcome<c_long> {
    let mut set = set_of(fd);
    let most = usize::try_from(fd).unwrap() + 1;
    let at = (&raw mut set).addr();
    number(libc::SYS_pselect6, [most, at, 0, 0, time.addr(), 0])
}

#[cfg(target_arch = "x86_64")]
fn select<T>(fd: Descriptor, time: *const T) -> Outcome<c_long> {
    let mut set = set_of(fd);
    let most = usize::try_from(fd).unwrap() + 1;
    let at = (&raw mut set).addr();
    number(libc::SYS_select, [most, at, 0, 0, time.addr(), 0])
}

#[cfg(not(target_arch = "x86_64"))]
fn select<T>(fd: Descriptor, time: *const T) -> Outcome<c_long> {
    pselect(fd, time)
}

const TEN_SECONDS: timespec = timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// A pipe, a listener, a connection and a fresh socket: all types that a call may wait for.
fn all_kinds(family: Family) -> ([Descriptor; 4], Descriptor) {
    let [reader, _writer] = sys::pipe(0).unwrap();
    let (listening, _) = listener(family);
    let (client, server) = pair(family);
    ([reader, listening, server, tcp(family)], client)
}

fn corner_14_waits_with_a_bad_time(family: Family) {
    let (kinds, _client) = all_kinds(family);
    let bad: *mut timespec = forbidden().cast();
    let fault = Err(Errno(libc::EFAULT));
    let invalid = Err(Errno(libc::EINVAL));
    for fd in kinds {
        for time in [bad, std::ptr::without_provenance_mut(8)] {
            assert_eq!(ppoll(fd, time), fault);
            assert_eq!(pselect(fd, time), fault);
            assert_eq!(select(fd, time), fault);
        }
        for (tv_sec, tv_nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            let time = timespec { tv_sec, tv_nsec };
            assert_eq!(ppoll(fd, &raw const time), invalid);
            assert_eq!(pselect(fd, &raw const time), invalid);
        }
        let time = timeval {
            tv_sec: 0,
            tv_usec: -1,
        };
        assert_eq!(select(fd, &raw const time), invalid);
    }
}

fn corner_14_waits_on_bad_lists(family: Family) {
    let (kinds, _client) = all_kinds(family);
    let bad = forbidden().addr();
    let fault = Err(Errno(libc::EFAULT));
    assert_eq!(number(libc::SYS_ppoll, [bad, 1, 0, 0, 0, 0]), fault);
    for fd in kinds {
        let most = usize::try_from(fd).unwrap() + 1;
        let mut set = set_of(fd);
        let good = (&raw mut set).addr();
        let call = libc::SYS_pselect6;
        assert_eq!(number(call, [most, bad, good, 0, 0, 0]), fault);
        assert_eq!(number(call, [most, good, bad, 0, 0, 0]), fault);
        assert_eq!(number(call, [most, good, 0, bad, 0, 0]), fault);
        assert_eq!(number(call, [most, good, 0, 0, 0, bad]), fault);
        let mut entries = [entry(fd)];
        let good = entries.as_mut_ptr().addr();
        assert_eq!(number(libc::SYS_ppoll, [good, 1, 0, bad, 8, 0]), fault);
        // More entries than there are.
        let list: *mut pollfd = forbidden().cast();
        // SAFETY: the first page is made ours, and the entry at its end.
        let last = unsafe {
            assert_eq!(libc::mprotect(list.cast(), 4096, 3), 0);
            let last = list.add(4096 / size_of::<pollfd>() - 1);
            last.write(entry(fd));
            last.addr()
        };
        assert_eq!(number(libc::SYS_ppoll, [last, 2, 0, 0, 0, 0]), fault);
    }
}

fn corner_14_waits_on_read_only_lists(family: Family) {
    let (kinds, client) = all_kinds(family);
    let fault = Errno(libc::EFAULT);
    for round in 0..2 {
        for fd in kinds {
            let list = constant(entry(fd));
            let set = constant(set_of(fd));
            let empty = constant(none());
            let mut own = set_of(fd);
            let mut now = timeval {
                tv_sec: 0,
                tv_usec: 0,
            };
            // SAFETY: all of it can be read.
            unsafe {
                let none = null_mut();
                assert_eq!(libc::poll(list, 1, 0), -1, "round {round}");
                assert_eq!(sys::last_errno(), fault);
                let got = libc::select(fd + 1, set, none, none, &raw mut now);
                assert_eq!((got, sys::last_errno()), (-1, fault));
                let got = libc::select(fd + 1, &raw mut own, empty, none, &raw mut now);
                assert_eq!((got, sys::last_errno()), (-1, fault));
            }
        }
        send_all(client, b"x");
        await_events(kinds[2], libc::POLLIN);
    }
}

fn corner_14_waits_on_long_lists(family: Family) {
    let (kinds, client) = all_kinds(family);
    let [reader, listening, server, _] = kinds;
    let mut list = [entry(-1); 200];
    list[7] = entry(reader);
    list[80] = entry(listening);
    list[199] = entry(server);
    let count = list.len() as libc::nfds_t;
    // SAFETY: all of it can be read.
    let poll = |list: *mut pollfd| unsafe { libc::poll(list, count, 1) };
    assert_eq!(poll(list.as_mut_ptr()), 0);
    assert!(list.iter().all(|entry| entry.revents == 0));
    send_all(client, b"x");
    await_events(server, libc::POLLIN);
    assert_eq!(poll(list.as_mut_ptr()), 1);
    assert_eq!(list[199].revents, libc::POLLIN);
    assert_eq!(poll(constant(list).cast()), -1);
    assert_eq!(sys::last_errno(), Errno(libc::EFAULT));
}

fn corner_14_waits_with_a_read_only_time(family: Family) {
    let (kinds, client) = all_kinds(family);
    let server = kinds[2];
    let soon = constant(timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    });
    let brief = constant(timeval {
        tv_sec: 0,
        tv_usec: 1_000,
    });
    for fd in &kinds[..3] {
        assert_eq!(ppoll(*fd, soon), Ok(0));
        assert_eq!(pselect(*fd, soon), Ok(0));
        assert_eq!(select(*fd, brief), Ok(0));
    }
    send_all(client, b"x");
    let long = constant(TEN_SECONDS);
    assert_eq!(ppoll(server, long), Ok(1));
    assert_eq!(pselect(server, long), Ok(1));
    let long = constant(timeval {
        tv_sec: 10,
        tv_usec: 0,
    });
    assert_eq!(select(server, long), Ok(1));
}

fn corner_14_waits_tell_what_is_left(family: Family) {
    let (kinds, client) = all_kinds(family);
    let [reader, listening, server, _] = kinds;
    for fd in [reader, listening, server] {
        for call in [ppoll, pselect] {
            let mut time = timespec {
                tv_sec: 0,
                tv_nsec: 2_000_000,
            };
            assert_eq!(call(fd, &raw mut time), Ok(0));
            assert_eq!((time.tv_sec, time.tv_nsec), (0, 0));
        }
        let mut time = timeval {
            tv_sec: 0,
            tv_usec: 2_000,
        };
        assert_eq!(select(fd, &raw mut time), Ok(0));
        assert_eq!((time.tv_sec, time.tv_usec), (0, 0));
    }
    send_all(client, b"x");
    await_events(server, libc::POLLIN);
    for call in [ppoll, pselect] {
        let mut time = TEN_SECONDS;
        assert_eq!(call(server, &raw mut time), Ok(1));
        assert!((5..10).contains(&time.tv_sec), "{} s", time.tv_sec);
    }
    let mut time = timeval {
        tv_sec: 10,
        tv_usec: 0,
    };
    assert_eq!(select(server, &raw mut time), Ok(1));
    assert!((5..10).contains(&time.tv_sec), "{} s", time.tv_sec);
    // The C library's own function leaves the time unchanged.
    let time = TEN_SECONDS;
    let mut entries = [entry(server)];
    // SAFETY: all of it is ours.
    let got = unsafe { libc::ppoll(entries.as_mut_ptr(), 1, &raw const time, null()) };
    assert_eq!((got, time.tv_sec), (1, 10));
}

fn corner_14_waits_clear_what_is_not_ready(family: Family) {
    let (kinds, client) = all_kinds(family);
    let [reader, listening, server, _] = kinds;
    send_all(client, b"x");
    await_events(server, libc::POLLIN);
    let far = sys::fcntl(server, libc::F_DUPFD, 200).unwrap();
    let (mut read, mut write) = (none(), none());
    // SAFETY: the descriptors are less than the sets are long, and all of it is ours.
    unsafe {
        for fd in [reader, listening, server, far] {
            libc::FD_SET(fd, &raw mut read);
        }
        libc::FD_SET(listening, &raw mut write);
        libc::FD_SET(far, &raw mut write);
        let mut now = timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let sets = (&raw mut read, &raw mut write);
        let got = libc::select(far + 1, sets.0, sets.1, null_mut(), &raw mut now);
        assert_eq!(got, 3);
        for fd in 0..1024 {
            let expected = fd == server || fd == far;
            assert_eq!(libc::FD_ISSET(fd, &raw const read), expected, "{fd}");
            assert_eq!(libc::FD_ISSET(fd, &raw const write), fd == far, "{fd}");
        }
    }
}

fn corner_14_waits_for_events_nowhere(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::IN | sys::ET, 7).unwrap();
    let bad: *mut libc::epoll_event = forbidden().cast();
    let wait = |events, milliseconds| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        let got = unsafe { libc::epoll_wait(set, events, 4, milliseconds) };
        if got < 0 {
            Err(sys::last_errno())
        } else {
            Ok(got)
        }
    };
    let minus_one = std::ptr::without_provenance_mut(usize::MAX - 4095);
    for events in [null_mut(), bad] {
        assert_eq!(wait(events, 0), Ok(0));
        assert_eq!(wait(events, 5), Ok(0));
    }
    assert_eq!(wait(minus_one, 1_000), Err(Errno(libc::EFAULT)));
    send_all(client, b"x");
    await_events(server, libc::POLLIN);
    for events in [null_mut(), bad] {
        assert_eq!(wait(events, 0), Err(Errno(libc::EFAULT)));
        assert_eq!(wait(events, 10_000), Err(Errno(libc::EFAULT)));
    }
    // The event was not taken.
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    assert_eq!(wait(null_mut(), 0), Ok(0));
}

/// A waiting connection does not keep a thread busy that did not ask for it.
fn corner_14_waits_for_nothing_of_a_listener(family: Family) {
    let (listening, address) = listener(family);
    let _client = connect_to(address);
    let done = Baton::new();
    let relative = fork_child(|| done.take());
    let spent = || {
        let mut time = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: room for a time.
        let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(got, 0);
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    };
    let before = spent();
    assert_eq!(poll_one(listening, 0, 300), 0);
    let milliseconds = spent() - before;
    assert!(milliseconds < 100, "{milliseconds} ms of work");
    done.pass();
    relative.join();
}

/// A receive of fewer bytes than the mark sleeps until the mark is reached. If a signal interrupts it, the receive
/// returns the bytes that are there.
fn corner_14_waits_for_the_low_water_mark(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 5);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 1], 0));
    await_asleep(task);
    for byte in [b"a", b"b"] {
        send_all(server, byte);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!thread.is_finished());
    }
    send_all(server, b"cde");
    assert_eq!(join_thread(thread), Ok(1));
    expect_bytes(client, b"bcde");
    extern "C" fn ignore(_: libc::c_int) {}
    sys::handle_signal(libc::SIGUSR1, ignore, 0).unwrap();
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 1], 0));
    await_asleep(task);
    send_all(server, b"f");
    std::thread::sleep(std::time::Duration::from_millis(20));
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(thread), Ok(1));
}
