//! A tenant of the daemon of host a: its programs run where nothing but loopback is, and have the address of the host, so that names
//! look as they do where the kernel carries the connections.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use netchannel_namespaces::{Configuration, Error, Host, Hosts, Sandbox, write_key};

use crate::daemon::PrivateDaemon;
use crate::far::ANNOUNCED_VARIABLE;
use crate::support::OWN_PORTS_VARIABLE;

/// The ports that its programs get where they ask for any.
const PORTS: RangeInclusive<u16> = 42_000..=42_399;
/// The ports for which they ask. These and the others are published.
const OWN_PORTS: RangeInclusive<u16> = 42_400..=42_599;
/// Within so many milliseconds a published port is open, also on a busy machine: until then a client is refused.
const OPENED: u64 = 100;
/// Its name.
const NAME: &str = "sandboxed";

/// A tenant, its daemon, and the place of its programs.
pub struct Sandboxed {
    // First, so that the daemon ends in good order.
    daemon: PrivateDaemon,
    /// That of host b, with which it has channels.
    other: Option<PrivateDaemon>,
    library: PathBuf,
    place: Sandbox,
    address: u8,
}

/// The address of a tenant that goes over channels: in the network of its host, and none of those that this has.
const OVER_CHANNELS: u8 = 20;

impl Sandboxed {
    /// Starts its daemon on host a, and one on host b where its connections go there `over_channels`.
    ///
    /// # Errors
    /// If the place cannot be made, or the daemon not be started.
    pub fn start(program: &Path, hosts: &Hosts, over_channels: bool) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Devices(error.to_string());
        let address = if over_channels { OVER_CHANNELS } else { 0 };
        let place = Sandbox::make(&hosts.a, address, &PORTS)?;
        let mut text = configuration(hosts, address);
        let keys = tempfile::tempdir().map_err(failed)?;
        write_key([keys.path(), keys.path()]).map_err(failed)?;
        let start = |own: &Host, other: &Host, more: &str| {
            PrivateDaemon::start_on(program, Some(own), |folder| {
                std::fs::copy(keys.path().join("hosts.key"), folder.join("hosts.key"))?;
                let configuration = Configuration {
                    more,
                    ..Configuration::default()
                };
                let file = configuration.write(folder, own, other)?;
                Ok(vec![OsString::from("--config"), file.into()])
            })
            .map_err(failed)
        };
        let (daemon, other) = if over_channels {
            text += "destinations = { peers = \"channels\" }\n";
            let other = start(&hosts.b, &hosts.a, "")?;
            (start(&hosts.a, &hosts.b, &text)?, Some(other))
        } else {
            let daemon = PrivateDaemon::start_on(program, Some(&hosts.a), |folder| {
                let file = folder.join("netchannel.toml");
                std::fs::write(&file, format!("[host]\nname = \"a\"\n{text}"))?;
                Ok(vec![OsString::from("--config"), file.into()])
            });
            (daemon.map_err(failed)?, None)
        };
        let library = match std::env::var_os("NETCHANNEL_LIBRARY") {
            Some(path) => PathBuf::from(path),
            None => program.with_file_name("libnetchannel.so"),
        };
        let library = library.canonicalize().map_err(failed)?;
        Ok(Self {
            daemon,
            other,
            library,
            place,
            address,
        })
    }

    /// The addresses that its programs have.
    #[must_use]
    pub fn addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        (self.place.v4(self.address), self.place.v6(self.address))
    }

    /// The socket of the daemon on host b, if there is one.
    #[must_use]
    pub fn other_socket(&self) -> Option<PathBuf> {
        self.other.as_ref().map(PrivateDaemon::socket)
    }

    /// Its daemon.
    pub fn daemon(&mut self) -> &mut PrivateDaemon {
        &mut self.daemon
    }

    /// A command that starts a program of the tenant. The program's arguments follow.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let folder = self.daemon.socket().with_file_name("tenants");
        let mut command = Command::new(program);
        // `netchannel tenants run` says the same, and is not there in a sandbox.
        command
            .env("LD_PRELOAD", &self.library)
            .env("NETCHANNEL_SOCKET", folder.join(NAME).join("nc.sock"))
            .env(ANNOUNCED_VARIABLE, OPENED.to_string())
            .env(
                OWN_PORTS_VARIABLE,
                format!("{},{}", OWN_PORTS.start(), OWN_PORTS.len()),
            );
        self.place.enter(&mut command);
        command
    }
}

fn configuration(hosts: &Hosts, address: u8) -> String {
    let (own4, own6) = (hosts.a.v4(address), hosts.a.v6(address));
    let (v4, v6) = (hosts.a.v4(0), hosts.a.v6(0));
    let mut text = format!(
        "[[tenants]]\nname = \"{NAME}\"\naddresses = [\"{own4}\", \"{own6}\"]\n\
         reach = [\"10.77.0.0/16\", \"[fd77::]/16\"]\npublish = ["
    );
    for port in PORTS.chain(OWN_PORTS) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\"{v4}:{port}:{port}\", \"[{v6}]:{port}:{port}\", ");
    }
    text + "]\n"
}
