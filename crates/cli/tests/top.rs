//! `netchannel top` on a terminal of its own: it ends by key and by signal, and leaves everything as it was.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

mod place;

use place::{Daemon, PROGRAM, Place};

/// A daemon and a terminal.
struct Desk {
    // First: it ends before its folder.
    daemon: Daemon,
    place: Place,
    keyboard: std::fs::File,
    terminal: OwnedFd,
}

impl Desk {
    fn new() -> Self {
        let place = Place::new();
        let daemon = place.daemon(&[]);
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let terminal = rustix::fs::open(
            name,
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let size = Winsize {
            ws_row: 10,
            ws_col: 60,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).unwrap();
        Self {
            daemon,
            place,
            keyboard: keyboard.into(),
            terminal,
        }
    }

    fn top(&self, words: &[&str]) -> Child {
        let end = || Stdio::from(self.terminal.try_clone().unwrap());
        let mut command = Command::new(PROGRAM);
        command
            .args(["top", "--interval", "0.1"])
            .args(words)
            .arg("--socket")
            .arg(self.place.socket())
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.terminal).unwrap()
    }

    /// Reads until this was shown.
    fn read_until(&mut self, wanted: &str) -> String {
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = self.keyboard.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&seen).into_owned();
            if text.contains(wanted) {
                return text;
            }
            assert!(seen.len() < 1 << 20, "{wanted:?} was never shown: {text}");
        }
    }
}

fn ended(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[test]
fn a_key_ends_it_and_the_terminal_is_as_before() {
    let mut desk = Desk::new();
    let before = desk.modes().local_modes;
    assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
    let top = desk.top(&[]);
    let text = desk.read_until("threads");
    assert!(text.contains(ENTER), "{text:?}");
    assert!(!desk.modes().local_modes.contains(LocalModes::ECHO));
    desk.read_until("no peers are configured: see netchannel config --help");
    desk.keyboard.write_all(b"xq").unwrap();
    assert_eq!(ended(top).code(), Some(0));
    desk.read_until(LEAVE);
    assert_eq!(desk.modes().local_modes, before);
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_before() {
    let mut desk = Desk::new();
    let before = desk.modes().local_modes;
    for signal in ["-INT", "-TERM", "-HUP"] {
        let top = desk.top(&[]);
        desk.read_until("threads");
        let process = top.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
        assert_eq!(ended(top).code(), Some(0), "{signal}");
        desk.read_until(LEAVE);
        assert_eq!(desk.modes().local_modes, before, "{signal}");
    }
}

#[test]
fn a_daemon_that_ends_is_told_and_waited_for() {
    let mut desk = Desk::new();
    let top = desk.top(&[]);
    desk.read_until("threads");
    desk.daemon.child.kill().unwrap();
    desk.read_until("no daemon serves at");
    desk.keyboard.write_all(b"q").unwrap();
    assert_eq!(ended(top).code(), Some(0));
}

#[test]
fn once_prints_a_page_without_escapes_also_on_a_terminal() {
    let mut desk = Desk::new();
    let top = desk.top(&["--once"]);
    let text = desk.read_until("no virtual socket moves anything");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert_eq!(ended(top).code(), Some(0));
}

#[test]
fn an_output_that_is_no_terminal_gets_one_page() {
    let desk = Desk::new();
    let ask = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["top", "--interval", "0.1", "--socket"])
            .arg(desk.place.socket())
            .args(words);
        command.output().unwrap()
    };
    let output = ask(&[]);
    assert!(output.status.success());
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("0 programs")
    );
    let output = ask(&["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["sockets"], serde_json::json!([]));
    assert!(json["seconds"].as_f64().unwrap() >= 0.1);
    assert_eq!(ask(&["--interval", "0"]).status.code(), Some(2));
}
