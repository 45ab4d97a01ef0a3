//! A daemon of a test's own, and programs under it: the test itself, told by its environment which
//! part to play.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::find_netchannel;
use serde_json::Value;

/// Names the part that a subject plays.
pub const SUBJECT: &str = "NETCHANNEL_TEST_SUBJECT";

/// The part this process plays; nothing in the test itself.
pub fn part() -> Option<String> {
    std::env::var(SUBJECT).ok()
}

/// A daemon, and the program that programs are run with.
pub struct Served {
    program: PathBuf,
    pub daemon: PrivateDaemon,
}

impl Served {
    /// Nothing where no `netchannel` is built.
    pub fn start(words: &[&str]) -> Option<Self> {
        let own = std::env::current_exe().unwrap();
        let Some(program) = find_netchannel(own.parent().unwrap()) else {
            println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
            return None;
        };
        let daemon = PrivateDaemon::start_with(&program, words).expect("a folder and the daemon");
        // Programs may become other users.
        let folder = daemon.socket().parent().unwrap().to_owned();
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        Some(Self { program, daemon })
    }

    /// This test's case `subject` under NetChannel, to play a part; talked to over its streams. It
    /// runs over kernel TCP where no daemon serves.
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

    /// What the daemon answers to a command.
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

    /// Ends of virtual connections that the daemon shows.
    pub fn connections(&self) -> usize {
        self.connections_of(|_| true)
    }

    /// Those that some process has.
    pub fn connections_of(&self, wanted: impl Fn(&Value) -> bool) -> usize {
        let shown = self.ask(&["ss"]);
        let sockets = shown.as_array().or_else(|| shown["sockets"].as_array());
        let is_virtual =
            |socket: &&Value| socket["path"] == "virtual" && wanted(&socket["process"]);
        sockets.unwrap().iter().filter(is_virtual).count()
    }
}
