//! A UDP socket turns into an end of a pair, of which the stack has the other one, and, where the stack is gone, into a UDP socket again.

use libc::{c_int, timeval};
use netchannel_abi::address::Address;
use netchannel_abi::message::Operation;

use super::Asker;
use crate::descriptors::{attach, limits, names};
use crate::ground::sys;
use crate::waiting::epoll;

/// Puts a pair in the place of the socket at `fd`, which the kernel has `connected` where it leads to that address.
pub fn become_asker(fd: c_int, connected: Option<Address>) -> Result<Asker, c_int> {
    let family = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let mut local = names::kernel_address(fd, false).ok_or(libc::EBADF)?;
    if connected.is_some() {
        // The kernel has chosen it for that one.
        local = local.unnamed();
    }
    let identity = put_pair(fd)?;
    Ok(Asker {
        identity,
        family,
        local,
        peer: None,
    })
}

/// Another pair, in the place of one whose stack is gone.
pub fn renew(fd: c_int, asker: &Asker) -> Result<Asker, c_int> {
    Ok(Asker {
        identity: put_pair(fd)?,
        ..*asker
    })
}

/// A UDP socket in the place of a pair whose stack is gone: nothing comes there, and no event loop hears of an end.
pub fn quieten(fd: c_int, asker: &Asker) -> Result<Asker, c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let made = limits::for_library(|| sys::socket(asker.family, kind, 0))?;
    Ok(Asker {
        identity: put(made, fd)?,
        ..*asker
    })
}

fn put_pair(fd: c_int) -> Result<(u64, u64), c_int> {
    let mut received = [-1; sys::MOST];
    let (_, count) = attach::request(Operation::Names, [0; 14], &[], &mut received)?;
    let mut descriptors = received.iter().take(count);
    let made = descriptors.next().copied().ok_or(libc::EPROTO)?;
    descriptors.for_each(|more| sys::close(*more));
    put(made, fd)
}

/// Puts a new file in the place of another, whose flags and times it gets, also in the program's epoll sets.
fn put(made: c_int, fd: c_int) -> Result<(u64, u64), c_int> {
    let placed = replace(made, fd);
    sys::close(made);
    placed
}

fn replace(made: c_int, fd: c_int) -> Result<(u64, u64), c_int> {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    sys::fcntl(made, libc::F_SETFL, flags & sys::int(libc::O_NONBLOCK))?;
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        copy_time(fd, made, name);
    }
    let closes = sys::fcntl(fd, libc::F_GETFD, 0)? & sys::int(libc::FD_CLOEXEC) != 0;
    let watched = epoll::watching(fd).unwrap_or_default();
    let identity = sys::file::identity(made).ok_or(libc::EBADF)?;
    limits::replace(made, fd, closes)?;
    epoll::watch_instead(fd, &watched);
    Ok(identity)
}

fn copy_time(from: c_int, to: c_int, name: c_int) {
    let mut time = timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let size = size_of::<timeval>();
    let mut length = size;
    let level = sys::int(libc::SOL_SOCKET);
    let (place, room) = ((&raw mut time).addr(), (&raw mut length).addr());
    // SAFETY: the kernel writes to, and reads, a local of that size.
    unsafe {
        let got = sys::raw(
            libc::SYS_getsockopt,
            [sys::int(from), level, sys::int(name), place, room, 0],
        );
        if got.is_ok() && (time.tv_sec, time.tv_usec) != (0, 0) {
            let _ = sys::raw(
                libc::SYS_setsockopt,
                [sys::int(to), level, sys::int(name), place, size, 0],
            );
        }
    }
}
