//! Life of a socket: made, connected, accepted, shut, closed; virtual where the other end is ours,
//! the kernel's where it is not.

use core::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::link::{Geometry, Role, side_flags};
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use crate::lane::Lane;
use crate::link::{LinkEnd, Loan, reset_side};
use crate::listener::{self, Listener, Pending};
use crate::socket::{self, Socket, header, status};
use crate::table::{self, Kind, Word};
use crate::{attach, epoll, limits, lock, names, options, ports, sys, wait};

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
    publish(fd, socket).then_some(fd)
}

/// Shows a socket under its descriptor.
fn publish(fd: i32, socket: Socket) -> bool {
    socket.entry.descriptor.store(fd, Ordering::Relaxed);
    if table::set(fd, socket.word) {
        return true;
    }
    socket.free();
    false
}

/// Changes what a descriptor is, keeping its socket.
fn turn_into(fd: i32, socket: &Socket, kind: Kind, state: State) -> Socket {
    socket.entry.state.store(state as u32, Ordering::Release);
    let word = Word(socket.word.0 & !0xff | kind as u64);
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

/// What became of a connect.
pub enum Connected {
    /// It is done, or under way (`EINPROGRESS`), or failed.
    Virtual(Result<(), i32>),
    /// The kernel must do it.
    Kernel,
}

/// Connects a socket to `address`, virtually if a program of ours listens there.
pub fn connect(fd: i32, socket: &Socket, address: Option<Address>) -> Connected {
    if socket.word.kind() == Kind::Virtual {
        let first = socket.has(status::CONNECTING);
        socket.unmark(status::CONNECTING);
        return Connected::Virtual(if first { Ok(()) } else { Err(libc::EISCONN) });
    }
    if socket.word.kind() == Kind::Listener || socket.has(status::KERNEL_CONNECTED) {
        return Connected::Kernel;
    }
    match try_virtual(fd, socket, address) {
        Ok(()) => Connected::Virtual(if socket.has(status::NONBLOCKING) {
            socket.mark(status::CONNECTING);
            Err(libc::EINPROGRESS)
        } else {
            Ok(())
        }),
        Err(reason) => {
            let kernel = materialise(fd, socket, Reason::None);
            if let (Ok(kernel), Some(address)) = (kernel, address) {
                kernel.falls_back(reason);
                kernel.entry.peer.store(&address);
                kernel.mark(status::KERNEL_CONNECTED);
            }
            Connected::Kernel
        }
    }
}

fn try_virtual(fd: i32, socket: &Socket, address: Option<Address>) -> Result<(), Reason> {
    let mut address = address.ok_or(Reason::Unsupported)?;
    let attachment = attach::ensure().ok_or(Reason::NoDaemon)?;
    let family = socket.local.family.load(Ordering::Relaxed);
    if i32::from(address.family) != family || socket.entry.reason.load(Ordering::Relaxed) != 0 {
        return Err(Reason::Option);
    }
    if address.port == 0 {
        return Err(Reason::NoListener);
    }
    if address.is_wildcard() {
        // The kernel takes "any" as "this host".
        address = if family == libc::AF_INET6 {
            Address::v6(1u128.to_be_bytes(), address.port, 0)
        } else {
            Address::v4([127, 0, 0, 1], address.port)
        };
    }
    let target = names::find_listener(attachment, &address)?;
    let (link, claimed) = listener::client_link(&target).map_err(|error| match error {
        libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE => Reason::Quota,
        libc::ECONNREFUSED => Reason::NoListener,
        libc::EAGAIN => Reason::BacklogFull,
        libc::ENOTCONN | libc::EPIPE => Reason::NoDaemon,
        _ => Reason::LinkFailed,
    })?;
    let local = local_address(fd, socket, &address);
    let loan = if local.is_some() { link.lend() } else { None };
    let (Some(local), Some(loan)) = (local, loan) else {
        if claimed {
            link.unclaim();
        }
        local.inspect(|local| release_port(socket, local));
        return Err(if local.is_some() {
            Reason::Quota
        } else {
            Reason::NoPort
        });
    };
    let route = Route {
        link,
        loan,
        claimed,
        listener: target.listener,
    };
    if establish(fd, socket, &route, &local, &address) {
        Ok(())
    } else {
        release_port(socket, &local);
        Err(Reason::BacklogFull)
    }
}

/// The way a new connection takes.
struct Route {
    link: &'static LinkEnd,
    loan: Loan,
    claimed: bool,
    listener: u32,
}

fn release_port(socket: &Socket, local: &Address) {
    if !socket.has(status::BOUND) {
        ports::give(local.port, attach::process());
    }
}

/// The address a connection starts from: what the program bound, or a port of our own.
fn local_address(fd: i32, socket: &Socket, to: &Address) -> Option<Address> {
    let bound = if socket.has(status::BOUND) {
        names::of_kernel(fd, false).filter(|address| address.port != 0)
    } else {
        None
    };
    let plain = to.unmapped();
    let mut own = match plain.family {
        INET if plain.is_loopback() => Address::v4([127, 0, 0, 1], 0),
        _ => Address { port: 0, ..plain },
    };
    if to.family == INET6 {
        own = own.mapped();
    }
    match bound {
        Some(bound) if !bound.is_wildcard() => Some(bound),
        Some(bound) => Some(Address {
            port: bound.port,
            ..own
        }),
        None => Some(Address {
            port: ports::take()?,
            ..own
        }),
    }
}

/// Fills the slot in, announces it, and puts the anchor under the program's descriptor.
fn establish(fd: i32, socket: &Socket, route: &Route, local: &Address, peer: &Address) -> bool {
    let Route {
        link,
        loan,
        claimed,
        listener: number,
    } = *route;
    let handle = loan.handle;
    let Some(slot) = link.slot(handle.index) else {
        return false;
    };
    slot.meta.client.store(&local.unmapped());
    slot.meta.server.store(&peer.unmapped());
    slot.meta.listener.store(number, Ordering::Relaxed);
    slot.meta
        .generation
        .store(handle.generation, Ordering::Relaxed);
    let ring = link.layout.small_ring(Role::Client, handle.index as usize);
    reset_side(&slot.client, handle.generation, ring);
    if !link.announce(handle, number, claimed) {
        // Nobody saw it: both sides count as closed.
        slot.server
            .generation
            .store(handle.generation, Ordering::Relaxed);
        slot.server
            .flags
            .store(side_flags::CLOSED | side_flags::RELEASED, Ordering::Relaxed);
        link.finish(slot, handle, side_flags::CLOSED, Some(loan), [ring; 2]);
        link.used_less();
        return false;
    }
    let was_bound = socket.has(status::BOUND);
    if was_bound && let Ok(kept) = attach::duplicate(fd) {
        // The kernel goes on reserving the port the program bound.
        table::set(kept, Word::new(Kind::Internal, 0, 0));
        socket.local.reserve.store(kept + 1, Ordering::Relaxed);
    }
    set_blocking(loan, !socket.has(status::NONBLOCKING));
    epoll::before_replace(fd, socket);
    let close_on_exec = if socket.word.kind() == Kind::Fresh {
        socket.has(status::CLOSE_ON_EXEC)
    } else {
        sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0)
    };
    if sys::replace(loan.anchor, fd, close_on_exec).is_err() {
        return false;
    }
    attach::drop_kept(loan.anchor);
    describe(socket, link, loan, local, peer, number);
    let turned = turn_into(fd, socket, Kind::Virtual, State::Virtual);
    if let Some(header) = header() {
        header.connects.fetch_add(1, Ordering::Relaxed);
    }
    epoll::replaced(fd, &turned);
    true
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

/// Makes a socket of a connection that waited. `Err` gives the errno of a failed accept, or 0 when
/// the connection was unusable and the next one should be tried.
pub fn accept(listening: &Socket, pending: Pending, flags: c_int) -> Result<(i32, Address), i32> {
    let Pending { link, loan } = pending;
    let shared = link.slot(loan.handle.index).ok_or(0)?;
    let close_on_exec = flags & libc::SOCK_CLOEXEC != 0;
    let Some(socket) = socket::allocate(Kind::Virtual, State::Virtual) else {
        attach::drop_kept(loan.anchor);
        return Err(libc::ENOBUFS);
    };
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    set_blocking(loan, !nonblocking);
    let fd = match sys::duplicate(loan.anchor, 0, close_on_exec) {
        Ok(fd) => fd,
        Err(error) => {
            socket.free();
            if let Some(listener) = listening.listener() {
                listener.push_front(pending);
            }
            return Err(error);
        }
    };
    attach::drop_kept(loan.anchor);
    if nonblocking {
        socket.mark(status::NONBLOCKING);
    }
    let six = listening
        .listener()
        .is_some_and(|listener| listener.address.family == INET6);
    let shown = |address: Address| if six { address.mapped() } else { address };
    let (local, peer) = (shared.meta.server.load(), shared.meta.client.load());
    // The peer names its own address: believe only one of this host.
    let credible = attach::current().is_some_and(|attachment| names::is_local(attachment, &peer));
    let peer = if credible {
        peer
    } else {
        Address {
            port: peer.port,
            ..local
        }
    };
    let (local, peer) = (shown(local), shown(peer));
    let number = listening.entry.listener.load(Ordering::Relaxed);
    describe(&socket, link, loan, &local, &peer, number);
    options::inherit(listening, &socket);
    let (own, _) = link.sides(shared);
    own.flags.fetch_or(side_flags::ACCEPTED, Ordering::AcqRel);
    if let Some(header) = header() {
        header.accepts.fetch_add(1, Ordering::Relaxed);
    }
    if !publish(fd, socket) {
        sys::close(fd);
        return Err(libc::EMFILE);
    }
    Ok((fd, peer))
}

/// Notes a connection the kernel accepted on our listener.
pub fn note_kernel_accept(fd: i32, nonblocking: bool) {
    let Some(socket) = socket::allocate(Kind::Kernel, State::Kernel) else {
        return;
    };
    socket.mark(status::KERNEL_CONNECTED);
    if nonblocking {
        socket.mark(status::NONBLOCKING);
    }
    if let Some(local) = names::of_kernel(fd, false) {
        socket.entry.local.store(&local);
    }
    if let Some(peer) = names::of_kernel(fd, true) {
        socket.entry.peer.store(&peer);
    }
    socket.falls_back(Reason::PlainClient);
    publish(fd, socket);
}

/// After a successful `listen` of the kernel: the listener is open to our programs too.
pub fn listen(fd: i32, socket: Option<Socket>, backlog: i32) {
    let Some(listener) = Listener::register(fd, backlog) else {
        return;
    };
    let socket = match socket.or_else(|| socket::allocate(Kind::Kernel, State::Kernel)) {
        Some(socket) => socket,
        None => return listener.close(false),
    };
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    if flags & sys::int(libc::O_NONBLOCK) != 0 && flags & sys::int(BLOCKING) == 0 {
        socket.mark(status::NONBLOCKING);
    } else {
        // To the kernel it never blocks: who waits, waits for both kinds of connection.
        set_file_nonblocking(fd, true);
    }
    socket
        .local
        .listener
        .store(core::ptr::from_ref(listener).cast_mut(), Ordering::Release);
    socket
        .entry
        .listener
        .store(listener.number, Ordering::Relaxed);
    socket.entry.local.store(&listener.address);
    socket.entry.descriptor.store(fd, Ordering::Relaxed);
    let turned = turn_into(fd, &socket, Kind::Listener, State::Listener);
    epoll::replaced(fd, &turned);
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

/// A listener that was inherited over exec, or received, is opened to our programs when the
/// program first uses it.
pub fn recognise_listener(fd: i32) {
    if attach::ensure().is_some()
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
    {
        listen(fd, None, 4096);
    }
}

/// A listener that was shut down is an ordinary bound socket again.
pub fn unlisten(fd: i32) {
    let Some(socket) = socket::of(fd).filter(|socket| socket.word.kind() == Kind::Listener) else {
        return;
    };
    let turned = turn_into(fd, &socket, Kind::Kernel, State::Kernel);
    turned.mark(status::BOUND);
    if !turned.has(status::NONBLOCKING) {
        set_file_nonblocking(fd, false);
    }
    if let Some(listener) = socket.listener() {
        listener.close(!socket.has(status::SHARED));
    }
    turned
        .local
        .listener
        .store(core::ptr::null_mut(), Ordering::Release);
    epoll::replaced(fd, &turned);
}

/// On the file of a listener, which has no other use for it: the program takes it for blocking. It
/// stays with the file, whoever gets a descriptor of it.
pub const BLOCKING: c_int = libc::O_APPEND;

/// Notes on a listener's file whether the program takes it for blocking.
pub fn mark_blocking(fd: i32, on: bool) {
    if let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) {
        let bit = sys::int(BLOCKING);
        let wanted = if on { flags | bit } else { flags & !bit };
        let _ = sys::fcntl(fd, libc::F_SETFL, wanted | sys::int(libc::O_NONBLOCK));
    }
}

/// Makes a listener that blocks, to the program, one that does not to the kernel, or takes that
/// back.
pub fn set_file_nonblocking(fd: i32, on: bool) {
    if let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) {
        let bits = sys::int(libc::O_NONBLOCK | BLOCKING);
        let wanted = if on { flags | bits } else { flags & !bits };
        let _ = sys::fcntl(fd, libc::F_SETFL, wanted);
    }
}

