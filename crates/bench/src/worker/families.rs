//! Connection set-up at servers of several processes, as prefork servers are: each process accepts by itself, blocking, one connection
//! at a time. The clients are those of [`super::connections`].

use super::address::{Address, Listener};
use super::payload::{MESSAGE, is_request, reply};
use super::{WorkerError, announce, system};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Who of the server's processes has the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The parent, which never accepts, and one child, which does.
    Parent,
    /// One child alone.
    Child,
    /// The parent, and eight children that accept.
    Eight,
}

impl Family {
    /// By the name of the workload.
    pub fn of(workload: &str) -> Option<Self> {
        match workload {
            "family-parent" => Some(Family::Parent),
            "family-child" => Some(Family::Child),
            "family-eight" => Some(Family::Eight),
            _ => None,
        }
    }
}

/// Serves until it is killed, and its children with it.
pub fn serve(address: &Address, family: Family) -> Result<(), WorkerError> {
    // One listener for all destinations of the clients.
    let any = match address {
        Address::Tcp(SocketAddr::V4(address)) => Address::Tcp(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            address.port(),
        )),
        other => other.clone(),
    };
    let (listener, bound) = Listener::bind(&any)?;
    let children = match family {
        Family::Parent | Family::Child => 1,
        Family::Eight => 8,
    };
    for _ in 0..children {
        system::fork_to(|| accept_for_ever(&listener))?;
    }
    let _kept = (family != Family::Child).then_some(listener);
    match (address, bound) {
        (Address::Tcp(address), Address::Tcp(bound)) => {
            announce(&Address::Tcp(SocketAddr::new(address.ip(), bound.port())))?
        }
        (_, bound) => announce(&bound)?,
    }
    system::pause()
}

fn accept_for_ever(listener: &Listener) -> io::Error {
    loop {
        if let Err(error) = exchange(listener) {
            return error;
        }
    }
}

fn exchange(listener: &Listener) -> io::Result<()> {
    let mut connection = listener.accept()?;
    let mut request = [0; MESSAGE];
    connection.read_exact(&mut request)?;
    if !is_request(&request) {
        return Err(io::Error::other("wrong byte in a request"));
    }
    connection.write_all(&reply(&request))?;
    match connection.read(&mut [0; 1])? {
        0 => Ok(()),
        _ => Err(io::Error::other("a byte after the request")),
    }
}
