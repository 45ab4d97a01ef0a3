//! Listening and accepting: a socket becomes a listener, accepts connections, and is an ordinary socket again.

use core::sync::atomic::Ordering;

use libc::c_int;
use netchannel_abi::address::{Address, INET6};
use netchannel_abi::directory;
use netchannel_abi::link::side_flags;
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;

use super::{describe, flags, publish, set_blocking, turn_into};
use crate::descriptors::attach::header;
use crate::descriptors::reserved_number::{self, ReservedNumber};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, former_ports, gateway, limits, names};
use crate::ground::lock::Lock;
use crate::ground::sys;
use crate::sockets::link::LinkEnd;
use crate::sockets::listener::daemon_renewal;
use crate::sockets::listener::{self, Addresses, Listener, Pending};
use crate::sockets::options::InheritedOptions;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{exclusion, options, rings};
use crate::waiting::epoll;

/// Makes a socket of a pending connection. `Err` is the errno of a failed accept, or 0 when the connection was unusable
/// and the next one should be tried. `place` is the number reserved for it.
pub fn accept(
    listening: &Socket,
    pending: Pending,
    flags: c_int,
    place: &mut Option<ReservedNumber>,
) -> Result<(i32, Address), i32> {
    let Pending {
        link,
        loan,
        addresses,
        ring,
        in_place,
        era,
        ..
    } = pending;
    let shared = link.slot(loan.handle.index).ok_or(0)?;
    if !is_credible(listening, link, &addresses) {
        if let Some(header) = header() {
            header.faults.fetch_add(1, Ordering::Relaxed);
        }
        listener::reset(&pending);
        return Err(0);
    }
    if !link.is_queued() && !link.admit_announced(loan.handle) {
        listener::reset(&pending);
        return Err(0);
    }
    let close_on_exec = flags & libc::SOCK_CLOEXEC != 0;
    let Some(socket) = socket::allocate(Kind::Virtual, State::Virtual) else {
        attach::close_internal(loan.anchor);
        return Err(libc::ENOBUFS);
    };
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    set_blocking(loan, !nonblocking);
    let number = match in_place {
        true => Ok(reserved_number::settle(place, loan.anchor, close_on_exec)),
        false => reserved_number::assign(place, loan.anchor, close_on_exec),
    };
    let fd = match number {
        Ok(fd) => fd,
        Err(error) => {
            socket.free();
            if let Some(listener) = listening.listener() {
                listener.push_front(pending);
            }
            return Err(error);
        }
    };
    if !in_place {
        socket.keep_spare(loan.anchor);
    }
    if nonblocking {
        socket.mark(status::NONBLOCKING);
    }
    let bound = listening.listener().map(|listener| listener.address);
    let six = bound.is_some_and(|address| address.family == INET6);
    if bound.is_some_and(|address| !address.is_wildcard()) {
        socket.mark(status::ADDRESS_NAMED);
    }
    let shown = |address: Address| if six { address.mapped() } else { address };
    let (local, peer) = (shown(addresses.local), shown(addresses.peer));
    let number = listening.entry.listener.load(Ordering::Relaxed);
    describe(&socket, link, loan, &local, &peer, number);
    let former = listening
        .listener()
        .is_some_and(|listener| listener.apply_former(era, &socket));
    if !former {
        InheritedOptions::of(listening).apply(&socket);
    }
    let lent_ring = &socket.entry.receive.former_geometry;
    lent_ring.store(ring, Ordering::Relaxed);
    let (own, _) = link.sides(shared);
    let hints = socket.entry.hints.load(Ordering::Relaxed);
    own.hints.store(hints, Ordering::Relaxed);
    let has_liveness = options::publish_first_words(&socket, own);
    let initial_flags = crate::sockets::lane::flags_at_start(&socket);
    own.flags
        .fetch_or(side_flags::ACCEPTED | initial_flags, Ordering::AcqRel);
    if let Some(header) = header() {
        header.accepts.fetch_add(1, Ordering::Relaxed);
    }
    if !publish(fd, socket) {
        sys::close(fd);
        return Err(libc::EMFILE);
    }
    if has_liveness {
        options::announce_at_start(&socket, fd);
    }
    rings::note_virtual();
    Ok((fd, peer))
}

