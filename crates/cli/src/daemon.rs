//! `netchannel daemon`, in the foreground, and in the background for `netchannel run`.

mod death;
mod notify;

use crate::arguments::Daemon as Arguments;
use crate::{log, privileges};
use netchannel_configuration::{Configuration, Problems};
use netchannel_control::path;
use netchannel_daemon::{AlternateStack, Daemon, Launcher, Limits, Options, ServeError};
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsString, c_int};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The daemon has ended in good order.
pub const ENDED: c_int = 0;
/// The daemon could not serve.
pub const FAILED: c_int = 1;
/// Another daemon serves at the path.
pub const ALREADY_SERVED: c_int = 3;
/// The beginning of the daemon's message when it can not serve.
const REFUSED: &str = "the daemon does not serve: ";
/// The daemon's message once it serves.
const READY: &str = "ready";

/// Why no daemon could be started in the background.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be started.
    #[error("cannot start the daemon ({0})")]
    Spawn(#[from] io::Error),
    /// The daemon gave a reason why it does not serve.
    #[error("{REFUSED}{0}")]
    Refused(String),
}

/// Runs the command.
pub fn daemon(arguments: &Arguments) -> c_int {
    if arguments.announce {
        close_inherited();
    }
    let socket = match crate::socket::socket_path(arguments.socket.as_deref()) {
        Ok(socket) => socket,
        Err(error) => return complain(&error.to_string(), arguments.announce),
    };
    if arguments.background {
        // Mistakes are reported here, where all of them can be read.
        if let Err(problems) = configuration(arguments) {
            return complain(&problems.to_string(), false);
        }
        return match spawn(&socket, arguments) {
            Ok(code) => code,
            Err(error) => complain(&error.to_string(), false),
        };
    }
    let configuration = match configuration(arguments) {
        Ok(configuration) => configuration,
        Err(problems) => return complain(&problems.to_string(), arguments.announce),
    };
    log::start(arguments.log.as_deref(), arguments.log_level);
    let _stack = AlternateStack::new();
    death::prepare(arguments.log.as_deref());
    let launcher = launcher(configuration.as_ref());
    privileges::reduce(configuration.as_ref());
    match serve(socket, arguments, (configuration, launcher)) {
        Ok(()) => ENDED,
        Err(error) => {
            let code = complain(&error.to_string(), arguments.announce);
            match error {
                ServeError::AlreadyServed(_) => ALREADY_SERVED,
                _ => code,
            }
        }
    }
}

/// The configuration that the command line names, read and checked.
fn configuration(arguments: &Arguments) -> Result<Option<Configuration>, Problems> {
    let file = arguments.config.as_deref();
    file.map(Configuration::load).transpose()
}

/// Started where stacks are configured, before the rights for it are given up.
fn launcher(configuration: Option<&Configuration>) -> Option<OwnedFd> {
    let stacks = &configuration?.stacks;
    if !stacks.iter().any(|stack| stack.starts) {
        return None;
    }
    crate::stack::start_launcher()
        .inspect_err(|error| tracing::error!("stacks can not be started: no launcher ({error})"))
        .ok()
}

fn serve(
    socket: PathBuf,
    arguments: &Arguments,
    (configuration, launcher): (Option<Configuration>, Option<OwnedFd>),
) -> Result<(), ServeError> {
    let quotas = &arguments.limits;
    let wide = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let limits = Limits {
        entries: quotas.sockets_per_program,
        slots: usize::from(quotas.slots),
        arena: usize::from(quotas.arena) << 20,
        links_per_program: wide(quotas.links_per_program),
        listeners_per_program: wide(quotas.listeners_per_program),
        ..Limits::default()
    };
    let shown = socket.display().to_string();
    let has_configuration = configuration.is_some();
    let options = Options {
        configuration,
        socket,
        idle_exit: arguments.idle_exit.map(Duration::from_secs),
        limits,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        relay_local: arguments.relay,
        library: crate::library::find().ok(),
        tenant: None,
    };
    let launcher = Launcher {
        started: launcher,
        start: crate::stack::start_launcher,
    };
    let daemon = Daemon::bind_with_launcher(options, launcher)?;
    serve_bound(daemon, &shown, has_configuration, || {
        if arguments.announce {
            announce();
        }
    })
}

