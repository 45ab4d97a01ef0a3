//! Children, the watchdog, and the two ends of a conversation in processes or threads.

use std::ffi::CString;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Baton, Family, PATIENCE, connect_to, listener};
use crate::sys::{self, Descriptor, Errno};

/// How long a case may take before the watchdog ends it.
pub const WATCHDOG_SECONDS: libc::c_uint = 20;

static IN_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_watchdog(_: libc::c_int) {
    const TEXT: &[u8] = b"watchdog: not finished in time\n";
    // Not through the interposed functions, because they may be what hangs.
    // SAFETY: write with a valid buffer, then exit; both are safe in a signal handler.
    unsafe {
        libc::syscall(libc::SYS_write, 2, TEXT.as_ptr(), TEXT.len());
        libc::syscall(libc::SYS_exit_group, 1);
    }
}

/// Prepares a process for cases: a failure prints one line and ends with status 1, and a watchdog runs.
pub fn prepare_process() {
    std::panic::set_hook(Box::new(|information| {
        let prefix = if IN_CHILD.load(Ordering::Relaxed) {
            "child: "
        } else {
            ""
        };
        let payload = information.payload();
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("panic");
        let place = information
            .location()
            .map_or_else(String::new, ToString::to_string);
        let line = format!("FAIL {prefix}{text} ({place})\n");
        let _ = sys::write(2, line.as_bytes());
        sys::exit_now(1);
    }));
    start_watchdog();
    crate::far::prepare();
}

fn start_watchdog() {
    sys::handle_signal(libc::SIGALRM, on_watchdog, 0).expect("sigaction");
    sys::alarm(WATCHDOG_SECONDS);
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit status.
    Exit(libc::c_int),
    /// By a signal.
    Signal(libc::c_int),
}

/// A forked child. The kernel kills it if the parent dies first.
pub struct Child {
    /// Its process id.
    pub process: libc::pid_t,
}

impl Child {
    /// Waits for the child's end.
    #[track_caller]
    pub fn wait(&self) -> Ended {
        let start = Instant::now();
        loop {
            let (child, status) = sys::waitpid(self.process, libc::WNOHANG).expect("waitpid");
            if child == self.process {
                return ended(status);
            }
            assert!(
                start.elapsed() < PATIENCE,
                "child {} does not end",
                self.process
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the child's end, which must be a success.
    #[track_caller]
    pub fn join(&self) {
        assert_eq!(self.wait(), Ended::Exit(0), "the child failed");
    }

    /// Kills the child with SIGKILL and waits for its end.
    #[track_caller]
    pub fn kill(&self) {
        sys::kill(self.process, libc::SIGKILL).expect("kill");
        assert_eq!(self.wait(), Ended::Signal(libc::SIGKILL), "killed");
    }
}

/// Decodes a status of `waitpid`.
#[must_use]
pub fn ended(status: libc::c_int) -> Ended {
    if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Exit(libc::WEXITSTATUS(status))
    }
}

/// Zeroed memory that later children share, for good.
///
/// # Safety
/// Zeroes are a valid `T`, and all of its fields are atomics.
#[must_use]
pub unsafe fn shared_zeroed<T>() -> &'static T {
    // SAFETY: fresh memory is of zeroes; the rest is the caller's promise.
    unsafe { map_shared(libc::MAP_ANONYMOUS, -1) }
}

/// As [`shared_zeroed`], in a new file that programs which are started inherit. Returns its descriptor, too.
///
/// # Safety
/// As of [`shared_zeroed`].
pub unsafe fn shared_in_file<T>() -> (&'static T, Descriptor) {
    // SAFETY: a terminated name, and flags.
    let file = unsafe { libc::memfd_create(c"shared".as_ptr(), 0) };
    assert!(file >= 0, "memfd_create: {:?}", sys::last_errno());
    let size = libc::off_t::try_from(size_of::<T>()).expect("a small size");
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::ftruncate(file, size) }, 0, "ftruncate");
    // SAFETY: the file is new, so of zeroes; the rest is the caller's promise.
    (unsafe { shared_from_file(file) }, file)
}

/// What another program made with [`shared_in_file`].
///
/// # Safety
/// The file is of the same type, whose values may change at any time.
pub unsafe fn shared_from_file<T>(file: Descriptor) -> &'static T {
    // SAFETY: the caller's promise.
    unsafe { map_shared(0, file) }
}

/// # Safety
/// What is mapped holds a value of the type.
unsafe fn map_shared<T>(kind: libc::c_int, file: Descriptor) -> &'static T {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (size, flags) = (size_of::<T>(), libc::MAP_SHARED | kind);
    // SAFETY: a fresh mapping.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, file, 0) };
    assert_ne!(memory, libc::MAP_FAILED, "mmap: {:?}", sys::last_errno());
    // SAFETY: mapped for good, aligned to a page; the rest is the caller's promise.
    unsafe { &*memory.cast::<T>() }
}

/// Forks; the child runs the body and ends with status 0 if it returns.
#[must_use]
pub fn fork_child(body: impl FnOnce()) -> Child {
    let parent = sys::getpid();
    // SAFETY: the child runs Rust code; cases fork before they start threads, or their child
    // touches nothing that another thread may have locked.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork: {:?}", sys::last_errno());
    if process > 0 {
        return Child { process };
    }
    IN_CHILD.store(true, Ordering::Relaxed);
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: no argument, cannot fail.
    if unsafe { libc::getppid() } != parent {
        sys::exit_now(1);
    }
    start_watchdog();
    body();
    sys::exit_now(0)
}

