//! Where a workload listens or connects: `tcp:127.0.0.1:4000` or `unix:/path`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

/// An address of either family, as written on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An internet address; whether the kernel or NetChannel carries it is not known here.
    Tcp(SocketAddr),
    /// A path of an AF_UNIX stream socket.
    Unix(PathBuf),
}

/// The text is neither `tcp:HOST:PORT` nor `unix:PATH`.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an address; write tcp:127.0.0.1:PORT or unix:/PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || AddressError(text.to_owned());
        match text.split_once(':') {
            Some(("tcp", rest)) => rest.parse().map(Address::Tcp).map_err(|_| error()),
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(PathBuf::from(path))),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(formatter, "tcp:{address}"),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// A listener of either family.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// AF_UNIX.
    Unix(UnixListener),
}

impl Listener {
    /// Listens, and says where: the port is the one the system chose if it was 0.
    pub fn bind(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let bound = Address::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), bound))
            }
            Address::Unix(path) => {
                let listener = UnixListener::bind(path)?;
                Ok((Listener::Unix(listener), address.clone()))
            }
        }
    }

    /// Waits for one connection.
    pub fn accept(&self) -> io::Result<Connection> {
        Ok(match self {
            Listener::Tcp(listener) => Connection::Tcp(listener.accept()?.0),
            Listener::Unix(listener) => Connection::Unix(listener.accept()?.0),
        })
    }

    /// Turns blocking off, for an event loop.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connected stream of either family.
#[derive(Debug)]
pub enum Connection {
    /// TCP.
    Tcp(TcpStream),
    /// AF_UNIX.
    Unix(UnixStream),
}

impl Connection {
    /// Connects.
    pub fn connect(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp(address) => Connection::Tcp(TcpStream::connect(address)?),
            Address::Unix(path) => Connection::Unix(UnixStream::connect(path)?),
        })
    }

    /// Sends small messages at once, which AF_UNIX always does.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.set_nodelay(true),
            Connection::Unix(_) => Ok(()),
        }
    }

    /// Ends our direction; the other end reads what is left, then the end of the stream.
    pub fn finish(&self) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Connection::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.read(buffer),
            Connection::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.write(buffer),
            Connection::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["tcp:127.0.0.1:4000", "tcp:[::1]:1", "unix:/tmp/a b:c"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "",
            "tcp:",
            "tcp:localhost",
            "unix:",
            "udp:127.0.0.1:1",
            "/path",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
