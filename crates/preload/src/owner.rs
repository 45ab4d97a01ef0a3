//! Whom to signal (`F_SETOWN`) of a socket that is not connected yet. The kernel keeps that with an open file, and fresh sockets
//! share one: so it is kept here, and put on the file that the socket becomes. What can be an owner, the kernel says, of a file made to ask it.

use core::sync::atomic::Ordering;

use libc::c_int;

use crate::lane::Lane;
use crate::socket::Socket;
use crate::{limits, sys};

const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: c_int,
    id: libc::pid_t,
}

/// Whether a command sets or asks for the owner.
pub const fn is_asked_by(command: c_int) -> bool {
    matches!(
        command,
        libc::F_SETOWN | libc::F_GETOWN | F_SETOWN_EX | F_GETOWN_EX
    )
}

/// Does a call that sets or asks for the owner of a fresh socket. `None` where no file can be made.
pub fn of_fresh<R>(socket: &Socket, call: impl FnOnce(c_int) -> R) -> Option<R> {
    let make = || sys::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
    let file = limits::make(make).ok()?;
    put_on(socket, file);
    let result = call(file);
    let mut owner = Owner { kind: 0, id: 0 };
    if control(file, F_GETOWN_EX, &mut owner) {
        let [a, b, c, d] = owner.id.to_ne_bytes();
        let [e, f, g, h] = (owner.kind + 1).to_ne_bytes();
        let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let word = if owner.id == 0 { 0 } else { word };
        socket.local.owner.store(word, Ordering::Relaxed);
    }
    sys::close(file);
    Some(result)
}

fn control(fd: c_int, command: c_int, owner: &mut Owner) -> bool {
    let words = [
        sys::int(fd),
        sys::int(command),
        core::ptr::from_mut(owner).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the structure that both commands name lives meanwhile.
    unsafe { sys::raw(libc::SYS_fcntl, words) }.is_ok()
}

/// The owner of a fresh socket becomes that of the file `fd`. Whether there was one.
fn put_on(socket: &Socket, fd: c_int) -> bool {
    let word = socket.local.owner.load(Ordering::Relaxed);
    if word == 0 {
        return false;
    }
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    let mut owner = Owner {
        kind: i32::from_ne_bytes([e, f, g, h]) - 1,
        id: i32::from_ne_bytes([a, b, c, d]),
    };
    control(fd, F_SETOWN_EX, &mut owner)
}

/// A fresh socket has become a file of its own: a kernel socket, or the anchor of a virtual one.
pub fn follow(socket: &Socket, fd: c_int) {
    if put_on(socket, fd)
        && let Some(lane) = Lane::of(*socket, fd)
    {
        lane.signals_urgent();
    }
    socket.local.owner.store(0, Ordering::Relaxed);
}
