//! A daemon that serves tenants, from the text of its configuration, and from another one later.

use crate::error::RunError;
use crate::interrupt;
use crate::session::NetChannel;
use netchannel_namespaces::Host;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

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

/// Waits until what the daemon says of its tenants `is_so`, for a time at most, and looks each time after a pause. `problem` says what is
/// wrong with the last answer.
pub fn await_tenants(
    daemon: &NetChannel,
    (patience, pause): (Duration, Duration),
    is_so: impl Fn(&Value) -> bool,
    problem: impl Fn(Option<&Value>) -> String,
) -> Result<(), RunError> {
    let deadline = Instant::now() + patience;
    loop {
        let tenants = daemon.ask(&["tenants"]);
        if tenants.as_ref().is_some_and(&is_so) {
            return Ok(());
        }
        if interrupt::requested() {
            return Err(RunError::Interrupted);
        }
        if Instant::now() >= deadline {
            return Err(RunError::Wrong(problem(tenants.as_ref())));
        }
        thread::sleep(pause);
    }
}