/// `shutdown` of a virtual socket.
pub fn shutdown(lane: &Lane, how: c_int) -> Result<(), i32> {
    let socket = lane.socket;
    if socket.has(status::RESET | status::PEER_GONE) {
        return Err(libc::ENOTCONN);
    }
    if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
        socket.mark(status::SHUT_WRITE);
        // Release: the tail that is final stands before it.
        lane.own().flags.fetch_or(side_flags::FIN, Ordering::AcqRel);
        lane.announce_flags();
    }
    if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
        socket.mark(status::SHUT_READ);
    }
    // Whoever of this program sleeps on the anchor must see it. From then on it brings no tokens.
    // A reader that sleeps has nothing to learn of SHUT_WR.
    let sleepers = socket.entry.receive.sleepers.load(Ordering::Acquire);
    let concerned = if how == libc::SHUT_WR {
        sleepers >= wait::WRITER
    } else {
        sleepers > 0 || socket.entry.transmit.sleepers.load(Ordering::Acquire) > 0
    };
    if concerned {
        lane.own()
            .flags
            .fetch_or(side_flags::ANCHOR_SHUT, Ordering::AcqRel);
        socket.mark(status::SHARED | status::ANCHOR_SHUT);
        // SAFETY: no pointers.
        let _ = unsafe {
            let how = sys::int(libc::SHUT_RD);
            sys::raw(libc::SYS_shutdown, [sys::int(lane.fd), how, 0, 0, 0, 0])
        };
    }
    epoll::changed(&socket);
    Ok(())
}

