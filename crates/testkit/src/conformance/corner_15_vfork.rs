//! Corner 15: vfork in programs that have no socket yet. The child runs in its parent's memory, with descriptors,
//! limits and handlers of its own.

use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::helpers::nothing;

cases! {
    families: [
        corner_15_vfork_before_any_socket,
        corner_15_vfork_with_a_set_only,
        corner_15_vfork_executes_bad_lists,
    ];
}

/// A number that the child stored in the memory that it shares with its parent.
static SAID: AtomicU32 = AtomicU32::new(0);

#[expect(
    deprecated,
    reason = "programs that call it are what these cases are about"
)]
fn vfork(child: impl Fn()) -> Child {
    // SAFETY: the child does nothing that its parent would miss, and executes or ends.
    let process = unsafe { libc::vfork() };
    if process == 0 {
        child();
        sys::exit_now(3);
    }
    child_of_id(process)
}

fn execute(program: &CStr, arguments: &[*const libc::c_char], environment: &[*const libc::c_char]) {
    // SAFETY: words and environment end with null.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

fn corner_15_vfork_before_any_socket(family: Family) {
    sys::handle_signal(libc::SIGUSR1, nothing, libc::SA_RESTART).unwrap();
    let limit = sys::descriptor_limit().unwrap();
    let words = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 7".as_ptr(), null()];
    let environment = [c"ONLY=this".as_ptr(), null()];
    for round in 1..4 {
        let child = vfork(|| {
            SAID.store(round, Ordering::Relaxed);
            // SAFETY: the child's own handlers.
            unsafe {
                libc::signal(libc::SIGUSR1, libc::SIG_DFL);
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            }
            let _ = sys::set_descriptor_limit(100);
            let _ = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
            // SAFETY: no pointers.
            unsafe { libc::epoll_create1(0) };
            execute(c"/does/not/exist", &words, &environment);
            execute(c"/bin/sh", &words, &environment);
        });
        assert_eq!(child.wait(), Ended::Exit(7));
        assert_eq!(SAID.load(Ordering::Relaxed), round);
        assert_eq!(sys::descriptor_limit().unwrap().rlim_cur, limit.rlim_cur);
        // SAFETY: the handler does nothing.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
    let (client, server) = pair(family);
    expect_alive(client, server);
}

fn corner_15_vfork_with_a_set_only(family: Family) {
    // SAFETY: no pointers.
    let set = unsafe { libc::epoll_create1(0) };
    let child = vfork(|| {
        let _ = sys::close(set);
    });
    assert_eq!(child.wait(), Ended::Exit(3));
    let (client, server) = pair(family);
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: 5,
    };
    // SAFETY: the event is a local.
    let added = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, server, &raw mut event) };
    assert_eq!(added, 0);
    send_all(client, b"x");
    // SAFETY: as above.
    let answer = unsafe { libc::epoll_wait(set, &raw mut event, 1, 5_000) };
    assert_eq!(answer, 1);
    expect_bytes(server, b"x");
}

fn corner_15_vfork_executes_bad_lists(_family: Family) {
    let bad = std::ptr::without_provenance::<*const libc::c_char>(8);
    let child = vfork(|| {
        // SAFETY: the kernel is to find out that there is no list.
        unsafe { libc::execve(c"/bin/true".as_ptr(), bad, bad) };
        let fault = sys::last_errno() == Errno(libc::EFAULT);
        sys::exit_now(if fault { 4 } else { 5 });
    });
    assert_eq!(child.wait(), Ended::Exit(4));
}
