//! The host of a run: root's daemon on it, and programs of several users.

use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use netchannel_testkit::support::Random;
use netchannel_testkit::two_hosts::{TwoHosts, Which};

use super::board::{self, Board};
use super::hello;
use super::hostile::{BECOMES_VARIABLE, SOCKET_VARIABLE};
use crate::program::this_program;

/// A user of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub libc::uid_t);

/// The honest users.
pub const HONEST: [User; 2] = [User(61001), User(61003)];
/// The hostile user.
pub const HOSTILE: User = User(61002);

/// A host, and all processes that run on it for one run. Dropping the value ends them.
pub struct Place {
    // First, so that the daemon ends before the host does.
    daemon: Option<Daemon>,
    programs: Vec<Program>,
    board: RawFd,
    secret: String,
    netchannel: Option<PathBuf>,
    folder: tempfile::TempDir,
    hosts: TwoHosts,
}

/// A running program.
pub struct Program {
    /// The name in messages, which is also the name of its log.
    pub name: String,
    child: Child,
}

impl Program {
    /// The exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The states of its threads and the targets of its descriptors, to find out why a program stands still.
    pub fn whereabouts(&self) -> String {
        let mut text = self.threads();
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let descriptors = std::fs::read_dir(process.join("fd"));
        for one in descriptors.into_iter().flatten().flatten() {
            if let Ok(target) = std::fs::read_link(one.path()) {
                let number = one.file_name();
                text.push_str(&format!("{} {}\n", number.display(), target.display()));
            }
        }
        text
    }

    /// The state of each thread. A thread that runs, or waits for a processor, is at `R`.
    pub fn threads(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let mut text = String::new();
        for task in tasks.into_iter().flatten().flatten() {
            let read = |name: &str| {
                let read = std::fs::read_to_string(task.path().join(name));
                read.unwrap_or_default().trim().to_owned()
            };
            let [name, sleeps, call, stat, waited] =
                ["comm", "wchan", "syscall", "stat", "schedstat"].map(read);
            let state = stat.rsplit(") ").next().unwrap_or_default();
            let state = state.get(..1).unwrap_or_default();
            text.push_str(&format!(
                "thread {name}: {state} {sleeps}, system call {call}, ran and waited {waited} ns\n"
            ));
        }
        text
    }

    /// The process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The daemon's process.
struct Daemon {
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    /// Makes the host.
    pub fn make(
        hosts: TwoHosts,
        netchannel: Option<PathBuf>,
        board: RawFd,
        seed: u64,
    ) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("torture-users-")
            .tempdir_in("/tmp")?;
        // Programs of other users find the daemon's socket in the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let time = Instant::now();
        let mut random = Random::new(seed ^ u64::from(std::process::id()) << 32);
        let secret = format!("{:x}{:x}{time:?}", random.number(), random.number());
        Ok(Self {
            daemon: None,
            programs: Vec::new(),
            board,
            secret,
            netchannel,
            folder,
            hosts,
        })
    }

