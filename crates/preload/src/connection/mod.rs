//! Life of a socket: made, connected, accepted, shut, closed; virtual where the other end is ours,
//! the kernel's where it is not.

mod accept;
mod close;
mod connect;
mod pending;

use core::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;
use netchannel_abi::address::Address;
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use crate::link::{LinkEnd, Loan};
use crate::socket::{self, Socket, status};
use crate::table::{self, Kind, Word};
use crate::{attach, epoll, gate, limits, options, rings, sys};

pub use accept::{
    BLOCKING, accept, announce_late, listen, mark_blocking, note_kernel_accept, recognise_listener,
    set_file_nonblocking, unlisten,
};
pub use close::{close, forget_unseen, shutdown};
pub use connect::{Connected, connect};
pub use pending::Progress;

/// Kernel TCP sockets, one per family, of which fresh sockets are duplicates.
static TEMPLATES: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];

fn template(family: c_int) -> Option<i32> {
    let place = &TEMPLATES[usize::from(family == libc::AF_INET6)];
    let known = place.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let made = limits::make(|| sys::socket(family, kind, 0)).ok()?;
    let made = attach::keep(made);
    match place.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            attach::drop_kept(made);
            Some(other)
        }
    }
}

/// A new TCP socket that costs the kernel nothing until it is known where it goes. `None` where
/// the caller must make a kernel socket instead.
pub fn open(family: c_int, kind: c_int) -> Option<i32> {
    attach::ensure()?;
    let template = template(family)?;
    let socket = socket::allocate(Kind::Fresh, State::Fresh)?;
    let Ok(fd) = sys::duplicate(template, 0, kind & libc::SOCK_CLOEXEC != 0) else {
        socket.free();
        return None;
    };
    socket.local.family.store(family, Ordering::Relaxed);
    if kind & libc::SOCK_NONBLOCK != 0 {
        socket.mark(status::NONBLOCKING);
    }
    if kind & libc::SOCK_CLOEXEC != 0 {
        socket.mark(status::CLOSE_ON_EXEC);
    }
    if !publish(fd, socket) {
        return None;
    }
    if rings::excludes() {
        to_kernel(fd, Reason::IoUring);
    }
    Some(fd)
}

/// Shows a socket under its descriptor.
pub fn publish(fd: i32, socket: Socket) -> bool {
    forget_unseen(fd);
    let _inside = gate::enter();
    socket.entry.descriptor.store(fd, Ordering::Relaxed);
    if table::set(fd, socket.word) {
        return true;
    }
    socket.drop_spare();
    socket.free();
    false
}

/// Changes what a descriptor is, keeping its socket.
fn turn_into(fd: i32, socket: &Socket, kind: Kind, state: State) -> Socket {
    socket.entry.state.store(state as u32, Ordering::Release);
    let word = Word(socket.word.0 & !0xff | kind as u64);
    let _inside = gate::enter();
    table::set(fd, word);
    Socket { word, ..*socket }
}

/// Turns a fresh socket into a kernel TCP socket with every option the program has set.
///
/// # Errors
/// The errno of what failed.
pub fn materialise(fd: i32, socket: &Socket, reason: Reason) -> Result<Socket, i32> {
    if socket.word.kind() != Kind::Fresh {
        return Ok(*socket);
    }
    let family = socket.local.family.load(Ordering::Relaxed);
    let nonblocking = if socket.has(status::NONBLOCKING) {
        libc::SOCK_NONBLOCK
    } else {
        0
    };
    let kind = libc::SOCK_STREAM | nonblocking;
    let made = limits::make(|| sys::socket(family, kind, 0))?;
    options::replay(socket, made);
    let close_on_exec = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
    let replaced = sys::replace(made, fd, close_on_exec);
    sys::close(made);
    replaced?;
    let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
    if reason != Reason::None {
        turned.falls_back(reason);
    }
    epoll::replaced(fd, &turned);
    Ok(turned)
}

fn set_blocking(loan: Loan, blocking: bool) {
    if loan.nonblocking == blocking {
        let flags = if blocking { 0 } else { libc::O_NONBLOCK };
        let _ = sys::fcntl(loan.anchor, libc::F_SETFL, sys::int(flags));
    }
}

fn describe(
    socket: &Socket,
    link: &'static LinkEnd,
    loan: Loan,
    local: &Address,
    peer: &Address,
    number: u32,
) {
    let entry = socket.entry;
    let checked = &socket.local.checked;
    checked.store(crate::clock::now(), Ordering::Relaxed);
    entry.role.store(link.role as u32, Ordering::Relaxed);
    entry.slot.store(loan.handle.index, Ordering::Relaxed);
    entry
        .generation
        .store(loan.handle.generation, Ordering::Relaxed);
    entry.link.store(link.number, Ordering::Relaxed);
    entry.listener.store(number, Ordering::Relaxed);
    entry.local.store(local);
    entry.peer.store(peer);
    let link = core::ptr::from_ref(link).cast_mut();
    socket.local.link.store(link, Ordering::Release);
}

/// Before the kernel does something with a socket that only a real TCP socket can: a fresh one
/// becomes one. The socket as it is then.
pub fn before_kernel_use(fd: i32) -> Option<Socket> {
    let socket = socket::of(fd)?;
    if socket.word.kind() == Kind::Fresh {
        return materialise(fd, &socket, Reason::None).ok();
    }
    Some(socket)
}

/// A fresh socket becomes the kernel's for good, before it is used in a way that only the kernel
/// knows.
pub fn to_kernel(fd: i32, reason: Reason) {
    if let Some(socket) = socket::of(fd) {
        let _ = materialise(fd, &socket, reason);
    }
}

/// A descriptor of the library has moved.
pub fn relocate(from: i32, to: i32) {
    let exchange = |word: &AtomicI32, from, to| {
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    };
    for template in &TEMPLATES {
        exchange(template, from, to);
    }
    table::for_each(|_, word| {
        if let Kind::Virtual = word.kind()
            && let Some(socket) = socket::of_word(word)
        {
            exchange(&socket.local.reserve, from + 1, to + 1);
            exchange(&socket.local.spare, from + 1, to + 1);
        }
    });
}
