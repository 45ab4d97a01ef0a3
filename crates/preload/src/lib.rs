//! `libnetchannel.so`: the POSIX face of the virtual socket. Loaded before the C library, it takes
//! the place of the socket calls; what is not ours goes on to the C library untouched.
//!
//! Never: panics, aborts, or uses the program's allocator. A failure of ours is an errno, or kernel
//! TCP.
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

mod accepting;
mod addresses;
mod attach;
mod baggage;
mod beside;
mod cancel;
mod channel;
mod chores;
mod class;
mod clock;
mod complaint;
mod confinement;
mod confining;
mod connection;
mod copying;
mod credentials;
mod departure;
mod ended;
mod epoll;
mod exclusion;
mod faults;
mod foreign;
mod fork;
mod former_ports;
mod gate;
mod handover;
mod heap;
mod holders;
pub mod hooks;
mod image;
mod lane;
mod lent;
mod limits;
mod link;
mod listener;
mod lock;
mod mappings;
mod names;
mod options;
mod owner;
mod place;
mod poll;
mod ports;
mod process;
mod program;
mod pump;
mod real;
mod receiver;
mod relocate;
mod rights;
mod rings;
#[cfg(all(not(test), target_arch = "x86_64"))]
mod seldom;
mod signals;
mod socket;
mod splicing;
mod sys;
mod table;
mod thread;
mod transfer;
mod travel;
#[cfg(all(not(test), target_arch = "x86_64"))]
mod unwinding;
mod user;
mod users;
mod wait;
mod withdrawal;

// What every program writes to when it starts, and when it forks, lies together in a section of its own: each page that is written to
// is copied first, for each program and each fork.
#[global_allocator]
#[unsafe(link_section = ".data.netchannel_start")]
static HEAP: heap::Heap = heap::Heap::new();

/// What stands on the attachment: the sockets of the region, who holds them, ports.
struct Region;

impl attach::Dependants for Region {
    fn prepare(&self, entries: usize) -> bool {
        socket::initialise(entries)
    }

    fn begin(&self) {
        credentials::attached();
        holders::initialise();
    }

    fn follow(&self, former: &attach::Attachment) {
        // Before anybody sees the other directory: what clients of the former one name is judged by what it said.
        former_ports::keep(former);
    }

    fn forget(&self) {
        ports::forget();
    }
}

/// What threads do beside calls that wait.
struct Beside;

impl chores::Chores for Beside {
    fn carry(&self) -> bool {
        connection::carried::carry_noted()
    }

    fn announce(&self) {
        connection::deferred::announce_due();
    }

    fn release(&self, socket: &socket::Socket) {
        accepting::release(socket);
    }
}

/// Functions of higher modules that lower ones call.
fn register() {
    let _ = attach::DEPENDANTS.set(&Region);
    let _ = chores::CHORES.set(&Beside);
    let _ = limits::SPARES.set(socket::drop_spares);
    let _ = socket::FREE_ELSEWHERE.set(foreign::free);
    let _ = holders::LET_GO.set(ended::let_go);
    let _ = link::ending::UNUSED.set(foreign::unused);
    let _ = foreign::OWN_LINK.set(|role, wanted| listener::own_link(role, wanted));
    let _ = options::MATERIALISE
        .set(|fd, socket, reason| connection::materialise(fd, socket, reason).map(drop));
    let _ = listener::ADD_LINK.set(epoll::add_link);
    let _ = exclusion::LEAVE.set(withdrawal::leave_library);
    let _ = travel::ADOPT_STANDARD.set(hooks::streams::adopt_standard);
    let _ = lane::CARRY_ON.set(connection::carry_on_or_fail);
    let _ = lane::TELL_SETS.set(epoll::changed);
}

/// Runs when the library is loaded, before the program's own start.
extern "C" fn start() {
    register();
    process::renew();
    limits::look();
    complaint::remember();
    wait::initialise();
    fork::initialise();
    class::arrive();
    copying::arrive();
    image::arrive();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
