//! System calls without the C library: they never enter the hooks of `libnetchannel.so`, never change `errno`, and can
//! be made by a thread that the C library does not know.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths within a buffer fit usize, which is 64 bits on every target; flags and numbers of calls are small and positive"
)]

use core::sync::atomic::AtomicU32;

use libc::{c_int, c_long};

/// Result of a system call: its value, or the errno.
pub type Sys<T> = Result<T, c_int>;

/// Makes the system call `number`.
///
/// # Safety
/// As the call itself: every pointer must be what the call expects.
#[inline]
pub unsafe fn raw(number: c_long, a: [usize; 6]) -> Sys<usize> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the kernel clobbers only rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack)
        );
    }
    if (-4095..0).contains(&result) {
        Err(c_int::try_from(-result).unwrap_or(libc::EIO))
    } else {
        Ok(result.cast_unsigned())
    }
}

const fn futex(operation: c_int, private: bool) -> usize {
    let flag = if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    (operation | flag) as usize
}

/// Sleeps while `word` has the value `value`, for at most so many nanoseconds. `private` unless the kernel itself wakes
/// the sleeper.
///
/// # Errors
/// `EAGAIN` when it has another value, `ETIMEDOUT`, `EINTR`.
pub fn sleep_on(word: &AtomicU32, value: u32, nanoseconds: u64, private: bool) -> Sys<()> {
    let second = 1_000_000_000;
    let time = libc::timespec {
        tv_sec: (nanoseconds / second).cast_signed(),
        tv_nsec: (nanoseconds % second).cast_signed(),
    };
    let (word, time) = (core::ptr::from_ref(word).addr(), (&raw const time).addr());
    let operation = futex(libc::FUTEX_WAIT, private);
    // SAFETY: the word lives as long as the call, the time is a local.
    unsafe {
        raw(
            libc::SYS_futex,
            [word, operation, value as usize, time, 0, 0],
        )
    }
    .map(|_| ())
}

/// Wakes up to `count` sleepers on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let operation = futex(libc::FUTEX_WAKE, true);
    let word = core::ptr::from_ref(word).addr();
    // SAFETY: only the address is used.
    let _ = unsafe { raw(libc::SYS_futex, [word, operation, count as usize, 0, 0, 0]) };
}

/// Yields the processor.
#[inline]
pub fn yield_now() {
    // SAFETY: no pointers.
    let _ = unsafe { raw(libc::SYS_sched_yield, [0; 6]) };
}