/// Whether a client may have the addresses that it named, by which programs recognise their clients and the requested
/// service. The daemon's relay has checked them itself.
fn is_credible(listening: &Socket, link: &LinkEnd, addresses: &Addresses) -> bool {
    if link.relayed.load(Ordering::Relaxed) {
        return true;
    }
    let (Some(attachment), Some(listener)) = (attach::current(), listening.listener()) else {
        return false;
    };
    let own = listener.address.unmapped();
    let (local, peer) = (addresses.local.unmapped(), addresses.peer.unmapped());
    let is_for_listener = own.port == local.port
        && if own.is_wildcard() {
            names::is_local(attachment, &local)
        } else {
            own.family == local.family && own.bytes == local.bytes
        };
    let tenant = link.tenant();
    if !tenant.is_none() {
        // One that may be trusted no more since the link was made.
        return is_for_listener && tenant.has(&peer) && names::is_neighbour(attachment, &peer);
    }
    let same_host = peer.family == local.family
        && (peer.bytes == local.bytes || names::is_local(attachment, &peer));
    is_for_listener && same_host && owns_port(link, addresses)
}

/// Whether the client had the port that it named when it came, according to the daemon; or to a former daemon, for a
/// port that the present one has given to no process, or only just now. Programs of one user could trace each other
/// anyway: they are believed.
fn owns_port(link: &LinkEnd, addresses: &Addresses) -> bool {
    let user = link.owner_word();
    link.is_of_own_user()
        || directory::is_owned(addresses.owner, user, &addresses.peer)
        || former_ports::were_owned(user, &addresses.peer, addresses.owner != 0)
        || owns_port_by_now(user, &addresses.peer)
}

/// The client may already know another daemon, which gave it the port, while this process still has the former one's
/// table.
#[cold]
fn owns_port_by_now(user: u32, peer: &Address) -> bool {
    daemon_renewal::catch_up();
    attach::current().is_some_and(|own| {
        let owner = names::owner_of_port(own, peer.port);
        directory::is_owned(owner, user, peer) || former_ports::were_owned(user, peer, owner != 0)
    })
}

/// Records a connection that the kernel accepted on a listener of the library, from this peer where it has told it.
pub fn note_kernel_accept(fd: i32, listening: &Socket, nonblocking: bool, peer: Option<Address>) {
    let Some(socket) = socket::allocate(Kind::Kernel, State::Kernel) else {
        return;
    };
    socket.mark(status::KERNEL_CONNECTED);
    if nonblocking {
        socket.mark(status::NONBLOCKING);
    }
    let named = listening.listener().map(|listener| listener.address);
    let local = named.filter(|own| !own.is_wildcard());
    if let Some(local) = local.or_else(|| names::kernel_address(fd, false)) {
        socket.entry.local.store(&local);
    }
    if let Some(peer) = peer.or_else(|| names::kernel_address(fd, true)) {
        socket.entry.peer.store(&peer);
    }
    socket.falls_back(Reason::PlainClient);
    publish(fd, socket);
}

/// After a successful `listen` of the kernel: opens the listener to virtual connections, too.
pub fn listen(fd: i32, socket: Option<Socket>, backlog: i32) {
    if limits::are_scarce() || socket.is_some_and(|socket| was_shut(&socket)) {
        return;
    }
    // A socket that the kernel connected before has been added to sets as the kernel's.
    let former = socket.filter(|socket| socket.has(status::KERNEL_CONNECTED));
    let watched = match former {
        None => Vec::new(),
        Some(socket) => {
            let Some(watched) = epoll::watching(fd) else {
                return;
            };
            socket.unmark(status::KERNEL_CONNECTED);
            watched
        }
    };
    open_to_programs(fd, socket, backlog);
    let Some(now) = socket::of(fd) else {
        return;
    };
    if !watched.is_empty() {
        epoll::take_over(fd, &now, &watched);
    }
    match now.listener() {
        Some(listener) if now.has(status::PASSED) => listener.await_stranger(),
        Some(listener) if now.has(status::ELSEWHERE) && !now.is_unshared() => {
            listener.await_relatives();
        }
        _ => {}
    }
}

/// Whether it was shut before: then so is what it accepts, and only the kernel knows that.
fn was_shut(socket: &Socket) -> bool {
    socket.entry.reason.load(Ordering::Relaxed) == Reason::Unsupported as u32 && !gateway::is_used()
}

/// Held by the thread that opens a listener to virtual connections.
static OPENING: Lock<()> = Lock::new(());

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    OPENING.reset();
}

