//! Limits of the process: what the library needs of them does not count as the program's.

use libc::c_int;

use crate::connections::connection;
use crate::descriptors::{attach, limits, user};
use crate::ground::{addresses, process, real, sys};
use crate::processes::filters;
use crate::sockets::{listener, socket};
use crate::waiting::epoll;

/// Whether a call that names a process means this one.
fn is_own(process: libc::pid_t) -> bool {
    process == 0 || u32::try_from(process) == Ok(process::number())
}

/// Reads or changes the limit of address space as if the library had mapped nothing. `None` where the kernel's limit
/// counts, as in a child of `vfork`, since the noted limit is its parent's.
unsafe fn space(
    process: libc::pid_t,
    resource: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> Option<c_int> {
    if !addresses::is_address_space(resource)
        || !is_own(process)
        || new.is_null() && addresses::limit().is_none()
        || attach::current().is_none()
        || sys::process() != process::number()
    {
        return None;
    }
    let change = || {
        let before = addresses::visible()?;
        if !new.is_null() {
            // SAFETY: the program's pointer, read as the kernel does.
            addresses::set(&unsafe { user::read(new) }?)?;
        }
        if !old.is_null() {
            // SAFETY: the program's pointer, written as the kernel does.
            unsafe { user::write(old, before) }?;
        }
        Ok(())
    };
    Some(change().map_or_else(real::fail, |()| 0))
}

/// Called before the program changes a limit. If that leaves the library no numbers, its listeners retire to the
/// kernel's queue, connections that have come are taken while there are numbers, and fresh sockets are turned into the
/// kernel's, for which there may be none later.
unsafe fn make_ready(process: libc::pid_t, resource: c_int, new: *const libc::rlimit) {
    if !is_own(process) || new.is_null() {
        return;
    }
    // SAFETY: the program's pointer, read as the kernel does.
    let Ok(limit) = (unsafe { user::read(new) }) else {
        return;
    };
    filters::before_limit(resource, &limit);
    if limits::is_nofile(resource) && !limits::are_scarce() && limits::leaves_no_room(&limit) {
        listener::retire_all();
        socket::for_each(listener::before_scarcity);
        connection::materialise_all();
        epoll::prepare();
    }
}

/// Runs `work`, which changes a limit unless `new` is null.
unsafe fn changing(
    process: libc::pid_t,
    resource: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
    work: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(answer) = unsafe { space(process, resource, new, old) } {
        return answer;
    }
    // SAFETY: the caller's promise.
    unsafe { make_ready(process, resource, new) };
    limits::under_limit_lock(resource, || {
        let result = work();
        if !new.is_null() && limits::is_nofile(resource) {
            limits::refresh();
        }
        result
    })
}

hook! {
    fn getrlimit(resource: c_int, limit: *mut libc::rlimit) -> c_int {
        if !limit.is_null() && let Some(answer) = space(0, resource, core::ptr::null(), limit) {
            return answer;
        }
        limits::under_limit_lock(resource, || real::getrlimit(resource, limit))
    }

    fn getrlimit64(resource: c_int, limit: *mut libc::rlimit) -> c_int {
        getrlimit(resource, limit)
    }

    fn setrlimit(resource: c_int, limit: *const libc::rlimit) -> c_int {
        changing(0, resource, limit, core::ptr::null_mut(), || real::setrlimit(resource, limit))
    }

    fn setrlimit64(resource: c_int, limit: *const libc::rlimit) -> c_int {
        setrlimit(resource, limit)
    }

    fn prlimit(
        process: libc::pid_t, resource: c_int, new: *const libc::rlimit, old: *mut libc::rlimit,
    ) -> c_int {
        changing(process, resource, new, old, || real::prlimit(process, resource, new, old))
    }

    fn prlimit64(
        process: libc::pid_t, resource: c_int, new: *const libc::rlimit, old: *mut libc::rlimit,
    ) -> c_int {
        prlimit(process, resource, new, old)
    }
}
