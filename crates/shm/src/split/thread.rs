//! The helper threads: made without the C library, which therefore neither counts them nor runs code on them.
//!
//! A helper makes four system calls (its name, sleep, wake, end), and copies. It must not run code that uses
//! thread-local storage: it has a block of its own for the compiler's stack guard, and nothing else. All signals are
//! blocked except for those of a fault, after which the library's handler continues the copy.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{MOST_HELPERS, Pool};
use crate::system::{self, Sys};

/// Bytes of a helper's stack, with its thread-local block. A signal frame may take 12 KiB of it.
pub(super) const STACK: usize = 64 << 10;
/// Bytes below and above the address in the thread-local register.
const LOCAL_BELOW: usize = 4096;
const LOCAL_ABOVE: usize = 512;
const PAGE: usize = 4096;

/// How often to wait for another thread that is making helpers, or for a helper that is about to end.
pub(super) const TRIES: u32 = 1000;
/// Nanoseconds of each wait for the end of a helper.
const NAP_NANOSECONDS: u64 = 10_000_000;

/// Longest time that the kernel takes to forget a thread that has ended, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

/// The signals of a fault.
const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);

/// A helper, or an unused entry.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its number, 0 for none. The kernel writes 0 and wakes when the thread has left its stack.
    number: AtomicU32,
    /// Its number until the process no longer has it, which is a little later.
    last: AtomicU32,
}

impl Thread {
    pub(super) const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            last: AtomicU32::new(0),
        }
    }

    pub(super) fn lives(&self) -> bool {
        // Acquire: when it has ended its stack may be used again.
        self.number.load(Ordering::Acquire) != 0
    }

    pub(super) fn forget(&self) {
        self.number.store(0, Ordering::Release);
        self.last.store(0, Ordering::Relaxed);
    }

    /// Waits for its end, and until the process no longer counts it.
    pub(super) fn join(&self) {
        loop {
            let number = self.number.load(Ordering::Acquire);
            if number == 0 {
                break;
            }
            // Not private: the kernel itself wakes the sleeper.
            let slept = system::sleep_on(&self.number, number, NAP_NANOSECONDS, false);
            // A child that was forked without the C library has numbers of threads that it does not have.
            if slept == Err(libc::ETIMEDOUT) && !exists(number) {
                return self.forget();
            }
        }
        let last = self.last.swap(0, Ordering::Relaxed);
        let begun = now();
        // Not forever: another thread may have got the number since.
        while last != 0 && exists(last) && now().saturating_sub(begun) < LONGEST {
            system::yield_now();
        }
    }
}

/// Whether this process has a thread of this number.
fn exists(number: u32) -> bool {
    // SAFETY: no pointers; signal 0 only asks.
    unsafe {
        let process = system::raw(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        let words = [process, number as usize, 0, 0, 0, 0];
        system::raw(libc::SYS_tgkill, words) != Err(libc::ESRCH)
    }
}

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is a local; the call goes to the vDSO.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// While it lives, the calling thread handles no signal except for those of a fault.
pub(super) struct SignalsBlocked(u64);

fn mask(how: i32, new: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const new).addr(), (&raw mut before).addr());
    // SAFETY: both masks are locals of eight bytes.
    let _ = unsafe { system::raw(libc::SYS_rt_sigprocmask, [how as usize, new, old, 8, 0, 0]) };
    before
}

impl SignalsBlocked {
    pub(super) fn begin() -> Self {
        Self(mask(libc::SIG_BLOCK, !FAULTS))
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        mask(libc::SIG_SETMASK, self.0);
    }
}