/// Closes a descriptor that is one of our sockets.
pub fn close(fd: i32, socket: &Socket) -> Result<(), i32> {
    if !table::change(fd, socket.word, Word::FOREIGN) {
        return Err(libc::EBADF);
    }
    epoll::forget(fd, socket);
    if socket.entry.references.load(Ordering::Acquire) == 1 && keep_for_sleepers(fd, socket) {
        return close_kernel(fd);
    }
    let last = socket.drop_reference();
    if !last {
        match socket.listener() {
            Some(listener) if !held_here(socket) => listener.close(false),
            None if socket.is_foreign() && !held_here(socket) => socket.leave(),
            _ => {}
        }
        return close_kernel(fd);
    }
    match socket.word.kind() {
        Kind::Virtual => close_virtual(fd, socket),
        Kind::Listener => {
            if let Some(listener) = socket.listener() {
                listener.close(true);
            }
            let result = close_kernel(fd);
            socket.free();
            result
        }
        _ => {
            let result = close_kernel(fd);
            socket.free();
            result
        }
    }
}

/// A call that sleeps in the socket, or that a signal handler has interrupted, keeps it, as it keeps
/// the kernel's file: it goes on under a descriptor of the library's until the call ends.
fn keep_for_sleepers(fd: i32, socket: &Socket) -> bool {
    let entry = socket.entry;
    let used = entry.receive.sleepers.load(Ordering::Acquire) > 0
        || lock::is_mine(&entry.transmit.lock)
        || lock::is_mine(&entry.receive.lock);
    if !used || socket.local.orphan.load(Ordering::Acquire) != 0 {
        return false;
    }
    let Ok(kept) = attach::duplicate(fd) else {
        return false;
    };
    socket.mark(status::SHARED);
    table::set(kept, socket.word);
    socket.local.orphan.store(kept + 1, Ordering::Release);
    true
}

