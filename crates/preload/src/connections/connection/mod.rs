//! Life of a socket: made, connected, accepted, shut, closed; virtual where the other end has the library, the kernel's
//! where it does not.

mod accept;
mod close;
mod connect;
pub mod deferral;
pub mod deferred;
mod dissolve;
pub mod flags;
mod found;
pub mod kernel_retries;
mod leaving;
mod pending;
mod rebinding;
mod received;
mod reconnecting;
pub mod refused_connects;
mod replacing;
mod shutdown;
mod tuples;
pub mod withdrawal;

use core::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;
use netchannel_abi::address::Address;
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, gateway, limits, names};
use crate::ground::lock::Lock;
use crate::ground::{gate, sys};
use crate::sockets::link::{LinkEnd, Loan};
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{exclusion, options, placeholder, rings, signal_owner};
use crate::waiting::epoll;

use accept::is_listening;
pub use accept::{
    accept, adopt_received_listener, announce_late, listen, note_kernel_accept, recognise_listener,
    recognise_listener_of_relative, unlisten,
};
pub use close::{close, forget_closed};
pub use connect::{Connected, connect, note_refused};
pub use dissolve::{dissolve, leave_error};
pub use found::{is_connected_yet, lane, settled_lane};
pub use pending::{carry_on_or_fail, connect_to_send, refuse_address};
pub use rebinding::{bind, refuse_bind};
pub use received::{adopt_unconnected, is_unconnected, listen_received};
pub use shutdown::shutdown;
pub use tuples::{is_closed, is_in_use};

/// The template: fresh sockets are its duplicates. It is a local socket, which the kernel neither connects to an
/// internet address nor binds to one. So a call that reaches it by mistake fails, instead of acting on every fresh
/// socket. A poll of it shows what TCP shows.
static TEMPLATE: AtomicI32 = AtomicI32::new(-1);

fn template() -> Option<i32> {
    let known = TEMPLATE.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let made = limits::stream_socket(libc::AF_UNIX).ok()?;
    let made = attach::make_internal(made);
    match TEMPLATE.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            attach::close_internal(made);
            Some(other)
        }
    }
}

/// A new TCP socket that costs the kernel nothing until its destination is known. `None` where the caller must make a
/// kernel socket instead.
pub fn open(family: c_int, kind: c_int) -> Option<i32> {
    if limits::are_scarce() || exclusion::reason() == Some(Reason::Confined) {
        return None;
    }
    attach::ensure()?;
    let template = template()?;
    let socket = socket::allocate(Kind::Fresh, State::Fresh)?;
    let number = || sys::duplicate(template, 0, kind & libc::SOCK_CLOEXEC != 0);
    let Ok(fd) = limits::for_program(number) else {
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
        sys::close(fd);
        return None;
    }
    if let Some(why) = rings::exclusion_reason() {
        // Where that fails, the program has a socket that the kernel can not connect.
        let _ = to_kernel(fd, why);
    }
    Some(fd)
}

/// Puts a socket under its descriptor.
pub fn publish(fd: i32, socket: Socket) -> bool {
    forget_closed(fd);
    let _inside = gate::enter();
    socket.entry.descriptor.store(fd, Ordering::Relaxed);
    if table::set(fd, socket.word) {
        return true;
    }
    socket.drop_spare();
    socket.free();
    false
}

/// Changes the kind of a descriptor, and of every other descriptor of the same socket.
fn turn_into(fd: i32, socket: &Socket, kind: Kind, state: State) -> Socket {
    socket.entry.state.store(state as u32, Ordering::Release);
    let word = Word(socket.word.0 & !0xff | kind as u64);
    let _inside = gate::enter();
    table::set(fd, word);
    if socket.local.descriptors.load(Ordering::Acquire) > 1 {
        table::for_each(|other, known| {
            if known == socket.word {
                table::change(other, known, word);
            }
        });
    }
    Socket { word, ..*socket }
}

/// The other numbers of a socket that can have several before it is connected.
fn other_numbers(fd: i32, socket: &Socket) -> Vec<i32> {
    let mut others = Vec::new();
    let kind = socket.word.kind();
    if matches!(kind, Kind::Deferred | Kind::Kernel)
        && socket.local.descriptors.load(Ordering::Acquire) > 1
    {
        table::for_each(|other, word| {
            if word == socket.word && other != fd {
                others.push(other);
            }
        });
    }
    others
}

