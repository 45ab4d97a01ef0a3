//! Kernel TCP.

mod congestion;
mod info;
mod prepare;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use netchannel_shm::run::{gather_write, scatter_read};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};

use crate::{Acceptor, Channel, Dequeued, Options, Room, Run, Status, Transport};

pub use congestion::{congestion_control_refusal, default_congestion_control};

/// Connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// The transport `tcp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Box<dyn Channel>> {
        let socket = socket::open(&to)?;
        prepare::prepare(&socket, options);
        if let Some(from) = options.from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
            prepare::leave_port_open(&socket);
            rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Box::new(Connection(socket))),
            Err(errno) => Err(errno.into()),
        }
    }

    fn listen(&self, at: SocketAddr, options: &Options) -> io::Result<Box<dyn Acceptor>> {
        let socket = socket::open(&at)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        if at.is_ipv6() {
            // So that the same port of IPv4 can be used for another listener.
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        }
        // Accepted connections inherit these options. The size of the buffers determines the scale of the window, which
        // is announced with the first packet.
        prepare::prepare(&socket, options);
        rustix::net::bind(&socket, &at)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let address = rustix::net::getsockname(&socket)?.try_into()?;
        Ok(Box::new(Listener { socket, address }))
    }
}

struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Acceptor for Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> io::Result<Option<(Box<dyn Channel>, SocketAddr)>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            return match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((socket, from)) => {
                    // A connection without an address has ended already.
                    let Some(Ok(from)) = from.map(SocketAddr::try_from) else {
                        continue;
                    };
                    Ok(Some((Box::new(Connection(socket)), from)))
                }
                Err(Errno::AGAIN) => Ok(None),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    Err(errno.into())
                }
                Err(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) => {
                    Err(io::Error::other("the listener is broken"))
                }
                // Network errors of a connection that was not accepted yet: see accept(2).
                Err(_) => continue,
            };
        }
    }
}

struct Connection(OwnedFd);

impl Channel for Connection {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn enqueue(&mut self, runs: &[Run<'_>]) -> io::Result<usize> {
        loop {
            return match gather_write(self.0.as_raw_fd(), runs) {
                Ok(count) => Ok(count),
                Err(libc::EAGAIN) => Ok(0),
                Err(libc::EINTR) => continue,
                Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }

    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued> {
        loop {
            return match scatter_read(self.0.as_raw_fd(), rooms) {
                Ok(0) => Ok(Dequeued::End),
                Ok(count) => Ok(Dequeued::Bytes(count)),
                Err(libc::EAGAIN) => Ok(Dequeued::Waits),
                Err(libc::EINTR) => continue,
                Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }

    fn status(&mut self) -> Status {
        info::status(self.0.as_fd())
    }

    fn tune(&mut self, options: &Options) {
        prepare::prepare(&self.0, options);
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let local = rustix::net::getsockname(&self.0).ok()?;
        let remote = rustix::net::getpeername(&self.0).ok()??;
        Some((local.try_into().ok()?, remote.try_into().ok()?))
    }

    fn shut_down(&mut self) {
        // An error means that the connection has ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}
