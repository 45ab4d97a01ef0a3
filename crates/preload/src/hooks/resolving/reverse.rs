//! `getnameinfo`.

use core::net::IpAddr;

use libc::{c_char, c_int, sockaddr, socklen_t};
use netchannel_abi::address::INET6;

use super::hosts::Host;
use super::tenant::Tenant;
use crate::descriptors::names;
use crate::ground::real;
use crate::resolver::Failure;

/// A buffer of the program.
type Buffer = (*mut c_char, socklen_t);

/// The address as it stands in a program's structure.
unsafe fn address(given: *const sockaddr, length: socklen_t) -> Option<IpAddr> {
    // SAFETY: the program gave it to be read.
    let known = unsafe { names::read(given, length)? };
    if known.family == INET6 {
        return Some(known.bytes.into());
    }
    Some(known.bytes.first_chunk::<4>().copied()?.into())
}

/// As the C function, which did not know the host.
///
/// # Safety
/// As the C function.
pub unsafe fn get(
    tenant: &Tenant,
    (given, length): (*const sockaddr, socklen_t),
    (host, service): (Buffer, Buffer),
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        let Some(address) = address(given, length).filter(|_| flags & libc::NI_NUMERICHOST == 0)
        else {
            return libc::EAI_NONAME;
        };
        let before = real::errno();
        let found = Host::by_address(tenant, address);
        let (whole, flags) = match &found {
            Ok(_) => ((core::ptr::null_mut(), 0), flags),
            Err(Failure::TryAgain | Failure::Unanswered) => return libc::EAI_AGAIN,
            Err(_) if flags & libc::NI_NAMEREQD != 0 => return libc::EAI_NONAME,
            // The address stands for its name.
            Err(_) => (host, flags | libc::NI_NUMERICHOST),
        };
        if let Ok(found) = &found {
            let name = shown(found.name(), flags);
            if name.len() >= host.1 as usize {
                return libc::EAI_OVERFLOW;
            }
            core::ptr::copy_nonoverlapping(name.as_ptr().cast(), host.0, name.len());
            host.0.add(name.len()).write(0);
        }
        let has_service = !service.0.is_null() && service.1 != 0;
        let code = if whole.0.is_null() && !has_service {
            0
        } else {
            let flags = flags & !libc::NI_NAMEREQD;
            real::getnameinfo(given, length, whole.0, whole.1, service.0, service.1, flags)
        };
        real::set_errno(before);
        code
    }
}

/// The name, or with `NI_NOFQDN` its first part where the rest is the domain of this host.
fn shown(name: &str, flags: c_int) -> &str {
    if flags & libc::NI_NOFQDN == 0 {
        return name;
    }
    let mut own = [0_u8; 256];
    // SAFETY: a local buffer of that length, of which the last byte is not given away.
    unsafe { libc::gethostname(own.as_mut_ptr().cast(), own.len() - 1) };
    let own = own.split(|byte| *byte == 0).next().unwrap_or_default();
    let domain = own.iter().position(|byte| *byte == b'.');
    let domain = domain.and_then(|at| core::str::from_utf8(own.split_at(at).1).ok());
    domain
        .and_then(|domain| name.strip_suffix(domain))
        .unwrap_or(name)
}
