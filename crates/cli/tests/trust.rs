//! Whose daemon is used: two users besides root, the second of whom puts sockets where the first one looks. Needs root, which makes
//! the users; threads of this test become them.

use netchannel_control::path::{control_socket, network_namespace};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_netchannel");

/// Users that nobody else has: of this process and test.
fn users() -> Option<(u32, u32)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() {
        println!("skipped: becoming another user needs root");
        return None;
    }
    let first = 1_000_000 + std::process::id() * 64 + NEXT.fetch_add(2, Ordering::Relaxed);
    Some((first, first + 1))
}

/// Folders and files by their owner, removed at the end.
struct Ground {
    folder: PathBuf,
    more: Vec<PathBuf>,
}

/// Copies a file that will be executed. Another program does: what this process had open to write, a child of another thread might have still,
/// and the kernel executes no such file.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "cp {} {}", from.display(), to.display());
}

impl Ground {
    /// With the program in it, where every user can execute it, and the library if there is one.
    fn new(above: &str, name: u32) -> Self {
        let folder = Path::new(above).join(format!("netchannel-trust-{name}"));
        std::fs::create_dir(&folder).unwrap();
        copy(Path::new(PROGRAM), &folder.join("netchannel"));
        let ground = Self {
            folder,
            more: Vec::new(),
        };
        let library = Path::new(PROGRAM).with_file_name("libnetchannel.so");
        if library.exists() {
            copy(&library, &ground.library());
        }
        ground
    }

    fn library(&self) -> PathBuf {
        self.folder.join("libnetchannel.so")
    }

    fn has_library(&self) -> bool {
        let has = self.library().exists();
        if !has {
            println!("left out: libnetchannel.so is not built (cargo build -p netchannel-preload)");
        }
        has
    }

    /// A folder of a user's.
    fn make(&mut self, path: PathBuf, owner: u32, mode: u32) -> PathBuf {
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        self.more.push(path.clone());
        path
    }

    /// The program as a user, without anything of this process's environment.
    fn command(&self, user: u32, words: &[&str]) -> Command {
        self.command_of(user, &self.folder.join("netchannel"), words)
    }

    fn command_of(&self, user: u32, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .uid(user)
            .gid(user)
            .stdin(Stdio::null());
        command
    }

    /// A shell with the library that connects once, and stays until its input ends.
    fn connecting(&self, user: u32, socket: &Path) -> Command {
        let line =
            "(exec 3<>/dev/tcp/127.0.0.1/9) 2>/dev/null; exec 3<>/dev/tcp/127.0.0.1/9; read -r";
        let mut command = self.command_of(user, Path::new("bash"), &["-c", line]);
        command
            .env("LD_PRELOAD", self.library())
            .env("NETCHANNEL_SOCKET", socket);
        command
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for path in self.more.iter().rev().chain([&self.folder]) {
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Sockets at which a user listens as a daemon would, and how often somebody came.
struct Pretender {
    callers: Arc<AtomicU32>,
    bytes: Arc<AtomicU32>,
}

impl Pretender {
    fn listen(user: u32, attach: &Path) -> Self {
        let attach = attach.to_owned();
        let listening = as_user(user, move || {
            let control = control_socket(&attach);
            let sockets = [
                (&attach, SocketType::SEQPACKET),
                (&control, SocketType::STREAM),
            ];
            sockets.map(|(path, kind)| {
                let flags = SocketFlags::CLOEXEC;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
                rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
                rustix::net::listen(&socket, 16).unwrap();
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
                socket
            })
        });
        let pretender = Self {
            callers: Arc::default(),
            bytes: Arc::default(),
        };
        for socket in listening {
            let (callers, bytes) = (pretender.callers.clone(), pretender.bytes.clone());
            std::thread::spawn(move || record(&socket, &callers, &bytes));
        }
        pretender
    }

    fn callers(&self) -> u32 {
        self.callers.load(Ordering::SeqCst)
    }

    /// Of those that have hung up by now.
    fn bytes(&self) -> u32 {
        std::thread::sleep(Duration::from_millis(50));
        self.bytes.load(Ordering::SeqCst)
    }
}

fn record(socket: &OwnedFd, callers: &AtomicU32, bytes: &AtomicU32) {
    while let Ok(caller) = rustix::net::accept(socket) {
        callers.fetch_add(1, Ordering::SeqCst);
        let mut buffer = [0_u8; 256];
        if let Ok(length) = rustix::io::read(&caller, &mut buffer[..]) {
            bytes.fetch_add(u32::try_from(length).unwrap(), Ordering::SeqCst);
        }
    }
}

/// Runs `work` on a thread that is another user: the kernel knows users by thread.
fn as_user<R: Send + 'static>(user: u32, work: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread, which ends after the work, changes.
        let became = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, 0) == 0
                && libc::syscall(libc::SYS_setresgid, user, user, user) == 0
                && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
        };
        assert!(became);
        work()
    });
    thread.join().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn socket_name() -> String {
    format!("{}.sock", network_namespace().unwrap())
}

