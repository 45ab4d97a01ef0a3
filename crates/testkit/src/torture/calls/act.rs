//! An actor waits for its next step, makes the call, and notes the result.
#![allow(
    clippy::cast_possible_truncation,
    reason = "results of calls are words, whatever C takes them for"
)]

use std::ffi::CString;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::board::{Board, END};
use super::filling;
use super::form::Kind;
use super::look::{ReturnedCall, result_text};
use super::memory::{Memory, fill, first};
use super::prepare::Maker;
use super::program::{MOST_ACTORS, Program, Step};
use super::words::signal_name;

/// The signal that interrupts a waiting call.
pub const INTERRUPT: i32 = libc::SIGUSR2;

const COUNTED: [i32; 4] = [libc::SIGPIPE, libc::SIGUSR1, libc::SIGIO, libc::SIGURG];
thread_local! {
    /// How often each signal arrived at this thread since the last look.
    static SIGNALS: [AtomicU32; 65] = const { [const { AtomicU32::new(0) }; 65] };
}

extern "C" fn on_signal(signal: i32) {
    count_of(signal, |count| count.fetch_add(1, Ordering::Relaxed));
}

fn count_of(signal: i32, act: impl FnOnce(&AtomicU32) -> u32) -> u32 {
    let place = usize::try_from(signal).unwrap_or(0);
    SIGNALS.with(|counts| counts.get(place).map_or(0, act))
}

/// One actor: a process of its own, or one of its threads.
#[derive(Clone, Copy)]
pub struct Actor {
    board: Board,
    program: &'static Program,
    path: &'static Path,
    index: usize,
}

/// If this variable is set, one end of many connections runs without the library.
pub const ONE_END: &str = "TORTURE_CALLS_ONE_END";

/// The command-line word with which an executed program goes on as an actor.
pub const COMMAND: &str = "calls-actor";

impl Actor {
    /// The first actor of a program, which is this process.
    pub fn first(board: Board, program: &'static Program, path: &'static Path) -> Self {
        Self {
            board,
            program,
            path,
            index: 0,
        }
    }

    /// The actor that another program goes on as.
    pub fn again(path: &str, index: &str) -> Option<Self> {
        let path: &'static Path = Box::leak(Box::<Path>::from(Path::new(path)));
        let board = Board::map(path, false).ok()?;
        let program = Program::read(&board.text()).ok()?;
        Some(Self {
            board,
            program: Box::leak(Box::new(program)),
            path,
            index: index.parse().ok().filter(|index| *index < MOST_ACTORS)?,
        })
    }

    /// Works until the command [`END`] comes. `last` is the last command that is done.
    pub fn work(self, last: u32) -> ! {
        prepare_signals();
        self.go_on(last)
    }

