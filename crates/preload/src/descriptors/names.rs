//! Socket addresses: between the C structures and [`Address`], and in the daemon's directory.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, sockaddr, socklen_t};
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::directory::{
    self, ENTRIES, ENTRIES_OFFSET, Entry, Header, Network, entry_flags,
};
use netchannel_abi::program::RELAY;
use netchannel_abi::reason::Reason;

use crate::descriptors::attach::Attachment;
use crate::descriptors::{gateway, limits, user};
use crate::ground::lock::Lock;
use crate::ground::{clock, sys};

/// The kernel takes an IPv6 address without its scope (RFC 2133), too.
const LEAST_V6: usize = 24;

/// Reads a program's address; `None` for other families, a short structure, or a bad pointer.
///
/// # Safety
/// The program gave `address` to be read, with `length` bytes.
pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<Address> {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: long enough for the family.
    let family = c_int::from(unsafe { user::read(&raw const (*address).sa_family).ok()? });
    if family == libc::AF_INET && length as usize >= size_of::<libc::sockaddr_in>() {
        // SAFETY: long enough.
        let v4 = unsafe { user::read(address.cast::<libc::sockaddr_in>()).ok()? };
        let port = u16::from_be(v4.sin_port);
        return Some(Address::v4(v4.sin_addr.s_addr.to_ne_bytes(), port));
    }
    if family == libc::AF_INET6 && length as usize >= LEAST_V6 {
        // SAFETY: all zero is a valid address.
        let mut v6: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
        let size = size_of::<libc::sockaddr_in6>().min(length as usize);
        // SAFETY: no more than the address holds, and than the program gave.
        unsafe { user::copy_bytes((&raw mut v6).cast(), address.cast(), size).ok()? };
        let port = u16::from_be(v6.sin6_port);
        return Some(Address::v6(v6.sin6_addr.s6_addr, port, v6.sin6_scope_id));
    }
    None
}

/// Whether the address has no family: a connect to it disconnects the socket.
///
/// # Safety
/// As [`read`].
pub unsafe fn is_unspecified(address: *const sockaddr, length: socklen_t) -> bool {
    // SAFETY: the caller's promise.
    (length as usize) >= size_of::<libc::sa_family_t>()
        && unsafe { user::read(&raw const (*address).sa_family) }
            == Ok(libc::AF_UNSPEC as libc::sa_family_t)
}

/// The longest name of a socket.
const MOST_BYTES: usize = size_of::<libc::sockaddr_storage>();

