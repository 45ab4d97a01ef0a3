//! `accept`: virtual connections and the kernel's, from one listener.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;

use crate::connection;
use crate::listener;
use crate::socket::{Socket, status};
use crate::{poll, signals, sys};

/// What an accept found.
pub enum Accepted {
    /// A virtual connection, under this descriptor, from this address.
    Virtual(i32, Address),
    /// The kernel's accept will not wait, or must say why it fails.
    Kernel,
}

/// Accepts from either queue; waits if the listener is blocking.
///
/// # Errors
/// As `accept`.
pub fn accept(fd: i32, socket: &Socket, flags: i32) -> Result<Accepted, i32> {
    let Some(listener) = socket.listener() else {
        return Ok(Accepted::Kernel);
    };
    loop {
        if listener::kernel_first(socket) && kernel_ready(fd) {
            return Ok(Accepted::Kernel);
        }
        while let Some(pending) = listener.take() {
            match connection::accept(socket, pending, flags) {
                Ok((made, peer)) => return Ok(Accepted::Virtual(made, peer)),
                Err(0) => {}
                Err(error) => return Err(error),
            }
        }
        if listener.take_offers() {
            continue;
        }
        if socket.has(status::NONBLOCKING) || kernel_ready(fd) {
            return Ok(Accepted::Kernel);
        }
        wait(fd, socket)?;
    }
}

fn kernel_ready(fd: i32) -> bool {
    let mut set = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    matches!(sys::poll(&mut set, 0, core::ptr::null()), Ok(1..)) && set[0].revents != 0
}

fn wait(fd: i32, socket: &Socket) -> Result<(), i32> {
    let limit = socket.entry.receive_timeout.load(Ordering::Relaxed);
    let timeout = if limit == 0 {
        -1
    } else {
        i64::try_from(limit)
            .unwrap_or(i64::MAX / 1000)
            .saturating_mul(1000)
    };
    loop {
        let mut set = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        match poll::poll(&mut set, timeout, core::ptr::null()) {
            Ok(0) => return Err(libc::EAGAIN),
            Ok(_) => return Ok(()),
            // The kernel's accept would go on after a handler with SA_RESTART.
            Err(libc::EINTR) if limit == 0 && signals::all_restart() => {}
            Err(error) => return Err(error),
        }
    }
}
