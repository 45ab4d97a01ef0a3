//! Connecting: to a listener of a program with the library over a link, otherwise through the kernel.

use core::sync::atomic::Ordering;

use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::program::State;
use netchannel_abi::reason::Reason;
use netchannel_ring::side;

use super::pending;
use super::{
    REPLACING, deferral, describe, falls_back, flags, is_shared, materialise, other_numbers,
    refused_connects, set_blocking, tuples, turn_into,
};
use crate::descriptors::attach::header;
use crate::descriptors::names::Target;
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, confinement, gateway, limits, names, ports};
use crate::ground::{process, sys};
use crate::sockets::lane::Lane;
use crate::sockets::lane::Progress;
use crate::sockets::link::{LinkEnd, Loan};
use crate::sockets::listener::daemon_renewal;
use crate::sockets::socket::{Socket, status};
use crate::sockets::{listener, options, rings, signal_owner};
use crate::waiting::{epoll, housekeeping};

/// The outcome of a connect.
pub enum Connected {
    /// It is connected, under way (`EINPROGRESS`), or failed.
    Virtual(Result<(), i32>),
    /// The kernel must do it.
    Kernel,
}

/// Connects a socket to `address`: virtually, if a program with the library listens there.
pub fn connect(fd: i32, socket: &Socket, address: Option<Address>) -> Connected {
    if socket.word.kind() == Kind::Virtual {
        let is_first = socket.has(status::CONNECTING);
        let again = Lane::of(*socket, fd).map(|lane| {
            let progress = lane.progress();
            if is_first && progress == Progress::Connected {
                // The success was not reported yet, and the acceptor may have been killed since.
                lane.check_peer_now();
            }
            progress
        });
        housekeeping::carry();
        return match again {
            _ if table::get(fd) == socket.word => {
                Connected::Virtual(pending::connect_again(fd, socket))
            }
            // The kernel reports the progress.
            Some(Progress::Pending) => Connected::Kernel,
            // The connection was made anew.
            _ if is_first => Connected::Virtual(Ok(())),
            _ => Connected::Virtual(Err(libc::EISCONN)),
        };
    }
    if socket.word.kind() == Kind::Deferred {
        return Connected::Virtual(deferral::connect_again(socket));
    }
    if socket.word.kind() == Kind::Listener || socket.has(status::KERNEL_CONNECTED) {
        return Connected::Kernel;
    }
    if is_shared(socket) {
        falls_back(socket, Reason::Shared, address);
        return Connected::Kernel;
    }
    if socket.has(status::BOUND)
        && let Some(peer) = &address
        && tuples::is_taken(fd, peer)
    {
        return Connected::Virtual(Err(libc::EADDRNOTAVAIL));
    }
    daemon_renewal::check();
    match try_virtual(fd, socket, address) {
        Ok(_) if socket.has(status::NONBLOCKING) => {
            socket.mark(status::CONNECTING);
            Connected::Virtual(Err(libc::EINPROGRESS))
        }
        Ok(false) => Connected::Virtual(Ok(())),
        Ok(true) => {
            let Some(turned) = crate::sockets::socket::of(fd) else {
                return Connected::Virtual(Err(libc::EBADF));
            };
            let waited = pending::wait_connected(fd, &turned);
            match crate::sockets::socket::of(fd) {
                // The knowledge of the listener is outdated, or the other host refuses the connection on a channel.
                Some(kernel)
                    if waited.is_err_and(refused_connects::is_for_kernel)
                        && kernel.word.kind() == Kind::Kernel =>
                {
                    falls_back(&kernel, Reason::NoListener, address);
                    Connected::Kernel
                }
                _ => Connected::Virtual(waited),
            }
        }
        Err(NotVirtual::AddressTaken) => Connected::Virtual(Err(libc::EADDRNOTAVAIL)),
        Err(NotVirtual::ToKernel(reason)) => match materialise(fd, socket, Reason::None) {
            Ok(kernel) => {
                falls_back(&kernel, reason, address);
                Connected::Kernel
            }
            Err(error) => Connected::Virtual(Err(error)),
        },
    }
}

