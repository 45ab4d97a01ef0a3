//! Sockets of another host. A case that was written for one process then has its two ends on two hosts, with nothing
//! changed in it.
//!
//! Between hosts a second process runs on the other host, and `sys` sends it the calls on descriptors from [`FAR`] up.
//! The runner chooses which end of a connection is far: listeners with the sockets that they accept, or the sockets
//! that connect to them. Loopback addresses of a case are translated on their way into the system and back, so that
//! names look as they do on one host.
//!
//! Never: a call that cannot be sent. A case that needs such a call (both ends in one epoll set, a descriptor passed
//! on, a fork that shares a descriptor) ends with [`NOT_BETWEEN`], and the runner runs it within one host.
//!
//! ```text
//!   host a: case -- sys --+-- near descriptors: libc                     host b: `conformance far`
//!                         +-- far descriptors: call --- AF_UNIX ---> a thread per thread of the case -- sys -- libc
//! ```
//!
//! The process on host b is `far_process`.

mod address;
mod call;
mod own;
pub(crate) mod wire;

pub use address::{Addresses, near_loopback};
pub use call::FarDescriptor;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use crate::answer::{Descriptor, Outcome, RawAddress, last_errno, length_of};

/// The first number of a far descriptor, beyond any that the kernel gives out.
pub const FAR: Descriptor = 0x4000_0000;

/// The exit status of a case that cannot be run between hosts.
pub const NOT_BETWEEN: libc::c_int = 78;

/// The text that such a case prints, from whichever of its processes.
pub const NOT_BETWEEN_MARK: &str = "NOT BETWEEN HOSTS";

/// The text that a case prints after it had a connection from one host to the other.
pub const BETWEEN_MARK: &str = "BETWEEN HOSTS";

/// The variable that names the far process's socket.
pub const SOCKET_VARIABLE: &str = "CONFORMANCE_FAR";
/// The variable that names the far end.
pub const SIDE_VARIABLE: &str = "CONFORMANCE_FAR_SIDE";
/// The variable that holds the addresses of both hosts.
pub const ADDRESSES_VARIABLE: &str = "CONFORMANCE_HOSTS";

/// Which end of a case's connections is on the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Listeners, and the sockets that they accept.
    Server,
    /// Sockets that connect to listeners.
    Client,
}

impl Side {
    /// The value of [`SIDE_VARIABLE`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
        }
    }
}

/// The other host, as this process knows it.
pub(crate) struct Other {
    pub socket: PathBuf,
    pub side: Side,
    pub addresses: Addresses,
}

/// The other host, if there is one.
pub(crate) fn other() -> Option<&'static Other> {
    static OTHER: OnceLock<Option<Other>> = OnceLock::new();
    OTHER.get_or_init(read_environment).as_ref()
}

fn read_environment() -> Option<Other> {
    let socket = PathBuf::from(std::env::var_os(SOCKET_VARIABLE)?);
    let side = match std::env::var(SIDE_VARIABLE).as_deref() {
        Ok("client") => Side::Client,
        _ => Side::Server,
    };
    let addresses = std::env::var(ADDRESSES_VARIABLE).ok()?;
    let addresses = addresses.parse().ok()?;
    Some(Other {
        socket,
        side,
        addresses,
    })
}

/// A far TCP socket, if that end of a case's connections is on the other host.
#[must_use]
pub fn socket_for(end: Side, domain: libc::c_int) -> Option<Outcome<Descriptor>> {
    let is_far = other().is_some_and(|other| other.side == end);
    is_far.then(|| call::socket(domain))
}

/// The far descriptor behind a number, or `None` for a near descriptor.
#[must_use]
pub fn of(descriptor: Descriptor) -> Option<FarDescriptor> {
    (descriptor >= FAR).then(|| FarDescriptor::of(descriptor))
}

/// Ends a case that needs something that does not work between hosts.
pub fn not_between(what: &str) -> ! {
    own::print_line(&format!("{NOT_BETWEEN_MARK}: {what}\n"));
    own::end(NOT_BETWEEN)
}

/// Ends the case if it runs between hosts, because it checks something that holds within one host only.
pub fn only_within(what: &str) {
    if other().is_some() {
        not_between(what);
    }
}

/// Ends the case if the descriptor is far, because this call is not sent to the far process.
pub fn only_near(descriptor: Descriptor, what: &str) {
    if descriptor >= FAR {
        not_between(what);
    }
}

pub(crate) use address::to_bind;

/// The address to which a near socket is connected, and whether that address is on the other host.
pub(crate) fn route(raw: &RawAddress) -> (RawAddress, bool) {
    if other().is_none() {
        return (*raw, false);
    }
    let address = raw
        .decode()
        .filter(|_| raw.length >= length_of::<libc::sockaddr_in>());
    match address {
        Some(address) => {
            let (target, crosses) = address::to_connect(address, false);
            let mut routed = RawAddress::from(target);
            // Cases also try wrong lengths.
            routed.length = raw.length;
            (routed, crosses)
        }
        None => (*raw, false),
    }
}

static CROSSED: AtomicBool = AtomicBool::new(false);

/// Notes that a connection went from one host to the other.
pub(crate) fn note_crossing() {
    if !CROSSED.swap(true, Ordering::Relaxed) {
        own::print_line(&format!("{BETWEEN_MARK}\n"));
    }
}

/// How many near listeners a case may have.
const MOST_LISTENERS: usize = 256;

/// Ports on which near sockets listen, shared with forked children. A connection to one of these ports stays on this
/// host.
fn listening() -> &'static [AtomicI32] {
    static SHARED: OnceLock<&'static [AtomicI32]> = OnceLock::new();
    SHARED.get_or_init(|| {
        let length = MOST_LISTENERS * size_of::<AtomicI32>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "mmap: {:?}", last_errno());
        // SAFETY: mapped for good, zeroed, aligned to a page, and only used as atomics.
        unsafe { std::slice::from_raw_parts(memory.cast(), MOST_LISTENERS) }
    })
}

/// Creates the shared state that must exist before a case forks.
pub fn prepare() {
    if other().is_some() {
        let _ = listening();
    }
}

/// The variable that says in milliseconds how long after `listen` the other host reaches the listener, where that is not
/// `ANNOUNCED`.
pub const ANNOUNCED_VARIABLE: &str = "CONFORMANCE_ANNOUNCED";
/// How long after `listen` the other host knows of the listener. An earlier connection goes over kernel TCP, which is
/// not under test.
const ANNOUNCED: u64 = 30;

/// Waits until the other host knows of a new listener.
pub fn await_announcement() {
    let said = std::env::var(ANNOUNCED_VARIABLE).ok();
    let said = said.and_then(|text| text.parse().ok());
    std::thread::sleep(Duration::from_millis(said.unwrap_or(ANNOUNCED)));
}

/// Notes that a near socket listens; `port` asks for its port.
pub(crate) fn note_listener(port: impl FnOnce() -> Option<u16>) {
    if other().is_none() {
        return;
    }
    await_announcement();
    let Some(port) = port() else {
        return;
    };
    for place in listening() {
        let free = place.compare_exchange(0, i32::from(port), Ordering::Relaxed, Ordering::Relaxed);
        if free.is_ok() {
            return;
        }
    }
    not_between("too many listeners");
}

pub(crate) fn is_listened_on(port: u16) -> bool {
    listening()
        .iter()
        .any(|place| place.load(Ordering::Relaxed) == i32::from(port))
}
