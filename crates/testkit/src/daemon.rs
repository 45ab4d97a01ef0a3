//! A daemon for tests, and the status that it reports.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netchannel_control::types::{Request, Response, Status};
use netchannel_namespaces::Host;

/// The status that the daemon at a socket path reports.
///
/// # Errors
///
/// The reason why the daemon has not answered.
pub fn daemon_status(socket: &Path) -> Result<Box<Status>, String> {
    match netchannel_control::request(socket, Request::Status, Duration::from_secs(20)) {
        Ok(Response::Status(status)) => Ok(status),
        Ok(_) => Err("another answer than was asked for".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A daemon at a socket path in a private folder. Dropping the value ends it.
pub struct PrivateDaemon {
    child: Option<Child>,
    program: PathBuf,
    host: Option<Host>,
    words: Vec<OsString>,
    folder: tempfile::TempDir,
}

impl PrivateDaemon {
    /// Starts `netchannel daemon` and waits until it serves. If the daemon does not come up, the cases' own `netchannel
    /// run` reports why.
    ///
    /// # Errors
    /// If the folder cannot be made or the program cannot be started.
    pub fn start(program: &Path) -> std::io::Result<Self> {
        Self::start_with(program, &[])
    }

    /// As [`Self::start`], with more arguments.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(program: &Path, arguments: &[&str]) -> std::io::Result<Self> {
        let words = arguments.iter().map(OsString::from).collect();
        Self::start_on(program, None, |_| Ok(words))
    }

    /// Starts the daemon on a host, with more arguments, which may name files in its folder.
    ///
    /// # Errors
    /// If the folder cannot be made or the program cannot be started.
    pub fn start_on(
        program: &Path,
        host: Option<&Host>,
        words: impl FnOnce(&Path) -> std::io::Result<Vec<OsString>>,
    ) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("netchannel-conformance-")
            .tempdir()?;
        let mut daemon = Self {
            child: None,
            program: program.to_owned(),
            host: host.cloned(),
            words: words(folder.path())?,
            folder,
        };
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Starts the daemon once more, after it was killed.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start_again(&mut self) -> std::io::Result<()> {
        let socket = self.socket();
        // The socket that a killed daemon left would be taken for the new daemon's.
        let _ = std::fs::remove_file(&socket);
        let mut log = std::fs::OpenOptions::new();
        let log = log
            .create(true)
            .append(true)
            .open(self.folder.path().join("daemon.log"))?;
        let mut command = Command::new(&self.program);
        command
            .arg("daemon")
            .arg("--socket")
            .arg(&socket)
            .args(&self.words)
            .stdin(Stdio::null());
        command
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        if let Some(host) = &self.host {
            host.enter(&mut command);
        }
        // The socket exists before the daemon has opened all of its descriptors.
        let starts = |log: &str| log.matches(" serves at ").count();
        let before = starts(&self.log());
        self.child = Some(command.spawn()?);
        let start = Instant::now();
        while starts(&self.log()) == before && start.elapsed() < Duration::from_secs(5) {
            if !self.is_running() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kills the daemon with SIGKILL, for which it cannot prepare.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends the daemon with SIGTERM, so that it can end in good order.
    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let process = libc::pid_t::try_from(child.id()).unwrap_or(0);
            // SAFETY: no pointers; a child that was not waited for.
            unsafe { libc::kill(process, libc::SIGTERM) };
            let _ = child.wait();
        }
    }

    /// Sets the daemon's descriptor limit to `more` descriptors above the number that it has open.
    ///
    /// # Panics
    /// If that is not allowed.
    pub fn limit_descriptors(&mut self, more: usize) {
        let most = u64::try_from(self.descriptors() + more).unwrap_or(0);
        let process = self.child.as_ref().map_or(0, Child::id);
        let limit = libc::rlimit64 {
            rlim_cur: most,
            rlim_max: most,
        };
        let process = libc::pid_t::try_from(process).unwrap_or(0);
        // SAFETY: the limit is a local; nothing is written back.
        let set =
            unsafe { libc::prlimit64(process, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
        assert_eq!(set, 0, "prlimit");
    }

    /// The path at which the daemon serves.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("daemon.sock")
    }

    /// The daemon's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default()
    }

    /// How many descriptors the daemon has open.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.descriptor_names().len()
    }

    /// The targets of the daemon's descriptors, as `/proc` names them, in the order of their numbers.
    #[must_use]
    pub fn descriptor_names(&self) -> Vec<String> {
        let process = self.child.as_ref().map_or(0, Child::id);
        let folder = std::fs::read_dir(format!("/proc/{process}/fd"));
        let mut names: Vec<_> = folder
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let number: u32 = entry.file_name().to_str()?.parse().ok()?;
                let name = std::fs::read_link(entry.path()).ok()?;
                Some((number, format!("{number}: {}", name.display())))
            })
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// How many connections the daemon holds for processes that have not fetched them.
    ///
    /// # Errors
    ///
    /// As [`daemon_status`].
    pub fn deposits(&self) -> Result<u64, String> {
        daemon_status(&self.socket()).map(|status| status.deposits)
    }

    /// Whether the daemon still runs.
    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}