/// The kernel's connect was refused, since nobody listened there. The next one may be virtual, as that of a socket that
/// was never connected: programs try again until their server is there.
#[cold]
pub fn note_refused(fd: i32) {
    let Some(socket) = crate::sockets::socket::of(fd) else {
        return;
    };
    let reason = &socket.entry.reason;
    if socket.word.kind() != Kind::Kernel
        || reason.load(Ordering::Relaxed) != Reason::NoListener as u32
        || is_shared(&socket)
        // A member of a set is the kernel's there.
        || epoll::watching(fd).is_none_or(|watched| !watched.is_empty())
    {
        return;
    }
    reason.store(Reason::None as u32, Ordering::Relaxed);
    socket.entry.peer.store(&Address::default());
    socket.unmark(status::KERNEL_CONNECTED);
}

/// The reason why no virtual connection was made.
enum NotVirtual {
    /// The kernel makes one.
    ToKernel(Reason),
    /// Another process has a connection between these addresses.
    AddressTaken,
}

impl From<Reason> for NotVirtual {
    fn from(reason: Reason) -> Self {
        Self::ToKernel(reason)
    }
}

/// Connects a deferred socket, as [`try_virtual`] does.
///
/// # Errors
/// The reason why the kernel has to connect it.
pub(super) fn announce(fd: i32, socket: &Socket, to: Address) -> Result<bool, Reason> {
    try_virtual(fd, socket, Some(to)).map_err(|refused| match refused {
        NotVirtual::ToKernel(reason) => reason,
        NotVirtual::AddressTaken => Reason::NoPort,
    })
}

/// Connects virtually. True when the connect is under way, and the relay will report the outcome.
fn try_virtual(fd: i32, socket: &Socket, address: Option<Address>) -> Result<bool, NotVirtual> {
    match try_way(fd, socket, address, false) {
        // On a host the kernel's connect waits for room at the listener; in a tenant that of the stack does.
        Err(NotVirtual::ToKernel(Reason::BacklogFull)) if gateway::is_used() => {
            try_way(fd, socket, address, true)
        }
        tried => tried,
    }
}

/// The same: to the listener that is there, or by the tenant's stack.
fn try_way(
    fd: i32,
    socket: &Socket,
    address: Option<Address>,
    by_stack: bool,
) -> Result<bool, NotVirtual> {
    let mut address = address.ok_or(Reason::Unsupported)?;
    let attachment = attach::ensure().ok_or(Reason::NoDaemon)?;
    if let Some(why) = rings::exclusion_reason() {
        return Err(why.into());
    }
    if limits::are_scarce() {
        return Err(Reason::Quota.into());
    }
    let family = socket.local.family.load(Ordering::Relaxed);
    // In a tenant the kernel connects nothing, whatever it was once needed for.
    let by_kernel = socket.entry.reason.load(Ordering::Relaxed) != 0 && !gateway::is_used();
    if i32::from(address.family) != family || by_kernel {
        return Err(Reason::Option.into());
    }
    let only_v6 = || match socket.word.kind() {
        Kind::Kernel => options::is_only_v6(fd),
        _ => options::wants_only_v6(socket),
    };
    if address.unmapped().family != address.family && only_v6() {
        // The kernel returns the error: there is no route.
        return Err(Reason::Option.into());
    }
    if address.port == 0 {
        return Err(Reason::NoListener.into());
    }
    if address.is_wildcard() {
        // The kernel takes "any" as "this host".
        address = Address::loopback(family == libc::AF_INET6, address.port);
    }
    let mut target = if by_stack {
        names::stack_target(attachment, &address.unmapped()).ok_or(Reason::NoDaemon)?
    } else {
        names::find_listener(attachment, &address, &Address::default())?
    };
    let mut early_local = None;
    if target.grouped {
        let local = local_address(fd, socket, &address, &target)?;
        target = names::find_listener(attachment, &address, &local)
            .inspect_err(|_| release_port(fd, socket, &local))?;
        early_local = Some(local);
    }
    if target.defers > 0 && socket.word.kind() != Kind::Deferred {
        if socket.word.kind() != Kind::Fresh {
            early_local.inspect(|local| release_port(fd, socket, local));
            return Err(Reason::Option.into());
        }
        let local = match early_local {
            Some(local) => local,
            None => local_address(fd, socket, &address, &target)?,
        };
        let deferred = deferral::begin(fd, socket, &local, &address);
        return deferred.map(|()| false).map_err(|_| {
            release_port(fd, socket, &local);
            Reason::Quota.into()
        });
    }
    let found = match listener::client_link(&target) {
        // No acceptor is about to look.
        Err(libc::EAGAIN) if listener::may_enter(&target) && !confinement::is_filtered() => {
            listener::queued_link(&target).map(|link| (link, false))
        }
        found => found,
    };
    let (link, claimed) = found.map_err(|error| {
        early_local.inspect(|local| release_port(fd, socket, local));
        match error {
            libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE => Reason::Quota,
            libc::ECONNREFUSED => Reason::NoListener,
            libc::EAGAIN | libc::EPERM => Reason::BacklogFull,
            libc::ENOTCONN | libc::EPIPE => Reason::NoDaemon,
            _ => Reason::LinkFailed,
        }
    })?;
    let local = match early_local {
        Some(local) => Ok(local),
        None => local_address(fd, socket, &address, &target),
    };
    if !attach::current().is_some_and(|now| core::ptr::eq(now, attachment)) {
        // The port belongs to another daemon than the link: the acceptor might not know it yet.
        if claimed {
            link.unclaim();
        }
        if let Ok(local) = local {
            release_port(fd, socket, &local);
        }
        return try_way(fd, socket, Some(address), by_stack);
    }
    let lend = || match link.is_queued() {
        true => link.lend_queued(),
        false => link.lend(),
    };
    let lent = local.and_then(|local| match lend() {
        Some(loan) => Ok((local, loan)),
        None => {
            release_port(fd, socket, &local);
            Err(Reason::Quota.into())
        }
    });
    let (local, loan) = lent.inspect_err(|_| {
        if claimed {
            link.unclaim();
        }
    })?;
    let route = Route {
        link,
        loan,
        claimed,
        target,
    };
    if establish(fd, socket, &route, &local, &address) {
        Ok(target.remote)
    } else {
        release_port(fd, socket, &local);
        Err(Reason::BacklogFull.into())
    }
}

