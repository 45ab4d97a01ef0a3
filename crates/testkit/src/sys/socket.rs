//! Making, naming, connecting and configuring sockets.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use super::{Descriptor, Errno, Outcome, RawAddress, check, check_unit, length_of};
use crate::far::{self, Side, near_loopback};

/// `socket`
pub fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> Outcome<Descriptor> {
    // SAFETY: takes integers.
    check(unsafe { libc::socket(domain, kind, protocol) })
}

/// `socket` of TCP for one end of a case's connections, on the host where that end is
pub fn socket_for(end: Side, domain: libc::c_int) -> Outcome<Descriptor> {
    far::socket_for(end, domain).unwrap_or_else(|| socket(domain, libc::SOCK_STREAM, 0))
}

/// `socketpair`
pub fn socketpair(domain: libc::c_int, kind: libc::c_int) -> Outcome<[Descriptor; 2]> {
    let mut ends = [0; 2];
    // SAFETY: ends has room for the two descriptors.
    check_unit(unsafe { libc::socketpair(domain, kind, 0, ends.as_mut_ptr()) })?;
    Ok(ends)
}

/// `bind`
pub fn bind(descriptor: Descriptor, address: SocketAddr) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.bind(address);
    }
    let raw = RawAddress::from(far::to_bind(address, false));
    // SAFETY: raw holds an address of the length given.
    check_unit(unsafe { libc::bind(descriptor, (&raw const raw.storage).cast(), raw.length) })
}

/// `listen`
pub fn listen(descriptor: Descriptor, backlog: libc::c_int) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.listen(backlog);
    }
    // SAFETY: takes integers.
    check_unit(unsafe { libc::listen(descriptor, backlog) })?;
    far::note_listener(|| getsockname(descriptor).ok().map(|name| name.port()));
    Ok(())
}

/// `connect`
pub fn connect(descriptor: Descriptor, address: SocketAddr) -> Outcome<()> {
    connect_raw(descriptor, &RawAddress::from(address))
}

/// `connect` with an address of any family and length
pub fn connect_raw(descriptor: Descriptor, raw: &RawAddress) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.connect(raw);
    }
    let (raw, crosses) = far::route(raw);
    // SAFETY: raw holds an address of the length given.
    let result = check_unit(unsafe {
        libc::connect(descriptor, (&raw const raw.storage).cast(), raw.length)
    });
    if crosses && matches!(result, Ok(()) | Err(Errno(libc::EINPROGRESS))) {
        far::note_crossing();
    }
    result
}

/// `accept` without the peer's address
pub fn accept(listener: Descriptor) -> Outcome<Descriptor> {
    if let Some(far_descriptor) = far::of(listener) {
        return far_descriptor.accept();
    }
    // SAFETY: null for both means that no address is wanted.
    check(unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) })
}

/// `accept` with the peer's address
pub fn accept_from(listener: Descriptor) -> Outcome<(Descriptor, SocketAddr)> {
    if let Some(far_descriptor) = far::of(listener) {
        return far_descriptor.accept_from();
    }
    let mut raw = RawAddress::empty();
    // SAFETY: raw has room for the length given.
    let descriptor = check(unsafe {
        libc::accept(listener, (&raw mut raw.storage).cast(), &raw mut raw.length)
    })?;
    let address = raw.decode().expect("accept answered with an IP address");
    Ok((descriptor, near_loopback(address)))
}

/// `accept4` without the peer's address
pub fn accept4(listener: Descriptor, flags: libc::c_int) -> Outcome<Descriptor> {
    if let Some(far_descriptor) = far::of(listener) {
        return far_descriptor.accept4(flags);
    }
    // SAFETY: null for both means that no address is wanted.
    check(unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// `shutdown`
pub fn shutdown(descriptor: Descriptor, how: libc::c_int) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.shutdown(how);
    }
    // SAFETY: takes integers.
    check_unit(unsafe { libc::shutdown(descriptor, how) })
}