    fn go_on(self, mut last: u32) -> ! {
        self.board.register(self.index);
        let mut memory = Memory::new();
        loop {
            let command = self.board.wait_for_command(self.index, last);
            if command == END {
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            last = command;
            let place = command as usize - 1;
            if let Some(step) = self.program.steps.get(place) {
                let mut text = self.step(step, command, &mut memory);
                text.push_str(&signals_text());
                self.board.note(place, &text);
            }
            self.board.done(self.index, command);
        }
    }

    fn step(self, step: &Step, command: u32, memory: &mut Memory) -> String {
        memory.clear();
        if !step.form.library {
            return self.run_actor_action(step, command, memory);
        }
        let mut maker = Maker {
            board: self.board,
            actor: self.index,
            memory,
        };
        let prepared = maker.call(step);
        let (result, errno) = call(step, &prepared.words);
        let returned = ReturnedCall {
            board: self.board,
            actor: self.index,
            step,
            result,
        };
        let mut text = match fcntl_command(step) {
            Some(libc::F_GETOWN) => returned.actor_of_process(i32::try_from(result).unwrap_or(-1)),
            _ => result_text(result, errno),
        };
        let makes = fcntl_command(step)
            .is_none_or(|command| [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&command));
        if step.form.makes && makes {
            returned.keep(step.number, i32::try_from(result).unwrap_or(-1));
        }
        text.push_str(&returned.answers(&prepared));
        text
    }

    fn run_actor_action(self, step: &Step, command: u32, memory: &mut Memory) -> String {
        let value = step.arguments.first().map_or(0, first);
        let other = usize::try_from(value).unwrap_or(0).min(MOST_ACTORS - 1);
        let second = step.arguments.get(1).map_or(0, first);
        match step.form.name {
            "fork" => self.fork(other, command),
            "thread" => self.thread(other),
            "exec" => self.exec(command),
            // SAFETY: ends the process.
            "exit" => unsafe { libc::_exit(i32::try_from(value).unwrap_or(0)) },
            "kill" | "end" => {
                let signal = if step.form.name == "end" {
                    libc::SIGKILL
                } else {
                    i32::try_from(second).unwrap_or(0)
                };
                let Some((process, thread)) = self.board.thread_of(other) else {
                    return "nobody".to_owned();
                };
                // SAFETY: takes integers; only actors of this case are meant.
                let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
                result_text(result as isize, errno())
            }
            "reap" => {
                let Some((process, _)) = self.board.thread_of(other) else {
                    return "nobody".to_owned();
                };
                let mut status = 0;
                // SAFETY: status has room.
                let result = unsafe { libc::waitpid(process, &raw mut status, libc::WNOHANG) };
                match result {
                    -1 => result_text(-1, errno()),
                    0 => "lives".to_owned(),
                    _ => format!("status={status:x}"),
                }
            }
            "action" => action(i32::try_from(value).unwrap_or(0), second),
            "numbers" => numbers(),
            "fill" | "drain" => {
                let maker = Maker {
                    board: self.board,
                    actor: self.index,
                    memory,
                };
                let socket = maker.descriptor(value);
                if step.form.name == "fill" {
                    filling::fill_up(self.board, socket, second, step.number)
                } else {
                    let third = step.arguments.get(2).map_or(0, first);
                    filling::drain(self.board, socket, second, third != 0)
                }
            }
            "file" => {
                let size = usize::try_from(value).unwrap_or(0).min(1 << 20);
                let mut bytes = vec![0; size];
                fill(&mut bytes, step.number, 0);
                // SAFETY: a name that ends with a zero; the bytes are valid.
                let file = unsafe {
                    let file = libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC);
                    libc::pwrite(file, bytes.as_ptr().cast(), size, 0);
                    file
                };
                if let Ok(variable) = usize::try_from(step.number) {
                    self.board
                        .variable(self.index, variable)
                        .store(file, Ordering::Relaxed);
                }
                let _ = memory;
                file.to_string()
            }
            _ => "unknown".to_owned(),
        }
    }

    fn fork(self, child: usize, command: u32) -> String {
        if self.board.thread_of(child).is_some() {
            return "there is one".to_owned();
        }
        self.board.introduce(child, self.index, true);
        // SAFETY: the child goes on as an actor, which allocates: the C library's own survives a fork.
        match unsafe { libc::fork() } {
            0 => {
                for signal in COUNTED {
                    count_of(signal, |count| count.swap(0, Ordering::Relaxed));
                }
                let child = Self {
                    index: child,
                    ..self
                };
                if self.runs_without_library(command) {
                    child.execute(0, false);
                }
                child.go_on(0)
            }
            -1 => result_text(-1, errno()),
            _ => self.await_registration(child),
        }
    }

    fn thread(self, other: usize) -> String {
        if self.board.thread_of(other).is_some() {
            return "there is one".to_owned();
        }
        self.board.introduce(other, self.index, false);
        let actor = Self {
            index: other,
            ..self
        };
        match std::thread::Builder::new().spawn(move || actor.go_on(0)) {
            Ok(_) => self.await_registration(other),
            Err(error) => result_text(-1, error.raw_os_error().unwrap_or(0)),
        }
    }

    /// Waits until a new actor has registered on the board.
    fn await_registration(self, other: usize) -> String {
        let mut looks = 0..200;
        if looks.any(|_| self.board.wait_for(other, Duration::from_millis(10))) {
            "made".to_owned()
        } else {
            "does not come".to_owned()
        }
    }

    /// Whether the child of a step goes on without a library. With [`ONE_END`] these are the children that are made
    /// before all other steps.
    fn runs_without_library(self, command: u32) -> bool {
        let mut before = self.program.steps.iter().take(command as usize);
        std::env::var_os(ONE_END).is_some() && before.all(|step| step.form.name == "fork")
    }

    fn exec(self, command: u32) -> String {
        self.board.note(command as usize - 1, "another program");
        self.execute(command, true)
    }

    /// Executes another program that goes on as this actor, after a command that is done.
    fn execute(self, command: u32, library: bool) -> String {
        let words = [
            "torture".to_owned(),
            COMMAND.to_owned(),
            self.path.display().to_string(),
            self.index.to_string(),
            command.to_string(),
        ];
        if !library {
            // SAFETY: a child that was just forked has one thread.
            unsafe { std::env::remove_var("LD_PRELOAD") };
        }
        let words: Vec<_> = words
            .into_iter()
            .filter_map(|word| CString::new(word).ok())
            .collect();
        let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: a path and words that end with a null.
        unsafe { libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr()) };
        result_text(-1, errno())
    }
}

