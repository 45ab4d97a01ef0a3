//! The state that the runs of one report share: a directory, the NetChannel daemon, and how to start programs.

use crate::cpu;
use crate::error::RunError;
use crate::options::{Launcher, Options, Transport, WorkerCommand};
use crate::process::Process;
use crate::user_mode;
use netchannel_namespaces::Host;
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

/// Everything a run needs to know of a host besides its transport.
pub struct Session<'a> {
    /// Seconds of each run.
    pub seconds: f64,
    directory: PathBuf,
    worker: &'a WorkerCommand,
    /// Where its programs are; none: where we are.
    host: Option<Host>,
    /// Whether its programs use kernel TCP whatever the others use.
    is_outside: bool,
    /// Whether its programs are servers behind a port of the host.
    is_published: bool,
    netchannel: Result<NetChannel, String>,
}

impl<'a> Session<'a> {
    /// Starts a daemon if NetChannel is among the transports; its absence is not an error.
    pub fn start(options: &'a Options, directory: &Path) -> Session<'a> {
        let netchannel = if options.transports.contains(&Transport::Netchannel) {
            NetChannel::start(&options.launcher, directory)
        } else {
            Err("not asked for".to_owned())
        };
        Session {
            seconds: options.seconds,
            directory: directory.to_owned(),
            worker: &options.worker,
            host: None,
            is_outside: false,
            is_published: false,
            netchannel,
        }
    }

    /// One of two hosts, with a daemon of its own or the reason why it has none.
    pub fn on(
        host: &Host,
        seconds: f64,
        directory: &Path,
        worker: &'a WorkerCommand,
        netchannel: Result<NetChannel, String>,
    ) -> Session<'a> {
        Session {
            seconds,
            directory: directory.to_owned(),
            worker,
            host: Some(host.clone()),
            is_outside: false,
            is_published: false,
            netchannel,
        }
    }

    /// A host without NetChannel, which others reach by kernel TCP.
    pub fn outside(
        host: &Host,
        seconds: f64,
        directory: &Path,
        worker: &'a WorkerCommand,
    ) -> Session<'a> {
        Session {
            is_outside: true,
            ..Session::on(host, seconds, directory, worker, Err("outside".to_owned()))
        }
    }

    /// The same for servers behind a port of the host.
    pub fn published(self) -> Self {
        Session {
            is_published: true,
            ..self
        }
    }

    /// Why NetChannel cannot be measured, if so.
    pub fn netchannel_problem(&self) -> Option<&str> {
        self.netchannel.as_ref().err().map(String::as_str)
    }

    /// From now on NetChannel is not there.
    pub fn withdraw_netchannel(&mut self, problem: String) {
        self.netchannel = Err(problem);
    }

    /// NetChannel, if it is there.
    pub fn netchannel(&self) -> Option<&NetChannel> {
        self.netchannel.as_ref().ok()
    }

    /// The directory for sockets, configurations and outputs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How long a run may take until it is given up.
    pub fn run_limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds) + Duration::from_secs(20)
    }

    /// Does something where its programs are.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, RunError> {
        match &self.host {
            None => Ok(work()),
            Some(host) => host.within(work).map_err(RunError::Files),
        }
    }

    /// Starts a program over a transport.
    pub fn start_program(
        &self,
        over: Over,
        name: &str,
        program: &OsStr,
        arguments: &[OsString],
    ) -> Result<Process, RunError> {
        self.start_program_at(over, name, program, arguments, None)
    }

    fn start_program_at(
        &self,
        over: Over,
        name: &str,
        program: &OsStr,
        arguments: &[OsString],
        place: Option<usize>,
    ) -> Result<Process, RunError> {
        let mut command = match (over.transport, &self.netchannel) {
            (Transport::Netchannel, Ok(netchannel)) => {
                netchannel.command(over.class, program, arguments)
            }
            _ if self.is_outside => plain_command(program, arguments),
            (Transport::Netchannel, Err(problem)) => return Err(RunError::Wrong(problem.clone())),
            (Transport::Tcp | Transport::Unix, _) => plain_command(program, arguments),
            (Transport::Slirp4netns | Transport::Pasta, _) => {
                let folder = self.is_published.then_some(self.directory.as_path());
                let mut words = user_mode::prefix(over.transport, folder).unwrap_or_default();
                words.push(program.to_owned());
                words.extend_from_slice(arguments);
                let first = words.remove(0);
                plain_command(&first, &words)
            }
        };
        match (&self.host, place) {
            (Some(host), Some(place)) => host.enter_at(&mut command, place),
            (Some(host), None) => host.enter(&mut command),
            (None, _) => {}
        }
        Process::start(name, command, &self.directory)
    }

    /// Starts a built-in workload over a transport.
    pub fn start_worker(&self, over: Over, words: &[&str]) -> Result<Process, RunError> {
        self.start_worker_at(over, words, None)
    }

    /// Starts one on a processor of its host: the next one for the next place.
    pub fn start_worker_at(
        &self,
        over: Over,
        words: &[&str],
        place: Option<usize>,
    ) -> Result<Process, RunError> {
        let arguments = worker_arguments(self.worker, words);
        let name = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let program = self.worker.program.as_os_str();
        self.start_program_at(over, &name, program, &arguments, place)
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

/// What carries a program's connections, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// What carries them.
    pub transport: Transport,
    /// What the program wants, where it says so.
    pub class: Option<Class>,
}