/// `getsockname`
pub fn getsockname(descriptor: Descriptor) -> Outcome<SocketAddr> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.getsockname();
    }
    let mut raw = RawAddress::empty();
    // SAFETY: raw has room for the length given.
    check_unit(unsafe {
        libc::getsockname(
            descriptor,
            (&raw mut raw.storage).cast(),
            &raw mut raw.length,
        )
    })?;
    let address = raw.decode();
    let address = address.expect("getsockname answered with an IP address");
    Ok(near_loopback(address))
}

/// `getpeername`
pub fn getpeername(descriptor: Descriptor) -> Outcome<SocketAddr> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.getpeername();
    }
    let mut raw = RawAddress::empty();
    // SAFETY: raw has room for the length given.
    check_unit(unsafe {
        libc::getpeername(
            descriptor,
            (&raw mut raw.storage).cast(),
            &raw mut raw.length,
        )
    })?;
    let address = raw.decode();
    let address = address.expect("getpeername answered with an IP address");
    Ok(near_loopback(address))
}

/// `setsockopt` with a plain value (an integer, `linger`, `timeval`)
pub fn set_option<T: Copy>(
    descriptor: Descriptor,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> Outcome<()> {
    let pointer: *const libc::c_void = (&raw const value).cast();
    if let Some(far_descriptor) = far::of(descriptor) {
        // SAFETY: value is alive; cases pass integers and C structures without padding.
        let bytes = unsafe { std::slice::from_raw_parts(pointer.cast(), size_of::<T>()) };
        return far_descriptor.set_option(level, name, bytes);
    }
    // SAFETY: value is alive and of the length given.
    check_unit(unsafe { libc::setsockopt(descriptor, level, name, pointer, length_of::<T>()) })
}

/// `setsockopt` with bytes
pub fn set_option_bytes(
    descriptor: Descriptor,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.set_option(level, name, value);
    }
    let length = libc::socklen_t::try_from(value.len()).expect("options are short");
    // SAFETY: value is alive and of the length given.
    check_unit(unsafe { libc::setsockopt(descriptor, level, name, value.as_ptr().cast(), length) })
}

/// `getsockopt` with a plain value; the caller names a type for which all bit patterns are valid
pub fn option<T: Copy>(
    descriptor: Descriptor,
    level: libc::c_int,
    name: libc::c_int,
) -> Outcome<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    if let Some(far_descriptor) = far::of(descriptor) {
        let bytes = far_descriptor.option(level, name, size_of::<T>())?;
        assert!(bytes.len() <= size_of::<T>(), "more than was room for");
        // SAFETY: value has room for these bytes, as was just checked.
        unsafe {
            value
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from(bytes.as_ptr(), bytes.len())
        };
        // SAFETY: zeroed, then filled; T is a C structure or integer without invalid values.
        return Ok(unsafe { value.assume_init() });
    }
    let mut length = length_of::<T>();
    // SAFETY: value has room for the length given.
    check_unit(unsafe {
        libc::getsockopt(
            descriptor,
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: zeroed, then filled by the call; T is a C structure or integer without invalid values.
    Ok(unsafe { value.assume_init() })
}

/// `getsockopt` with an integer
pub fn option_int(
    descriptor: Descriptor,
    level: libc::c_int,
    name: libc::c_int,
) -> Outcome<libc::c_int> {
    option(descriptor, level, name)
}

/// `getsockopt` into bytes; answers what was filled
pub fn option_bytes(
    descriptor: Descriptor,
    level: libc::c_int,
    name: libc::c_int,
    room: usize,
) -> Outcome<Vec<u8>> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.option(level, name, room);
    }
    let mut value = vec![0_u8; room];
    let mut length = libc::socklen_t::try_from(room).expect("options are short");
    // SAFETY: value has room for the length given.
    check_unit(unsafe {
        libc::getsockopt(
            descriptor,
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    value.truncate(usize::try_from(length).unwrap_or(room));
    Ok(value)
}

/// `sockatmark`
pub fn at_mark(descriptor: Descriptor) -> Outcome<bool> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.at_mark();
    }
    unsafe extern "C" {
        fn sockatmark(descriptor: libc::c_int) -> libc::c_int;
    }
    // SAFETY: takes an integer.
    check(unsafe { sockatmark(descriptor) }).map(|answer| answer != 0)
}
