//! The state that the conductor of a case shares with its actors: a file that all of them map and none keeps open.
//!
//! ```text
//!  actors     a mailbox each: command, last command done, process and thread
//!  variables  the descriptors of each process
//!  addresses  what `getsockname` returned for each variable
//!  text       the program
//!  log        what each step observed
//!  totals     how many bytes each step sent, and how many of them were read
//! ```

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::program::{MOST_ACTORS, MOST_STEPS};

const MAILBOX: usize = 64;
const VARIABLES: usize = 1024;
const ADDRESS: usize = 128;
const TEXT: usize = 64 << 10;
const NOTE: usize = 1024;

const AT_VARIABLES: usize = MAILBOX * (MOST_ACTORS + 1);
const AT_ADDRESSES: usize = AT_VARIABLES + MOST_ACTORS * VARIABLES * 4;
const AT_TEXT: usize = AT_ADDRESSES + VARIABLES * ADDRESS;
const AT_LOG: usize = AT_TEXT + TEXT;
const AT_TOTALS: usize = AT_LOG + (MOST_STEPS + 2) * NOTE;
const SIZE: usize = AT_TOTALS + (MOST_STEPS + 2) * 16;

/// The command that ends an actor.
pub const END: u32 = u32::MAX;

/// The mapped shared file.
#[derive(Clone, Copy)]
pub struct Board(*mut u8);

// SAFETY: the mapping lives as long as the process, and is used as atomics or by one actor at a time.
unsafe impl Send for Board {}

/// Words of a mailbox.
#[derive(Clone, Copy)]
enum Word {
    Command = 0,
    Done = 1,
    Process = 2,
    Thread = 3,
    /// The actor whose variables this actor uses.
    Variables = 4,
    /// The last command that the actor has begun.
    Begun = 5,
    /// Of the case: how long bytes in transit may take, in microseconds. It stands in the mailbox behind the actors'.
    Settling = 6,
}

