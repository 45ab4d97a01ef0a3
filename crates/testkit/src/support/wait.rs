//! Waiting with a deadline, and checks that nothing happens.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::{PATIENCE, PATIENCE_MILLISECONDS, QUIET_MILLISECONDS, uninterrupted};
use crate::sys::{self, Descriptor};

/// `poll` on one descriptor. Returns its events.
#[track_caller]
pub fn poll_one(
    descriptor: Descriptor,
    events: libc::c_short,
    timeout: libc::c_int,
) -> libc::c_short {
    let mut entries = [libc::pollfd {
        fd: descriptor,
        events,
        revents: 0,
    }];
    match sys::poll(&mut entries, timeout) {
        Ok(_) => entries[0].revents,
        Err(errno) => panic!("poll: {errno:?}"),
    }
}

/// Waits until `poll` reports one of the events (or an error or hang-up). Returns the reported events.
#[track_caller]
pub fn await_events(descriptor: Descriptor, events: libc::c_short) -> libc::c_short {
    let revents = poll_one(descriptor, events, PATIENCE_MILLISECONDS);
    assert!(
        revents != 0,
        "poll for {events:#x} told nothing for {PATIENCE_MILLISECONDS} ms"
    );
    revents
}

/// Waits until `poll` reports exactly these events, when asked for `asked`.
#[track_caller]
pub fn await_exactly(descriptor: Descriptor, asked: libc::c_short, expected: libc::c_short) {
    let start = Instant::now();
    loop {
        let events = poll_one(descriptor, asked, 0);
        if events == expected {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "poll for {asked:#x} tells {events:#x}, not {expected:#x}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that `poll` reports nothing for a while.
#[track_caller]
pub fn expect_quiet(descriptor: Descriptor, events: libc::c_short) {
    let revents = poll_one(descriptor, events, QUIET_MILLISECONDS);
    assert_eq!(revents, 0, "poll for {events:#x} told {revents:#x}");
}

/// Waits until the condition is true.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Repeats an attempt, which returns the time that it took, until one takes less than `bound`. A busy machine makes
/// single attempts slow.
#[track_caller]
pub fn expect_within(bound: Duration, mut attempt: impl FnMut() -> Duration) {
    let start = Instant::now();
    let mut fastest = Duration::MAX;
    while fastest >= bound {
        assert!(start.elapsed() < PATIENCE, "{fastest:?}, not {bound:?}");
        fastest = fastest.min(attempt());
    }
}

/// Waits until a thread of this process (or a process) sleeps in the kernel and goes on sleeping.
#[track_caller]
pub fn await_asleep(task: libc::pid_t) {
    await_asleep_unless(task, || false);
}

/// As [`await_asleep`], but only as long as what the thread waits for is not over.
#[track_caller]
pub fn await_asleep_unless(task: libc::pid_t, is_over: impl Fn() -> bool) {
    await_calm(|| is_over() || TaskState::of(task).is_some_and(|state| state.is_asleep()));
}

#[track_caller]
fn await_calm(mut is_asleep: impl FnMut() -> bool) {
    let mut calm = 0;
    eventually("the thread sleeps", || {
        calm = if is_asleep() { calm + 1 } else { 0 };
        calm >= 15
    });
}

/// The state of a thread or a process. Looking at it opens no descriptor.
pub struct TaskState(File);

impl TaskState {
    /// The state of a thread of this process, or of a process. `None` where it has ended.
    #[must_use]
    pub fn of(task: libc::pid_t) -> Option<Self> {
        File::open(format!("/proc/{task}/stat")).ok().map(Self)
    }

    /// As [`await_asleep`].
    #[track_caller]
    pub fn await_asleep(&self) {
        await_calm(|| self.is_asleep());
    }

    fn is_asleep(&self) -> bool {
        let mut stat = [0; 512];
        let read = self.0.read_at(&mut stat, 0).unwrap_or(0);
        // The state follows the name, which is in parentheses and may hold any characters.
        let rest = stat[..read].rsplit(|byte| *byte == b')').next();
        rest.is_some_and(|rest| rest.trim_ascii_start().starts_with(b"S"))
    }
}

/// How many descriptors this process has open, without the one that reads the folder.
#[must_use]
pub fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .map(|entries| entries.count() - 1)
        .unwrap_or(0)
}

/// A pipe through which threads and processes release each other.
#[derive(Clone, Copy)]
pub struct Baton {
    reader: Descriptor,
    writer: Descriptor,
}

impl Default for Baton {
    fn default() -> Self {
        let [reader, writer] = sys::pipe(libc::O_CLOEXEC).expect("pipe");
        Self { reader, writer }
    }
}

impl Baton {
    /// A new baton, which children inherit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases one waiter.
    pub fn pass(&self) {
        self.send(0);
    }

    /// Waits for one `pass`.
    #[track_caller]
    pub fn take(&self) {
        let _ = self.receive();
    }

    /// Sends a number, which releases one waiter.
    pub fn send(&self, value: u64) {
        assert_eq!(
            sys::write(self.writer, &value.to_ne_bytes()),
            Ok(8),
            "baton"
        );
    }

    /// Waits for a number, whatever signals come.
    #[track_caller]
    pub fn receive(&self) -> u64 {
        let mut entries = [libc::pollfd {
            fd: self.reader,
            events: libc::POLLIN,
            revents: 0,
        }];
        let ready = uninterrupted(|| sys::poll(&mut entries, PATIENCE_MILLISECONDS));
        assert_eq!(ready, Ok(1), "nobody passed the baton");
        let mut bytes = [0_u8; 8];
        let read = uninterrupted(|| sys::read(self.reader, &mut bytes));
        assert_eq!(read, Ok(8), "baton");
        u64::from_ne_bytes(bytes)
    }

    /// Whether somebody passes it within some milliseconds. Does not take it.
    #[must_use]
    pub fn is_passed_within(&self, milliseconds: libc::c_int) -> bool {
        poll_one(self.reader, libc::POLLIN, milliseconds) != 0
    }

    /// Closes this process's ends of the pipe.
    pub fn close(self) {
        sys::close(self.reader).expect("close");
        sys::close(self.writer).expect("close");
    }
}
