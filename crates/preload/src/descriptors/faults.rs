//! Faults in the program's buffers. The library handles `SIGSEGV` and `SIGBUS`, so that a copy that meets a bad address
//! stops there. Every other fault goes to the handler that the program has installed, called as the kernel would have
//! called it.
//!
//! ```text
//!  kernel --> on_fault --in a copy of the library--> the copy goes on behind the fault, with EFAULT
//!                 |else
//!                 v
//!             the program's handler, or the default action
//! ```
//!
//! The kernel knows the program's flags, so alternate stacks and restarts are handled by the kernel itself. The mask is
//! the library's: while its handler runs, all signals are blocked. The program expects no handler of other signals on
//! its alternate stack, which may have room for no further frame.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};

use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t};
use netchannel_shm::copy;

use crate::descriptors::copying;
use crate::ground::lock::Lock;
use crate::ground::{process, real, sys};

/// The program's action for one of the two signals.
struct ProgramAction {
    /// Odd while the action changes.
    sequence: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
    /// `siginterrupt` was called: `signal` then installs without a restart.
    interrupts: AtomicBool,
}

impl ProgramAction {
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

    /// Only under the lock, and with all signals blocked: [`Self::load`] spins until the change is complete.
    fn store(&self, handler: usize, flags: c_int, mask: u64) {
        self.sequence.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        self.handler.store(handler, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.mask.store(mask, Ordering::Relaxed);
        self.sequence.fetch_add(1, Ordering::Release);
    }
}

#[unsafe(link_section = ".data.netchannel_start")]
static ACTIONS: [ProgramAction; 2] = [ProgramAction::new(), ProgramAction::new()];
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
#[unsafe(link_section = ".data.netchannel_start")]
static INSTALLED: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.netchannel_start")]
static CHANGE: Lock<()> = Lock::new(());

fn action_of(signal: c_int) -> Option<&'static ProgramAction> {
    match signal {
        libc::SIGSEGV => Some(&ACTIONS[0]),
        libc::SIGBUS => Some(&ACTIONS[1]),
        _ => None,
    }
}

/// Whether the library handles this signal.
#[inline]
pub fn handles(signal: c_int) -> bool {
    action_of(signal).is_some() && INSTALLED.load(Ordering::Acquire) && !process::is_vfork_child()
}

/// Blocks all signals of the thread while `with` runs.
fn with_signals_blocked<R>(with: impl FnOnce() -> R) -> R {
    let before = block(u64::MAX);
    let result = with();
    block(before);
    result
}

/// Blocks these signals of the thread and no others. Returns those that were blocked.
fn block(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const mask).addr(), (&raw mut before).addr());
    // SAFETY: both masks are locals of eight bytes.
    let _ = unsafe {
        let words = [sys::int(libc::SIG_SETMASK), new, old, 8, 0, 0];
        sys::raw(libc::SYS_rt_sigprocmask, words)
    };
    before
}

/// Installs the handlers, once: when the first socket is made.
#[inline]
pub fn ensure() {
    if !INSTALLED.load(Ordering::Relaxed) {
        install();
    }
}

#[cold]
fn install() {
    // On other architectures a fault of a copy can not be recognised.
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    with_signals_blocked(|| {
        let Some(_guard) = CHANGE.lock() else { return };
        if INSTALLED.load(Ordering::Relaxed) {
            return;
        }
        for signal in SIGNALS {
            // SAFETY: all zero is a valid action; reading the present action changes nothing.
            unsafe {
                let mut before: sigaction = core::mem::zeroed();
                if real::sigaction(signal, ptr::null(), &raw mut before) == 0 {
                    set(signal, &before);
                }
            }
        }
        INSTALLED.store(true, Ordering::Release);
    });
}

