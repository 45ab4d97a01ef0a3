//! What the tests of the program share: a folder of its own with a socket and a configuration, the program asked there, its daemons.

#![allow(dead_code, reason = "no test uses all of it")]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_netchannel");

/// A folder of its own, with the program in it.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::hard_link(PROGRAM, folder.path().join("netchannel"))
            .or_else(|_| std::fs::copy(PROGRAM, folder.path().join("netchannel")).map(|_| ()))
            .unwrap();
        Self { folder }
    }

    /// With a library beside the program that the linker can load into anything.
    pub fn with_library() -> Self {
        Self::with_library_of(netchannel_abi::LAYOUT_HASH)
    }

    /// The same, where the library's note tells these layouts.
    pub fn with_library_of(layout: u64) -> Self {
        let place = Self::new();
        let library = place.folder.path().join("libnetchannel.so");
        let source = place.folder.path().join("empty.c");
        let text = format!(
            "__attribute__((section(\".note.netchannel\"), used, aligned(4)))\n\
             static const struct {{ unsigned lengths[2], kind; char name[12]; unsigned long long layout; }} note =\n\
             {{ {{ 11, 8 }}, 1, \"NetChannel\", {layout}ull }};\n"
        );
        std::fs::write(&source, text).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status();
        assert!(built.unwrap().success());
        place
    }

    /// With a configuration, and a key that it may name.
    pub fn configured(text: &str) -> Self {
        let place = Self::new();
        let key = place.folder.path().join("beta.key");
        std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
        place.write(text);
        place
    }

    /// Writes another configuration.
    pub fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("netchannel.toml")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    /// A command that speaks to the daemon of this place, and begins in its folder.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("netchannel"));
        // What `run` is told behind the program is the program's; of other commands the last word names which.
        let before = if words[0] == "run" { 1 } else { words.len() };
        let (first, rest) = words.split_at(before);
        command
            .args(first)
            .arg("--socket")
            .arg(self.socket())
            .args(rest)
            .current_dir(self.folder.path())
            .env_remove("LD_PRELOAD")
            .env_remove("NETCHANNEL_SOCKET")
            .stdin(Stdio::null());
        command
    }

    pub fn ask(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command that succeeds says.
    pub fn text(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.text(words)).unwrap()
    }

    /// A daemon, once it answers.
    pub fn daemon(&self, words: &[&str]) -> Daemon {
        let all: Vec<&str> = ["daemon"].iter().chain(words).copied().collect();
        let child = self
            .command(&all)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Daemon { child };
        eventually(|| self.ask(&["status"]).status.success());
        daemon
    }

    /// A daemon that writes the log of this place.
    pub fn logging(&self, words: &[&str]) -> Daemon {
        let all: Vec<&str> = ["--log", "log"].iter().chain(words).copied().collect();
        self.daemon(&all)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A daemon that `run` left behind need not wait for its time.
        let _ = self.command(&["stop"]).output();
    }
}

/// A daemon that is killed with the value.
pub struct Daemon {
    pub child: Child,
}

impl Daemon {
    pub fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn eventually(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What was said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
