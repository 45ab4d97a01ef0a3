//! The configuration of the daemon on each of the two hosts: `netchannel.toml`, and the common key.

use crate::Host;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the key.
const KEY: usize = 32;
/// The port of daemons in a setup of number 0.
const PORT: u16 = 7117;
/// The command line was not understood.
const USAGE: i32 = 2;

/// What a daemon must know of the other host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Configuration<'a> {
    /// Which pair of daemons; each has a port of its own.
    pub setup: u16,
    /// The number of channels for throughput; `None` leaves it to the daemon.
    pub channels: Option<u16>,
    /// TCP's congestion control of channels; none: the kernel's own.
    pub congestion_control: Option<&'a str>,
    /// The hosts have a second cable, and the daemons know of it.
    pub two_cables: bool,
    /// More lines, at the end.
    pub more: &'a str,
}

impl Configuration<'_> {
    /// The text for one host.
    #[must_use]
    pub fn text(&self, own: &Host, other: &Host) -> String {
        let port = PORT + self.setup;
        let channels = self.channels.map_or_else(String::new, |count| {
            format!(
                "channels = {{ latency = 1, throughput = {{ least = {count}, most = {count} }} }}\n"
            )
        });
        let transport = self.congestion_control.map_or_else(String::new, |name| {
            format!("[transport]\ncongestion-control = \"{name}\"\n")
        });
        let at = |host: &Host| {
            let both = [host.v4(0), host.v4_of_second_cable()];
            let known = if self.two_cables { 2 } else { 1 };
            both.map(|address| format!("\"{address}:{port}\""))[..known].join(", ")
        };
        let second = if self.two_cables {
            format!(", \"{}/32\"", other.v4_of_second_cable())
        } else {
            String::new()
        };
        format!(
            "[host]
name = \"{name}\"
listen = [{address}]

[[peers]]
name = \"{other_name}\"
addresses = [{other_address}]
prefixes = [\"{v4}/24\", \"{v6}/64\"{second}]
key-file = \"hosts.key\"
{channels}
{transport}{more}",
            name = own.name(),
            address = at(own),
            other_name = other.name(),
            other_address = at(other),
            v4 = other.network_v4(),
            v6 = other.network_v6(),
            more = self.more,
        )
    }

    /// Writes it into a folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path, own: &Host, other: &Host) -> io::Result<PathBuf> {
        let path = folder.join("netchannel.toml");
        fs::write(&path, self.text(own, other))?;
        Ok(path)
    }
}

/// Writes a new key into both directories, readable only for the user.
///
/// # Errors
/// If there are no random numbers, or a file can not be written.
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

/// The words with which `netchannel daemon` takes a configuration; none, where it knows no other hosts.
///
/// # Errors
/// The mistake in the file.
pub fn daemon_arguments(netchannel: &Path, file: &Path) -> Result<Vec<OsString>, String> {
    let output = Command::new(netchannel)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hosts;

    #[test]
    fn each_host_is_told_of_the_other() {
        let Ok(hosts) = Hosts::make() else {
            println!("skipped: no network namespaces");
            return;
        };
        let configuration = Configuration {
            setup: 1,
            channels: Some(2),
            congestion_control: Some("reno"),
            two_cables: false,
            more: "[limits]\n",
        };
        let expected = "[host]
name = \"b\"
listen = [\"10.77.2.1:7118\"]

[[peers]]
name = \"a\"
addresses = [\"10.77.1.1:7118\"]
prefixes = [\"10.77.1.0/24\", \"fd77:1::/64\"]
key-file = \"hosts.key\"
channels = { latency = 1, throughput = { least = 2, most = 2 } }

[transport]
congestion-control = \"reno\"
[limits]
";
        assert_eq!(configuration.text(&hosts.b, &hosts.a), expected);
    }
}
