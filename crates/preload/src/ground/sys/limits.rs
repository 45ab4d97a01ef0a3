//! Limits of this process.

use libc::c_int;

use super::raw;

/// Returns a limit of this process, and sets it to `new` if there is one.
///
/// # Errors
/// Those of `prlimit`.
pub fn limit(
    resource: libc::__rlimit_resource_t,
    new: Option<&libc::rlimit>,
) -> Result<libc::rlimit, c_int> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    let words = [
        0,
        resource as usize,
        new.addr(),
        (&raw mut old).addr(),
        0,
        0,
    ];
    // SAFETY: both limits are of the right size, or null.
    unsafe { raw(libc::SYS_prlimit64, words) }.map(|_| old)
}

/// Whether a call that names a limit means this one.
pub fn is_limit(named: c_int, resource: libc::__rlimit_resource_t) -> bool {
    u32::try_from(named) == Ok(resource)
}
