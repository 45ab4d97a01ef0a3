//! `getaddrinfo`.

use core::ffi::CStr;
use core::net::IpAddr;
use std::ffi::CString;

use libc::{addrinfo, c_char, c_int};

use super::tenant::Tenant;
use crate::ground::real;
use crate::resolver::{self, Failure, Found, kinds};

/// What the C library takes where a program gives no hints.
const NO_HINTS: c_int = libc::AI_V4MAPPED | libc::AI_ADDRCONFIG;

/// Whether the C library said that it does not know the name, and so DNS may.
pub fn is_unknown(code: c_int) -> bool {
    matches!(
        code,
        libc::EAI_AGAIN | libc::EAI_NONAME | libc::EAI_FAIL | libc::EAI_NODATA
    )
}

/// As the C function: first all that the C library knows without DNS, then DNS.
///
/// # Safety
/// As the C function.
pub unsafe fn get(
    tenant: &Tenant,
    (node, service): (*const c_char, *const c_char),
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the program's arguments; the hints are copied.
    unsafe {
        let mut asked = if hints.is_null() {
            // SAFETY: all zero are valid hints.
            let mut none: addrinfo = core::mem::zeroed();
            none.ai_flags = NO_HINTS;
            none
        } else {
            hints.read()
        };
        let flags = asked.ai_flags;
        if flags & libc::AI_ADDRCONFIG != 0 {
            // The C library would look at the interfaces of the namespace, which has none.
            match (asked.ai_family, tenant.v4.is_some(), tenant.v6.is_some()) {
                (libc::AF_UNSPEC, true, false) => asked.ai_family = libc::AF_INET,
                (libc::AF_UNSPEC, false, true) => asked.ai_family = libc::AF_INET6,
                (libc::AF_INET, false, _) | (libc::AF_INET6, _, false) => return libc::EAI_NONAME,
                _ => {}
            }
            asked.ai_flags &= !libc::AI_ADDRCONFIG;
        }
        let code = real::getaddrinfo(node, service, &raw const asked, result);
        if code == 0 {
            restore(*result, flags);
        }
        if !is_unknown(code) || node.is_null() || flags & libc::AI_NUMERICHOST != 0 {
            return code;
        }
        let name = CStr::from_ptr(node).to_bytes();
        let mut found = match look_up(tenant, name, &asked) {
            Ok(found) => found,
            Err(Failure::NoData) => return libc::EAI_NODATA,
            // The C library asks for IPv4 alone by `gethostbyname2_r`, which tells this failure as a result without a host.
            Err(Failure::TryAgain) if is_by_host(&asked) => return libc::EAI_NONAME,
            Err(Failure::TryAgain | Failure::Unanswered) => return libc::EAI_AGAIN,
            Err(Failure::NotFound | Failure::NoRecovery) => return libc::EAI_NONAME,
        };
        // A name that no host has is not told; the program's own stands for it, as in the C library.
        let own = || String::from_utf8_lossy(name).into_owned();
        found.canonical.get_or_insert_with(own);
        resolver::sort(&mut found.addresses, |to| tenant.source(to));
        let before = real::errno();
        let made = found.build(service, &asked);
        real::set_errno(before);
        match made {
            Ok(first) => {
                restore(first, flags);
                result.write(first);
                0
            }
            Err(code) => code,
        }
    }
}

fn is_by_host(asked: &addrinfo) -> bool {
    asked.ai_family == libc::AF_INET && asked.ai_flags & libc::AI_CANONNAME == 0
}

/// The flags that the program gave stand in each entry.
unsafe fn restore(mut entry: *mut addrinfo, flags: c_int) {
    // SAFETY: a list that was just made.
    unsafe {
        while let Some(known) = entry.as_mut() {
            known.ai_flags = flags;
            entry = known.ai_next;
        }
    }
}

struct Addresses {
    addresses: Vec<IpAddr>,
    /// What `AI_CANONNAME` asks for.
    canonical: Option<String>,
}

/// Asks for the addresses of the families that are wanted.
fn look_up(tenant: &Tenant, name: &[u8], asked: &addrinfo) -> Result<Addresses, Failure> {
    let flags = asked.ai_flags;
    let search = |kinds: &[u16]| tenant.search(name, kinds).map(Addresses::of);
    match asked.ai_family {
        libc::AF_INET => search(&[kinds::A]),
        libc::AF_INET6 if flags & libc::AI_V4MAPPED == 0 => search(&[kinds::AAAA]),
        libc::AF_INET6 => {
            let v6 = search(&[kinds::AAAA]);
            if v6.is_ok() && flags & libc::AI_ALL == 0 {
                return v6;
            }
            let v4 = search(&[kinds::A]).map(Addresses::mapped);
            match (v6, v4) {
                (Ok(mut v6), Ok(v4)) => {
                    v6.addresses.extend(v4.addresses);
                    Ok(v6)
                }
                (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
                (Err(Failure::NoData), Err(failure)) | (Err(failure), Err(_)) => Err(failure),
            }
        }
        _ => search(&[kinds::A, kinds::AAAA]),
    }
}

impl Addresses {
    fn of(found: Found) -> Self {
        Self {
            addresses: found.addresses(),
            canonical: found.first().and_then(|reply| reply.canonical.host()),
        }
    }

    fn mapped(mut self) -> Self {
        for address in &mut self.addresses {
            if let IpAddr::V4(v4) = address {
                *address = v4.to_ipv6_mapped().into();
            }
        }
        self
    }

    /// The list that the C library frees: it makes the entries, from addresses that need not be looked up.
    unsafe fn build(
        &self,
        service: *const c_char,
        asked: &addrinfo,
    ) -> Result<*mut addrinfo, c_int> {
        let mut first: *mut addrinfo = core::ptr::null_mut();
        let mut end = &raw mut first;
        for address in &self.addresses {
            // SAFETY: the program's service; all else is the library's own, and the list is its alone.
            unsafe {
                let mut hints: addrinfo = core::mem::zeroed();
                let kept = libc::AI_PASSIVE | libc::AI_NUMERICSERV;
                hints.ai_flags = asked.ai_flags & kept | libc::AI_NUMERICHOST;
                hints.ai_family = match address {
                    IpAddr::V4(_) => libc::AF_INET,
                    IpAddr::V6(_) => libc::AF_INET6,
                };
                (hints.ai_socktype, hints.ai_protocol) = (asked.ai_socktype, asked.ai_protocol);
                let text = CString::new(address.to_string()).unwrap_or_default();
                let code = real::getaddrinfo(text.as_ptr(), service, &raw const hints, end);
                if code != 0 {
                    end.write(core::ptr::null_mut());
                    if !first.is_null() {
                        libc::freeaddrinfo(first);
                    }
                    return Err(code);
                }
                while let Some(entry) = (*end).as_mut() {
                    end = &raw mut entry.ai_next;
                }
            }
        }
        // SAFETY: the list is the library's alone.
        if let Some(entry) = unsafe { first.as_mut() }
            && asked.ai_flags & libc::AI_CANONNAME != 0
            && let Some(Ok(name)) = self.canonical.clone().map(CString::new)
        {
            // SAFETY: a C string. The copy is of the program's allocator, with which the C library frees it.
            entry.ai_canonname = unsafe { libc::strdup(name.as_ptr()) };
        }
        Ok(first)
    }
}