/// Whether the kernel would take an address; the kernel checks it before the socket.
///
/// # Errors
/// `EFAULT`, or `EINVAL` for a length no name has.
///
/// # Safety
/// The program gave `address` to be read, with `length` bytes.
pub unsafe fn check(address: *const sockaddr, length: socklen_t) -> Result<(), c_int> {
    let length = usize::try_from(length.cast_signed()).map_err(|_| libc::EINVAL)?;
    if length > MOST_BYTES {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { user::probe_read(address.cast(), length) }
}

/// Checks the address in a message that is sent: a longer one is truncated.
///
/// # Errors
/// As [`check`].
///
/// # Safety
/// The program gave the name to be read.
pub unsafe fn check_in_message(message: &libc::msghdr) -> Result<(), c_int> {
    if message.msg_name.is_null() {
        return Ok(());
    }
    let length = message.msg_namelen.cast_signed();
    let length = usize::try_from(length).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise.
    unsafe { user::probe_read(message.msg_name.cast(), length.min(MOST_BYTES)) }
}

/// Writes an address as the C call would: truncated to `length`, which becomes its true length, also where the address
/// can not be written.
///
/// # Errors
/// `EFAULT`, or `EINVAL` for a negative length.
///
/// # Safety
/// The program gave `to` to be written, with `*length` bytes.
pub unsafe fn write(
    from: &Address,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<(), c_int> {
    // SAFETY: the program's length.
    let room = unsafe { room(length)? };
    let (storage, size) = to_sockaddr(from);
    // SAFETY: the caller's buffer has `room` bytes; the storage has `size`.
    unsafe {
        user::write(length, socklen_t::try_from(size).unwrap_or(0))?;
        user::copy_bytes(to.cast(), (&raw const storage).cast(), room.min(size))
    }
}

/// The family of a socket with this address.
pub const fn socket_family(of: &Address) -> c_int {
    if of.family == INET6 {
        libc::AF_INET6
    } else {
        libc::AF_INET
    }
}

/// An address as the C structure of its family, and the length of that.
pub fn to_sockaddr(from: &Address) -> (libc::sockaddr_in6, usize) {
    // SAFETY: all zero is a valid storage.
    let mut storage: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
    let size = if from.family == INET6 {
        storage.sin6_family = INET6;
        storage.sin6_port = from.port.to_be();
        storage.sin6_addr.s6_addr = from.bytes;
        storage.sin6_scope_id = from.scope;
        size_of::<libc::sockaddr_in6>()
    } else {
        // SAFETY: all zero is a valid address, and the larger structure has room for it.
        unsafe {
            let mut v4: libc::sockaddr_in = core::mem::zeroed();
            v4.sin_family = INET;
            v4.sin_port = from.port.to_be();
            let b = from.bytes;
            v4.sin_addr.s_addr = u32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
            (&raw mut storage).cast::<libc::sockaddr_in>().write(v4);
        }
        size_of::<libc::sockaddr_in>()
    };
    (storage, size)
}

/// The room that a program gives for an address.
///
/// # Errors
/// `EFAULT`, or `EINVAL` for a negative length.
///
/// # Safety
/// The program gave the length to be read.
pub unsafe fn room(length: *const socklen_t) -> Result<usize, c_int> {
    // SAFETY: the caller's promise.
    let room = unsafe { user::read(length)? };
    usize::try_from(room.cast_signed()).map_err(|_| libc::EINVAL)
}

/// The kernel's own address of a socket.
pub fn kernel_address(fd: c_int, peer: bool) -> Option<Address> {
    // SAFETY: all zero is a valid storage.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut length = socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
    let pointer = (&raw mut storage).cast::<sockaddr>();
    let call = if peer {
        libc::SYS_getpeername
    } else {
        libc::SYS_getsockname
    };
    let (name, size) = (pointer.addr(), (&raw mut length).addr());
    // SAFETY: the storage is a local of that length.
    unsafe {
        sys::raw(call, [sys::int(fd), name, size, 0, 0, 0]).ok()?;
        read(pointer, length)
    }
}

/// How long the kernel's choice of a source address is cached: routes change rarely, connections come by the thousand.
const SOURCE_LIFETIME: u64 = 10_000 * clock::MICROSECOND;

/// The last destination, the address chosen for it, and when.
static SOURCE: Lock<Option<(Address, Address, u64)>> = Lock::new(None);

/// The source address of a connection to `to`, another host: the tenant's, or the one from which the kernel would
/// connect; without a port.
pub fn source_address(attachment: &Attachment, to: &Address) -> Option<Address> {
    if gateway::listener(attachment).is_some() {
        return gateway::source_address(attachment, to);
    }
    kernel_source_address(to)
}

fn kernel_source_address(to: &Address) -> Option<Address> {
    let to = Address { port: 9, ..*to };
    let now = clock::now();
    if let Some((known, chosen, at)) = SOURCE.lock().and_then(|last| *last)
        && known == to
        && now.wrapping_sub(at) < SOURCE_LIFETIME
    {
        return Some(chosen);
    }
    let chosen = ask_kernel_for_source(&to)?;
    if let Some(mut last) = SOURCE.lock() {
        *last = Some((to, chosen, now));
    }
    Some(chosen)
}

/// In a forked child, where a thread that held the lock does not exist.
pub fn reset_in_child() {
    SOURCE.reset();
}

fn ask_kernel_for_source(to: &Address) -> Option<Address> {
    let found = with_route_to(to, |fd| kernel_address(fd, false)).flatten();
    Some(Address { port: 0, ..found? })
}

/// Asks the kernel about the route to `to`, with a socket that sends nothing.
pub fn with_route_to<R>(to: &Address, ask: impl FnOnce(c_int) -> R) -> Option<R> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let fd = limits::for_library(|| sys::socket(socket_family(to), kind, 0)).ok()?;
    let connected = connect(fd, to).is_ok();
    let answer = connected.then(|| ask(fd));
    sys::close(fd);
    answer
}

/// Connects a kernel socket. No cancellation point: the caller holds locks.
///
/// # Errors
/// As `connect`.
pub fn connect(fd: c_int, to: &Address) -> Result<(), c_int> {
    // SAFETY: all zero is a valid storage.
    let mut storage: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
    let mut length = socklen_t::try_from(size_of::<libc::sockaddr_in6>()).unwrap_or(0);
    let pointer = (&raw mut storage).cast::<sockaddr>();
    // SAFETY: the storage is a local of that length.
    unsafe {
        write(to, pointer, &raw mut length)?;
        let words = [sys::int(fd), pointer.addr(), length as usize, 0, 0, 0];
        sys::raw(libc::SYS_connect, words).map(drop)
    }
}

/// Whether an address is this host's.
pub fn is_local(attachment: &Attachment, address: &Address) -> bool {
    let plain = address.unmapped();
    if plain.is_loopback() {
        return true;
    }
    let Some(header) = attachment.directory.at::<Header>(0) else {
        return false;
    };
    let count = header.locals.load(Ordering::Acquire) as usize;
    header.local.iter().take(count).any(|local| {
        let local = local.load();
        local.family == plain.family && local.bytes == plain.bytes
    })
}

/// Whether a program of another tenant may come from an address now.
pub fn is_neighbour(attachment: &Attachment, address: &Address) -> bool {
    let header = attachment.directory.at::<Header>(0);
    header.is_some_and(|header| network_of(header, &address.unmapped()).is_some())
}

/// The network that the directory names for an address.
fn network_of<'a>(header: &'a Header, plain: &Address) -> Option<&'a Network> {
    // Acquire: the networks that the count speaks of are complete.
    let count = header.networks.load(Ordering::Acquire) as usize;
    let mut networks = header.network.iter().take(count);
    networks.find(|network| network.contains(plain))
}

