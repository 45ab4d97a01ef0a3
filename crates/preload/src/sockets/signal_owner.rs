//! The process to signal (`F_SETOWN`) for a socket that is not connected yet. The kernel keeps the owner with an open
//! file, and fresh sockets share one file. So the library keeps it, and sets it on the file that the socket becomes.
//! The kernel checks an owner, on a temporary file. A socket whose file is replaced later copies the owner from one
//! file to the other.

use core::sync::atomic::Ordering;

use libc::c_int;

use crate::descriptors::limits;
use crate::ground::sys;
use crate::sockets::lane::Lane;
use crate::sockets::socket::Socket;

const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: c_int,
    id: libc::pid_t,
}

impl Owner {
    /// The word in which it is kept: 0 for no owner.
    fn to_word(&self) -> u64 {
        if self.id == 0 {
            return 0;
        }
        let (kind, id) = ((self.kind + 1).cast_unsigned(), self.id.cast_unsigned());
        u64::from(kind) << 32 | u64::from(id)
    }

    const fn from_word(word: u64) -> Option<Self> {
        if word == 0 {
            return None;
        }
        let kind = ((word >> 32) as u32).cast_signed() - 1;
        let id = (word as u32).cast_signed();
        Some(Self { kind, id })
    }
}

/// Whether a command sets or reads the owner.
pub const fn is_owner_command(command: c_int) -> bool {
    matches!(
        command,
        libc::F_SETOWN | libc::F_GETOWN | F_SETOWN_EX | F_GETOWN_EX
    )
}

/// Makes a call that sets or reads the owner of a fresh socket. `None` where no file can be made.
pub fn with_fresh_owner<R>(socket: &Socket, call: impl FnOnce(c_int) -> R) -> Option<R> {
    let file = limits::stream_socket(libc::AF_UNIX).ok()?;
    apply(socket, file);
    let result = call(file);
    let mut owner = Owner { kind: 0, id: 0 };
    if control(file, F_GETOWN_EX, &mut owner) {
        socket.local.owner.store(owner.to_word(), Ordering::Relaxed);
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

/// Sets the owner of a fresh socket on the file `fd`. Whether there was one.
fn apply(socket: &Socket, fd: c_int) -> bool {
    let owner = Owner::from_word(socket.local.owner.load(Ordering::Relaxed));
    owner.is_some_and(|mut owner| control(fd, F_SETOWN_EX, &mut owner))
}

/// Called when a fresh socket has become a file of its own: a kernel socket, or the anchor of a virtual one.
pub fn apply_to_file(socket: &Socket, fd: c_int) {
    if apply(socket, fd)
        && let Some(lane) = Lane::of(*socket, fd)
    {
        lane.enable_urgent_signals();
    }
    socket.local.owner.store(0, Ordering::Relaxed);
}

/// Copies the signal and its owner from one file to the other.
pub fn copy(from: c_int, to: c_int) {
    let mut owner = Owner { kind: 0, id: 0 };
    if control(from, F_GETOWN_EX, &mut owner) && owner.id != 0 {
        control(to, F_SETOWN_EX, &mut owner);
    }
    let asked = |fd, command| sys::fcntl(fd, command, 0).unwrap_or(0);
    let signal = asked(from, F_GETSIG);
    if signal != 0 {
        let _ = sys::fcntl(to, F_SETSIG, signal);
    }
    let raises = asked(from, libc::F_GETFL) & sys::int(libc::O_ASYNC);
    if raises != 0 {
        let _ = sys::fcntl(to, libc::F_SETFL, asked(to, libc::F_GETFL) | raises);
    }
}
