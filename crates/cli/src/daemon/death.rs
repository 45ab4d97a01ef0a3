//! The last line of the log: where the daemon was when a fault, an abort or a panic ended it.
//!
//! The handler of a signal may be called anywhere, so it allocates nothing, takes no lock and reads what was prepared at the start. The
//! process then ends by that signal, as it would have without the line.

mod line;
mod modules;
mod stack;

use line::Line;
use modules::Modules;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Signals by which a program ends through a fault of its own.
const SIGNALS: [(c_int, &str); 7] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGSYS, "SIGSYS"),
];

/// The parts of the line that are known before.
struct Prepared {
    /// None: standard error.
    log: Option<CString>,
    modules: Modules,
}

static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(null_mut());
/// A panic has already reported why the process aborts.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Prepares for the end. `log` as for the log itself.
pub fn prepare(log: Option<&Path>) {
    let log = log.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let modules = Modules::loaded();
    let prepared = Box::into_raw(Box::new(Prepared { log, modules }));
    PREPARED.store(prepared, Ordering::Release);
    std::panic::set_hook(Box::new(report_panic));
    for (signal, name) in SIGNALS {
        // SAFETY: all zero is a value of it.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: the handler keeps to what a handler may do; the structure is a local.
        if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } != 0 {
            tracing::warn!("an end by {name} will not be told");
        }
    }
}

fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let mut line = Line::new();
    let _ = write!(line, "panic");
    if let Some(place) = panic.location() {
        let _ = write!(line, " at {place}");
    }
    let words = panic.payload();
    let text = words.downcast_ref::<&str>().copied();
    let said = text.or_else(|| words.downcast_ref::<String>().map(String::as_str));
    let _ = write!(line, ": {}", said.unwrap_or("without a word"));
    end(&mut line);
    TOLD.store(true, Ordering::Relaxed);
}

extern "C" fn on_signal(signal: c_int, details: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both with SA_SIGINFO.
    let (details, context) = unsafe { (&*details, &*context.cast::<libc::ucontext_t>()) };
    let was_sent = details.si_code <= 0;
    if !(signal == libc::SIGABRT && TOLD.load(Ordering::Relaxed)) {
        tell(signal, details, context, was_sent);
    }
    if was_sent {
        // A fault comes again by itself when the handler returns; this does not. The default action waits for the return.
        // SAFETY: plain numbers.
        unsafe { libc::raise(signal) };
    }
}

fn tell(signal: c_int, details: &libc::siginfo_t, context: &libc::ucontext_t, was_sent: bool) {
    let mut line = Line::new();
    let name = SIGNALS.iter().find(|one| one.0 == signal);
    let _ = write!(line, "ended by {}", name.map_or("a signal", |one| one.1));
    if was_sent {
        // SAFETY: a signal that was sent says by whom.
        let (process, user) = unsafe { (details.si_pid(), details.si_uid()) };
        let _ = write!(line, " sent by process {process} of user {user}");
    } else if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
        // SAFETY: a fault says its address.
        let address = unsafe { details.si_addr() }.addr();
        let _ = write!(line, " at the address {address:#x}");
    }
    // SAFETY: null, or a leaked box.
    if let Some(prepared) = unsafe { PREPARED.load(Ordering::Acquire).as_ref() } {
        let (instruction, stack) = stack::registers(context);
        let _ = write!(line, ", instruction ");
        prepared.modules.show(instruction, &mut line);
        let mut words = [0; stack::WORDS];
        let callers = stack::words(stack, &mut words);
        prepared.modules.show_callers(callers, &mut line);
    }
    end(&mut line);
}

/// Adds the identity of the process, and writes the line.
fn end(line: &mut Line) {
    let mut name = [0_u8; 16];
    // SAFETY: at most 16 bytes are written, the last of them zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    // SAFETY: no arguments.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let _ = writeln!(
        line,
        "; thread {} ({thread}) of process {process}, netchannel {}",
        name.to_str().unwrap_or("?"),
        env!("CARGO_PKG_VERSION")
    );
    // SAFETY: null, or a leaked box.
    let prepared = unsafe { PREPARED.load(Ordering::Acquire).as_ref() };
    let log = prepared.and_then(|one| one.log.as_deref());
    let path = log.map_or(null(), CStr::as_ptr);
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string or null, of which the kernel makes an error; the line is a local. `open` and `write` may be called anywhere.
    unsafe {
        let opened = libc::open(path, flags, 0o600);
        let to = if opened < 0 {
            libc::STDERR_FILENO
        } else {
            opened
        };
        let bytes = line.bytes();
        libc::write(to, bytes.as_ptr().cast(), bytes.len());
        if opened >= 0 {
            libc::close(opened);
        }
    }
}

#[cfg(test)]
#[path = "death_tests.rs"]
mod tests;
