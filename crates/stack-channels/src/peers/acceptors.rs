//! Where channels of other hosts come in.

use super::poll::Poll;
use super::table::OTHERS;
use netchannel_driver::{Acceptor, Channel, Options, Transport};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long nothing is accepted when descriptors or memory are used up.
const PAUSE: Duration = Duration::from_secs(1);

struct Listening {
    /// As it was configured: the port may be any.
    configured: SocketAddr,
    acceptor: Box<dyn Acceptor>,
    name: u64,
    /// It is not watched until then.
    paused: Option<Instant>,
}

/// All of them.
#[derive(Default)]
pub struct Acceptors {
    acceptors: Vec<Listening>,
    last: u64,
}

/// An address at which nothing can come in.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} for other hosts ({error}); choose another address")]
pub struct CannotListen {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub error: io::Error,
}

impl Acceptors {
    /// Opens a door at each of these addresses and closes the others.
    ///
    /// # Errors
    /// Those that can not be opened; all others are.
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

    /// The next channel at a door, by its name.
    ///
    /// # Errors
    /// When it can not be taken: the door is then closed for a while.
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
            // What waits would wake the daemon for ever.
            poll.remove(listening.acceptor.descriptor());
            listening.paused = now.checked_add(PAUSE);
        }
        accepted
    }

    /// Opens those again whose pause is over.
    pub fn reopen(&mut self, poll: &Poll, now: Instant) {
        for listening in &mut self.acceptors {
            if listening.paused.is_some_and(|until| until <= now) {
                let added = poll.add(listening.acceptor.descriptor(), listening.name, false);
                let later = now.checked_add(PAUSE);
                listening.paused = added.err().and(later);
            }
        }
    }

    /// When the next is to be opened again.
    pub fn deadline(&self) -> Option<Instant> {
        self.acceptors
            .iter()
            .filter_map(|listening| listening.paused)
            .min()
    }

    /// Where they are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let acceptors = self.acceptors.iter();
        acceptors
            .map(|listening| listening.acceptor.address())
            .collect()
    }
}