/// The owner of a port, and where: see [`directory::is_owned`]. 0 where it has no owner.
pub fn owner_of_port(attachment: &Attachment, port: u16) -> u64 {
    let place = directory::PORTS_OFFSET + usize::from(port) * size_of::<AtomicU64>();
    let word: Option<&AtomicU64> = attachment.directory.at(place);
    // Acquire: changes made before the client got its port are seen.
    word.map_or(0, |word| word.load(Ordering::Acquire))
}

/// A listener as the directory shows it.
#[derive(Clone, Copy, Default)]
pub struct Target {
    /// The daemon's number for the listener.
    pub listener: u32,
    /// Several processes hold the listener.
    pub shared: bool,
    /// How many processes do.
    pub holders: usize,
    /// The queue from which all acceptors take connections, 0 for none.
    pub queue: u64,
    /// The user of the acceptors.
    pub queue_user: u32,
    /// The daemon's relay leads to the listener.
    pub remote: bool,
    /// A program of another tenant holds it.
    pub neighbour: bool,
    /// The destination for which the listener was found: another daemon may have given the number to another listener.
    pub destination: Address,
    /// How often TCP would probe a client that sends nothing before the connection may be accepted; 0 where it may be
    /// accepted at once.
    pub defers: u32,
    /// The listener is one of a `SO_REUSEPORT` group. The connection's two addresses decide which of them gets it.
    pub grouped: bool,
}

