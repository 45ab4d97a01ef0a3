//! A filter that refuses rings of `io_uring`. The library refuses rings that are requested by functions; the filter
//! also refuses those of inline calls, which no library sees. It holds for the program and all its children,
//! permanently.

use std::io;

/// Set in the numbers of programs with short pointers on x86-64.
const SHORT_POINTERS: u32 = 0x4000_0000;

/// Sets the filter. A user who needs it gives up the right to gain rights by executing files first: `sudo` and the like
/// then fail.
///
/// # Errors
/// The kernel's refusal.
pub fn refuse_rings() -> io::Result<()> {
    match set_filter() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: no pointers.
            let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            if given_up != 0 {
                return Err(io::Error::last_os_error());
            }
            set_filter()
        }
        result => result,
    }
}

fn set_filter() -> io::Result<()> {
    // The number is the same on every machine that the program is built for, also for programs of 32 bits.
    let setup = u32::try_from(libc::SYS_io_uring_setup).map_err(io::Error::other)?;
    let step = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: yes,
        jf: no,
        k,
    };
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        // The number is the first field of the kernel's data.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(is, setup, 1, 0),
        step(is, setup | SHORT_POINTERS, 0, 1),
        step(
            answer,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
            0,
            0,
        ),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(steps.len()).unwrap_or(0),
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the steps, whose count is told.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