/// The signals 1 to 64 of a set, all that there are.
fn mask_of(set: &sigset_t) -> u64 {
    // SAFETY: a set has more than eight bytes, and the signals are in the first ones.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

fn set_mask(set: &mut sigset_t, mask: u64) {
    // SAFETY: as in `mask_of`.
    unsafe { ptr::from_mut(set).cast::<u64>().write(mask) }
}

/// Remembers the program's action and installs the library's. Under the lock, signals blocked.
fn set(signal: c_int, action: &sigaction) {
    let Some(action_of_program) = action_of(signal) else {
        return;
    };
    let plain = matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    let flags = if plain {
        libc::SA_ONSTACK
    } else {
        action.sa_flags & !libc::SA_RESETHAND
    };
    let mut ours = *action;
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = flags | libc::SA_SIGINFO;
    set_mask(&mut ours.sa_mask, u64::MAX);
    action_of_program.store(
        action.sa_sigaction,
        action.sa_flags,
        mask_of(&action.sa_mask),
    );
    // SAFETY: a valid action; the handler is async-signal-safe.
    unsafe { real::sigaction(signal, &raw const ours, ptr::null_mut()) };
}

/// `sigaction` for a signal that [`handles`] the library.
pub fn change(signal: c_int, new: Option<&sigaction>) -> Option<sigaction> {
    let action_of_program = action_of(signal)?;
    with_signals_blocked(|| {
        let guard = CHANGE.lock();
        let (handler, flags, mask) = action_of_program.load();
        // SAFETY: all zero is a valid action.
        let mut before: sigaction = unsafe { core::mem::zeroed() };
        before.sa_sigaction = handler;
        before.sa_flags = flags;
        set_mask(&mut before.sa_mask, mask);
        if let (Some(new), Some(_)) = (new, guard) {
            set(signal, new);
        }
        Some(before)
    })
}

/// Notes that `siginterrupt` was called for the signal.
pub fn set_interrupts(signal: c_int, on: bool) {
    if let Some(action_of_program) = action_of(signal) {
        action_of_program.interrupts.store(on, Ordering::Relaxed);
    }
}

/// Whether `signal` shall install without a restart.
pub fn interrupts(signal: c_int) -> bool {
    action_of(signal)
        .is_some_and(|action_of_program| action_of_program.interrupts.load(Ordering::Relaxed))
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context, which is this thread's own.
    if unsafe { resume(context) } {
        return;
    }
    let Some(action_of_program) = action_of(signal) else {
        return;
    };
    let (handler, flags, mask) = action_of_program.load();
    // SAFETY: the kernel passes valid information.
    let code = unsafe { (*info).si_code };
    // A fault that the processor raised can not be ignored; a signal that a process sent can.
    let raised = code > 0;
    if !raised && copying::is_helper() {
        // A process sent it, and the kernel chose a helper thread that the program knows nothing of.
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
        action_of_program.store(libc::SIG_DFL, flags & !libc::SA_SIGINFO, mask);
    }
    // SAFETY: the kernel passes a valid context.
    let interrupted = mask_of(unsafe { &(*context.cast::<libc::ucontext_t>()).uc_sigmask });
    let own = if flags & libc::SA_NODEFER == 0 {
        1 << (signal - 1)
    } else {
        0
    };
    block(interrupted | mask | own);
    // SAFETY: the program installed this address as its handler; one without SA_SIGINFO does not
    // look at the further arguments.
    unsafe {
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            core::mem::transmute(handler);
        handler(signal, info, context);
    }
}

/// Continues behind the fault when a copy of the library's raised it.
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

/// The default action: at once for a signal that was sent; for a fault, when the instruction is executed again.
unsafe fn die(signal: c_int, info: *mut siginfo_t, raised: bool) {
    // SAFETY: a valid action; the process is about to end.
    unsafe {
        let mut default: sigaction = core::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        real::sigaction(signal, &raw const default, ptr::null_mut());
        if !raised {
            let (process, thread) = (sys::process() as usize, sys::thread() as usize);
            let words = [process, thread, sys::int(signal), info.addr(), 0, 0];
            let _ = sys::raw(libc::SYS_rt_tgsigqueueinfo, words);
        }
    }
}

/// In a forked child, where a thread that held the lock does not exist.
pub fn reset_in_child() {
    CHANGE.reset();
}