    /// The path at which the daemon serves.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("daemon.sock")
    }

    /// Starts the first daemon or its successor, and waits until it serves.
    pub fn start_daemon(&mut self) -> Result<(), String> {
        let Some(netchannel) = &self.netchannel else {
            return Ok(());
        };
        let mut command = Command::new(netchannel);
        command.arg("daemon").arg("--socket").arg(self.socket());
        self.hosts.host(Which::A).enter(&mut command);
        let child = self
            .spawn(command, "daemon")
            .map_err(|error| format!("the daemon cannot be started: {error}"))?;
        let daemon = self.daemon.insert(Daemon { child });
        let process = daemon.child.id();
        let start = Instant::now();
        let socket = self.folder.path().join("daemon.sock");
        loop {
            let answer = netchannel_control::request(
                &socket,
                netchannel_control::types::Request::Hello,
                Duration::from_secs(5),
            );
            match answer {
                Ok(netchannel_control::types::Response::Hello(hello))
                    if hello.process == process =>
                {
                    return Ok(());
                }
                _ if start.elapsed() > Duration::from_secs(20) => {
                    return Err(format!("the daemon does not serve: {}", self.log("daemon")));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Ends the daemon with SIGKILL, or with a request to end.
    pub fn end_daemon(&mut self, killed: bool) -> Result<(), String> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(());
        };
        if let Some(status) = daemon.child.try_wait().ok().flatten() {
            return Err(format!("the daemon ended by itself: {status}"));
        }
        let process = libc::pid_t::try_from(daemon.child.id()).unwrap_or(0);
        let signal = if killed { libc::SIGKILL } else { libc::SIGTERM };
        netchannel_testkit::sys::kill(process, signal).map_err(|errno| format!("{errno:?}"))?;
        let start = Instant::now();
        loop {
            match daemon.child.try_wait() {
                Ok(Some(status)) if killed || status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the daemon was to end: {status}")),
                Ok(None) if start.elapsed() > Duration::from_secs(20) => {
                    return Err("the daemon does not end on SIGTERM".to_owned());
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The exit status of a daemon that ended unexpectedly.
    pub fn daemon_ended(&mut self) -> Option<ExitStatus> {
        self.daemon.as_mut()?.child.try_wait().ok().flatten()
    }

    /// The daemon's process id.
    pub fn daemon_process(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.child.id())
    }

    /// Starts one of this program's commands as an honest user, under the library where that is under test. The program
    /// is watched until the end.
    pub fn start_honest(&mut self, user: User, name: &str, words: &[String]) -> io::Result<()> {
        let program = self.start_honest_once(user, name, words)?;
        self.programs.push(program);
        Ok(())
    }

    /// As [`Self::start_honest`], for a program that ends by itself.
    pub fn start_honest_once(
        &self,
        user: User,
        name: &str,
        words: &[String],
    ) -> io::Result<Program> {
        let mut command = match &self.netchannel {
            Some(netchannel) => {
                let mut command = Command::new(netchannel);
                command.args(["run", "--require", "--no-daemon", "--socket"]);
                command.arg(self.socket()).arg("--").arg(this_program());
                command
            }
            None => Command::new(this_program()),
        };
        command.args(words).env(hello::VARIABLE, &self.secret);
        self.start(command, user, name)
    }

    /// Starts a hostile program, as the hostile user or as root that switches to this user.
    pub fn hostile(&self, name: &str, as_root: bool, words: &[String]) -> io::Result<Program> {
        let mut command = Command::new(this_program());
        command.args(words).env(SOCKET_VARIABLE, self.socket());
        command.env(BECOMES_VARIABLE, HOSTILE.0.to_string());
        self.start(command, if as_root { User(0) } else { HOSTILE }, name)
    }

    fn start(&self, mut command: Command, user: User, name: &str) -> io::Result<Program> {
        self.hosts.host(Which::A).enter(&mut command);
        let User(number) = user;
        let become_user = move || {
            // SAFETY: takes integers, and no groups.
            let became = unsafe {
                libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setresgid(number, number, number) == 0
                    && libc::setresuid(number, number, number) == 0
            };
            if became {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: three system calls.
        unsafe { command.pre_exec(become_user) };
        command.env(board::VARIABLE, self.board.to_string());
        let child = self.spawn(command, name)?;
        Ok(Program {
            name: name.to_owned(),
            child,
        })
    }

    fn spawn(&self, mut command: Command, name: &str) -> io::Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{name}.log")))?;
        command.env("HOME", "/").current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log).process_group(0).spawn()
    }

    /// The end of a program's log.
    pub fn log(&self, name: &str) -> String {
        let text = fs::read(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// The watched programs that have ended, with their logs.
    pub fn report_ended(&mut self) -> Option<String> {
        self.programs.iter_mut().find_map(Program::ended)?;
        // The first failure causes others, so all that is known helps.
        std::thread::sleep(Duration::from_millis(300));
        let mut ended = Vec::new();
        for program in &mut self.programs {
            if let Some(status) = program.ended() {
                ended.push((program.name.clone(), status));
            }
        }
        let lines = ended
            .iter()
            .map(|(name, status)| format!("{name}: {status}\n{}", self.log(name)));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// The state of the watched programs, their sockets as `shown`, and the kernel's sockets.
    pub fn whereabouts(&self, shown: impl Fn(u32) -> String) -> String {
        let mut text = String::new();
        for program in &self.programs {
            text.push_str(&format!("{} {}\n", program.name, program.process()));
            text.push_str(&program.threads());
            text.push_str(&shown(program.process()));
        }
        let mut command = Command::new("ss");
        command.args(["-t", "-n", "-o", "-i", "-e"]);
        self.hosts.host(Which::A).enter(&mut command);
        let kernel = command.output().map(|output| output.stdout);
        text.push_str(&String::from_utf8_lossy(&kernel.unwrap_or_default()));
        text
    }

    /// Waits until all watched programs have ended in good order.
    pub fn finish(&mut self, board: &Board) -> Result<(), String> {
        board.enter(board::Stage::Ending);
        let end = Instant::now() + Duration::from_secs(20);
        for mut program in std::mem::take(&mut self.programs) {
            loop {
                match program.ended() {
                    Some(status) if status.success() => break,
                    Some(status) => {
                        let log = self.log(&program.name);
                        return Err(format!("{}: {status}\n{log}", program.name));
                    }
                    None if Instant::now() > end => {
                        return Err(format!("{} does not end", program.name));
                    }
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
        Ok(())
    }

    /// A line of the daemon's log that reports an internal failure.
    pub fn broken(&self) -> Option<String> {
        let text = fs::read(self.folder.path().join("daemon.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let words = ["panicked", "SIGSEGV", "SIGBUS", "died"];
        let line = text
            .lines()
            .find(|line| words.iter().any(|word| line.contains(word)));
        line.map(str::to_owned)
    }
}

/// The arguments of a command of this program.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
