//! A daemon of a test's own, and programs under it: the test itself, whose environment names the part to play.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::find_netchannel;
use serde_json::Value;

/// Names the part that a subject plays.
pub const SUBJECT: &str = "NETCHANNEL_TEST_SUBJECT";

/// The part that this process plays. `None` in the test itself.
pub fn part() -> Option<String> {
    std::env::var(SUBJECT).ok()
}

/// A daemon, and the `netchannel` program with which programs are run.
pub struct Served {
    program: PathBuf,
    pub daemon: PrivateDaemon,
}

impl Served {
    /// `None` if `netchannel` is not built.
    pub fn start(words: &[&str]) -> Option<Self> {
        let own = std::env::current_exe().unwrap();
        let Some(program) = find_netchannel(own.parent().unwrap()) else {
            println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
            return None;
        };
        let daemon = PrivateDaemon::start_with(&program, words).expect("a folder and the daemon");
        // Programs may switch to other users.
        let folder = daemon.socket().parent().unwrap().to_owned();
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        Some(Self { program, daemon })
    }

    /// Runs this test's case `subject` under NetChannel, to play a part. The test talks to it over its streams. It runs
    /// over kernel TCP where no daemon serves.
    pub fn run(&self, part: &str) -> Child {
        Command::new(&self.program)
            .args(["run", "--no-daemon", "--socket"])
            .arg(self.daemon.socket())
            .arg("--")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "subject", "--nocapture"])
            .env(SUBJECT, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The output of a command.
    pub fn ask(&self, words: &[&str]) -> Value {
        let asked = Command::new(&self.program)
            .args(words)
            .arg("--json")
            .arg("--socket")
            .arg(self.daemon.socket())
            .output()
            .unwrap();
        serde_json::from_slice(&asked.stdout).unwrap()
    }

    /// The number of ends of virtual connections that the daemon shows.
    pub fn connections(&self) -> usize {
        self.connections_of(|_| true)
    }

    /// The number of ends that belong to processes for which `wanted` is true.
    pub fn connections_of(&self, wanted: impl Fn(&Value) -> bool) -> usize {
        let shown = self.ask(&["ss"]);
        let sockets = shown.as_array().or_else(|| shown["sockets"].as_array());
        let is_virtual =
            |socket: &&Value| socket["path"] == "virtual" && wanted(&socket["process"]);
        sockets.unwrap().iter().filter(is_virtual).count()
    }
}
