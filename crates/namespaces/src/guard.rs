//! The guard: a process that lives a moment longer than the maker of the hosts, and ends all processes that still live
//! in them.

use crate::namespace::Namespace;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process;
use std::thread;
use std::time::Duration;

/// How often to search for inhabitants before giving up on one that can not be killed.
const LOOKS: u32 = 500;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The guard's process, which ends with this value.
#[derive(Debug)]
pub struct Guard {
    process: libc::pid_t,
    /// Nothing is written to it: its end is the signal.
    pipe: Option<OwnedFd>,
}

impl Guard {
    /// Starts it.
    pub fn start(namespaces: &[&Namespace]) -> io::Result<Self> {
        let inodes: Vec<u64> = all(namespaces, Namespace::inode)?;
        // Held, so that no other namespace gets these inodes meanwhile.
        let held = all(namespaces, Namespace::try_clone)?;
        let (reader, writer) = pipe()?;
        // SAFETY: the child goes on as one thread. It allocates, which glibc allows after a fork, and takes no other lock that
        // a thread of ours may hold.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(writer);
                watch(reader, &held, &inodes)
            }
            process => Ok(Guard {
                process,
                pipe: Some(writer),
            }),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let mut status = 0;
        // SAFETY: `status` is a live output.
        while unsafe { libc::waitpid(self.process, &raw mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

fn all<T>(
    namespaces: &[&Namespace],
    of: impl Fn(&Namespace) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    namespaces.iter().map(|one| of(one)).collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: descriptors just made, owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// The guard's life.
fn watch(reader: OwnedFd, held: &[OwnedFd], inodes: &[u64]) -> ! {
    // SAFETY: neither takes a pointer but to the name, which is terminated. In a session of its own, what is sent to the maker's
    // group or terminal does not reach it.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"hosts-guard".as_ptr());
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // A reader of the maker's output must not wait for this process.
    let kept = held.iter().chain([&reader]).map(AsRawFd::as_raw_fd);
    close_others(kept.collect());
    let mut pipe = File::from(reader);
    while !matches!(pipe.read(&mut [0; 1]), Ok(0)) {}
    end_inhabitants(inodes);
    // SAFETY: ends the process without running what the maker registered.
    unsafe { libc::_exit(0) }
}

fn close_others(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let mut first = 0;
    for descriptor in kept {
        let descriptor = libc::c_uint::try_from(descriptor).unwrap_or(0);
        if descriptor > first {
            close_range(first, descriptor - 1);
        }
        first = descriptor + 1;
    }
    close_range(first, libc::c_uint::MAX);
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: this process uses none of these descriptors any more. Where the call is missing (Linux before 5.9) they stay open.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Kills processes until none is left.
fn end_inhabitants(inodes: &[u64]) {
    let homes: Vec<String> = inodes
        .iter()
        .map(|inode| format!("net:[{inode}]"))
        .collect();
    for _ in 0..LOOKS {
        let inhabitants = inhabitants(&homes);
        if inhabitants.is_empty() {
            return;
        }
        for process in inhabitants {
            kill(process, &homes);
        }
        thread::sleep(PAUSE);
    }
}

fn inhabitants(homes: &[String]) -> Vec<libc::pid_t> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = libc::pid_t::try_from(process::id()).unwrap_or(0);
    let processes = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes
        .filter(|process| *process != own && lives_in(*process, homes))
        .collect()
}

/// A process that has ended and waits for its parent lives nowhere.
fn lives_in(process: libc::pid_t, homes: &[String]) -> bool {
    let home = fs::read_link(format!("/proc/{process}/ns/net"));
    home.is_ok_and(|home| homes.iter().any(|known| home.as_os_str() == known.as_str()))
}

/// Kills a process if it is still the one that lives there.
fn kill(process: libc::pid_t, homes: &[String]) {
    // SAFETY: takes integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let Ok(descriptor) = RawFd::try_from(descriptor) else {
        return;
    };
    if descriptor < 0 {
        return;
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if lives_in(process, homes) {
        // SAFETY: no information goes with the signal.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                descriptor.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }
}