/// Waits for a child with a given id that was started by other means (posix_spawn, vfork).
#[must_use]
pub fn child_of_id(process: libc::pid_t) -> Child {
    Child { process }
}

/// Starts a thread that runs the body. Returns the thread's kernel id too.
pub fn start_thread<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> (std::thread::JoinHandle<T>, libc::pid_t) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let handle = std::thread::spawn(move || {
        sender.send(sys::gettid()).expect("the starter waits");
        drop(sender);
        body()
    });
    let task = receiver.recv().expect("the thread started");
    (handle, task)
}

/// Joins a thread; a panic in it has already ended the process.
#[track_caller]
pub fn join_thread<T>(handle: std::thread::JoinHandle<T>) -> T {
    super::eventually("the thread ends", || handle.is_finished());
    match handle.join() {
        Ok(value) => value,
        Err(_) => panic!("the thread panicked"),
    }
}

/// Where the two ends of a case run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The server is a forked child that makes its own listener.
    Processes,
    /// The server is a thread of the same process.
    Threads,
}

/// A server's side that waits for one connection and then runs a body with it, while the client's
/// side runs in the caller. Both bodies own their descriptor and may close it.
#[track_caller]
pub fn converse(
    family: Family,
    place: Place,
    server: impl FnOnce(Descriptor) + Send + 'static,
    client: impl FnOnce(Descriptor),
) {
    let ready = Baton::new();
    let serve = move || {
        let (listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        let connection = sys::accept(listening).expect("accept");
        sys::close(listening).expect("close");
        server(connection);
    };
    let start = || {
        let port = u16::try_from(ready.receive()).expect("a port");
        client(connect_to(family.loopback(port)));
    };
    match place {
        Place::Processes => {
            let child = fork_child(serve);
            start();
            child.join();
        }
        Place::Threads => {
            let (thread, _) = start_thread(serve);
            start();
            join_thread(thread);
        }
    }
}

/// A forked server that accepts one connection and runs a body with it. Returns the child and the client's end, for
/// cases that kill the server or wait for its end themselves.
#[must_use]
pub fn forked_server(
    family: Family,
    server: impl FnOnce(Descriptor),
) -> (Child, Descriptor, SocketAddr) {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        let connection = sys::accept(listening).expect("accept");
        sys::close(listening).expect("close");
        server(connection);
    });
    let address = family.loopback(u16::try_from(ready.receive()).expect("a port"));
    let client = connect_to(address);
    ready.close();
    (child, client, address)
}

/// Replaces the process image with this program again: `conformance helper NAME ARGUMENTS`.
/// Without the library, `LD_PRELOAD` is taken out of the environment.
pub fn exec_helper(arguments: &[&str], with_library: bool) -> ! {
    let program = std::env::current_exe().expect("the program's path");
    let program = program.to_str().expect("a readable path");
    let (words, pointers) = terminated(&[&[program, "helper"], arguments].concat());
    let environment: Vec<_> = std::env::vars()
        .filter(|(name, _)| with_library || name != "LD_PRELOAD")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let environment: Vec<_> = environment.iter().map(String::as_str).collect();
    let (_environment, variables) = terminated(&environment);
    // SAFETY: program, words and environment are terminated and alive.
    unsafe { libc::execve(words[0].as_ptr(), pointers.as_ptr(), variables.as_ptr()) };
    panic!("execve: {:?}", sys::last_errno());
}

/// Words as a program gets them, and the list of their pointers.
#[must_use]
pub fn terminated(words: &[&str]) -> (Vec<CString>, Vec<*const libc::c_char>) {
    let text = |word: &&str| CString::new(*word).expect("no zero byte");
    let words: Vec<CString> = words.iter().map(text).collect();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    (words, pointers)
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Spawns a program, the first of `words`, with `moved` as its standard input and output.
#[track_caller]
#[must_use]
pub fn spawn(words: &[&str], moved: Option<Descriptor>) -> Child {
    let (words, pointers) = terminated(words);
    let mut process = 0;
    let mut actions = std::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    // SAFETY: the actions are initialised before use; path, words and environment are terminated.
    let result = unsafe {
        libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        if let Some(descriptor) = moved {
            libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), descriptor, 0);
            libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), descriptor, 1);
            libc::posix_spawn_file_actions_addclose(actions.as_mut_ptr(), descriptor);
        }
        let result = libc::posix_spawnp(
            &raw mut process,
            words[0].as_ptr(),
            actions.as_ptr(),
            std::ptr::null(),
            pointers.as_ptr().cast(),
            environ.cast(),
        );
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        result
    };
    assert_eq!(result, 0, "posix_spawn");
    Child { process }
}

/// Spawns a shell command with `moved` as its standard input and output.
#[track_caller]
#[must_use]
pub fn spawn_shell(command: &str, moved: Option<Descriptor>) -> Child {
    spawn(&["/bin/sh", "-c", command], moved)
}

/// Spawns this program's helper, as [`exec_helper`] executes it.
#[track_caller]
#[must_use]
pub fn spawn_helper(arguments: &[&str], moved: Option<Descriptor>) -> Child {
    let program = std::env::current_exe().expect("the program's path");
    let program = program.to_str().expect("a readable path");
    spawn(&[&[program, "helper"], arguments].concat(), moved)
}

/// Retries a call while a signal interrupts it.
pub fn uninterrupted<T>(mut call: impl FnMut() -> sys::Outcome<T>) -> sys::Outcome<T> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            answer => return answer,
        }
    }
}