/// The route of a new connection.
struct Route {
    link: &'static LinkEnd,
    loan: Loan,
    claimed: bool,
    target: Target,
}

fn release_port(fd: i32, socket: &Socket, local: &Address) {
    // A deferred connection keeps its port.
    if socket.word.kind() != Kind::Deferred
        && bound_address(fd, socket).is_none_or(|bound| bound.port == 0)
    {
        ports::give(local.port, process::number());
    }
}

/// The address that the program bound; with `IP_BIND_ADDRESS_NO_PORT` it has no port.
fn bound_address(fd: i32, socket: &Socket) -> Option<Address> {
    socket
        .has(status::BOUND)
        .then(|| names::kernel_address(fd, false))
        .flatten()
}

/// The source address of a connection: the one that the program bound, or one with an ephemeral port.
fn local_address(
    fd: i32,
    socket: &Socket,
    to: &Address,
    target: &Target,
) -> Result<Address, NotVirtual> {
    if socket.word.kind() == Kind::Deferred {
        return Ok(socket.entry.local.load());
    }
    // A daemon that did not answer has not refused anything.
    let refused = |error| match error {
        libc::ENOTCONN | libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT => Reason::NoDaemon,
        _ => Reason::NoPort,
    };
    let claimed = |error| match error {
        libc::EADDRNOTAVAIL => NotVirtual::AddressTaken,
        error => refused(error).into(),
    };
    let bound = bound_address(fd, socket);
    let plain = to.unmapped();
    let mut own = match plain.family {
        INET if plain.is_loopback() => Address::loopback(false, 0),
        _ if target.remote || target.neighbour => attach::current()
            .and_then(|attachment| names::source_address(attachment, &plain))
            .ok_or(Reason::Unsupported)?,
        _ => Address { port: 0, ..plain },
    };
    if to.family == INET6 {
        own = own.mapped();
    }
    if let Some(bound) = &bound {
        // An address of another host, as a transparent proxy binds, is left to the kernel.
        let local = bound.is_wildcard()
            || attach::current().is_some_and(|attachment| names::is_local(attachment, bound));
        if !local {
            return Err(Reason::Unsupported.into());
        }
        if bound.port != 0 {
            ports::claim(fd, to).map_err(claimed)?;
        }
        if !bound.is_wildcard() {
            own = *bound;
        }
    }
    if target.neighbour && own.is_loopback() {
        // The other tenant's program would not believe it; the stack shows the tenant's address.
        return Err(Reason::BacklogFull.into());
    }
    let port = match bound {
        Some(bound) if bound.port != 0 => bound.port,
        _ => ports::take().map_err(refused)?,
    };
    Ok(Address { port, ..own })
}

