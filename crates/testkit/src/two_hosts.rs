//! Two hosts, with a daemon on each where NetChannel is tested.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use netchannel_namespaces::{
    Configuration, Error, Host, Hosts, daemon_arguments, gain_rights, write_key,
};

use crate::daemon::PrivateDaemon;
use crate::far::Addresses;

/// What carries connections between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The kernel's TCP.
    Kernel,
    /// NetChannel, with a daemon on each host.
    NetChannel,
}

/// Two hosts that end with this value, and whoever lives on them.
pub struct TwoHosts {
    // First: they end in good order.
    daemons: Option<[PrivateDaemon; 2]>,
    netchannel: Option<PathBuf>,
    hosts: Hosts,
}

/// Why there are none.
#[derive(Debug)]
pub enum Absent {
    /// This system does not let us; the tests are skipped.
    NotHere(String),
    /// Something went wrong.
    Failed(String),
}

impl From<Error> for Absent {
    fn from(error: Error) -> Self {
        match error {
            Error::NotAllowed(_) | Error::NoIproute => Absent::NotHere(error.to_string()),
            Error::Devices(_) | Error::Guard(_) | Error::Processors(_) => {
                Absent::Failed(error.to_string())
            }
        }
    }
}

impl From<io::Error> for Absent {
    fn from(error: io::Error) -> Self {
        Absent::Failed(error.to_string())
    }
}

impl TwoHosts {
    /// Makes them, with daemons of a `netchannel` if one is given. To be called while the process has one thread only.
    ///
    /// # Errors
    /// If that is not allowed here, or fails.
    pub fn make(netchannel: Option<&Path>) -> Result<Self, Absent> {
        Self::make_with(netchannel, &Configuration::default())
    }

    /// The same, with daemons that are told more than of each other.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_with(
        netchannel: Option<&Path>,
        configuration: &Configuration<'_>,
    ) -> Result<Self, Absent> {
        gain_rights()?;
        let hosts = Hosts::make()?;
        if configuration.two_cables {
            hosts.second_cable()?;
        }
        let daemons = match netchannel {
            Some(program) => Some(daemons(program, &hosts, configuration)?),
            None => None,
        };
        Ok(Self {
            daemons,
            netchannel: netchannel.map(Path::to_owned),
            hosts,
        })
    }

    /// Both, and the cable between them.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Host a, by its place.
    #[must_use]
    pub fn a(&self) -> Which {
        Which::A
    }

    /// Host b, by its place.
    #[must_use]
    pub fn b(&self) -> Which {
        Which::B
    }

    /// One of them.
    #[must_use]
    pub fn host(&self, which: Which) -> &Host {
        match which {
            Which::A => &self.hosts.a,
            Which::B => &self.hosts.b,
        }
    }

    /// The daemon of one of them.
    pub fn daemon(&mut self, which: Which) -> Option<&mut PrivateDaemon> {
        self.daemons
            .as_mut()
            .map(|daemons| &mut daemons[which as usize])
    }

    /// The addresses of both, as a program on host a sees them.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let of = |host: &Host| (host.v4(0), host.v6(0));
        Addresses {
            near: of(&self.hosts.a),
            far: of(&self.hosts.b),
        }
    }

    /// A program that starts on one of them; its arguments follow.
    #[must_use]
    pub fn command(&self, program: &Path, which: Which, over: Over) -> Command {
        let mut command = match (over, &self.netchannel, &self.daemons) {
            (Over::NetChannel, Some(netchannel), Some(daemons)) => {
                let mut command = Command::new(netchannel);
                command
                    .args(["run", "--require", "--no-daemon", "--socket"])
                    .arg(daemons[which as usize].socket())
                    .arg("--")
                    .arg(program);
                command
            }
            _ => Command::new(program),
        };
        self.host(which).enter(&mut command);
        command
    }

    /// What the daemons wrote so far.
    #[must_use]
    pub fn logs(&self) -> String {
        let daemons = self.daemons.iter().flatten();
        let logs = daemons.zip(["a", "b"]);
        logs.map(|(daemon, name)| format!("daemon of host {name}:\n{}\n", daemon.log()))
            .collect()
    }
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Where clients are.
    A = 0,
    /// Where servers are.
    B = 1,
}

/// A daemon on each of two hosts, which know of each other.
///
/// # Errors
/// If they cannot be started.
pub fn daemons(
    program: &Path,
    hosts: &Hosts,
    configuration: &Configuration<'_>,
) -> io::Result<[PrivateDaemon; 2]> {
    let keys = tempfile::tempdir()?;
    write_key([keys.path(), keys.path()])?;
    let start = |own: &Host, other: &Host| {
        PrivateDaemon::start_on(program, Some(own), |folder| {
            std::fs::copy(keys.path().join("hosts.key"), folder.join("hosts.key"))?;
            let file = configuration.write(folder, own, other)?;
            daemon_arguments(program, &file).map_err(io::Error::other)
        })
    };
    Ok([start(&hosts.a, &hosts.b)?, start(&hosts.b, &hosts.a)?])
}
