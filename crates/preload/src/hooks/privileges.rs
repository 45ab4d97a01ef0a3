//! Calls that make a process another user's, and calls before which copy workers, which the program does not know, must
//! end: those that apply to each thread by itself (other credentials, filters of system calls), or that the kernel
//! refuses to a process with several threads (namespaces). Later transfers make new workers, with the new credentials.

use libc::{c_char, c_int, c_long, c_ulong, c_void, gid_t, size_t, uid_t};

use crate::descriptors::copying::{disable, without_helpers};
use crate::ground::{real, sys};
use crate::processes::filters;
use crate::processes::filters::Restriction;
use crate::processes::users::{self, Change};

/// The restriction that `seccomp` and `prctl` are about to set, if any.
fn restriction(strict: bool, filters: bool, at: usize) -> Option<Restriction> {
    if filters {
        Some(Restriction::Filter(core::ptr::with_exposed_provenance(at)))
    } else {
        strict.then_some(Restriction::Strict)
    }
}

/// The meaning of a call of `prctl` for copy workers.
fn before_control(option: c_int, a: usize, b: usize) -> Effect {
    let is = |mode: u32| a == mode as usize;
    match option {
        libc::PR_SET_SECCOMP => {
            let modes = (is(libc::SECCOMP_MODE_STRICT), is(libc::SECCOMP_MODE_FILTER));
            restriction(modes.0, modes.1, b).map_or(Effect::None, Effect::Filter)
        }
        libc::PR_CAPBSET_DROP | libc::PR_CAP_AMBIENT | libc::PR_SET_SECUREBITS => Effect::Thread,
        _ => Effect::None,
    }
}

/// The meaning of a call for copy workers.
enum Effect {
    None,
    /// It changes the calling thread only, or needs a process with one thread.
    Thread,
    /// It may make the process another user's.
    Users(Change),
    /// From now on a system call may kill the process.
    Filter(Restriction),
}

/// # Safety
/// The filter's address is the program's.
unsafe fn before_filter(restriction: &Restriction) {
    disable();
    // SAFETY: the caller's promise.
    unsafe { filters::before(restriction) };
}

/// Calls by number, as `syscall` makes them.
pub(super) unsafe fn by_number(number: c_long, a: [usize; 6]) -> Option<c_long> {
    // The kernel takes the lower half.
    let user = |at: usize| a[at] as u32;
    let effect = match number {
        libc::SYS_seccomp => {
            let is = |operation: u32| user(0) == operation;
            let (strict, filters) = (
                is(libc::SECCOMP_SET_MODE_STRICT),
                is(libc::SECCOMP_SET_MODE_FILTER),
            );
            restriction(strict, filters, a[2]).map_or(Effect::None, Effect::Filter)
        }
        #[expect(
            clippy::cast_possible_wrap,
            reason = "the kernel takes the lower half, too"
        )]
        libc::SYS_prctl => before_control(a[0] as u32 as c_int, a[1], a[2]),
        libc::SYS_setuid => Effect::Users(Change::All(user(0))),
        libc::SYS_setreuid => Effect::Users(Change::Two(user(0), user(1))),
        libc::SYS_setresuid => Effect::Users(Change::Three(user(0), user(1), user(2))),
        libc::SYS_setgid
        | libc::SYS_setregid
        | libc::SYS_setresgid
        | libc::SYS_setgroups
        | libc::SYS_capset
        | libc::SYS_unshare
        | libc::SYS_setns => Effect::Thread,
        _ => Effect::None,
    };
    // SAFETY: the program's arguments.
    let call = || unsafe { sys::raw(number, a) };
    let result = match effect {
        Effect::None => return None,
        Effect::Thread => without_helpers(call),
        Effect::Users(change) => users::change(&change, call),
        Effect::Filter(restriction) => {
            // SAFETY: the program's pointer.
            unsafe { before_filter(&restriction) };
            call()
        }
    };
    Some(match result {
        Ok(result) => result.cast_signed() as c_long,
        Err(error) => real::fail(error),
    })
}

hook! {
    fn setuid(user: uid_t) -> c_int {
        users::change(&Change::All(user), || real::setuid(user))
    }

    fn setgid(group: gid_t) -> c_int {
        without_helpers(|| real::setgid(group))
    }

    fn seteuid(user: uid_t) -> c_int {
        users::change(&Change::Effective(user), || real::seteuid(user))
    }

    fn setegid(group: gid_t) -> c_int {
        without_helpers(|| real::setegid(group))
    }

    fn setreuid(user: uid_t, effective: uid_t) -> c_int {
        users::change(&Change::Two(user, effective), || real::setreuid(user, effective))
    }

    fn setregid(group: gid_t, effective: gid_t) -> c_int {
        without_helpers(|| real::setregid(group, effective))
    }

    fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        let change = Change::Three(user, effective, saved);
        users::change(&change, || real::setresuid(user, effective, saved))
    }

    fn setresgid(group: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        without_helpers(|| real::setresgid(group, effective, saved))
    }

    fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
        without_helpers(|| real::setgroups(count, groups))
    }

    fn initgroups(user: *const c_char, group: gid_t) -> c_int {
        without_helpers(|| real::initgroups(user, group))
    }

    fn capset(header: *mut c_void, data: *const c_void) -> c_int {
        without_helpers(|| real::capset(header, data))
    }

    fn unshare(flags: c_int) -> c_int {
        without_helpers(|| real::unshare(flags))
    }

    fn setns(fd: c_int, kind: c_int) -> c_int {
        without_helpers(|| real::setns(fd, kind))
    }

    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        // The C library's function has variable arguments, which are passed in the same registers.
        match before_control(option, a as usize, b as usize) {
            Effect::None | Effect::Users(_) => real::prctl(option, a, b, c, d),
            Effect::Thread => without_helpers(|| real::prctl(option, a, b, c, d)),
            Effect::Filter(restriction) => {
                before_filter(&restriction);
                real::prctl(option, a, b, c, d)
            }
        }
    }
}
