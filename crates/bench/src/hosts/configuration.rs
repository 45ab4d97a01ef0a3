//! `netchannel.toml` for each of the two hosts, and the key that both have.

use netchannel_namespaces::Host;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::session::plain_command;

/// Bytes of the key.
const KEY: usize = 32;
/// Where daemons listen in a setup of number 0.
const PORT: u16 = 7117;
/// The command line was not understood.
const USAGE: i32 = 2;

/// What a daemon is to know of the other host.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    /// Which pair of daemons; each has a port of its own.
    pub setup: u16,
    /// Channels for throughput, exactly so many; none: as the daemon sees fit.
    pub channels: Option<u16>,
    /// TCP's congestion control of channels.
    pub congestion_control: &'a str,
}

impl Configuration<'_> {
    /// The text for one host.
    pub fn text(&self, own: &Host, other: &Host) -> String {
        let port = PORT + self.setup;
        let channels = self.channels.map_or_else(String::new, |count| {
            format!(
                "channels = {{ latency = 1, throughput = {{ least = {count}, most = {count} }} }}\n"
            )
        });
        format!(
            "[host]
name = \"{name}\"
listen = [\"{address}:{port}\"]

[[peers]]
name = \"{other_name}\"
addresses = [\"{other_address}:{port}\"]
prefixes = [\"{v4}/24\", \"{v6}/64\"]
key-file = \"hosts.key\"
{channels}
[transport]
congestion-control = \"{congestion_control}\"
",
            name = own.name(),
            address = own.v4(0),
            other_name = other.name(),
            other_address = other.v4(0),
            v4 = other.network_v4(),
            v6 = other.network_v6(),
            congestion_control = self.congestion_control,
        )
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path, own: &Host, other: &Host) -> io::Result<PathBuf> {
        let path = folder.join("netchannel.toml");
        fs::write(&path, self.text(own, other))?;
        Ok(path)
    }
}

/// Writes a new key into both folders, for nobody else to read.
pub fn write_key(folders: [&Path; 2]) -> io::Result<()> {
    let mut key = [0; KEY];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    for folder in folders {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(folder.join("hosts.key"))?;
        writeln!(file, "{text}")?;
    }
    Ok(())
}

/// What `netchannel daemon` is to be told; nothing, where it knows no other hosts.
pub fn daemon_arguments(netchannel: &Path, file: &Path) -> Result<Vec<OsString>, String> {
    let mut command = plain_command(netchannel.as_os_str(), &[]);
    let output = command
        .args(["config", "check"])
        .arg(file)
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.code() {
        Some(0) => Ok(vec!["--config".into(), file.into()]),
        Some(USAGE) => Ok(Vec::new()),
        _ => {
            let said = [output.stderr, output.stdout].concat();
            Err(String::from_utf8_lossy(&said).trim().to_owned())
        }
    }
}