/// Serves until the end, and says so to whoever started it.
///
/// # Errors
/// Why it can not serve.
pub fn serve_bound(
    daemon: Daemon,
    shown: &str,
    has_configuration: bool,
    announce: impl FnOnce(),
) -> Result<(), ServeError> {
    heed_signals(&daemon, has_configuration)?;
    announce();
    tracing::info!(process = std::process::id(), "serves at {shown}");
    notify::send_state(&format!("READY=1\nSTATUS=serves at {shown}"));
    let served = daemon.serve();
    notify::send_state("STOPPING=1");
    served
}

/// SIGTERM and SIGINT end the daemon in good order, and SIGHUP too where there is no configuration to be read again. A
/// closed log does not end it.
fn heed_signals(daemon: &Daemon, has_configuration: bool) -> Result<(), ServeError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let end = if signal == SIGHUP && has_configuration {
            daemon.reloader()?
        } else {
            daemon.stopper()?.into_inner()
        };
        if let Err(error) = signal_hook::low_level::pipe::register(signal, end) {
            tracing::warn!("signal {signal} will end the daemon at once ({error})");
        }
    }
    let ignored = std::sync::Arc::default();
    if let Err(error) = signal_hook::flag::register(SIGPIPE, ignored) {
        tracing::warn!("a closed log will end the daemon ({error})");
    }
    Ok(())
}

/// Closes inherited descriptors: another process may wait for their end.
fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor above standard error yet.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

/// Leaves the session of the starting process, and reports that the daemon serves.
fn announce() {
    // An error means that this process leads a session already.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let mut output = io::stdout();
    let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Reports why the command failed. A waiting parent reads it on standard output.
fn complain(sentence: &str, announce: bool) -> c_int {
    if announce {
        let _ = writeln!(io::stdout(), "{}", netchannel_control::plain(sentence));
    } else {
        crate::show::complain(sentence);
    }
    FAILED
}

/// Starts a daemon and waits until it serves. It is no child of this process's child afterwards
/// only where this process ends: use [`start_detached`] otherwise.
fn spawn(socket: &Path, arguments: &Arguments) -> Result<c_int, StartError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["daemon", "--announce", "--log-level", "warn", "--socket"]);
    command.arg(std::path::absolute(socket)?);
    if let Some(seconds) = arguments.idle_exit {
        command.args(["--idle-exit", &seconds.to_string()]);
    }
    if let Some(file) = &arguments.config {
        command.arg("--config").arg(std::path::absolute(file)?);
    }
    let log = arguments.log.as_deref();
    let default_log = path::log_file(socket);
    command
        .arg("--log")
        .arg(std::path::absolute(log.unwrap_or(&default_log))?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(ENDED);
    }
    let status = child.wait()?;
    if status.code() == Some(ALREADY_SERVED) {
        return Ok(ALREADY_SERVED);
    }
    let said = line.trim_end();
    let said = if said.is_empty() {
        "it ended without a word"
    } else {
        said
    };
    Err(StartError::Refused(said.to_owned()))
}

/// Starts a daemon that is not a child of this process, and waits until it serves. A program that this process executes
/// must not find a child that it did not make.
///
/// # Errors
/// When it does not serve in the end.
pub fn start_detached(socket: &Path, idle_exit: u64) -> Result<(), StartError> {
    let output = Command::new(std::env::current_exe()?)
        .args([
            "daemon",
            "--background",
            "--idle-exit",
            &idle_exit.to_string(),
            "--socket",
        ])
        .arg(socket)
        .env("LD_PRELOAD", without_library())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    match output.status.code() {
        // Two that start at the same time make one daemon, which serves both.
        Some(ENDED | ALREADY_SERVED) => Ok(()),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            // The other process has the same prefix in its message.
            let said = said.trim().trim_start_matches("netchannel: ");
            let said = said.trim_start_matches(REFUSED).to_owned();
            Err(StartError::Refused(said))
        }
    }
}

/// `LD_PRELOAD` of this process without our library, which the daemon has no use for.
fn without_library() -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let value = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = value
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|name| !name.ends_with(crate::library::NAME.as_bytes()))
        .collect::<Vec<_>>();
    OsString::from_vec(others.join(&b':'))
}
