//! A tenant of the daemon of host a: its programs run where nothing but loopback is, and have the address of the host, so that names
//! look as they do where the kernel carries the connections.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use netchannel_namespaces::{Error, Hosts, Sandbox};

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
    library: PathBuf,
    place: Sandbox,
}

impl Sandboxed {
    /// Starts its daemon on host a.
    ///
    /// # Errors
    /// If the place cannot be made, or the daemon not be started.
    pub fn start(program: &Path, hosts: &Hosts) -> Result<Self, Error> {
        let place = Sandbox::make(&hosts.a, &PORTS)?;
        let text = configuration(hosts);
        let daemon = PrivateDaemon::start_on(program, Some(&hosts.a), |folder| {
            let file = folder.join("netchannel.toml");
            std::fs::write(&file, text)?;
            Ok(vec![OsString::from("--config"), file.into()])
        });
        let failed = |error: io::Error| Error::Devices(error.to_string());
        let daemon = daemon.map_err(failed)?;
        let library = match std::env::var_os("NETCHANNEL_LIBRARY") {
            Some(path) => PathBuf::from(path),
            None => program.with_file_name("libnetchannel.so"),
        };
        let library = library.canonicalize().map_err(failed)?;
        Ok(Self {
            daemon,
            library,
            place,
        })
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

fn configuration(hosts: &Hosts) -> String {
    let (v4, v6) = (hosts.a.v4(0), hosts.a.v6(0));
    let mut text = format!(
        "[host]\nname = \"a\"\n[[tenants]]\nname = \"{NAME}\"\naddresses = [\"{v4}\", \"{v6}\"]\n\
         reach = [\"10.77.0.0/16\", \"[fd77::]/16\"]\npublish = ["
    );
    for port in PORTS.chain(OWN_PORTS) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\"{v4}:{port}:{port}\", \"[{v6}]:{port}:{port}\", ");
    }
    text + "]\n"
}
