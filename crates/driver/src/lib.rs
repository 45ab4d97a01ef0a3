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

    /// Begins a channel without waiting for it. Until the other host has answered, the channel takes and gives no
    /// bytes. A failed attempt is reported by `enqueue` and `dequeue`.
    ///
    /// # Errors
    /// Where it can not be begun.
    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Box<dyn Channel>>;

    /// Accepts channels that other hosts begin. Port 0 means any port: [`Acceptor::address`] has the actual one.
    ///
    /// # Errors
    /// Where it can not listen.
    fn listen(&self, at: SocketAddr, options: &Options) -> io::Result<Box<dyn Acceptor>>;
}

/// A listening socket for channels of other hosts.
pub trait Acceptor: Send {
    /// Becomes readable when a channel waits.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The address at which it listens.
    fn address(&self) -> SocketAddr;

    /// The next channel and the address of its other end; `None` where no channel waits. By that address the daemon
    /// finds the peer, and so the key.
    ///
    /// # Errors
    /// When a channel waits and can not be accepted because descriptors or memory are exhausted. It goes on waiting, so
    /// the descriptor stays readable.
    fn accept(&mut self) -> io::Result<Option<(Box<dyn Channel>, SocketAddr)>>;
}

/// One connection to another host, which carries bytes in order in both directions. When it is dropped, it is
/// destroyed: bytes that the transport has taken may still arrive.
///
/// No method waits. A channel has one user at a time and may go to another thread.
///
/// **Sleeping.** A caller that gets [`Dequeued::Waits`], or fewer bytes than it had room for, may sleep until the
/// descriptor is readable. A caller that gets a short `enqueue`, or false from `flush`, may sleep until it is writable.
/// No other caller may sleep, since the transport can hold bytes that the descriptor does not report. On an error or
/// the end the descriptor is readable; errors are reported by both methods. An error is final.
pub trait Channel: Send {
    /// Readable and writable as described above. It stays the same for the channel's life. It is level-triggered, like
    /// a socket in epoll.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Gives bytes to the transport, in one call where it can. Returns how many it took, from the front; fewer than
    /// given (also 0) means that it has no room. The bytes are copied, or kept within the transport: the runs may
    /// change afterwards.
    ///
    /// # Errors
    /// The channel is lost.
    fn enqueue(&mut self, runs: &[Run<'_>]) -> io::Result<usize>;

    /// Reads bytes from the transport into the rooms, from the front, in one call where it can. There must be room for
    /// at least one byte.
    ///
    /// # Errors
    /// The channel is lost.
    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued>;

    /// Passes on bytes that the transport still keeps. False where the network has no room. This is for transports that
    /// take bytes and keep them; a kernel socket does not.
    ///
    /// # Errors
    /// The channel is lost.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// The status of the transport. It costs a few system calls: it is for decisions, not for every segment.
    fn status(&mut self) -> Status;

    /// Changes the options of an existing channel: an accepted channel learns its purpose only from its first frame. A
    /// setting that the system does not permit stays as it is.
    fn tune(&mut self, options: &Options);

    /// The addresses of this host and of the other host, where the transport has any.
    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// Ends both directions now. The peer sees an end or an error, after the bytes that were sent; `enqueue` fails from
    /// now on. This is for a channel whose descriptor another thread may still be using.
    fn shut_down(&mut self);
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued {
    /// This many bytes, at least one.
    Bytes(usize),
    /// No bytes for now.
    Waits,
    /// The other host sends no more.
    End,
}

/// The status of a transport. Unknown values are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Bytes taken that the other host's transport has not acknowledged.
    pub unacknowledged: u64,
    /// The part of these bytes that was not sent yet.
    pub unsent: u64,
    /// Received bytes that were not dequeued.
    pub unread: u64,
    /// Round trip time, smoothed.
    pub round_trip: Duration,
    /// The shortest recent round trip time: that of the network, without queues. Zero while not known.
    pub least_round_trip: Duration,
    /// The congestion window limits waiting bytes, rather than the peer or the sender.
    pub congestion_limited: bool,
    /// The transport retransmits: bytes were not acknowledged in time, and none were acknowledged since.
    pub repeats: bool,
    /// The number of retransmitted packets since the beginning.
    pub retransmissions: u64,
    /// The largest packet on the path, including the IP header.
    pub packet: u32,
    /// The last measured rate of the transport in bytes per second.
    pub delivery_rate: u64,
}

/// A constructor of a transport without parameters.
pub type Make = fn() -> Box<dyn Transport>;

/// The transports of this crate, by their `name` in `[transport]` of the configuration. The first is the default.
pub static TRANSPORTS: &[(&str, Make)] = &[("tcp", || Box::new(Tcp))];

/// A transport by its name in the configuration.
#[must_use]
pub fn transport(name: &str) -> Option<Box<dyn Transport>> {
    let mut known = TRANSPORTS.iter();
    let (_, make) = known.find(|(known, _)| *known == name)?;
    Some(make())
}
