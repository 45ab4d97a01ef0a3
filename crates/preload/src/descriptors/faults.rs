//! Faults in the program's buffers. The library takes `SIGSEGV` and `SIGBUS`, so that a copy that
//! meets a bad address stops there; every other fault goes to the handler the program believes to
//! have installed, just as the kernel would have called it.
//!
//! ```text
//!  kernel --> on_fault --in a copy of ours--> the copy goes on behind the fault, with EFAULT
//!                 |else
//!                 v
//!             the program's handler, or the default action
//! ```
//!
//! The kernel knows the program's mask and flags, except that the handler is ours: so masks,
//! alternate stacks and restarts are the kernel's own work.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};

use libc::{c_int, c_void, sigaction, siginfo_t};
use netchannel_shm::copy;

use crate::descriptors::copying;
use crate::ground::lock::Lock;
use crate::ground::{process, real, sys};

/// What the program wants done with one of the two signals.
struct Wanted {
    /// Odd while it changes.
    sequence: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
    /// `siginterrupt` was called: `signal` then asks for no restart.
    interrupts: AtomicBool,
}

impl Wanted {
    const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
            interrupts: AtomicBool::new(false),
        }
    }

    fn load(&self) -> (usize, c_int, u64) {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let seen = (
                self.handler.load(Ordering::Relaxed),
                self.flags.load(Ordering::Relaxed),
                self.mask.load(Ordering::Relaxed),
            );
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return seen;
            }
            core::hint::spin_loop();
        }
    }

    /// Only under the lock, and with all signals blocked: [`Self::load`] waits for the end.
    fn store(&self, handler: usize, flags: c_int, mask: u64) {
        self.sequence.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        self.handler.store(handler, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.mask.store(mask, Ordering::Relaxed);
        self.sequence.fetch_add(1, Ordering::Release);
    }
}

static WANTED: [Wanted; 2] = [Wanted::new(), Wanted::new()];
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
static INSTALLED: AtomicBool = AtomicBool::new(false);
static CHANGE: Lock<()> = Lock::new(());

fn wanted(signal: c_int) -> Option<&'static Wanted> {
    match signal {
        libc::SIGSEGV => Some(&WANTED[0]),
        libc::SIGBUS => Some(&WANTED[1]),
        _ => None,
    }
}

/// Whether the library answers for this signal.
#[inline]
pub fn concerns(signal: c_int) -> bool {
    wanted(signal).is_some() && INSTALLED.load(Ordering::Acquire) && !process::is_vfork_child()
}