impl Pool {
    /// The address of the stacks of all helpers, which are never unmapped.
    fn stacks(&self) -> Sys<usize> {
        let known = self.stacks.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known.addr());
        }
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let words = [
            0,
            MOST_HELPERS * STACK,
            protection,
            flags as usize,
            usize::MAX,
            0,
        ];
        // SAFETY: a new mapping at an address that the kernel chooses.
        let made = unsafe { system::raw(libc::SYS_mmap, words)? };
        let made = core::ptr::with_exposed_provenance_mut::<u8>(made);
        self.stacks.store(made, Ordering::Release);
        Ok(made.addr())
    }

    /// Makes a helper. No other thread makes helpers meanwhile, and this entry is unused. The helper inherits the
    /// signal mask of the caller of [`super::Pool::copy`]: all blocked.
    pub(super) fn make(&'static self, index: usize, thread: &'static Thread) -> Sys<()> {
        let lowest = self.stacks()? + index * STACK;
        let local = lowest + STACK - LOCAL_ABOVE;
        // SAFETY: within the mapping, on an unused stack; its lowest page catches an overflow.
        unsafe {
            let none = [lowest, PAGE, libc::PROT_NONE as usize, 0, 0, 0];
            system::raw(libc::SYS_mprotect, none)?;
            let words = core::ptr::with_exposed_provenance_mut::<usize>(local);
            // The block begins with its own address, by which code finds it.
            words.write(local);
            words.add(2).write(local);
        }
        // Other signals that the caller has blocked stay blocked; the signals of a fault must not be.
        let before = mask(libc::SIG_UNBLOCK, FAULTS);
        // SAFETY: the stack and the block are prepared; the pool and the word are static.
        let made = unsafe { begin(self, index, local - LOCAL_BELOW, local, &thread.number) };
        mask(libc::SIG_SETMASK, before);
        thread.last.store(made?, Ordering::Relaxed);
        Ok(())
    }

    /// The main loop of a helper.
    fn serve(&self, index: usize) {
        loop {
            // Acquire: the work that was rung for is seen.
            let seen = self.bell.load(Ordering::Acquire);
            while self.help() {}
            if index >= self.wanted.load(Ordering::Relaxed) as usize
                || self.dismissals.load(Ordering::SeqCst) > 0
            {
                return;
            }
            if self.spin(seen) {
                continue;
            }
            // SeqCst: pairs with `ring`.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let slept = system::sleep_on(&self.bell, seen, self.idle_limit, true);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if slept == Err(libc::ETIMEDOUT) {
                return;
            }
        }
    }

    /// Spins for new work: a wake-up takes longer than most copies.
    fn spin(&self, seen: u32) -> bool {
        let patience = u64::from(self.patience.load(Ordering::Relaxed));
        if patience == 0 {
            return false;
        }
        let begun = now();
        while now().saturating_sub(begun) < patience {
            for _ in 0..16 {
                if self.bell.load(Ordering::Acquire) != seen {
                    return true;
                }
                core::hint::spin_loop();
            }
        }
        false
    }
}

/// The start of a helper.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "no helpers are made")
)]
unsafe extern "C" fn run(pool: &'static Pool, index: usize) -> ! {
    let name = c"nc-copy".as_ptr().addr();
    // SAFETY: the name is a C string; the last call gives the stack up and does not return.
    unsafe {
        let words = [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0];
        let _ = system::raw(libc::SYS_prctl, words);
        pool.serve(index);
        loop {
            let _ = system::raw(libc::SYS_exit, [0; 6]);
        }
    }
}

/// Starts a thread on `stack`, whose thread-local register contains `local`. Returns its number, which is in `number`
/// until it has ended.
#[cfg(target_arch = "x86_64")]
unsafe fn begin(
    pool: &'static Pool,
    index: usize,
    stack: usize,
    local: usize,
    number: &'static AtomicU32,
) -> Sys<u32> {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let result: isize;
    // SAFETY: the new thread starts behind the call with the registers of this one, but another stack; it never
    // returns.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "mov rsi, r13",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") FLAGS as usize,
            in("rsi") stack & !15,
            in("rdx") number.as_ptr(),
            in("r10") number.as_ptr(),
            in("r8") local,
            in("r12") core::ptr::from_ref(pool),
            in("r13") index,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    u32::try_from(result).map_err(|_| i32::try_from(-result).unwrap_or(libc::EAGAIN))
}

/// No helpers where a fault in a helper could not be resumed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn begin(_: &'static Pool, _: usize, _: usize, _: usize, _: &'static AtomicU32) -> Sys<u32> {
    Err(libc::ENOSYS)
}
