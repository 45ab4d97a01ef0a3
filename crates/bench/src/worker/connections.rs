//! Connection set-up: many clients, one single-threaded server.
//!
//! A cycle is connect, 64 bytes there, 64 bytes back, close. The client closes first, so over
//! TCP its address pair rests in TIME_WAIT; each client has a destination of its own (the server's
//! first address and those that follow), so that a short experiment does not run out of ports.

use super::address::{Address, Connection, Listener};
use super::payload::{MESSAGE, is_request, reply, request};
use super::system::{Epoll, accept_nonblocking, receive, send, token};
use super::{Outcome, WorkerError, announce, finished, latency_histogram, start_signal};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Client processes, and over TCP destinations.
pub const CLIENTS: u8 = 8;

/// Where client `index` connects to, given the server's first address.
fn destination(first: &Address, index: u8) -> Address {
    match first {
        Address::Tcp(SocketAddr::V4(first)) => {
            let ip = Ipv4Addr::from_bits(first.ip().to_bits() + u32::from(index));
            Address::Tcp(SocketAddr::new(IpAddr::V4(ip), first.port()))
        }
        other => other.clone(),
    }
}

/// A connection of which the request, or the room for the reply, is not complete yet.
struct Served {
    socket: OwnedFd,
    request: [u8; MESSAGE],
    received: usize,
}

/// Serves at so many addresses until it is killed.
pub fn serve(address: &Address, addresses: u8) -> Result<(), WorkerError> {
    let (first, bound) = Listener::bind(address)?;
    let mut listeners = vec![first];
    if matches!(bound, Address::Tcp(_)) {
        for index in 1..addresses {
            listeners.push(Listener::bind(&destination(&bound, index))?.0);
        }
    }
    let mut epoll = Epoll::new(256)?;
    for listener in &listeners {
        listener.set_nonblocking()?;
        epoll.add(listener.as_fd(), token(listener.as_fd().as_raw_fd()))?;
    }
    announce(&bound)?;

    // Indexed by descriptor number, as the kernel hands out the lowest free one.
    let mut connections: Vec<Option<Served>> = Vec::new();
    let mut ready = Vec::new();
    loop {
        epoll.wait(&mut ready)?;
        for &event in &ready {
            let index = usize::try_from(event).unwrap_or(usize::MAX);
            if let Some(connection) = connections.get_mut(index).filter(|slot| slot.is_some()) {
                handle(connection)?;
            } else if let Some(listener) = listeners
                .iter()
                .find(|listener| token(listener.as_fd().as_raw_fd()) == event)
            {
                while let Some(socket) = accept_nonblocking(listener.as_fd())? {
                    let token = token(socket.as_raw_fd());
                    epoll.add(socket.as_fd(), token)?;
                    let index = usize::try_from(token).unwrap_or(usize::MAX);
                    if connections.len() <= index {
                        connections.resize_with(index + 1, || None);
                    }
                    connections[index] = Some(Served {
                        socket,
                        request: [0; MESSAGE],
                        received: 0,
                    });
                }
            }
        }
    }
}

fn handle(slot: &mut Option<Served>) -> Result<(), WorkerError> {
    let Some(served) = slot else { return Ok(()) };
    if served.received == MESSAGE {
        // The reply is out; all that may come is the end.
        let mut more = [0; 1];
        return match receive(served.socket.as_fd(), &mut more)? {
            Some(0) => {
                *slot = None;
                Ok(())
            }
            Some(_) => Err(WorkerError::Verification(
                "a byte after the request".to_owned(),
            )),
            None => Ok(()),
        };
    }
    match receive(
        served.socket.as_fd(),
        &mut served.request[served.received..],
    )? {
        None => return Ok(()),
        Some(0) => {
            let received = served.received;
            return Err(WorkerError::Verification(format!(
                "request ended after {received} bytes"
            )));
        }
        Some(count) => served.received += count,
    }
    if served.received < MESSAGE {
        return Ok(());
    }
    if !is_request(&served.request) {
        return Err(WorkerError::Verification(
            "wrong byte in a request".to_owned(),
        ));
    }
    // An empty socket buffer takes 64 bytes; anything else is a fault of the transport.
    match send(served.socket.as_fd(), &reply(&served.request))? {
        Some(MESSAGE) => Ok(()),
        sent => Err(WorkerError::Verification(format!(
            "a reply of 64 bytes was cut: {sent:?}"
        ))),
    }
}

/// One client: cycles for `duration`, each verified and its time recorded. It `holds` its first connection until the start, unless the
/// server has one at a time.
pub fn drive(
    address: &Address,
    duration: Duration,
    index: u8,
    holds: bool,
) -> Result<Outcome, WorkerError> {
    let address = destination(address, index);
    let sender = u64::from(index);
    let mut sequence = 0;
    // So that who looks can see what it is made of.
    let first = Some(exchange(&address, sender, sequence)?).filter(|_| holds);
    start_signal()?;
    drop(first);

    let mut histogram = latency_histogram();
    let begin = Instant::now();
    let mut now = begin;
    while now.duration_since(begin) < duration {
        sequence += 1;
        drop(exchange(&address, sender, sequence)?);
        let after = Instant::now();
        histogram.saturating_record(super::nanoseconds(after.duration_since(now)));
        now = after;
    }
    Ok(finished(sequence, begin.elapsed(), Some(&histogram)))
}

/// A cycle but for the close.
fn exchange(address: &Address, sender: u64, sequence: u64) -> Result<Connection, WorkerError> {
    let message = request(sender, sequence);
    let mut answer = [0; MESSAGE];
    let mut connection = Connection::connect(address)?;
    connection.write_all(&message)?;
    connection.read_exact(&mut answer)?;
    if answer != reply(&message) {
        return Err(WorkerError::Verification(
            "wrong byte in a reply".to_owned(),
        ));
    }
    Ok(connection)
}