fn fcntl_command(step: &Step) -> Option<i32> {
    let place = step
        .form
        .arguments
        .iter()
        .position(|kind| *kind == Kind::Command)?;
    i32::try_from(first(step.arguments.get(place)?)).ok()
}

/// Makes a call, by its name in the C library or by its number.
fn call(step: &Step, words: &[usize]) -> (isize, i32) {
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    let (a, b, c, d, e, f) = (word(0), word(1), word(2), word(3), word(4), word(5));
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = 0 };
    let result = match step.form.number.filter(|_| step.by_number) {
        // SAFETY: what the kernel cannot read or write it refuses; actors have nothing to lose.
        Some(number) => unsafe { libc::syscall(number, a, b, c, d, e, f) as isize },
        None => {
            let name = CString::new(step.form.name).unwrap_or_default();
            // SAFETY: functions of the C library that take up to six words; more than a function takes do no harm where arguments
            // are passed in registers, as on both architectures that this runs on.
            unsafe {
                let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                if function.is_null() {
                    return (-1, libc::ENOSYS);
                }
                let function: extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize =
                    std::mem::transmute(function);
                let result = function(a, b, c, d, e, f);
                if gives_int(step.form.name) {
                    result as i32 as isize
                } else {
                    result
                }
            }
        }
    };
    (result, errno())
}

/// Whether the upper half of the result is undefined.
fn gives_int(name: &str) -> bool {
    !matches!(
        name,
        "send"
            | "recv"
            | "sendto"
            | "recvfrom"
            | "read"
            | "write"
            | "readv"
            | "writev"
            | "preadv2"
            | "pwritev2"
            | "pread"
            | "pwrite"
            | "lseek"
            | "sendmsg"
            | "recvmsg"
            | "sendfile"
            | "splice"
    )
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_action(signal: i32, handler: usize, flags: i32) -> bool {
    // SAFETY: a sigaction of zeroes is valid; the handler only counts.
    unsafe {
        let mut value: libc::sigaction = std::mem::zeroed();
        value.sa_sigaction = handler;
        value.sa_flags = flags;
        libc::sigaction(signal, &raw const value, std::ptr::null_mut()) == 0
    }
}

fn prepare_signals() {
    let handler = on_signal as *const () as usize;
    for signal in COUNTED {
        set_action(signal, handler, 0);
    }
    set_action(INTERRUPT, handler, 0);
}

fn action(signal: i32, what: i64) -> String {
    let handler = on_signal as *const () as usize;
    let done = match what {
        0 => set_action(signal, libc::SIG_DFL, 0),
        1 => set_action(signal, libc::SIG_IGN, 0),
        2 => set_action(signal, handler, 0),
        3 => set_action(signal, handler, libc::SA_RESTART),
        _ => {
            // SAFETY: a set of one signal.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&raw mut set, signal);
                let how = if what == 4 {
                    libc::SIG_BLOCK
                } else {
                    libc::SIG_UNBLOCK
                };
                libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) == 0
            }
        }
    };
    result_text(if done { 0 } else { -1 }, errno())
}

fn signals_text() -> String {
    let mut text = String::new();
    for signal in COUNTED {
        let count = count_of(signal, |count| count.swap(0, Ordering::Relaxed));
        if count > 0 {
            let _ = write!(text, " {}*{count}", signal_name(signal));
        }
    }
    text
}

/// The program's descriptors: their numbers and types. The descriptors of a library lie beyond.
fn numbers() -> String {
    let mut text = "open".to_owned();
    for fd in 0..200 {
        // SAFETY: room for a status; a path of the process's own.
        let mode = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &raw mut status) < 0 {
                continue;
            }
            status.st_mode & libc::S_IFMT
        };
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        let kind = link.map_or_else(
            |_| "?".to_owned(),
            |link| {
                let name = link.display().to_string();
                name.split("[")
                    .next()
                    .map(|name| name.split(" ").next().unwrap_or(name).to_owned())
                    .unwrap_or(name)
            },
        );
        // SAFETY: takes an integer.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        let _ = write!(
            text,
            " {fd}:{kind}{:o}{}",
            mode >> 12,
            if flags == 1 { "c" } else { "" }
        );
    }
    text
}

/// The executed program goes on as the same actor.
pub fn go_on(words: &[String]) -> i32 {
    let [path, index, last] = words else { return 2 };
    let Some(actor) = Actor::again(path, index) else {
        return 1;
    };
    let last: u32 = last.parse().unwrap_or(0);
    if last > 0 {
        prepare_signals();
        actor.board.register(actor.index);
        actor.board.done(actor.index, last);
    }
    actor.work(last)
}