impl From<Transport> for Over {
    fn from(transport: Transport) -> Self {
        Over {
            transport,
            class: None,
        }
    }
}

/// What a program wants of NetChannel: `netchannel run --class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Short tails.
    Latency,
    /// Many bytes.
    Throughput,
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Class::Latency => "latency",
            Class::Throughput => "throughput",
        }
    }
}

/// NetChannel, ready to run programs under.
pub struct NetChannel {
    program: PathBuf,
    socket: PathBuf,
    /// Whether programs can be started as of a class.
    classes: bool,
    /// The tenant whose programs are started, in namespaces without a network; none: programs of the host.
    tenant: Option<String>,
    daemon_pid: Option<libc::pid_t>,
    /// Ended when dropped; none if somebody else's daemon is used.
    _daemon: Option<Process>,
}

impl NetChannel {
    fn start(launcher: &Launcher, directory: &Path) -> Result<Self, String> {
        let socket = launcher
            .socket
            .clone()
            .unwrap_or_else(|| directory.join("daemon.sock"));
        if let Ok(daemon) = server_of(&control_path(&socket)) {
            return Ok(NetChannel {
                program: launcher.netchannel.clone(),
                socket,
                classes: false,
                tenant: None,
                daemon_pid: Some(daemon),
                _daemon: None,
            });
        }
        NetChannel::start_daemon(&launcher.netchannel, &socket, directory, None, &[])
    }

    /// Starts a daemon at a path, here or in a host, and waits until it serves.
    pub fn start_daemon(
        program: &Path,
        socket: &Path,
        directory: &Path,
        host: Option<&Host>,
        arguments: &[OsString],
    ) -> Result<Self, String> {
        if !program.is_file() {
            return Err(format!("no program at {}", program.display()));
        }
        let mut command = plain_command(program.as_os_str(), &[]);
        command.arg("daemon").arg("--socket").arg(socket);
        command.args(arguments);
        if let Some(host) = host {
            host.enter(&mut command);
        }
        let started = Process::start("netchannel daemon", command, directory);
        let mut daemon = started.map_err(|error| error.to_string())?;
        let ready = || server_of(&control_path(socket)).is_ok();
        daemon
            .await_condition(READY_LIMIT, ready)
            .map_err(|error| error.to_string())?;
        Ok(NetChannel {
            program: program.to_owned(),
            socket: socket.to_owned(),
            classes: has_classes(program),
            tenant: None,
            daemon_pid: Some(daemon.pid()),
            _daemon: Some(daemon),
        })
    }

    /// The same for programs of a tenant.
    pub fn of_tenant(self, name: &str) -> Self {
        NetChannel {
            tenant: Some(name.to_owned()),
            ..self
        }
    }

    /// The same daemon for programs of another tenant. It must not outlive this one.
    pub fn beside(&self, name: &str) -> Self {
        NetChannel {
            program: self.program.clone(),
            socket: self.socket.clone(),
            classes: self.classes,
            tenant: Some(name.to_owned()),
            daemon_pid: self.daemon_pid,
            _daemon: None,
        }
    }

    /// The same, for a session beside one that counts the daemon's CPU time already.
    pub fn uncounted(self) -> Self {
        NetChannel {
            daemon_pid: None,
            ..self
        }
    }

    /// `--require`: what cannot go over NetChannel must fail, not be measured as TCP.
    fn command(&self, class: Option<Class>, program: &OsStr, arguments: &[OsString]) -> Command {
        let mut command = plain_command(self.program.as_os_str(), &[]);
        if let Some(tenant) = &self.tenant {
            command.args(["tenants", "--socket"]).arg(&self.socket);
            // The library enters them all; a supervisor would keep their CPU time from us.
            command.args(["run", "--static=off", tenant, "--"]);
            command.args(["unshare", "--net", "--"]);
            command.arg(program).args(arguments);
            return command;
        }
        command
            .arg("run")
            .arg("--socket")
            .arg(&self.socket)
            .args(["--require", "--no-daemon"]);
        if let Some(class) = class.filter(|_| self.classes) {
            command.args(["--class", class.word()]);
        }
        command.arg("--").arg(program).args(arguments);
        command
    }

    /// Has the daemon do something; the error is what it says.
    pub fn tell(&self, words: &[&str]) -> Result<(), String> {
        let mut command = plain_command(self.program.as_os_str(), &[]);
        command.args(words).arg("--socket").arg(&self.socket);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// The daemon's process, unless another session counts it.
    pub fn daemon_pid(&self) -> Option<libc::pid_t> {
        self.daemon_pid
    }

    /// What a command that asks the daemon prints as JSON.
    pub fn ask(&self, words: &[&str]) -> Option<serde_json::Value> {
        let mut command = plain_command(self.program.as_os_str(), &[]);
        command.args(words).arg("--socket").arg(&self.socket);
        let output = command.arg("--json").output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

/// Whether `netchannel run` knows classes.
fn has_classes(program: &Path) -> bool {
    let mut command = plain_command(program.as_os_str(), &[]);
    let output = command.args(["run", "--help"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--class"))
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
