//! NetDriver: what a channel between two hosts and the transport under it must do, and the transports.
//! A channel carries bytes in order to one other host; Table 2 of the NetChannel paper asks four things
//! of it: create, destroy, enqueue, dequeue. How to write a transport: `docs/transports.md`.
//!
//! Never: knows sockets of programs, frames or peers; waits; makes a thread; reads a clock.
//!
//! ```text
//!  peers -- connect / accept --> Channel --+
//!                                          v
//!  worker -- enqueue: runs of rings, headers --> transport --> network
//!         <- dequeue: rooms of rings, buffer --- transport <-- network
//!         <- status: queued, rtt, congestion ---
//!     sleeps on the descriptor
//! ```

pub mod contract;
mod options;
mod tcp;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use netchannel_shm::run::{gather_write, scatter_read};
pub use netchannel_shm::{Room, Run};

pub use crate::options::Options;
pub use crate::tcp::{Tcp, congestion_control_refusal, default_congestion_control};

/// A way to reach other hosts, such as TCP.
pub trait Transport: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Begins a channel and does not wait for it: until the other host has answered, the channel takes
    /// nothing and gives nothing. An attempt that fails is told by `enqueue` and `dequeue`.
    ///
    /// # Errors
    /// What keeps it from being begun.
    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Box<dyn Channel>>;

    /// Takes channels that other hosts begin. Port 0 is any: [`Acceptor::address`] tells which.
    ///
    /// # Errors
    /// What keeps it from listening.
    fn listen(&self, at: SocketAddr, options: &Options) -> io::Result<Box<dyn Acceptor>>;
}

/// Where channels of other hosts come in.
pub trait Acceptor: Send {
    /// Becomes readable when a channel waits.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// The next channel, and where it comes from; none where none waits. By that address the daemon finds
    /// the peer, and so the key.
    ///
    /// # Errors
    /// When one waits and cannot be taken: descriptors or memory are used up. It waits on, so the
    /// descriptor stays readable.
    fn accept(&mut self) -> io::Result<Option<(Box<dyn Channel>, SocketAddr)>>;
}

/// One connection to another host, which carries bytes in order, both ways. Dropped, it is destroyed:
/// what the transport has taken may still arrive.
///
/// No method waits. A channel has one user at a time and may go to another thread.
///
/// **Sleeping.** Who gets [`Dequeued::Waits`], or fewer bytes than there was room for, may sleep until the
/// descriptor is readable; who gets a short `enqueue`, or false from `flush`, until it is writable. Nobody else may sleep: the transport
/// can hold bytes of which the descriptor knows nothing. On an error or the end the descriptor
/// is readable, and so are errors told by both methods. An error is final.
pub trait Channel: Send {
    /// Readable and writable as said above; the same one for the channel's life. Level-triggered, as
    /// epoll sees a socket.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Gives bytes to the transport, in one call where it can. Returns how many it took, from the front;
    /// fewer than there are (also 0) means that it has no room. The bytes are copied, or kept within the
    /// transport: afterwards the runs may change.
    ///
    /// # Errors
    /// The channel is lost.
    fn enqueue(&mut self, runs: &[Run<'_>]) -> io::Result<usize>;

    /// Takes bytes from the transport into the rooms, from the front, in one call where it can. There
    /// must be room for one byte at least.
    ///
    /// # Errors
    /// The channel is lost.
    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued>;

    /// Hands on what the transport still keeps of what it took. False where the network has no room.
    /// For transports that take bytes and keep them; a socket of the kernel does not.
    ///
    /// # Errors
    /// The channel is lost.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// How the transport is doing. Costs a few system calls: for decisions, not for every segment.
    fn status(&mut self) -> Status;

    /// Changes what can be changed of a channel that exists: an accepted one learns from its first frame
    /// what it is for. What the system does not permit is left as it is.
    fn tune(&mut self, options: &Options);

    /// Its own address and that of the other host, where it has any.
    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// Ends both directions now. The peer sees an end or an error, behind what was sent; `enqueue` here
    /// fails. For a channel that another thread may still be using the descriptor of.
    fn shut_down(&mut self);
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Waits,
    /// The other host sends no more.
    End,
}

/// How a transport is doing. What it does not know is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Bytes taken that the other host's transport has not acknowledged.
    pub unacknowledged: u64,
    /// Of these, bytes that were not sent yet.
    pub unsent: u64,
    /// Bytes that came and were not dequeued.
    pub unread: u64,
    /// Round trip time, smoothed.
    pub round_trip: Duration,
    /// The shortest round trip of late: that of the network, without what waits in queues. Zero while not known.
    pub least_round_trip: Duration,
    /// Bytes wait, and the congestion window holds them back: not the peer, and not the sender.
    pub congestion_limited: bool,
    /// What was sent was not acknowledged in time, and goes again: nothing new was acknowledged since.
    pub repeats: bool,
    /// Packets sent again, since the beginning.
    pub retransmissions: u64,
    /// The largest packet that gets to the other host, headers of IP included.
    pub packet: u32,
    /// Bytes per second, as last measured by the transport.
    pub delivery_rate: u64,
}

/// How a transport is made that needs nothing to be told.
pub type Make = fn() -> Box<dyn Transport>;

/// The transports of this crate: what `name` of `[transport]` in the configuration may say. The first is the default.
pub static TRANSPORTS: &[(&str, Make)] = &[("tcp", || Box::new(Tcp))];

/// A transport by its name in the configuration.
#[must_use]
pub fn transport(name: &str) -> Option<Box<dyn Transport>> {
    let mut known = TRANSPORTS.iter();
    let (_, make) = known.find(|(known, _)| *known == name)?;
    Some(make())
}
