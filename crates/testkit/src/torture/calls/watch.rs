//! Observes threads from outside: whether a thread sleeps, how often it has gone to sleep, whether it has ended.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The thread sleeps. The number says how often it has gone to sleep.
    Asleep(u64),
    Busy,
    /// The thread has ended, with the status that `wait` would return.
    Dead(i32),
}

/// A thread that is checked repeatedly.
pub struct Watch {
    process: i32,
    thread: i32,
    status: Option<File>,
}

impl Watch {
    pub fn new(process: i32, thread: i32) -> Self {
        let status = File::open(format!("/proc/{process}/task/{thread}/status")).ok();
        Self {
            process,
            thread,
            status,
        }
    }

    pub fn is_of(&self, (process, thread): (i32, i32)) -> bool {
        self.process == process && self.thread == thread
    }

    pub fn state(&self) -> State {
        let mut text = [0; 4096];
        let read = self.status.as_ref().map(|file| file.read_at(&mut text, 0));
        let Some(Ok(size)) = read else {
            return State::Dead(0);
        };
        let text = text.get(..size).unwrap_or_default();
        match field(text, b"\nState:\t").and_then(<[u8]>::first) {
            Some(b'S') => State::Asleep(number(field(text, b"\nvoluntary_ctxt_switches:\t"))),
            Some(b'Z' | b'X') => State::Dead(status(self.process, self.thread)),
            _ => State::Busy,
        }
    }
}

/// The state of a process's first thread.
pub fn state(process: i32) -> State {
    Watch::new(process, process).state()
}

/// The value of a field.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(name.len()).position(|part| part == name)?;
    text.get(at + name.len()..)
}

fn number(text: Option<&[u8]>) -> u64 {
    let digits = text.unwrap_or_default().iter();
    digits
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'))
}

/// The status of an ended process that has not been reaped.
fn status(process: i32, thread: i32) -> i32 {
    let path = format!("/proc/{process}/task/{thread}/stat");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let word = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(49));
    word.and_then(|word| word.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{State, Watch, state};

    #[test]
    fn who_sleeps_is_told_from_who_runs_and_who_is_gone() {
        // SAFETY: no arguments.
        let (process, own) = unsafe { (libc::getpid(), libc::gettid()) };
        assert_eq!(Watch::new(process, own).state(), State::Busy);
        let (sender, receiver) = std::sync::mpsc::channel();
        let (ends, waits) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: no arguments.
            sender.send(unsafe { libc::gettid() }).unwrap();
            let _ = waits.recv();
        });
        let watch = Watch::new(process, receiver.recv().unwrap());
        while !matches!(watch.state(), State::Asleep(_)) {
            std::thread::yield_now();
        }
        drop(ends);
        sleeper.join().unwrap();
        while watch.state() != State::Dead(0) {
            std::thread::yield_now();
        }
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(3) }
        }
        while !matches!(state(child), State::Dead(_)) {
            std::thread::yield_now();
        }
        assert_eq!(state(child), State::Dead(0x300));
    }
}