/// Whatever the user does, nobody is spoken to, and one sentence says whose the place is.
fn nobody_is_spoken_to(ground: &Ground, user: u32, socket: Option<&Path>, whose: &str) {
    let with = |words: &[&str]| {
        let mut command = ground.command(user, words);
        if let Some(socket) = socket {
            command.env("NETCHANNEL_SOCKET", socket);
        }
        command.output().unwrap()
    };
    let told = |output: &Output| {
        let said = said(output);
        assert!(said.contains(whose), "{said}");
        assert!(said.contains("--socket PATH"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    for words in [&["ss"][..], &["status"], &["status", "--shutdown"]] {
        let output = with(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        told(&output);
    }
    if !ground.has_library() {
        return;
    }
    let show = ["--", "sh", "-c", "echo ran $LD_PRELOAD"];
    let output = with(&[&["run"][..], &show].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n");
    told(&output);
    assert!(said(&output).contains("; running over kernel TCP"));
    let output = with(&[&["run", "--require"][..], &show].concat());
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    told(&output);
}

/// The same of a program that has the library and the path, without `netchannel run`.
fn library_speaks_to_nobody(ground: &Ground, user: u32, socket: &Path, whose: &str) {
    if !ground.has_library() {
        return;
    }
    let output = ground.connecting(user, socket).output().unwrap();
    let said = said(&output);
    let sentences: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("netchannel: "))
        .collect();
    // The shell's child says it for itself.
    assert_eq!(sentences.len(), 1, "{said}");
    assert!(sentences[0].contains(whose), "{said}");
    assert!(sentences[0].ends_with("; running over kernel TCP"));
}

#[test]
fn a_folder_that_a_stranger_made_first_is_not_used() {
    let Some((own, stranger)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let folder = ground.make(format!("/tmp/netchannel-{own}").into(), stranger, 0o755);
    let socket = folder.join(socket_name());
    let pretender = Pretender::listen(stranger, &socket);
    let whose = format!("{} belongs to user {stranger}", folder.display());
    nobody_is_spoken_to(&ground, own, None, &whose);
    library_speaks_to_nobody(&ground, own, &socket, &whose);
    let output = ground.command(own, &["daemon"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&whose), "{}", said(&output));
    assert_eq!(pretender.callers(), 0);
}

#[test]
fn a_stranger_named_by_the_environment_is_not_asked() {
    let Some((own, stranger)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let folder = ground.make(
        format!("/tmp/netchannel-{stranger}").into(),
        stranger,
        0o755,
    );
    let socket = folder.join("s.sock");
    let pretender = Pretender::listen(stranger, &socket);
    let whose = format!("{} belongs to user {stranger}", folder.display());
    for user in [own, 0] {
        nobody_is_spoken_to(&ground, user, Some(&socket), &whose);
        library_speaks_to_nobody(&ground, user, &socket, &whose);
    }
    assert_eq!(pretender.callers(), 0);
}

#[test]
fn a_folder_named_by_anothers_environment_is_not_looked_at() {
    let Some((own, stranger)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let runtime = ground.make(format!("/tmp/runtime-{stranger}").into(), stranger, 0o755);
    let folder = ground.make(runtime.join("netchannel"), stranger, 0o755);
    let pretender = Pretender::listen(stranger, &folder.join(socket_name()));
    for (user, expected) in [
        (0, "/run/netchannel/".to_owned()),
        (own, format!("/tmp/netchannel-{own}/")),
    ] {
        let output = ground
            .command(user, &["doctor"])
            .env("XDG_RUNTIME_DIR", &runtime)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains(&expected), "{shown}");
    }
    // One's own is.
    let output = ground
        .command(stranger, &["ss"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(pretender.callers(), 1);
}

#[test]
fn who_serves_is_asked_though_the_place_is_ones_own() {
    let Some((own, stranger)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let theirs = ground.make(
        format!("/tmp/netchannel-{stranger}").into(),
        stranger,
        0o755,
    );
    let folder = ground.make(format!("/tmp/netchannel-{own}").into(), own, 0o700);
    let socket = folder.join(socket_name());
    let pretender = Pretender::listen(stranger, &theirs.join("s.sock"));
    // As if it had come there between the look at the folder and the connect.
    for (from, to) in [
        (theirs.join("s.sock"), socket.clone()),
        (
            control_socket(&theirs.join("s.sock")),
            control_socket(&socket),
        ),
    ] {
        std::fs::rename(from, &to).unwrap();
        chown(&to, Some(own), None).unwrap();
    }
    let whose = format!("of user {stranger} serves there");
    nobody_is_spoken_to(&ground, own, None, &whose);
    library_speaks_to_nobody(&ground, own, &socket, &whose);
    assert!(pretender.callers() > 0);
    assert_eq!(pretender.bytes(), 0);
}

#[test]
fn a_link_of_a_stranger_is_not_followed() {
    let Some((own, stranger)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let hidden = ground.make(ground.folder.join("own"), own, 0o700);
    let pretender = Pretender::listen(own, &hidden.join(socket_name()));
    let folder = PathBuf::from(format!("/tmp/netchannel-{own}"));
    symlink(&hidden, &folder).unwrap();
    lchown(&folder, Some(stranger), Some(stranger)).unwrap();
    ground.more.push(folder.clone());
    let whose = format!("{} belongs to user {stranger}", folder.display());
    nobody_is_spoken_to(&ground, own, None, &whose);
    library_speaks_to_nobody(&ground, own, &folder.join(socket_name()), &whose);
    assert_eq!(pretender.callers(), 0);
    // One's own is.
    lchown(&folder, Some(own), Some(own)).unwrap();
    assert!(!ground.command(own, &["ss"]).status().unwrap().success());
    assert_eq!(pretender.callers(), 1);
}

#[test]
fn a_place_that_keeps_one_out_is_told_apart() {
    let Some((own, _)) = users() else {
        return;
    };
    let mut ground = Ground::new("/tmp", own);
    let hidden = ground.make(ground.folder.join("hidden"), 0, 0o700);
    let output = ground
        .command(own, &["status"])
        .env("NETCHANNEL_SOCKET", hidden.join("s.sock"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("not allowed to reach the daemon at"),
        "{said}"
    );
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// In a user namespace the host's root is nobody's number; so is every stranger.
#[test]
fn roots_daemon_serves_in_a_user_namespace_and_a_strangers_does_not() {
    let Some((own, stranger)) = users() else {
        return;
    };
    // Not below /tmp: there a stranger could have made it.
    let mut ground = Ground::new("/run", own);
    let inside = ["-Ur", "--", "true"];
    let tried = ground
        .command_of(own, Path::new("unshare"), &inside)
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("skipped: this user may make no user namespace");
        return;
    }
    let socket = ground.folder.join("s.sock");
    let words = ["daemon", "--socket", socket.to_str().unwrap()];
    let child = ground.command(0, &words).stderr(Stdio::null()).spawn();
    let _daemon = Daemon(child.unwrap());
    let program = ground.folder.join("netchannel");
    let within = |socket: &Path, words: &[&str]| {
        let all = [&["-Ur", "--", program.to_str().unwrap()], words].concat();
        let mut command = ground.command_of(own, Path::new("unshare"), &all);
        command.env("NETCHANNEL_SOCKET", socket).output().unwrap()
    };
    eventually("root's daemon", || {
        within(&socket, &["status"]).status.success()
    });
    let plain = ground
        .command(own, &["status", "--socket", socket.to_str().unwrap()])
        .output();
    assert!(plain.unwrap().status.success());
    if ground.has_library() {
        for words in [&["-Ur", "--", "bash"][..], &["bash"]] {
            attaches(&ground, own, &socket, words);
        }
    }
    let folder = ground.make(format!("/tmp/netchannel-{own}").into(), stranger, 0o755);
    let theirs = folder.join("s.sock");
    let pretender = Pretender::listen(stranger, &theirs);
    let program = ground.folder.join("netchannel");
    let all = ["-Ur", "--", program.to_str().unwrap(), "status"];
    let output = ground
        .command_of(own, Path::new("unshare"), &all)
        .env("NETCHANNEL_SOCKET", &theirs)
        .output()
        .unwrap();
    let expected = format!("{} belongs to user 65534", folder.display());
    assert!(said(&output).contains(&expected), "{}", said(&output));
    assert_eq!(pretender.callers(), 0);
}

/// A shell, within `words`, becomes a program of root's daemon.
fn attaches(ground: &Ground, user: u32, socket: &Path, words: &[&str]) {
    let script = ground.connecting(user, socket);
    let (program, arguments) = if words.len() > 1 {
        (Path::new("unshare"), words)
    } else {
        (Path::new("bash"), &[][..])
    };
    let mut command = ground.command_of(user, program, arguments);
    command.args(script.get_args());
    for (name, value) in script.get_envs() {
        command.env(name, value.unwrap());
    }
    let mut child = Daemon(
        command
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let status = ["status", "--json", "--socket", socket.to_str().unwrap()];
    eventually("attached", || {
        let output = ground.command(0, &status).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let programs = shown["programs"].as_array().unwrap();
        programs
            .iter()
            .any(|one| one["user"] == user && one["name"] == "bash")
    });
    drop(child.0.stdin.take());
    child.0.wait().unwrap();
}
