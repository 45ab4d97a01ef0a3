//! Helpers for the cases of several files.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

/// A handler that does nothing.
pub extern "C" fn nothing(_: libc::c_int) {}

/// SIGUSR1 interrupts calls.
pub fn interrupting() {
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
}

/// For a process that its test kills.
pub fn wait_to_be_killed() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// SIGUSR1 interrupts calls, which are restarted.
pub fn restarting() {
    sys::handle_signal(libc::SIGUSR1, nothing, libc::SA_RESTART).unwrap();
}

/// Signals a sleeping thread until it ends: a single signal could come before it sleeps.
pub fn interrupt<T>(thread: std::thread::JoinHandle<T>, task: libc::pid_t) -> T {
    await_asleep(task);
    eventually("it is interrupted", || {
        let _ = sys::signal_thread(task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(5));
        thread.is_finished()
    });
    join_thread(thread)
}

/// Sends the pattern in small pieces until an error. Returns how many bytes were sent, the error, and how long the call
/// lasted that returned it.
pub fn send_until_error(socket: Descriptor) -> (usize, Errno, Duration) {
    let mut sent = 0;
    loop {
        let start = Instant::now();
        match sys::send(socket, &pattern(sent, 1000), libc::MSG_NOSIGNAL) {
            Ok(size) => sent += size,
            Err(errno) => return (sent, errno, start.elapsed()),
        }
    }
}

/// Sends, and waits until all bytes can be received.
pub fn send_and_wait(from: Descriptor, to: Descriptor, bytes: &[u8]) {
    send_all(from, bytes);
    let all = libc::c_int::try_from(bytes.len()).unwrap();
    eventually("all is there", || {
        sys::ioctl_int(to, libc::FIONREAD, 0).unwrap() >= all
    });
}

/// Sends bytes of which the last one is urgent.
#[track_caller]
pub fn send_urgent(socket: Descriptor, bytes: &[u8]) {
    assert_eq!(sys::send(socket, bytes, libc::MSG_OOB), Ok(bytes.len()));
}

/// Receives the urgent byte.
#[track_caller]
pub fn expect_taken(socket: Descriptor, byte: u8) {
    let mut reported = [0_u8; 4];
    assert_eq!(sys::recv(socket, &mut reported, libc::MSG_OOB), Ok(1));
    assert_eq!(reported[0], byte);
}

/// Checks that there is no urgent byte to receive.
#[track_caller]
pub fn expect_no_urgent(socket: Descriptor) {
    let answer = sys::recv(socket, &mut [0_u8; 4], libc::MSG_OOB);
    assert_eq!(answer, Err(Errno(libc::EINVAL)));
}

/// Lowers the hard limit of this process until one number is free, and returns that; `open` is any descriptor.
pub fn leave_one_number(open: Descriptor) -> Descriptor {
    let free = sys::dup(open).unwrap();
    sys::close(free).unwrap();
    let most = libc::rlim_t::try_from(free + 1).unwrap();
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    sys::set_limit(libc::RLIMIT_NOFILE, &limit).unwrap();
    free
}
