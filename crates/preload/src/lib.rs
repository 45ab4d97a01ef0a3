//! `libnetchannel.so`: the POSIX face of the virtual socket. The library is loaded before the C library and takes the
//! place of the socket calls. Calls on descriptors that are not virtual go on to the C library unchanged.
//!
//! Never: panics, aborts, or uses the program's allocator. A failure of the library is an errno, or kernel TCP.
//!
//! ```text
//!  hooks --> table (what is this descriptor?) --foreign--> the C library
//!              |virtual            |listener        |epoll set
//!              v                   v                v
//!           transfer            accepting         epoll, poll --> wait (spin, sleep)
//!              |                   |                |
//!              v                   v                v
//!             lane <---- link (slots, anchors, queues) ----> attach (the daemon, seldom)
//! ```
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths within a ring or a buffer fit usize, which is 64 bits on every target"
)]

mod connections;
mod descriptors;
mod ground;
pub mod hooks;
mod processes;
mod resolver;
mod sockets;
mod waiting;

use connections::{accepting, connection};
use descriptors::{attach, copying, credentials, former_ports, limits, ports};
use ground::{complaint, environment, heap, process};
use processes::{fork, image, passing, withdrawal};
use sockets::{
    class, ended_processes, exclusion, foreign, lane, link, listener, options, owner_table,
    placeholder, socket,
};
use waiting::{epoll, housekeeping, wait};

// The variables that every program writes to when it starts and when it forks lie together in one section: the kernel
// copies each page that is written to, for each program and each fork.
#[global_allocator]
#[unsafe(link_section = ".data.netchannel_start")]
static HEAP: heap::Heap = heap::Heap::new();

/// What `netchannel run` knows this build by.
#[used]
#[unsafe(link_section = ".note.netchannel")]
static NOTE: netchannel_abi::note::Note = netchannel_abi::note::OWN;

/// The modules that depend on the attachment: the sockets of the region, their owners, ports.
struct Region;

impl attach::AttachmentObserver for Region {
    fn prepare(&self, entries: usize) -> bool {
        socket::initialise(entries)
    }

    fn begin(&self) {
        credentials::note_owner();
        owner_table::initialise();
    }

    fn follow(&self, former: &attach::Attachment) {
        former_ports::keep(former);
    }

    fn forget(&self) {
        ports::forget();
    }
}

/// The work that a thread does before it waits.
struct Housekeeper;

impl housekeeping::Housekeeping for Housekeeper {
    fn carry(&self) -> bool {
        connection::kernel_retries::carry_noted()
    }

    fn announce(&self) {
        connection::deferred::announce_due();
    }

    fn withdraw(&self) {
        connection::withdrawal::withdraw_late();
    }

    fn release(&self, socket: &socket::Socket) {
        accepting::release(socket);
    }
}

/// Makes the library ready for a socket that is created before the library's own start, as constructors of other
/// libraries do.
#[inline]
fn is_ready() -> bool {
    if attach::OBSERVER.get().is_none() {
        register();
    }
    true
}

/// Functions of higher modules that lower ones call.
#[cold]
fn register() {
    let _ = housekeeping::HOUSEKEEPING.set(&Housekeeper);
    let _ = limits::SPARES.set(|| placeholder::drop_idle() | socket::drop_spares());
    let _ = socket::FREE_ELSEWHERE.set(foreign::free);
    let _ = owner_table::RELEASE_REFERENCE.set(ended_processes::release_reference);
    let _ = link::ending::UNUSED.set(foreign::unused);
    let _ = foreign::OWN_LINK.set(|role, wanted| listener::own_link(role, wanted));
    let _ = options::MATERIALISE
        .set(|fd, socket, reason| connection::materialise(fd, socket, reason).map(drop));
    let _ = listener::ADD_LINK.set(epoll::add_link);
    let _ = exclusion::LEAVE_LIBRARY.set(withdrawal::leave_library);
    let _ = passing::ADOPT_STANDARD.set(hooks::streams::adopt_standard);
    let _ = lane::CARRY_ON.set(connection::carry_on_or_fail);
    let _ = lane::NOTIFY_SETS.set(epoll::changed);
    // The last registration: once it is set the process may attach.
    let _ = attach::OBSERVER.set(&Region);
}

/// Runs when the library is loaded, before the program's own start. Every program that starts pays for what is done here: what only
/// programs with sockets need is left to [`register`].
#[unsafe(link_section = ".text.netchannel_start")]
extern "C" fn start() {
    const NAMES: [&[u8]; 9] = [
        b"NETCHANNEL_CLASS",
        b"NETCHANNEL_COPY_WORKERS",
        b"LD_PRELOAD",
        b"NETCHANNEL_SOCKET",
        b"NETCHANNEL_CONTROL",
        b"NETCHANNEL_INHERIT",
        b"NETCHANNEL_SETS",
        b"NETCHANNEL_BAGGAGE",
        b"NETCHANNEL_NAMES",
    ];
    // SAFETY: only this thread runs yet, and no value is used after this function.
    let values = unsafe { environment::values(NAMES) };
    let [
        class,
        workers,
        preloaded,
        socket,
        control,
        inherit,
        sets,
        in_transit,
        names,
    ] = values;
    attach::register_later(register);
    process::renew();
    limits::refresh();
    complaint::remember();
    wait::initialise();
    fork::initialise();
    class::begin(class);
    if let Some(workers) = workers {
        copying::begin(workers);
    }
    image::remember_library(preloaded, socket);
    let inherited = image::Inherited {
        control,
        inherits: inherit.is_some(),
        sets,
        in_transit,
        names,
    };
    if inherited.any() {
        register();
        image::adopt_inherited(&inherited);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