/// Blocks all signals of the thread while `with` runs.
fn undisturbed<R>(with: impl FnOnce() -> R) -> R {
    let change = |how: c_int, new: *const u64, old: *mut u64| {
        // SAFETY: both masks are locals of eight bytes, or null.
        let _ = unsafe {
            let words = [sys::int(how), new.addr(), old.addr(), 8, 0, 0];
            sys::raw(libc::SYS_rt_sigprocmask, words)
        };
    };
    let (all, mut before) = (u64::MAX, 0u64);
    change(libc::SIG_SETMASK, &raw const all, &raw mut before);
    let result = with();
    change(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    result
}

/// Takes the two signals, once: when the first socket is made.
#[inline]
pub fn ensure() {
    if !INSTALLED.load(Ordering::Relaxed) {
        install();
    }
}

#[cold]
fn install() {
    // Where a fault can not be told from others, nothing is gained.
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    undisturbed(|| {
        let Some(_guard) = CHANGE.lock() else { return };
        if INSTALLED.load(Ordering::Relaxed) {
            return;
        }
        for signal in SIGNALS {
            // SAFETY: all zero is a valid action; asking changes nothing.
            unsafe {
                let mut before: sigaction = core::mem::zeroed();
                if real::sigaction(signal, core::ptr::null(), &raw mut before) == 0 {
                    set(signal, &before);
                }
            }
        }
        INSTALLED.store(true, Ordering::Release);
    });
}

fn mask_of(action: &sigaction) -> u64 {
    // SAFETY: the first eight bytes of a set are signals 1 to 64, all that there are.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

/// Remembers what the program wants and tells the kernel. Under the lock, signals blocked.
fn set(signal: c_int, action: &sigaction) {
    let Some(wanted) = wanted(signal) else { return };
    let plain = matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    let flags = if plain {
        libc::SA_ONSTACK | libc::SA_NODEFER
    } else {
        action.sa_flags & !libc::SA_RESETHAND
    };
    let mut ours = *action;
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = flags | libc::SA_SIGINFO;
    wanted.store(action.sa_sigaction, action.sa_flags, mask_of(action));
    // SAFETY: a valid action; the handler is async-signal-safe.
    unsafe { real::sigaction(signal, &raw const ours, core::ptr::null_mut()) };
}

/// `sigaction` for a signal that [`concerns`] the library.
pub fn change(signal: c_int, new: Option<&sigaction>) -> Option<sigaction> {
    let wanted = wanted(signal)?;
    undisturbed(|| {
        let guard = CHANGE.lock();
        let (handler, flags, mask) = wanted.load();
        // SAFETY: all zero is a valid action.
        let mut before: sigaction = unsafe { core::mem::zeroed() };
        before.sa_sigaction = handler;
        before.sa_flags = flags;
        // SAFETY: the set has room for eight bytes.
        unsafe { (&raw mut before.sa_mask).cast::<u64>().write(mask) };
        if let (Some(new), Some(_)) = (new, guard) {
            set(signal, new);
        }
        Some(before)
    })
}

/// `siginterrupt` was called for the signal.
pub fn set_interrupts(signal: c_int, on: bool) {
    if let Some(wanted) = wanted(signal) {
        wanted.interrupts.store(on, Ordering::Relaxed);
    }
}

/// Whether `signal` shall install without a restart.
pub fn interrupts(signal: c_int) -> bool {
    wanted(signal).is_some_and(|wanted| wanted.interrupts.load(Ordering::Relaxed))
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context, which is this thread's own.
    if unsafe { resume(context) } {
        return;
    }
    let Some(wanted) = wanted(signal) else { return };
    let (handler, flags, mask) = wanted.load();
    // SAFETY: the kernel passes valid information.
    let code = unsafe { (*info).si_code };
    // What the processor found can not be ignored, only what somebody sent.
    let raised = code > 0;
    if !raised && copying::is_helper() {
        // Somebody sent it, and the kernel chose a thread that the program knows nothing of.
        let (process, signal) = (sys::process() as usize, sys::int(signal));
        // SAFETY: no pointers. The first thread has the number of the process.
        let _ = unsafe { sys::raw(libc::SYS_tgkill, [process, process, signal, 0, 0, 0]) };
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN && raised {
        // SAFETY: as the kernel would: the default action, with the state of the fault.
        unsafe { die(signal, info, raised) };
        return;
    }
    if handler == libc::SIG_IGN {
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        wanted.store(libc::SIG_DFL, flags & !libc::SA_SIGINFO, mask);
    }
    // SAFETY: the program installed this address as its handler; one without SA_SIGINFO does not
    // look at the further arguments.
    unsafe {
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            core::mem::transmute(handler);
        handler(signal, info, context);
    }
}

/// Goes on behind the fault when a copy of ours met it.
unsafe fn resume(context: *mut c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const AT: usize = libc::REG_RIP as usize;
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let resume = usize::try_from(registers[AT])
            .ok()
            .and_then(copy::resume_at);
        let Some(Ok(target)) = resume.map(i64::try_from) else {
            return false;
        };
        registers[AT] = target;
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        false
    }
}

/// The default action: at once for a signal that was sent, when the instruction is tried again for
/// a fault.
unsafe fn die(signal: c_int, info: *mut siginfo_t, raised: bool) {
    // SAFETY: a valid action; the process is about to end.
    unsafe {
        let mut default: sigaction = core::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        real::sigaction(signal, &raw const default, core::ptr::null_mut());
        if !raised {
            let (process, thread) = (sys::process() as usize, sys::thread() as usize);
            let words = [process, thread, sys::int(signal), info.addr(), 0, 0];
            let _ = sys::raw(libc::SYS_rt_tgsigqueueinfo, words);
        }
    }
}

/// In a forked child, where who held the lock does not exist.
pub fn reset_in_child() {
    CHANGE.reset();
}