/// Whether this process has another descriptor of the same socket.
fn held_here(socket: &Socket) -> bool {
    let mut held = false;
    table::for_each(|_, word| held |= word == socket.word);
    held
}

fn close_kernel(fd: i32) -> Result<(), i32> {
    // SAFETY: the descriptor is the program's to close.
    unsafe { sys::raw(libc::SYS_close, [sys::int(fd), 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// `SO_LINGER` of some seconds: close waits while much of what was sent is still unread. What fits
/// a TCP receiver's buffer counts as delivered.
fn linger(lane: &Lane) {
    let seconds = u64::from(
        lane.socket
            .entry
            .linger
            .load(Ordering::Relaxed)
            .saturating_sub(1),
    );
    if seconds == 0 {
        return;
    }
    let until = crate::clock::nanoseconds().saturating_add(seconds.saturating_mul(1_000_000_000));
    while !lane.is_drained() {
        let left = until.saturating_sub(crate::clock::nanoseconds());
        if left == 0 {
            return;
        }
        lane.arm(netchannel_abi::link::waiter::SPACE);
        if !lane.is_drained() {
            let mut set = [libc::pollfd {
                fd: lane.fd,
                events: libc::POLLIN,
                revents: 0,
            }];
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            if sys::poll(&mut set, left, core::ptr::null()).is_err() {
                return;
            }
            lane.take_tokens(None);
        }
    }
}

fn close_virtual(fd: i32, socket: &Socket) -> Result<(), i32> {
    let Some(mut lane) = Lane::of(*socket, fd) else {
        socket.free();
        return close_kernel(fd);
    };
    let entry = socket.entry;
    linger(&lane);
    lock::acquire(&entry.transmit.lock);
    lock::acquire(&entry.receive.lock);
    let abort = entry.linger.load(Ordering::Relaxed) == 1
        || lane.has_bytes() && !socket.has(status::SHUT_READ);
    let reset = if abort { side_flags::RESET } else { 0 };
    let flags = side_flags::FIN | side_flags::CLOSED | reset;
    let slot = lane.slot();
    let own = lane.own();
    // Nobody is woken on our behalf any more.
    own.waiter.store(0, Ordering::Release);
    let keep = lane.link.wants_anchor()
        && !socket.has(status::SHARED | status::PEER_GONE | status::FAULT)
        && entry.receive.sleepers.load(Ordering::Acquire) == 0;
    let kept = if keep {
        attach::duplicate(fd).ok()
    } else {
        None
    };
    if let Some(anchor) = kept {
        table::set(anchor, Word::new(Kind::Internal, 0, 0));
        lane.fd = anchor;
    }
    let rings = [&entry.transmit.geometry, &entry.transmit.former_geometry]
        .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
    let loan = kept.map(|anchor| Loan {
        handle: lane.handle(),
        anchor,
        nonblocking: socket.has(status::NONBLOCKING),
    });
    let is_client = lane.link.role == Role::Client;
    let bound = socket.local.reserve.swap(0, Ordering::Relaxed);
    let port = entry.local.load().port;
    lane.link.finish(slot, lane.handle(), flags, loan, rings);
    lane.announce_flags();
    lane.link.used_less();
    let result = close_kernel(fd);
    if bound > 0 {
        attach::drop_kept(bound - 1);
    } else if is_client && !socket.is_foreign() {
        ports::give(port, entry.process.load(Ordering::Relaxed));
    }
    socket.free();
    result
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
        }
    });
}
