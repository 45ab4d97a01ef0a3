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
use crate::sandboxed::Sandboxed;

/// The transport of connections between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The kernel's TCP.
    Kernel,
    /// NetChannel, with a daemon on each host.
    NetChannel,
    /// NetChannel on host a, where the program is a tenant's; the kernel's TCP on host b.
    Tenant,
    /// The same over channels to NetChannel on host b.
    TenantOverChannels,
}

/// Two hosts. Dropping the value ends the hosts and all processes on them.
pub struct TwoHosts {
    // First, so that the daemons end in good order before their hosts.
    daemons: Option<[PrivateDaemon; 2]>,
    tenant: Option<Sandboxed>,
    netchannel: Option<PathBuf>,
    hosts: Hosts,
}

/// Why two hosts could not be made.
#[derive(Debug)]
pub enum HostsError {
    /// This system does not allow them, so the tests are skipped.
    Unsupported(String),
    /// An error occurred.
    Failed(String),
}

impl From<Error> for HostsError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotAllowed(_) | Error::NoIproute => HostsError::Unsupported(error.to_string()),
            Error::Devices(_) | Error::Guard(_) | Error::Processors(_) => {
                HostsError::Failed(error.to_string())
            }
        }
    }
}

impl From<io::Error> for HostsError {
    fn from(error: io::Error) -> Self {
        HostsError::Failed(error.to_string())
    }
}

impl TwoHosts {
    /// Makes the hosts, with daemons of a `netchannel` program if one is given. The process must have only one thread
    /// when it calls this.
    ///
    /// # Errors
    /// If this system does not allow it, or if it fails.
    pub fn make(netchannel: Option<&Path>) -> Result<Self, HostsError> {
        Self::make_with(netchannel, &Configuration::default())
    }

    /// As [`Self::make`], with a configuration of the daemons beyond what they know of each other.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_with(
        netchannel: Option<&Path>,
        configuration: &Configuration<'_>,
    ) -> Result<Self, HostsError> {
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
            tenant: None,
            netchannel: netchannel.map(Path::to_owned),
            hosts,
        })
    }

    /// Makes the hosts, with a tenant and its daemon on host a, and one on host b where it goes there `over_channels`. The process must have only one thread when it calls this.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_with_tenant(
        netchannel: Option<&Path>,
        over_channels: bool,
    ) -> Result<Self, HostsError> {
        let mut all = Self::make(None)?;
        if let Some(program) = netchannel {
            all.tenant = Some(Sandboxed::start(program, &all.hosts, over_channels)?);
            all.netchannel = Some(program.to_owned());
        }
        Ok(all)
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&mut self) -> Option<&mut Sandboxed> {
        self.tenant.as_mut()
    }

    /// Both hosts, and the cable between them.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The place of host a.
    #[must_use]
    pub fn a(&self) -> Which {
        Which::A
    }

    /// The place of host b.
    #[must_use]
    pub fn b(&self) -> Which {
        Which::B
    }

    /// The place of one host.
    #[must_use]
    pub fn host(&self, which: Which) -> &Host {
        match which {
            Which::A => &self.hosts.a,
            Which::B => &self.hosts.b,
        }
    }

    /// The daemon of one host.
    pub fn daemon(&mut self, which: Which) -> Option<&mut PrivateDaemon> {
        self.daemons
            .as_mut()
            .map(|daemons| &mut daemons[which as usize])
    }

    /// As [`Self::addresses`], where a connection may come from a tenant's own address.
    #[must_use]
    pub fn addresses_over(&self, carrier: Carrier) -> Addresses {
        let mut addresses = self.addresses();
        if let (Carrier::TenantOverChannels, Some(tenant)) = (carrier, &self.tenant) {
            addresses.near = tenant.addresses();
        }
        addresses
    }

    /// The addresses of both hosts, as a program on host a sees them.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let of = |host: &Host| (host.v4(0), host.v6(0));
        Addresses {
            near: of(&self.hosts.a),
            far: of(&self.hosts.b),
        }
    }

    /// A command that starts a program on one host. The program's arguments follow.
    #[must_use]
    pub fn command(&self, program: &Path, which: Which, carrier: Carrier) -> Command {
        if let (Carrier::Tenant | Carrier::TenantOverChannels, Which::A, Some(tenant)) =
            (carrier, which, &self.tenant)
        {
            return tenant.command(program);
        }
        let daemons = self.daemons.as_ref();
        let socket = match carrier {
            Carrier::NetChannel => daemons.map(|daemons| daemons[which as usize].socket()),
            Carrier::TenantOverChannels => self.tenant.as_ref().and_then(Sandboxed::other_socket),
            Carrier::Kernel | Carrier::Tenant => None,
        };
        let mut command = match (&self.netchannel, socket) {
            (Some(netchannel), Some(socket)) => {
                let mut command = Command::new(netchannel);
                command
                    .args(["run", "--require", "--no-daemon", "--socket"])
                    .arg(socket)
                    .arg("--")
                    .arg(program);
                command
            }
            _ => Command::new(program),
        };
        self.host(which).enter(&mut command);
        command
    }

    /// The daemons' logs so far.
    #[must_use]
    pub fn logs(&self) -> String {
        let daemons = self.daemons.iter().flatten();
        let logs = daemons.zip(["a", "b"]);
        logs.map(|(daemon, name)| format!("daemon of host {name}:\n{}\n", daemon.log()))
            .collect()
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The host of the clients.
    A = 0,
    /// The host of the servers.
    B = 1,
}

/// Starts a daemon on each of two hosts. The daemons know each other.
///
/// # Errors
/// If the daemons cannot be started.
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
