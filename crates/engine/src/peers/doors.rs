//! Where channels of other hosts come in.

use super::poll::Poll;
use super::table::OTHERS;
use netchannel_driver::{Acceptor, Channel, Options, Transport};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long nothing is accepted when descriptors or memory are used up.
const PAUSE: Duration = Duration::from_secs(1);

struct Door {
    /// As it was configured: the port may be any.
    configured: SocketAddr,
    acceptor: Box<dyn Acceptor>,
    name: u64,
    /// It is not watched until then.
    paused: Option<Instant>,
}

/// All of them.
#[derive(Default)]
pub struct Doors {
    doors: Vec<Door>,
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

impl Doors {
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
        self.doors.retain(|door| {
            let stays = addresses.contains(&door.configured);
            if !stays {
                poll.remove(door.acceptor.descriptor());
            }
            stays
        });
        let mut result = Ok(());
        for address in addresses {
            if self.doors.iter().any(|door| door.configured == *address) {
                continue;
            }
            self.last += 1;
            let name = OTHERS | self.last;
            let opened = transport.listen(*address, options).and_then(|acceptor| {
                poll.add(acceptor.descriptor(), name, false)?;
                Ok(acceptor)
            });
            match opened {
                Ok(acceptor) => self.doors.push(Door {
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
        let door = self.doors.iter_mut().find(|door| door.name == name);
        let Some(door) = door.filter(|door| door.paused.is_none()) else {
            return Ok(None);
        };
        let accepted = door.acceptor.accept();
        if accepted.is_err() {
            // What waits would wake the daemon for ever.
            poll.remove(door.acceptor.descriptor());
            door.paused = now.checked_add(PAUSE);
        }
        accepted
    }

    /// Opens those again whose pause is over.
    pub fn reopen(&mut self, poll: &Poll, now: Instant) {
        for door in &mut self.doors {
            if door.paused.is_some_and(|until| until <= now) {
                let added = poll.add(door.acceptor.descriptor(), door.name, false);
                let later = now.checked_add(PAUSE);
                door.paused = added.err().and(later);
            }
        }
    }

    /// When the next is to be opened again.
    pub fn deadline(&self) -> Option<Instant> {
        self.doors.iter().filter_map(|door| door.paused).min()
    }

    /// Where they are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let doors = self.doors.iter();
        doors.map(|door| door.acceptor.address()).collect()
    }
}