impl Target {
    /// Whether several processes accept from one queue.
    pub const fn has_queue(&self) -> bool {
        self.shared && self.queue != 0
    }

    /// The listener that names the link: one link leads to all listeners behind the relay.
    pub const fn link(&self) -> u32 {
        if self.remote { RELAY } else { self.listener }
    }
}

/// Whether several processes hold a listener, according to the daemon.
pub fn is_shared(address: &Address, listener: u32) -> bool {
    let entry = entry_of(listener, address);
    entry.is_some_and(|entry| entry.flags.load(Ordering::Relaxed) & entry_flags::SHARED != 0)
}

/// The user whose programs accept from a listener; all ones where there are several users, root where no daemon knows
/// the listener.
pub fn queue_user(address: &Address, listener: u32) -> u32 {
    let entry = entry_of(listener, address);
    entry.map_or(0, |entry| entry.queue_user.load(Ordering::Relaxed))
}

/// The queue from which all acceptors of a listener take connections, 0 where there is none.
pub fn queue_of(address: &Address, listener: u32) -> u64 {
    let entry = entry_of(listener, address);
    entry.map_or(0, |entry| entry.queue.load(Ordering::Acquire))
}

fn entry_of(listener: u32, address: &Address) -> Option<&'static Entry> {
    let attachment = crate::descriptors::attach::current()?;
    let mut entries_there = at_port(listed(attachment)?, address.unmapped().port);
    entries_there.find_map(|(number, entry)| (number == listener).then_some(entry))
}

/// Whether there is a listener at a port, at any address.
pub fn has_listener_at(attachment: &Attachment, port: u16) -> bool {
    let mut entries_there = listed(attachment)
        .into_iter()
        .flat_map(|all| at_port(all, port));
    entries_there.any(|(_, entry)| entry.address.load().port == port)
}

fn listed(attachment: &Attachment) -> Option<&[Entry]> {
    attachment.directory.slice(ENTRIES_OFFSET, ENTRIES)
}

/// The entries of a port's bucket, with their listeners; entries of other ports may be among them.
fn at_port(entries: &[Entry], port: u16) -> impl Iterator<Item = (u32, &Entry)> {
    let start = directory::bucket(port);
    (0..ENTRIES)
        .map_while(move |step| entries.get((start + step) & (ENTRIES - 1)))
        // Acquire: the rest of the entry is not older.
        .map(|entry| (entry.listener.load(Ordering::Acquire), entry))
        .take_while(|(number, _)| *number != 0)
        .filter(|(number, _)| *number != directory::LEFT)
}

/// The listener that gets a connection to `address`, or the reason why none does. `source` chooses among the listeners
/// of a group.
pub fn find_listener(
    attachment: &Attachment,
    address: &Address,
    source: &Address,
) -> Result<Target, Reason> {
    let plain = address.unmapped();
    let connection = || hashed(&source.unmapped().to_words(), hashed(&plain.to_words(), 0));
    let header: &Header = attachment.directory.at(0).ok_or(Reason::NoDaemon)?;
    let entries = listed(attachment).ok_or(Reason::NoDaemon)?;
    let mut attempts: u32 = 0;
    let mut began = 0;
    loop {
        let before = header.sequence.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let found = search(attachment, entries, &plain, &connection);
            core::sync::atomic::fence(Ordering::Acquire);
            if header.sequence.load(Ordering::Relaxed) == before {
                return found;
            }
        }
        attempts += 1;
        if attempts < 64 {
            core::hint::spin_loop();
            continue;
        }
        // The daemon was preempted while it wrote, or it died.
        let now = clock::now();
        if began == 0 {
            began = now;
        }
        if BROKEN.load(Ordering::Relaxed) == before
            || now.wrapping_sub(began) > 100_000 * clock::MICROSECOND
        {
            BROKEN.store(before, Ordering::Relaxed);
            return Err(Reason::NoDaemon);
        }
        sys::yield_now();
    }
}

