//! Corner 14, buffers and arguments that fault, numbers and flags that are wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::held::{Held, cork};
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_14_fault_in_recv,
        corner_14_fault_in_recv_with_data_keeps_it,
        corner_14_fault_in_recv_leaves_what_is_behind,
        corner_14_fault_in_send,
        corner_14_fault_in_send_of_what_begins_well,
        corner_14_fault_in_send_behind_bytes_held_back,
        corner_14_fault_in_vectors,
        corner_14_fault_in_other_arguments,
        corner_14_fault_beside_signals,
        corner_14_options_beside_signals,
        corner_14_bad_flags_and_numbers,
    ];
}

/// Inaccessible memory.
pub fn forbidden() -> *mut u8 {
    // SAFETY: an anonymous mapping of one page.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            65_536,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

fn corner_14_fault_in_recv(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    for pointer in [
        forbidden(),
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut(8),
    ] {
        // SAFETY: nothing is mapped there.
        let answer = unsafe { sys::recv_raw(client, pointer, 3, 0) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
        // SAFETY: nothing is mapped there.
        let answer = unsafe { libc::read(client, pointer.cast(), 3) };
        assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    }
    expect_alive(server, {
        expect_bytes(client, b"abc");
        client
    });
}

fn corner_14_fault_in_recv_with_data_keeps_it(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, &pattern(0, 20_000));
    let bad = forbidden();
    // SAFETY: nothing is mapped there.
    let answer = unsafe { sys::recv_raw(client, bad, 20_000, libc::MSG_PEEK) };
    assert_eq!(answer, Err(Errno(libc::EFAULT)));
    expect_pattern(client, 0, 20_000);
    expect_alive(client, server);
}

/// The first bytes of a buffer cannot be written, the others can.
fn corner_14_fault_in_recv_leaves_what_is_behind(family: Family) {
    const PAGE: usize = 4096;
    let (client, server) = pair(family);
    let bad = forbidden();
    // SAFETY: the second page of the mapping.
    let good = unsafe {
        let good = bad.add(PAGE);
        let usable = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(good.cast(), PAGE, usable), 0);
        std::slice::from_raw_parts_mut(good, PAGE)
    };
    send_and_wait(server, client, &pattern(1, 3000));
    for length in (1..300).chain([1000, 2000, 3000]) {
        for before in [1, length / 4, length / 2].map(|before| before.max(1)) {
            let to = bad.wrapping_add(PAGE - before);
            // SAFETY: what is not mapped faults.
            let answer = unsafe { sys::recv_raw(client, to, length, 0) };
            assert_eq!(answer, Err(Errno(libc::EFAULT)));
            assert!(good.iter().all(|byte| *byte == 0), "{length} {before}");
        }
    }
    expect_pattern(client, 1, 3000);
}

