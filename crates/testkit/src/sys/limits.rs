//! Limits of the process, and memory that counts against them.

use super::{Outcome, check_unit, last_errno};

/// `getrlimit`
pub fn limit(resource: libc::__rlimit_resource_t) -> Outcome<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is a local of the right type.
    check_unit(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

/// `setrlimit`
pub fn set_limit(resource: libc::__rlimit_resource_t, limit: &libc::rlimit) -> Outcome<()> {
    // SAFETY: the limit is alive.
    check_unit(unsafe { libc::setrlimit(resource, limit) })
}

/// `getrlimit(RLIMIT_NOFILE)`
pub fn descriptor_limit() -> Outcome<libc::rlimit> {
    limit(libc::RLIMIT_NOFILE)
}

/// `setrlimit(RLIMIT_NOFILE)`, the soft limit only
pub fn set_descriptor_limit(soft: u64) -> Outcome<()> {
    let mut limit = descriptor_limit()?;
    limit.rlim_cur = soft;
    set_limit(libc::RLIMIT_NOFILE, &limit)
}

/// `mmap` of private memory. Returns its address.
pub fn map_private(length: usize) -> Outcome<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel chooses.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(last_errno());
    }
    Ok(mapped.expose_provenance())
}

/// `munmap` of memory that [`map_private`] mapped.
pub fn unmap(address: usize, length: usize) -> Outcome<()> {
    let address = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller's mapping, which nothing refers to.
    check_unit(unsafe { libc::munmap(address, length) })
}
