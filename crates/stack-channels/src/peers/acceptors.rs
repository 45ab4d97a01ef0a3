//! The listening sockets for channels of other hosts.

use super::poll::Poll;
use super::table::OTHERS;
use netchannel_driver::{Acceptor, Channel, Options, Transport};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The pause of a listening socket when descriptors or memory are exhausted.
const PAUSE: Duration = Duration::from_secs(1);

struct Listening {
    /// The configured address, whose port may be 0.
    configured: SocketAddr,
    acceptor: Box<dyn Acceptor>,
    name: u64,
    /// Not watched until this time.
    paused: Option<Instant>,
}

/// All listening sockets.
#[derive(Default)]
pub struct Acceptors {
    acceptors: Vec<Listening>,
    last: u64,
}

/// An address at which the host can not listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} for other hosts ({error}); choose another address")]
pub struct CannotListen {
    /// The address.
    pub address: SocketAddr,
    /// The error.
    pub error: io::Error,
}

impl Acceptors {
    /// Listens at each of these addresses, and closes the other listening sockets.
    ///
    /// # Errors
    /// The first address at which the host can not listen. All others are open.
    pub fn set(
        &mut self,
        addresses: &[SocketAddr],
        transport: &dyn Transport,
        options: &Options,
        poll: &Poll,
    ) -> Result<(), CannotListen> {
        self.acceptors.retain(|listening| {
            let stays = addresses.contains(&listening.configured);
            if !stays {
                poll.remove(listening.acceptor.descriptor());
            }
            stays
        });
        let mut result = Ok(());
        for address in addresses {
            if self
                .acceptors
                .iter()
                .any(|listening| listening.configured == *address)
            {
                continue;
            }
            self.last += 1;
            let name = OTHERS | self.last;
            let opened = transport.listen(*address, options).and_then(|acceptor| {
                poll.add(acceptor.descriptor(), name, false)?;
                Ok(acceptor)
            });
            match opened {
                Ok(acceptor) => self.acceptors.push(Listening {
                    configured: *address,
                    acceptor,
                    name,
                    paused: None,
                }),
                Err(error) => {
                    let address = *address;
                    result = result.and(Err(CannotListen { address, error }));
                }
            }
        }
        result
    }

    /// The next channel at a listening socket, by its name.
    ///
    /// # Errors
    /// When it can not be accepted: the listening socket is then paused.
    pub fn accept(
        &mut self,
        name: u64,
        poll: &Poll,
        now: Instant,
    ) -> io::Result<Option<(Box<dyn Channel>, SocketAddr)>> {
        let listening = self
            .acceptors
            .iter_mut()
            .find(|listening| listening.name == name);
        let Some(listening) = listening.filter(|listening| listening.paused.is_none()) else {
            return Ok(None);
        };
        let accepted = listening.acceptor.accept();
        if accepted.is_err() {
            // A level-triggered event would wake the daemon again and again.
            poll.remove(listening.acceptor.descriptor());
            listening.paused = now.checked_add(PAUSE);
        }
        accepted
    }

    /// Resumes the listening sockets whose pause is over.
    pub fn reopen(&mut self, poll: &Poll, now: Instant) {
        for listening in &mut self.acceptors {
            if listening.paused.is_some_and(|until| until <= now) {
                let added = poll.add(listening.acceptor.descriptor(), listening.name, false);
                let later = now.checked_add(PAUSE);
                listening.paused = added.err().and(later);
            }
        }
    }

    /// The end of the next pause.
    pub fn deadline(&self) -> Option<Instant> {
        self.acceptors
            .iter()
            .filter_map(|listening| listening.paused)
            .min()
    }

    /// The addresses of the listening sockets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let acceptors = self.acceptors.iter();
        acceptors
            .map(|listening| listening.acceptor.address())
            .collect()
    }
}