/// Held by the thread that replaces the file of an unconnected socket.
static REPLACING: Lock<()> = Lock::new(());

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    REPLACING.reset();
    accept::reset_in_child();
    refused_connects::reset_in_child();
    deferred::reset_in_child();
    placeholder::drop_idle();
}

/// Turns a fresh socket into a kernel TCP socket with every option the program has set.
///
/// # Errors
/// The errno of the failed call.
pub fn materialise(fd: i32, socket: &Socket, reason: Reason) -> Result<Socket, i32> {
    if socket.word.kind() != Kind::Fresh {
        return Ok(*socket);
    }
    let _replacing = REPLACING.lock();
    if table::get(fd) != socket.word {
        // Another thread was quicker, and turned it into the kernel's or connected it.
        return socket::of(fd).ok_or(libc::EBADF);
    }
    let family = socket.local.family.load(Ordering::Relaxed);
    let nonblocking = if socket.has(status::NONBLOCKING) {
        libc::SOCK_NONBLOCK
    } else {
        0
    };
    let kind = libc::SOCK_STREAM | nonblocking;
    let close_on_exec = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
    let make = || sys::socket(family, kind, 0);
    let made = match limits::for_library(make) {
        Err(libc::EMFILE) => make_in_place(fd, make)?,
        made => made?,
    };
    options::replay(socket, made);
    if flags::has_unused(socket) {
        flags::apply(socket, made);
    }
    if made == fd {
        let flags = if close_on_exec { libc::FD_CLOEXEC } else { 0 };
        sys::fcntl(fd, libc::F_SETFD, sys::int(flags))?;
    } else {
        let replaced = limits::replace(made, fd, close_on_exec);
        sys::close(made);
        replaced?;
    }
    let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
    signal_owner::apply_to_file(&turned, fd);
    if reason != Reason::None {
        turned.falls_back(reason);
    }
    epoll::replaced(fd, &turned);
    Ok(turned)
}

/// The ephemeral port of a connection; 0 where the program has bound one. `bound` is [`socket::Local::reserve`].
fn ephemeral_port(socket: &Socket, bound: i32) -> u16 {
    let named =
        bound > 0 && names::kernel_address(bound - 1, false).is_none_or(|own| own.port != 0);
    if named {
        0
    } else {
        socket.entry.local.load().port
    }
}