/// Fills in the slot, announces it, and puts the anchor under the program's descriptor.
fn establish(fd: i32, socket: &Socket, route: &Route, local: &Address, peer: &Address) -> bool {
    let Route {
        link,
        mut loan,
        claimed,
        target,
    } = *route;
    let number = target.listener;
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
    side::set_up(&slot.client, handle.generation, ring);
    let hints = socket.entry.hints.load(Ordering::Relaxed);
    slot.client.hints.store(hints, Ordering::Relaxed);
    options::publish_first_words(socket, &slot.client);
    let initial_flags = crate::sockets::lane::flags_at_start(socket);
    slot.client.flags.fetch_or(initial_flags, Ordering::AcqRel);
    let can_be_withdrawn = !link.is_queued() && target.has_queue() && !target.remote;
    if can_be_withdrawn {
        link.mark_waiting(handle);
    }
    let announced = if link.is_queued() {
        let anchor = listener::enter(link, handle, &target);
        loan.anchor = anchor.unwrap_or(-1);
        anchor.is_ok()
    } else {
        link.announce(handle, number, claimed)
    };
    if !announced {
        // The connection was not announced: both sides count as closed.
        slot.server
            .generation
            .store(handle.generation, Ordering::Relaxed);
        slot.server
            .flags
            .store(side_flags::CLOSED | side_flags::RELEASED, Ordering::Relaxed);
        let anchor = (!link.is_queued()).then_some(loan);
        link.finish(slot, handle, side_flags::CLOSED, anchor, [ring; 2]);
        link.remove_user();
        return false;
    }
    let was_bound = socket.has(status::BOUND);
    if was_bound && let Ok(kept) = attach::duplicate(fd) {
        // The kernel keeps reserving the port that the program bound.
        table::set(kept, Word::new(Kind::Internal, 0, 0));
        if local.family == INET6 {
            options::note_bound(socket, kept);
        }
        socket.local.reserve.store(kept + 1, Ordering::Relaxed);
    }
    set_blocking(loan, !socket.has(status::NONBLOCKING));
    let replacing = REPLACING.lock();
    // Another thread may have turned it into the kernel's meanwhile.
    let now = crate::sockets::socket::of(fd).filter(|now| core::ptr::eq(now.entry, socket.entry));
    let socket = now.as_ref().unwrap_or(socket);
    let others = other_numbers(fd, socket);
    for number in others.iter().chain([&fd]) {
        epoll::before_replace(*number, socket);
    }
    let close_on_exec = if socket.word.kind() == Kind::Fresh {
        socket.has(status::CLOSE_ON_EXEC)
    } else {
        sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0)
    };
    let replaced = limits::replace(loan.anchor, fd, close_on_exec);
    for number in &others {
        let close_on_exec = sys::fcntl(*number, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
        let _ = limits::replace(loan.anchor, *number, close_on_exec);
    }
    if link.is_queued() {
        // The anchor ends with the connection.
        sys::close(loan.anchor);
    }
    if replaced.is_err() {
        return false;
    }
    if !link.is_queued() && others.is_empty() {
        socket.keep_spare(loan.anchor);
    } else if !link.is_queued() {
        attach::close_internal(loan.anchor);
    }
    if target.remote {
        socket.mark(status::PENDING);
    }
    describe(socket, link, loan, local, peer, number);
    let turned = turn_into(fd, socket, Kind::Virtual, State::Virtual);
    signal_owner::apply_to_file(&turned, fd);
    if turned.has(status::APPENDS) {
        flags::apply_to_anchor(&turned, fd);
    }
    drop(replacing);
    if can_be_withdrawn {
        housekeeping::note_announced(&turned);
    }
    if let Some(header) = header() {
        header.connects.fetch_add(1, Ordering::Relaxed);
    }
    for number in others.iter().chain([&fd]) {
        epoll::replaced(*number, &turned);
    }
    true
}