fn open_to_programs(fd: i32, socket: Option<Socket>, backlog: i32) {
    if attach::ensure().is_some()
        && let Some(why) = rings::exclusion_reason()
    {
        socket.inspect(|socket| socket.falls_back(why));
        return;
    }
    // Threads that find the listener at the same time register it once.
    let opening = OPENING.lock();
    if opening.is_none() || socket::of(fd).map(|found| found.word) != socket.map(|known| known.word)
    {
        return;
    }
    let known = socket.is_some();
    let Some(listener) = Listener::register(fd, backlog, !known) else {
        return;
    };
    let socket = match socket.or_else(|| socket::allocate(Kind::Kernel, State::Kernel)) {
        Some(socket) => socket,
        None => return listener.close(false),
    };
    if !known {
        options::record_received(&socket, fd);
    }
    // The kernel's listener never blocks: a blocking accept waits for both kinds of connection.
    flags::begin_listening(&socket, fd, known);
    socket.local.listener.store(
        core::ptr::from_ref(listener).cast_mut().cast(),
        Ordering::Release,
    );
    socket
        .entry
        .listener
        .store(listener.number(), Ordering::Relaxed);
    socket.entry.local.store(&listener.address);
    socket.entry.descriptor.store(fd, Ordering::Relaxed);
    let turned = turn_into(fd, &socket, Kind::Listener, State::Listener);
    options::note_bound(&turned, fd);
    epoll::replaced(fd, &turned);
}

/// Opens a listener to virtual connections when the program first uses it, if it was inherited over exec, received, or
/// made while no daemon served.
pub fn recognise_listener(fd: i32) {
    if limits::are_scarce()
        || attach::ensure().is_none()
        || exclusion::reason().is_some()
        || !is_listening(fd)
    {
        return;
    }
    // A set that watches the listener and is not notified would sleep while virtual connections are pending.
    let Some(watched) = epoll::watching(fd) else {
        return;
    };
    listen(fd, None, LARGEST_BACKLOG);
    if let Some(socket) = socket::of(fd) {
        epoll::take_over(fd, &socket, &watched);
    }
}

/// As [`recognise_listener`], for one of a process in which the file may have other flags than the program has set:
/// where it is the kernel's alone from now on, it gets back the program's flags.
pub fn adopt_received_listener(fd: i32) {
    recognise_listener(fd);
    if table::get(fd).kind() != Kind::Foreign || !is_listening(fd) {
        return;
    }
    if limits::are_scarce() && attach::current().is_some() {
        // Pending connections of the former image were left for this one.
        open_to_programs(fd, None, LARGEST_BACKLOG);
        socket::of(fd)
            .as_ref()
            .and_then(Socket::listener)
            .inspect(|listener| listener.retire_at_start());
    } else if let Some(meant) = flags::of_marked(fd) {
        flags::end_listening(fd, meant);
    }
}

/// Announces a listener that could not be announced when it was made.
pub fn announce_late(fd: i32) {
    if daemon_renewal::may_try()
        && let Some(socket) = socket::of(fd)
        && is_listening(fd)
    {
        listen(fd, Some(socket), LARGEST_BACKLOG);
    }
}

/// A socket that was shared by a fork listens since a relative called `listen`. True when it is a listener of this
/// process, too, from now on.
#[cold]
pub fn recognise_listener_of_relative(fd: i32) -> bool {
    // A connect may have failed before, and the kernel then listens all the same.
    match socket::of(fd).filter(|found| found.word.kind() == Kind::Kernel) {
        Some(found)
            if is_listening(fd)
                && !was_shut(&found)
                && !limits::are_scarce()
                // Nothing tells one that never blocks from a listener of this process that no daemon knows.
                && (flags::is_marked_blocking(fd)
                    || found.has(status::SHARED) && daemon_renewal::may_try()) =>
        {
            listen(fd, Some(found), LARGEST_BACKLOG);
            socket::of(fd).is_some_and(|found| found.word.kind() == Kind::Listener)
        }
        _ => false,
    }
}

pub(super) fn is_listening(fd: i32) -> bool {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// The backlog where the program's is not known.
const LARGEST_BACKLOG: i32 = 4096;

/// Turns a listener that was shut down into an ordinary bound socket.
pub fn unlisten(fd: i32) {
    let Some(socket) = socket::of(fd).filter(|socket| socket.word.kind() == Kind::Listener) else {
        return;
    };
    let turned = turn_into(fd, &socket, Kind::Kernel, State::Kernel);
    if turned.has(status::PORT_NAMED) {
        turned.mark(status::BOUND);
    } else {
        // The kernel has taken its port back, though it still shows it.
        turned.unmark(status::BOUND);
    }
    flags::end_listening(fd, flags::of(&turned));
    if let Some(listener) = socket.listener() {
        // For all of its holders: the kernel resets pending connections.
        listener.shut();
    }
    turned
        .local
        .listener
        .store(core::ptr::null_mut(), Ordering::Release);
    epoll::replaced(fd, &turned);
}
