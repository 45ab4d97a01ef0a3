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
mod attach;
mod bell;
mod beside;
mod cancel;
mod channel;
mod class;
mod clock;
mod complaint;
mod connection;
mod copying;
mod departure;
mod epoll;
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
mod pump;
mod real;
mod receiver;
mod relocate;
mod renewal;
mod rights;
mod rings;
mod signals;
mod socket;
mod splicing;
mod sys;
mod table;
mod transfer;
mod travel;
mod user;
mod users;
mod wait;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Runs when the library is loaded, before the program's own start.
extern "C" fn start() {
    attach::renew_process();
    limits::look();
    complaint::remember();
    if table::initialise() {
        wait::initialise();
        fork::initialise();
        class::arrive();
        copying::arrive();
        image::arrive();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
