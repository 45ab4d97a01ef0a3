//! Names, for programs of a tenant. The C library asks for names over UDP from within, where no hook sees it, and a tenant has no UDP:
//! what the C library does not know without DNS, the library asks for over TCP, by sockets of its own making.
//!
//! Programs of no tenant get the C library's function, and its answer.

mod addresses;
mod exchange;
mod hosts;
mod queries;
mod results;
mod reverse;
mod tenant;

use core::ffi::CStr;

use libc::{addrinfo, c_char, c_int, c_void, hostent, sockaddr, socklen_t};

use crate::ground::real;
use hosts::Host;
use results::Room;
use tenant::Tenant;

/// The tenant, where the C library did not know a host, and said so in `h_errno`.
fn where_unknown() -> Option<Tenant> {
    // SAFETY: a thread-local.
    let is_unknown = unsafe { *results::error_place() } != results::INTERNAL;
    is_unknown.then(Tenant::of_program).flatten()
}

hook! {
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo,
        result: *mut *mut addrinfo,
    ) -> c_int {
        if let Some(tenant) = Tenant::current() {
            return addresses::get(&tenant, (node, service), hints, result);
        }
        let code = real::getaddrinfo(node, service, hints, result);
        if !addresses::is_unknown(code) || node.is_null() {
            return code;
        }
        match Tenant::of_program() {
            Some(tenant) => addresses::get(&tenant, (node, service), hints, result),
            None => code,
        }
    }

    fn getnameinfo(
        address: *const sockaddr, length: socklen_t, host: *mut c_char, host_room: socklen_t,
        service: *mut c_char, service_room: socklen_t, flags: c_int,
    ) -> c_int {
        let (host, service) = ((host, host_room), (service, service_room));
        let code = real::getnameinfo(address, length, host.0, host.1, service.0, service.1, flags);
        if !addresses::is_unknown(code) || host.0.is_null() || host.1 == 0 {
            return code;
        }
        match Tenant::of_program() {
            Some(tenant) => reverse::get(&tenant, (address, length), (host, service), flags),
            None => code,
        }
    }

    fn gethostbyname(name: *const c_char) -> *mut hostent {
        let found = real::gethostbyname(name);
        if !found.is_null() {
            return found;
        }
        match where_unknown() {
            Some(tenant) => results::keep(Host::by_name(&tenant, CStr::from_ptr(name), libc::AF_INET)),
            None => found,
        }
    }

    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
        let found = real::gethostbyname2(name, family);
        if !found.is_null() {
            return found;
        }
        match where_unknown() {
            Some(tenant) => results::keep(Host::by_name(&tenant, CStr::from_ptr(name), family)),
            None => found,
        }
    }

    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, buffer: *mut c_char, room: usize,
        result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int {
        let code = real::gethostbyname_r(name, entry, buffer, room, result, error);
        let room = Room { entry, buffer, room, result, error };
        if !room.is_unknown(code) {
            return code;
        }
        match Tenant::of_program() {
            Some(tenant) => room.write(Host::by_name(&tenant, CStr::from_ptr(name), libc::AF_INET)),
            None => code,
        }
    }

    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, buffer: *mut c_char,
        room: usize, result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int {
        let code = real::gethostbyname2_r(name, family, entry, buffer, room, result, error);
        let room = Room { entry, buffer, room, result, error };
        if !room.is_unknown(code) {
            return code;
        }
        match Tenant::of_program() {
            Some(tenant) => room.write(Host::by_name(&tenant, CStr::from_ptr(name), family)),
            None => code,
        }
    }

    fn gethostbyaddr(address: *const c_void, length: socklen_t, family: c_int) -> *mut hostent {
        let found = real::gethostbyaddr(address, length, family);
        if !found.is_null() {
            return found;
        }
        match (where_unknown(), results::address(address, length, family)) {
            (Some(tenant), Some(address)) => results::keep(Host::by_address(&tenant, address)),
            _ => found,
        }
    }

    fn gethostbyaddr_r(
        address: *const c_void, length: socklen_t, family: c_int, entry: *mut hostent,
        buffer: *mut c_char, room: usize, result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int {
        let code = real::gethostbyaddr_r(address, length, family, entry, buffer, room, result, error);
        let room = Room { entry, buffer, room, result, error };
        if !room.is_unknown(code) {
            return code;
        }
        match (Tenant::of_program(), results::address(address, length, family)) {
            (Some(tenant), Some(address)) => room.write(Host::by_address(&tenant, address)),
            _ => code,
        }
    }

    // The names of the C library since 2.34, in which these functions are its own. Older programs call those below.
    fn res_query(
        name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int,
    ) -> c_int {
        let length = real::res_query(name, class, kind, answer, room);
        queries::answer(length, (name, false), (class, kind), (answer, room))
    }

    fn res_search(
        name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int,
    ) -> c_int {
        let length = real::res_search(name, class, kind, answer, room);
        queries::answer(length, (name, true), (class, kind), (answer, room))
    }

    fn res_nquery(
        state: *mut c_void, name: *const c_char, class: c_int, kind: c_int, answer: *mut u8,
        room: c_int,
    ) -> c_int {
        let length = real::res_nquery(state, name, class, kind, answer, room);
        queries::answer(length, (name, false), (class, kind), (answer, room))
    }

    fn res_nsearch(
        state: *mut c_void, name: *const c_char, class: c_int, kind: c_int, answer: *mut u8,
        room: c_int,
    ) -> c_int {
        let length = real::res_nsearch(state, name, class, kind, answer, room);
        queries::answer(length, (name, true), (class, kind), (answer, room))
    }

    fn __res_query(
        name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int,
    ) -> c_int {
        res_query(name, class, kind, answer, room)
    }

    fn __res_search(
        name: *const c_char, class: c_int, kind: c_int, answer: *mut u8, room: c_int,
    ) -> c_int {
        res_search(name, class, kind, answer, room)
    }

    fn __res_nquery(
        state: *mut c_void, name: *const c_char, class: c_int, kind: c_int, answer: *mut u8,
        room: c_int,
    ) -> c_int {
        res_nquery(state, name, class, kind, answer, room)
    }

    fn __res_nsearch(
        state: *mut c_void, name: *const c_char, class: c_int, kind: c_int, answer: *mut u8,
        room: c_int,
    ) -> c_int {
        res_nsearch(state, name, class, kind, answer, room)
    }
}
