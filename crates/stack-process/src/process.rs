//! The connection of a stack process to the daemon: who it is, and its sessions.
//!
//! ```text
//!  process --Hello: version, layout, kind, name--> daemon
//!  process <--Welcome or Refused----------------- daemon
//!  process <--Session, with its socket------------ daemon      one for each tenant
//! ```
//!
//! The end of this connection ends the process, and the end of the process ends the connections that it has.

use crate::VERSION;
use crate::endpoint::{Endpoint, Received};
use netchannel_abi::LAYOUT_HASH;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// How a stack shares what it has between its tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fairness {
    /// The processor time of the stack, by weight.
    #[default]
    Processor,
    /// The bytes of a bottleneck in the network, by weight.
    Network,
}

/// What a stack process says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    version: u32,
    layout: u64,
    /// The kind of the module.
    pub kind: String,
    /// The name of the stack.
    pub name: String,
}

impl Hello {
    /// Of this program.
    #[must_use]
    pub fn new(kind: &str, name: &str) -> Self {
        Self {
            version: VERSION,
            layout: LAYOUT_HASH,
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    /// What is wrong with it where a stack of that kind and name is expected.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, kind: &str, name: &str) -> Result<(), String> {
        if (self.version, self.layout) != (VERSION, LAYOUT_HASH) {
            return Err(
                "it is of another version of netchannel: start one of the daemon's".to_owned(),
            );
        }
        if self.kind != kind || self.name != name {
            let (is_kind, is_name) = (&self.kind, &self.name);
            return Err(format!(
                "it is the {is_kind} stack {is_name}, and this is the socket of the {kind} stack {name}"
            ));
        }
        Ok(())
    }
}

/// What the daemon answers, and says later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToProcess {
    /// It is taken.
    Welcome(Fairness),
    /// It is not, for this reason.
    Refused(String),
    /// A session comes with this message.
    Session,
}

/// The daemon's end.
#[derive(Debug)]
pub struct DaemonEnd(Endpoint);

impl DaemonEnd {
    /// Of a socket that was accepted.
    #[must_use]
    pub const fn new(socket: OwnedFd) -> Self {
        Self(Endpoint::new(socket))
    }

    /// What the process has said: nothing yet is `None`.
    ///
    /// # Errors
    /// `PIPE` where it has ended, or sends garbage.
    pub fn hear(&mut self) -> Result<Option<Hello>, Errno> {
        match self.0.receive() {
            Received::Message(hello, _) => Ok(Some(hello)),
            Received::Nothing => Ok(None),
            Received::Ended | Received::Garbage => Err(Errno::PIPE),
        }
    }

    /// Tells the process something, or keeps it until there is room: see [`Self::is_blocked`].
    ///
    /// # Errors
    /// It has ended, or reads nothing.
    pub fn tell(&mut self, what: &ToProcess, with: Option<OwnedFd>) -> Result<(), Errno> {
        self.0.send(what, with.into_iter().collect()).map(drop)
    }

    /// Whether something is kept: then the socket is to be watched for room, and [`Self::flush`] to be called.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.0.is_blocked()
    }

    /// Sends what is kept, as far as there is room.
    ///
    /// # Errors
    /// The process has ended.
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.0.flush().map(drop)
    }
}

impl std::os::fd::AsFd for DaemonEnd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process's end.
#[derive(Debug)]
pub struct ProcessEnd(Endpoint);

impl ProcessEnd {
    /// Says who this is, over a connected socket.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn begin(socket: OwnedFd, hello: &Hello) -> Result<Self, Errno> {
        let mut endpoint = Endpoint::new(socket);
        endpoint.send(hello, Vec::new())?;
        Ok(Self(endpoint))
    }

    /// What the daemon says, with a socket where it is a session.
    pub fn hear(&mut self) -> Received<(ToProcess, Option<OwnedFd>)> {
        match self.0.receive() {
            Received::Message(what, with) => {
                Received::Message((what, with.into_iter().next()), Vec::new())
            }
            Received::Nothing => Received::Nothing,
            Received::Ended => Received::Ended,
            Received::Garbage => Received::Garbage,
        }
    }
}

impl std::os::fd::AsFd for ProcessEnd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_who_it_is_and_gets_its_sessions() {
        let (one, two) = Endpoint::pair().unwrap();
        let mut daemon = DaemonEnd::new(one);
        assert_eq!(daemon.hear(), Ok(None));
        let mut process = ProcessEnd::begin(two, &Hello::new("kernel", "egress")).unwrap();
        let hello = daemon.hear().unwrap().unwrap();
        assert_eq!(hello.check("kernel", "egress"), Ok(()));
        assert!(
            hello
                .check("kernel", "other")
                .unwrap_err()
                .contains("the kernel stack egress")
        );
        let old = Hello {
            version: VERSION + 1,
            ..hello
        };
        assert!(
            old.check("kernel", "egress")
                .unwrap_err()
                .contains("another version")
        );
        daemon
            .tell(&ToProcess::Welcome(Fairness::Network), None)
            .unwrap();
        let (session, _own) = Endpoint::pair().unwrap();
        daemon.tell(&ToProcess::Session, Some(session)).unwrap();
        let heard = [process.hear(), process.hear()].map(|one| match one {
            Received::Message((what, with), _) => (what, with.is_some()),
            _ => panic!("nothing"),
        });
        assert_eq!(
            heard,
            [
                (ToProcess::Welcome(Fairness::Network), false),
                (ToProcess::Session, true)
            ]
        );
        drop(process);
        assert_eq!(daemon.hear(), Err(Errno::PIPE));
    }

    #[test]
    fn many_sessions_all_come() {
        let (one, two) = Endpoint::pair().unwrap();
        let mut daemon = DaemonEnd::new(one);
        let mut process = ProcessEnd::begin(two, &Hello::new("kernel", "egress")).unwrap();
        const MANY: usize = 1500;
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..MANY {
            let session = file.try_clone().unwrap().into();
            daemon.tell(&ToProcess::Session, Some(session)).unwrap();
        }
        let mut came = 0;
        while came < MANY {
            match process.hear() {
                Received::Message((ToProcess::Session, Some(_)), _) => came += 1,
                Received::Nothing => {
                    assert!(daemon.is_blocked(), "{came} of {MANY} have come");
                    daemon.flush().unwrap();
                }
                _ => panic!("something else than a session"),
            }
        }
        assert!(!daemon.is_blocked());
    }
}
