//! A daemon that serves tenants, from the text of its configuration, and from another one later.

use crate::session::NetChannel;
use netchannel_namespaces::Host;
use std::fs;
use std::path::Path;

/// The configuration's name within its folder.
const FILE: &str = "netchannel.toml";

/// Starts one, here or in a host.
pub fn serve(
    netchannel: &Path,
    host: Option<&Host>,
    folder: &Path,
    tables: &str,
) -> Result<NetChannel, String> {
    let file = folder.join(FILE);
    fs::write(&file, tables).map_err(|error| error.to_string())?;
    let arguments = ["--config".into(), file.into_os_string()];
    let socket = folder.join("daemon.sock");
    NetChannel::start_daemon(netchannel, &socket, folder, host, &arguments)
}

/// Gives a running one another configuration.
pub fn reload(daemon: &NetChannel, folder: &Path, tables: &str) -> Result<(), String> {
    fs::write(folder.join(FILE), tables).map_err(|error| error.to_string())?;
    daemon.tell(&["config", "reload"])
}
