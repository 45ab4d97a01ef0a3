//! `bind` of a connected socket, which already has an address: an error of the new address precedes that.

use core::sync::atomic::Ordering;

use libc::{c_int, sockaddr, socklen_t};
use netchannel_abi::address::Address;
use netchannel_abi::link::Role;

use super::ephemeral_port;
use super::tuples::is_in_use;
use crate::descriptors::{attach, limits, names, ports};
use crate::ground::sys;
use crate::sockets::lane::Lane;
use crate::sockets::options;
use crate::sockets::socket::{Socket, status};

/// Asks the kernel, with a socket that is bound, too. A socket whose connection is over and whose port the kernel
/// chose, also by a `bind` to port 0, has lost that port, and can be bound once more; it can not be used for anything
/// else.
///
/// # Errors
/// As `bind`.
///
/// # Safety
/// The program gave `address` to be read, with `length` bytes.
pub unsafe fn bind(lane: &Lane, address: *const sockaddr, length: socklen_t) -> Result<(), c_int> {
    let (entry, local) = (lane.socket.entry, lane.socket.local);
    let own = entry.local.load();
    let is_free = lane.is_over() && !lane.socket.has(status::PORT_NAMED);
    if !is_free {
        // SAFETY: the caller's promise.
        return unsafe { refuse_bind(&lane.socket, address, length) };
    }
    let made = limits::stream_socket(names::socket_family(&own))?;
    let former = local.reserve.load(Ordering::Relaxed);
    let port = ephemeral_port(&lane.socket, former);
    if former > 0 {
        local.reserve.store(0, Ordering::Relaxed);
        attach::close_internal(former - 1);
    }
    options::replay(&lane.socket, made);
    // SAFETY: the caller's promise.
    let mut bound = unsafe { bind_raw(made, address, length) };
    // SAFETY: the caller's promise.
    let wanted = unsafe { names::read(address, length) };
    if bound.is_ok()
        && wanted.is_some_and(|it| is_in_use(&it, &lane.socket, options::is_only_v6(made)))
    {
        bound = Err(libc::EADDRINUSE);
    }
    if let (Ok(()), Some(name)) = (bound, names::kernel_address(made, false)) {
        options::note_bound(&lane.socket, made);
        let kept = attach::make_internal(made);
        if lane.link.role == Role::Client && !lane.socket.is_foreign() {
            ports::give(port, entry.process.load(Ordering::Relaxed));
        }
        entry.local.store(&name);
        // The former peer is no longer known.
        entry.peer.store(&Address::default());
        // A bind without a port is none.
        if name.port != 0 {
            lane.socket.mark(status::PORT_NAMED);
        }
        if kept == made {
            // The library has no number left. The program's next one is worth more than holding the port.
            attach::close_internal(kept);
        } else {
            local.reserve.store(kept + 1, Ordering::Relaxed);
        }
        return Ok(());
    }
    sys::close(made);
    if bound == Err(libc::EADDRINUSE) {
        // It took the former port first, and lost it again.
        entry.local.store(&own.unnamed());
    }
    bound.and(Err(libc::EINVAL))
}

/// `bind` of a socket that has an address, which fails, also where an option allows a second bind to that one.
///
/// # Errors
/// As `bind`.
///
/// # Safety
/// As [`bind`].
pub unsafe fn refuse_bind(
    socket: &Socket,
    address: *const sockaddr,
    length: socklen_t,
) -> Result<(), c_int> {
    let family = names::socket_family(&socket.entry.local.load());
    let anywhere = if family == libc::AF_INET6 {
        Address::v6([0; 16], 0, 0)
    } else {
        Address::v4([0; 4], 0)
    };
    let made = limits::stream_socket(family)?;
    options::replay(socket, made);
    // The first bind takes a port.
    let _ = sys::set_option(made, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 0);
    let (name, size) = names::to_sockaddr(&anywhere);
    let size = socklen_t::try_from(size).unwrap_or(0);
    // SAFETY: the kernel reads the caller's address, and a local one.
    let bound = unsafe {
        let _ = bind_raw(made, (&raw const name).cast(), size);
        bind_raw(made, address, length)
    };
    sys::close(made);
    bound.and(Err(libc::EINVAL))
}

/// # Safety
/// The kernel reads `address`.
unsafe fn bind_raw(fd: c_int, address: *const sockaddr, length: socklen_t) -> Result<(), c_int> {
    let words = [sys::int(fd), address.addr(), length as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { sys::raw(libc::SYS_bind, words).map(drop) }
}