/// The stack of a tenant, for a connection to an address. `None` where there is no such stack.
pub fn stack_target(attachment: &Attachment, plain: &Address) -> Option<Target> {
    Some(Target {
        listener: gateway::listener(attachment)?,
        remote: true,
        destination: *plain,
        ..Target::default()
    })
}

/// The sequence of a directory that was left half written: it is not waited for again.
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// The reason why a destination on another host has no listener here.
#[cold]
fn remote_reason(attachment: &Attachment, plain: &Address) -> Reason {
    let Some(header) = attachment.directory.at::<Header>(0) else {
        return Reason::Remote;
    };
    match network_of(header, plain) {
        None => Reason::Remote,
        Some(network) if network.up.load(Ordering::Relaxed) == 0 => Reason::PeerDown,
        Some(_) => Reason::NoListener,
    }
}

/// Hashes words into one number.
fn hashed(words: &[u64], start: u64) -> u64 {
    words.iter().fold(start, |hashed, word| {
        let mut hashed = (hashed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hashed = (hashed ^ hashed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hashed = (hashed ^ hashed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hashed ^ hashed >> 31
    })
}

fn search(
    attachment: &Attachment,
    entries: &[Entry],
    plain: &Address,
    connection: &impl Fn() -> u64,
) -> Result<Target, Reason> {
    let mut found: Option<Target> = None;
    let mut best = 0;
    for (number, entry) in at_port(entries, plain.port) {
        let local = entry.address.load();
        if local.port != plain.port {
            continue;
        }
        let flags = entry.flags.load(Ordering::Relaxed);
        let only_v6 = flags & entry_flags::V6_ONLY != 0;
        // The relay is no process that could accept from a queue.
        let remote = flags & entry_flags::REMOTE != 0;
        // As the kernel scores: an exact address before a wildcard, the family before dual stack. Many listeners may be
        // at one port, at an address each: most are passed over by the first comparisons.
        let is_same_family = local.family == plain.family;
        let is_exact = if is_same_family {
            local.bytes == plain.bytes
        } else {
            let exact = local.unmapped();
            exact.family == plain.family && exact.bytes == plain.bytes
        };
        let score = if is_exact {
            3
        } else if !local.is_wildcard() || !is_local(attachment, plain) {
            0
        } else if is_same_family {
            2
        } else {
            u32::from(local.family == INET6 && !only_v6)
        };
        if score == 0 || score < best {
            continue;
        }
        // Of a group, the listener with the highest weight: each connection gives each member another weight. So a
        // member that comes or goes moves only its own connections, and the order of the entries does not matter.
        let grouped = score == best;
        if let Some(heaviest) = found.as_mut().filter(|_| grouped) {
            let weight = |number: u32| hashed(&[u64::from(number)], connection());
            if weight(number) <= weight(heaviest.listener) {
                heaviest.grouped = true;
                continue;
            }
        }
        best = score;
        found = Some(Target {
            listener: number,
            shared: flags & (entry_flags::SHARED | entry_flags::REMOTE) == entry_flags::SHARED,
            holders: (flags >> entry_flags::HOLDERS_SHIFT) as usize,
            queue: if remote {
                0
            } else {
                entry.queue.load(Ordering::Relaxed)
            },
            queue_user: entry.queue_user.load(Ordering::Relaxed),
            remote,
            neighbour: flags & entry_flags::NEIGHBOUR != 0,
            destination: *plain,
            defers: flags >> entry_flags::DEFERS_SHIFT & entry_flags::MOST_DEFERS,
            grouped,
        });
    }
    if found.is_none()
        && !plain.is_loopback()
        && let Some(target) = stack_target(attachment, plain)
    {
        return Ok(target);
    }
    found.ok_or_else(|| {
        if is_local(attachment, plain) {
            Reason::NoListener
        } else {
            remote_reason(attachment, plain)
        }
    })
}