/// Records that the kernel connects the socket.
fn falls_back(kernel: &Socket, reason: Reason, address: Option<Address>) {
    let Some(address) = address else { return };
    kernel.falls_back(reason);
    kernel.entry.peer.store(&address);
    kernel.mark(status::KERNEL_CONNECTED);
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
    checked.store(crate::ground::clock::now(), Ordering::Relaxed);
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

/// Makes a socket with the number of the fresh one at `fd`, where the process may have no other number. TCP needs no
/// further number to connect, so this must not fail for want of one.
fn make_in_place(fd: i32, make: impl Fn() -> Result<i32, i32>) -> Result<i32, i32> {
    sys::close(fd);
    let made = make();
    if made.is_err() {
        // Another thread of the program took the number: it is kept open, if possible.
        if let Some(template) = template()
            && let Ok(again) = sys::duplicate(template, fd, false)
            && again != fd
        {
            sys::close(again);
        }
    }
    made
}

/// Called before the kernel does something with a socket that only a real TCP socket can: a fresh one becomes one.
/// Returns the socket afterwards, or none where the library has none.
///
/// # Errors
/// Why no socket could be made: then the call must fail.
pub fn before_kernel_use(fd: i32) -> Result<Option<Socket>, i32> {
    match socket::of(fd) {
        Some(socket) if socket.word.kind() == Kind::Fresh => {
            materialise(fd, &socket, Reason::None).map(Some)
        }
        Some(socket) if socket.word.kind() == Kind::Deferred => {
            deferred::announce(fd);
            Ok(socket::of(fd))
        }
        other => Ok(other),
    }
}

/// Called before `shutdown` of an unconnected socket. The kernel returns an error and shuts it all the same. A later
/// connection of it is the kernel's, which knows of the shutdown.
///
/// # Errors
/// As [`before_kernel_use`].
pub fn before_shutdown(fd: i32) -> Result<(), i32> {
    match before_kernel_use(fd)? {
        Some(socket)
            if socket.word.kind() == Kind::Kernel
                && !socket.has(status::HANDED_OVER)
                && (!socket.has(status::KERNEL_CONNECTED) || is_closed(fd)) =>
        {
            socket.falls_back(Reason::Unsupported);
        }
        _ => {}
    }
    Ok(())
}

/// Turns a fresh socket into the kernel's for good, before a use that only the kernel knows.
///
/// # Errors
/// As [`before_kernel_use`].
pub fn to_kernel(fd: i32, reason: Reason) -> Result<(), i32> {
    match socket::of(fd) {
        Some(socket) if socket.word.kind() == Kind::Deferred => {
            deferred::announce(fd);
            Ok(())
        }
        Some(socket) => materialise(fd, &socket, reason).map(drop),
        None => Ok(()),
    }
}

/// Before a fork, while other threads go on, or while there are numbers for it: turns fresh sockets into the kernel's.
pub fn materialise_all() {
    let mut fresh = Vec::new();
    table::for_each(|fd, word| fresh.extend((word.kind() == Kind::Fresh).then_some(fd)));
    deferred::announce_all();
    for fd in fresh {
        // Where that fails, each process has a socket of its own.
        let _ = before_kernel_use(fd);
    }
}

/// Before another process is made: a kernel socket that both processes will have stays the kernel's, whichever connects
/// it.
pub fn before_child() {
    table::for_each(|_, word| {
        if word.kind() == Kind::Kernel
            && let Some(socket) = socket::of_word(word)
        {
            socket.mark(status::SHARED | status::ELSEWHERE);
        }
    });
}

/// What [`before_passing`] has noted of a socket.
pub struct Passing {
    socket: Socket,
    noted: u32,
}

impl Passing {
    /// The message was not sent, or the program did not start.
    pub fn undo(self) {
        self.socket.unmark(self.noted);
        self.socket
            .listener()
            .inspect(|listener| listener.forget_stranger());
    }
}

/// Before a message brings a socket that is not virtual to another process: as [`before_child`].
///
/// # Errors
/// As [`before_kernel_use`].
pub fn before_passing(fd: i32) -> Result<Option<Passing>, i32> {
    const BITS: u32 = status::SHARED | status::ELSEWHERE | status::PASSED;
    let passed = before_kernel_use(fd)?.map(|socket| {
        let noted = BITS & !socket.mark(BITS);
        socket
            .listener()
            .inspect(|listener| listener.await_stranger());
        Passing { socket, noted }
    });
    Ok(passed)
}

/// Before a program that is started gets a socket that is not virtual: as [`before_child`]. Where it `loads` the library,
/// it announces a listener at its start, and what comes before is its, too. Returns what is to be undone if it does not
/// start.
pub fn before_start(fd: i32, loads: bool) -> Option<Passing> {
    let socket = before_kernel_use(fd).ok().flatten()?;
    match socket.listener() {
        Some(listener) if loads => {
            listener.await_stranger();
            return Some(Passing { socket, noted: 0 });
        }
        Some(listener) => listener.leave_waiting(),
        None => {
            socket.mark(status::SHARED | status::ELSEWHERE);
        }
    }
    None
}

/// Before a list of file actions gives a socket to a program that is not yet started, if it ever is.
pub fn give_to_start(fd: i32) {
    let _ = before_start(fd, false);
    if let Some(listener) = socket::of(fd).and_then(|socket| socket.listener()) {
        listener.note_given();
    }
}

/// Whether other processes have the same socket: a connect of one of them connects all. In a tenant, where the kernel
/// connects nothing, the other processes keep a socket that is not connected.
fn is_shared(socket: &Socket) -> bool {
    socket.word.kind() == Kind::Kernel && socket.has(status::ELSEWHERE) && !gateway::is_used()
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    let exchange = |word: &AtomicI32, from, to| {
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    };
    exchange(&TEMPLATE, from, to);
    table::for_each(|_, word| {
        if let Kind::Virtual | Kind::Deferred = word.kind()
            && let Some(socket) = socket::of_word(word)
        {
            exchange(&socket.local.reserve, from + 1, to + 1);
            exchange(&socket.local.spare, from + 1, to + 1);
            exchange(&socket.local.first_end, from + 1, to + 1);
            exchange(&socket.local.other_end, from + 1, to + 1);
        }
    });
    placeholder::relocate(from, to);
}