fn corner_14_fault_in_send(family: Family) {
    let (client, server) = pair(family);
    for pointer in [
        forbidden(),
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut(8),
    ] {
        // SAFETY: nothing is mapped there.
        let answer = unsafe { sys::send_raw(client, pointer, 3, libc::MSG_NOSIGNAL) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
        // SAFETY: nothing is mapped there.
        let answer = unsafe { libc::write(client, pointer.cast(), 3) };
        assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    }
    expect_quiet(server, libc::POLLIN);
    expect_alive(client, server);
}

/// Bytes that a cork or `MSG_MORE` holds back stay held back.
fn corner_14_fault_in_send_behind_bytes_held_back(family: Family) {
    for more in [0, libc::MSG_MORE] {
        let (client, server) = pair(family);
        cork(client, libc::c_int::from(more == 0));
        let held = Held::now();
        assert_eq!(sys::send(client, b"held", more), Ok(4));
        for flags in [more, more | libc::MSG_DONTWAIT] {
            // SAFETY: nothing is mapped there.
            let answer = unsafe { sys::send_raw(client, forbidden(), 100, flags) };
            assert_eq!(answer, Err(Errno(libc::EFAULT)));
        }
        held.expect_nothing(server);
        assert_eq!(sys::send(client, b" back", more), Ok(5));
        cork(client, 0);
        expect_bytes(server, b"held back");
    }
}

/// The first bytes of a buffer can be read, the others cannot: none are sent.
fn corner_14_fault_in_send_of_what_begins_well(family: Family) {
    const PAGE: usize = 4096;
    let (client, server) = pair(family);
    let memory = forbidden();
    // SAFETY: the first page of the mapping.
    let opened = unsafe { libc::mprotect(memory.cast(), PAGE, libc::PROT_READ) };
    assert_eq!(opened, 0);
    for (before, length) in [(5, 10), (2000, 4000), (1, 3)] {
        let from = memory.wrapping_add(PAGE - before);
        // SAFETY: what cannot be read faults.
        let answer = unsafe { sys::send_raw(client, from, length, libc::MSG_NOSIGNAL) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
        // SAFETY: as above.
        let answer = unsafe { libc::write(client, from.cast(), length) };
        assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    }
    expect_quiet(server, libc::POLLIN);
    expect_alive(client, server);
}

fn corner_14_fault_in_vectors(family: Family) {
    let (client, server) = pair(family);
    let bad = forbidden();
    let vector = [libc::iovec {
        iov_base: bad.cast(),
        iov_len: 10,
    }];
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::writev(client, vector.as_ptr(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::writev(client, bad.cast(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    send_and_wait(server, client, b"abc");
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::readv(client, vector.as_ptr(), 1) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    // SAFETY: nothing is mapped there.
    let answer = unsafe { libc::recvmsg(client, bad.cast(), 0) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    expect_bytes(client, b"abc");
    expect_quiet(server, libc::POLLIN);
    expect_alive(client, server);
}

fn corner_14_fault_in_other_arguments(family: Family) {
    let (client, server) = pair(family);
    let bad = forbidden();
    let mut length: libc::socklen_t = 128;
    // SAFETY: nothing is mapped at bad.
    let answers = unsafe {
        [
            libc::getsockname(client, bad.cast(), &raw mut length),
            libc::getpeername(client, bad.cast(), &raw mut length),
            libc::getsockopt(
                client,
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                bad.cast(),
                &raw mut length,
            ),
            libc::setsockopt(client, libc::SOL_SOCKET, libc::SO_KEEPALIVE, bad.cast(), 4),
            libc::ioctl(client, libc::FIONBIO, bad),
            libc::ioctl(client, libc::FIONREAD, bad),
            libc::poll(bad.cast(), 1, 0),
        ]
    };
    assert_eq!(answers, [-1; 7]);
    assert_eq!(sys::last_errno(), Errno(libc::EFAULT));
    // SAFETY: nothing is mapped at bad.
    let answer = unsafe { libc::connect(tcp(family), bad.cast(), 16) };
    assert_eq!((answer, sys::last_errno()), (-1, Errno(libc::EFAULT)));
    expect_alive(client, server);
}

/// The alternate stack of the thread in [`corner_14_fault_beside_signals`], and how often handlers ran on it.
static STACK: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static ON_STACK: AtomicUsize = AtomicUsize::new(0);
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn look_at_stack(_: libc::c_int) {
    let local = 0_u8;
    let at = std::hint::black_box(&raw const local).addr();
    let [start, end] = [0, 1].map(|index| STACK[index].load(Ordering::Relaxed));
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    if (start..end).contains(&at) {
        ON_STACK.fetch_add(1, Ordering::Relaxed);
    }
}

/// A handler that does not ask for the alternate stack does not run on it, also while a copy meets a bad address.
fn corner_14_fault_beside_signals(family: Family) {
    const SIZE: usize = 1 << 16;
    let (client, server) = pair(family);
    send_and_wait(server, client, b"abc");
    let memory = vec![0_u8; SIZE].leak();
    let stack = libc::stack_t {
        ss_sp: memory.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: SIZE,
    };
    let start = memory.as_ptr().addr();
    STACK[0].store(start, Ordering::Relaxed);
    STACK[1].store(start + SIZE, Ordering::Relaxed);
    // SAFETY: the memory is for this thread's signals only.
    let set = unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    sys::handle_signal(libc::SIGUSR1, look_at_stack, 0).unwrap();
    let page = forbidden();
    beside_signals(|| {
        // SAFETY: nothing is mapped there.
        let answer = unsafe { sys::recv_raw(client, page, 3, libc::MSG_DONTWAIT) };
        assert_eq!(answer, Err(Errno(libc::EFAULT)));
    });
    assert_eq!(ON_STACK.load(Ordering::Relaxed), 0);
    expect_bytes(client, b"abc");
}

/// Works while 500 signals come.
fn beside_signals(work: impl Fn()) {
    let task = sys::gettid();
    let (pest, _) = start_thread(move || {
        while SIGNALS.load(Ordering::Relaxed) < 500 {
            sys::signal_thread(task, libc::SIGUSR1).unwrap();
            std::thread::yield_now();
        }
    });
    while !pest.is_finished() {
        work();
    }
    join_thread(pest);
}

/// No signal ends a call that does not wait.
fn corner_14_options_beside_signals(family: Family) {
    let (client, server) = pair(family);
    sys::handle_signal(libc::SIGUSR1, look_at_stack, 0).unwrap();
    let fresh = tcp(family);
    beside_signals(|| {
        for socket in [client, server, fresh] {
            set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 100);
            set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 50_000);
            assert!(sys::option_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF).is_ok());
        }
        assert!(sys::getsockname(client).is_ok() && sys::getpeername(server).is_ok());
    });
}

fn corner_14_bad_flags_and_numbers(family: Family) {
    let mut bytes = [0_u8; 4];
    assert_eq!(sys::recv(-1, &mut bytes, 0), Err(Errno(libc::EBADF)));
    assert_eq!(sys::send(1_000_000, b"x", 0), Err(Errno(libc::EBADF)));
    let [reader, _writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::recv(reader, &mut bytes, 0), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(sys::listen(reader, 1), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(sys::accept(reader), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(
        sys::shutdown(reader, libc::SHUT_WR),
        Err(Errno(libc::ENOTSOCK))
    );
    assert_eq!(sys::getpeername(reader), Err(Errno(libc::ENOTSOCK)));
    assert_eq!(
        sys::connect(reader, family.loopback(1)),
        Err(Errno(libc::ENOTSOCK))
    );
    let bad_protocol = sys::socket(family.domain(), libc::SOCK_STREAM, libc::IPPROTO_UDP);
    assert_eq!(bad_protocol, Err(Errno(libc::EPROTONOSUPPORT)));
    let (client, server) = pair(family);
    // Nothing out of band is there.
    assert_eq!(
        sys::recv(client, &mut bytes, libc::MSG_OOB),
        Err(Errno(libc::EINVAL))
    );
    let queue = sys::recv(client, &mut bytes, libc::MSG_ERRQUEUE);
    assert_eq!(queue, Err(Errno(libc::EAGAIN)));
    assert_eq!(
        sys::ioctl_int(client, libc::TCGETS, 0),
        Err(Errno(libc::ENOTTY))
    );
    expect_alive(client, server);
}