impl Board {
    /// Maps the file, which is created if `new`.
    pub fn map(path: &Path, new: bool) -> std::io::Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC | if new { libc::O_CREAT } else { 0 };
        // SAFETY: a path that ends with a zero; the mapping lives as long as the process.
        unsafe {
            let file = libc::open(name.as_ptr(), flags, 0o600);
            if file < 0 || (new && libc::ftruncate(file, SIZE as libc::off_t) < 0) {
                return Err(std::io::Error::last_os_error());
            }
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let at = libc::mmap(std::ptr::null_mut(), SIZE, access, kind, file, 0);
            libc::close(file);
            if at == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Self(at.cast()))
        }
    }

    /// Clears the board and stores a program's text.
    pub fn reset(self, text: &str) -> bool {
        if text.len() >= TEXT {
            return false;
        }
        // SAFETY: within the mapping; no actor lives yet.
        unsafe {
            std::ptr::write_bytes(self.0, 0, SIZE);
            std::ptr::write_bytes(self.0.add(AT_VARIABLES), 0xff, AT_ADDRESSES - AT_VARIABLES);
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.add(AT_TEXT), text.len());
        }
        true
    }

    /// The program's text.
    pub fn text(self) -> String {
        // SAFETY: within the mapping, which is not written while actors live.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.add(AT_TEXT), TEXT) };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn word(self, actor: usize, word: Word) -> &'static AtomicU32 {
        assert!(actor <= MOST_ACTORS);
        // SAFETY: within the mapping, aligned, and only used as an atomic.
        unsafe { &*self.0.add(actor * MAILBOX + word as usize * 4).cast() }
    }

    /// A variable of a process.
    pub fn variable(self, actor: usize, number: usize) -> &'static AtomicI32 {
        let whose = self.word(actor, Word::Variables).load(Ordering::Relaxed) as usize;
        self.variable_of(whose, number)
    }

    fn variable_of(self, process: usize, number: usize) -> &'static AtomicI32 {
        assert!(process < MOST_ACTORS && number < VARIABLES);
        // SAFETY: within the mapping, aligned, and only used as an atomic.
        unsafe {
            &*self
                .0
                .add(AT_VARIABLES + (process * VARIABLES + number) * 4)
                .cast()
        }
    }

    /// How many bytes a step has sent, and how many of them were read.
    pub fn totals(self, step: i64) -> (&'static AtomicU64, &'static AtomicU64) {
        let step = usize::try_from(step).unwrap_or(0).min(MOST_STEPS + 1);
        // SAFETY: within the mapping, aligned, and only used as atomics.
        unsafe {
            let at = self.0.add(AT_TOTALS + step * 16).cast::<AtomicU64>();
            (&*at, &*at.add(1))
        }
    }

    /// Stores how long bytes in transit may take.
    pub fn set_settling(self, settling: Duration) {
        let micros = u32::try_from(settling.as_micros()).unwrap_or(u32::MAX);
        self.word(MOST_ACTORS, Word::Settling)
            .store(micros, Ordering::Relaxed);
    }

    /// How long bytes in transit may take.
    pub fn settling(self) -> Duration {
        let micros = self.word(MOST_ACTORS, Word::Settling);
        Duration::from_micros(micros.load(Ordering::Relaxed).into())
    }

    /// Registers an actor, with its own copy of its parent's variables or with the same variables.
    pub fn introduce(self, actor: usize, parent: usize, own: bool) {
        let whose = self.word(parent, Word::Variables).load(Ordering::Relaxed) as usize;
        if own && actor != parent {
            for number in 0..VARIABLES {
                let value = self.variable_of(whose, number).load(Ordering::Relaxed);
                self.variable_of(actor, number)
                    .store(value, Ordering::Relaxed);
            }
        }
        let index = if own { actor } else { whose };
        self.word(actor, Word::Variables)
            .store(u32::try_from(index).unwrap_or(0), Ordering::Relaxed);
    }

    /// Registers the calling thread as an actor.
    pub fn register(self, actor: usize) {
        // SAFETY: no arguments.
        let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        self.word(actor, Word::Thread)
            .store(thread.cast_unsigned(), Ordering::Relaxed);
        // Pairs with the load in `thread_of`.
        self.word(actor, Word::Process)
            .store(process.cast_unsigned(), Ordering::Release);
        wake(self.word(actor, Word::Process));
    }

    /// Process and thread of a registered actor.
    pub fn thread_of(self, actor: usize) -> Option<(i32, i32)> {
        // Pairs with the store in `register`.
        let process = self.word(actor, Word::Process).load(Ordering::Acquire);
        let thread = self.word(actor, Word::Thread).load(Ordering::Relaxed);
        (process != 0).then_some((process.cast_signed(), thread.cast_signed()))
    }

    /// Waits at most `limit` until an actor is registered.
    pub fn wait_for(self, actor: usize, limit: Duration) -> bool {
        if self.thread_of(actor).is_none() {
            sleep(self.word(actor, Word::Process), 0, limit);
        }
        self.thread_of(actor).is_some()
    }

    /// The buffer for the address of a variable, with its length in front.
    pub fn address(self, number: usize) -> *mut u8 {
        assert!(number < VARIABLES);
        // SAFETY: within the mapping.
        unsafe { self.0.add(AT_ADDRESSES + number * ADDRESS) }
    }

    /// Gives an actor a command.
    pub fn command(self, actor: usize, command: u32) {
        // Pairs with the load in `wait_for_command`.
        self.word(actor, Word::Command)
            .store(command, Ordering::Release);
        wake(self.word(actor, Word::Command));
    }

    /// Waits until the command differs from the last one.
    pub fn wait_for_command(self, actor: usize, last: u32) -> u32 {
        let word = self.word(actor, Word::Command);
        loop {
            // Pairs with the store in `command`.
            let command = word.load(Ordering::Acquire);
            if command != last {
                self.word(actor, Word::Begun)
                    .store(command, Ordering::Relaxed);
                return command;
            }
            sleep(word, last, Duration::from_secs(10));
        }
    }

    /// Marks a command as done.
    pub fn done(self, actor: usize, command: u32) {
        // Pairs with the load in `is_done`.
        self.word(actor, Word::Done)
            .store(command, Ordering::Release);
        wake(self.word(actor, Word::Done));
    }

    pub fn is_done(self, actor: usize, command: u32) -> bool {
        // Pairs with the store in `done`.
        self.word(actor, Word::Done).load(Ordering::Acquire) == command
    }

    pub fn has_begun(self, actor: usize, command: u32) -> bool {
        self.word(actor, Word::Begun).load(Ordering::Relaxed) == command
    }

    /// Waits at most `limit` until a command is done.
    pub fn wait_until_done(self, actor: usize, command: u32, limit: Duration) -> bool {
        let word = self.word(actor, Word::Done);
        let seen = word.load(Ordering::Relaxed);
        if seen != command {
            sleep(word, seen, limit);
        }
        self.is_done(actor, command)
    }

    /// Writes what a step observed. Only one process calls this at a time.
    pub fn note(self, step: usize, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(NOTE - 1)];
        // SAFETY: within the mapping; the conductor reads after the step is done or its actor is gone.
        unsafe {
            let at = self.0.add(AT_LOG + step.min(MOST_STEPS) * NOTE);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at.add(bytes.len()).write(0);
        }
    }

    /// The observation of a step.
    pub fn noted(self, step: usize) -> String {
        // SAFETY: within the mapping.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.0.add(AT_LOG + step.min(MOST_STEPS) * NOTE), NOTE)
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NOTE);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

fn sleep(word: &AtomicU32, value: u32, limit: Duration) {
    let time = libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: the word and the time are valid; a spurious return is allowed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const time,
        )
    };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
