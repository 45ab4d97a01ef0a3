//! What the runs of one report share: a directory, the NetChannel daemon, how to start programs.

use crate::cpu;
use crate::error::RunError;
use crate::options::{Launcher, Options, Transport, WorkerCommand};
use crate::process::Process;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long any program may take to say that it is ready.
pub const READY_LIMIT: Duration = Duration::from_secs(10);

/// Everything a run needs to know besides its transport.
pub struct Session<'a> {
    /// Seconds of each run.
    pub seconds: f64,
    directory: &'a Path,
    worker: &'a WorkerCommand,
    netchannel: Result<NetChannel, String>,
}

impl<'a> Session<'a> {
    /// Starts a daemon if NetChannel is among the transports; its absence is not an error.
    pub fn start(options: &'a Options, directory: &'a Path) -> Session<'a> {
        let netchannel = if options.transports.contains(&Transport::Netchannel) {
            NetChannel::start(&options.launcher, directory)
        } else {
            Err("not asked for".to_owned())
        };
        Session {
            seconds: options.seconds,
            directory,
            worker: &options.worker,
            netchannel,
        }
    }

    /// Why NetChannel can not be measured, if so.
    pub fn netchannel_problem(&self) -> Option<&str> {
        self.netchannel.as_ref().err().map(String::as_str)
    }

    /// From now on NetChannel is not there.
    pub fn withdraw_netchannel(&mut self, problem: String) {
        self.netchannel = Err(problem);
    }

    /// The directory for sockets, configurations and outputs.
    pub fn directory(&self) -> &'a Path {
        self.directory
    }

    /// How long a run may take until it is given up.
    pub fn run_limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds) + Duration::from_secs(20)
    }

    /// Starts a program over a transport.
    pub fn start_program(
        &self,
        transport: Transport,
        name: &str,
        program: &OsStr,
        arguments: &[OsString],
    ) -> Result<Process, RunError> {
        let command = match (transport, &self.netchannel) {
            (Transport::Netchannel, Ok(netchannel)) => netchannel.command(program, arguments),
            (Transport::Netchannel, Err(problem)) => return Err(RunError::Wrong(problem.clone())),
            (Transport::Tcp | Transport::Unix, _) => plain_command(program, arguments),
        };
        Process::start(name, command, self.directory)
    }

    /// Starts a built-in workload over a transport.
    pub fn start_worker(&self, transport: Transport, words: &[&str]) -> Result<Process, RunError> {
        let arguments = worker_arguments(self.worker, words);
        let name = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        self.start_program(
            transport,
            &name,
            self.worker.program.as_os_str(),
            &arguments,
        )
    }

    /// CPU time that the daemon has used, if the transport has one.
    pub fn daemon_cpu(&self, transport: Transport) -> Duration {
        match (transport, &self.netchannel) {
            (Transport::Netchannel, Ok(netchannel)) => {
                netchannel.daemon_pid.map(cpu::of_tree).unwrap_or_default()
            }
            _ => Duration::ZERO,
        }
    }
}

/// NetChannel, ready to run programs under.
struct NetChannel {
    program: PathBuf,
    socket: PathBuf,
    daemon_pid: Option<libc::pid_t>,
    /// Ended when dropped; none if somebody else's daemon is used.
    _daemon: Option<Process>,
}

impl NetChannel {
    fn start(launcher: &Launcher, directory: &Path) -> Result<Self, String> {
        let program = launcher.netchannel.clone();
        if !program.is_file() {
            return Err(format!("no program at {}", program.display()));
        }
        let socket = launcher
            .socket
            .clone()
            .unwrap_or_else(|| directory.join("daemon.sock"));
        let mut daemon = None;
        let mut daemon_pid = server_of(&control_path(&socket)).ok();
        if daemon_pid.is_none() {
            let mut command = plain_command(program.as_os_str(), &[]);
            command.arg("daemon").arg("--socket").arg(&socket);
            let started = Process::start("netchannel daemon", command, directory);
            let mut process = started.map_err(|error| error.to_string())?;
            let ready = || server_of(&control_path(&socket)).is_ok();
            process
                .await_condition(READY_LIMIT, ready)
                .map_err(|error| error.to_string())?;
            daemon_pid = Some(process.pid());
            daemon = Some(process);
        }
        let netchannel = NetChannel {
            program,
            socket,
            daemon_pid,
            _daemon: daemon,
        };
        Ok(netchannel)
    }

    /// `--require`: what can not go over NetChannel must fail, not be measured as TCP.
    fn command(&self, program: &OsStr, arguments: &[OsString]) -> Command {
        let mut command = plain_command(self.program.as_os_str(), &[]);
        command
            .arg("run")
            .arg("--socket")
            .arg(&self.socket)
            .args(["--require", "--no-daemon"]);
        command.arg("--").arg(program).args(arguments);
        command
    }
}

fn worker_arguments(worker: &WorkerCommand, words: &[&str]) -> Vec<OsString> {
    worker
        .arguments
        .iter()
        .cloned()
        .chain(words.iter().map(OsString::from))
        .collect()
}

/// A command without NetChannel, even if we ourselves run under it.
fn plain_command(program: &OsStr, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("NETCHANNEL_") {
            command.env_remove(name);
        }
    }
    if let Some(preload) = env::var_os("LD_PRELOAD") {
        let preload = preload.to_string_lossy();
        let others: Vec<&str> = preload
            .split([':', ' '])
            .filter(|library| !library.is_empty() && !library.ends_with("libnetchannel.so"))
            .collect();
        if others.is_empty() {
            command.env_remove("LD_PRELOAD");
        } else {
            command.env("LD_PRELOAD", others.join(":"));
        }
    }
    command
}

fn control_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".control");
    PathBuf::from(path)
}

/// The process that serves at `path`.
fn server_of(path: &Path) -> io::Result<libc::pid_t> {
    let stream = UnixStream::connect(path)?;
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the option writes at most `length` bytes into the live `credentials`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(credentials.pid)
}
