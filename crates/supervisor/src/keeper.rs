//! The runner after the supervisor was killed. The program's connections were the supervisor's: they are reset. What is asked of
//! them, and of new ones, fails with `ENETDOWN`; nothing fails with `ENOSYS`.

use std::ffi::c_int;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::notify::{Call, Notify};
use crate::processes::{next_change, next_signal, signal};
use crate::system::{self, Sys};
use crate::threads::Threads;

/// Serves until the program has ended, and returns its status; without a program, until nobody can ask any more.
pub fn keep(
    supervisor: c_int,
    program: c_int,
    notify: c_int,
    signals: BorrowedFd<'_>,
    kept: &[c_int],
) -> c_int {
    let mut threads = Threads::default();
    reset(supervisor, program, &mut threads, kept);
    // SAFETY: the supervisor, which is gone, had it in the table that both have.
    let notify = (notify >= 0).then(|| Notify::new(unsafe { OwnedFd::from_raw_fd(notify) }));
    loop {
        let asked = notify.as_ref().map_or(signals, AsFd::as_fd);
        system::wait_for([signals, asked]);
        while let Some((number, is_sent)) = next_signal(signals) {
            if is_sent && number != libc::SIGCHLD {
                signal(program, number);
            }
        }
        while let Some((child, status)) = next_change(-1) {
            if child == program && !libc::WIFSTOPPED(status) {
                return status;
            }
        }
        let (is_asked, is_over) = notify
            .as_ref()
            .map_or((false, true), |notify| system::is_readable(notify.as_fd()));
        if program == 0 && is_over && !is_asked {
            return 0;
        }
        if let Some(notify) = &notify
            && is_asked
            && let Ok(Some(call)) = notify.receive()
        {
            match answer(&call, supervisor, &mut threads) {
                Some(result) => notify.answer(call.id, result),
                None => notify.let_through(call.id),
            };
        }
    }
}

/// The answer to a call, or `None` for the kernel's.
fn answer(call: &Call, supervisor: c_int, threads: &mut Threads) -> Option<Sys<i64>> {
    if call.number == libc::SYS_socket {
        return Some(Err(libc::ENETDOWN));
    }
    let end = threads.descriptor(call.thread, call.int(0)).ok()?;
    is_end(end.as_fd(), supervisor).then_some(Err(libc::ENETDOWN))
}

/// Whether a descriptor is an end of a pair that the supervisor made.
fn is_end(fd: BorrowedFd<'_>, supervisor: c_int) -> bool {
    // The process is the first word of the credentials.
    let maker = system::option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, 12);
    maker.is_ok_and(|words| words.get(..4) == Some(&supervisor.to_ne_bytes()))
}

/// Closes what the supervisor had, so that its ends on the program's side are reset: with bytes that nobody reads, closing is a
/// reset.
fn reset(supervisor: c_int, program: c_int, threads: &mut Threads, kept: &[c_int]) {
    let numbers = |path: String| {
        let entries = fs::read_dir(path).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        names.collect::<Vec<c_int>>()
    };
    for process in numbers("/proc".to_owned()) {
        // Not the host's many others: what runs under the filter.
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        if process != program && !status.contains("\nSeccomp:\t2\n") {
            continue;
        }
        for number in numbers(format!("/proc/{process}/fd")) {
            if let Ok(end) = threads.descriptor(process.unsigned_abs(), number)
                && is_end(end.as_fd(), supervisor)
            {
                let _ = system::send(end.as_fd(), &[0]);
            }
        }
    }
    *threads = Threads::default();
    for number in numbers("/proc/self/fd".to_owned()) {
        if number > libc::STDERR_FILENO && !kept.contains(&number) {
            // SAFETY: nothing in this process uses it: it was the supervisor's.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_by_who_made_it() {
        let own = c_int::try_from(std::process::id()).unwrap();
        let (one, _other) = system::pair(0).unwrap();
        assert!(is_end(one.as_fd(), own));
        assert!(!is_end(one.as_fd(), own + 1));
        let null = fs::File::open("/dev/null").unwrap();
        assert!(!is_end(null.as_fd(), own));
    }
}
