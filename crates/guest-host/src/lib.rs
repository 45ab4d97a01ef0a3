//! The host's end of a virtual machine that is a tenant. It is an ordinary program of that tenant, under the library, in a network
//! namespace without anything in it: for each connection of the guest it makes a socket, and listens where the guest's programs do. So the
//! tenant's stack decides what a guest may reach, and a guest that takes this process over has what every program of its tenant has.
//!
//! Never: decides where a connection may go, believes a word of the guest, waits for it.
//!
//! ```text
//!  guest ==rings== Tunnel <--> SocketSink --socket, under the library--> tenant's stack --> kernel TCP
//!        --Bell--> Host::serve: one thread, one epoll set
//! ```
//!
//! Its system calls are those of the C library, which the library sees: no others may be used for sockets here.
#![forbid(unsafe_code)]

mod address;
mod asking;
mod bell;
mod listeners;
mod serve;
mod sink;

pub use bell::Bells;
pub use serve::Host;
