//! The class that a program sets for its sockets arrives at the daemon. This test runs itself under NetChannel.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::find_netchannel;

/// Marks the test program as the subject, and holds the path of `netchannel`.
const SUBJECT: &str = "NETCHANNEL_TEST_PROGRAM";

const SOL_NETCHANNEL: i32 = 0x4e43;
const SO_APP_TYPE: i32 = 1;

fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> Result<(), i32> {
    let value = (&raw const value).cast();
    // SAFETY: the value is a local int.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, 4) };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

fn get(socket: &impl AsRawFd, level: i32, name: i32) -> Result<i32, i32> {
    let (mut value, mut length) = (-1i32, 4);
    let pointer = (&raw mut value).cast();
    // SAFETY: both are locals, and the length says the size of the value.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, pointer, &raw mut length) };
    match done {
        0 => Ok(value),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[test]
fn without_the_library_the_option_is_not_known() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if std::env::var_os(SUBJECT).is_none() {
        let refused = Err(libc::ENOPROTOOPT);
        assert_eq!(set(&listener, SOL_NETCHANNEL, SO_APP_TYPE, 1), refused);
    }
}

#[test]
fn what_a_program_says_is_heard() {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let Some(program) = find_netchannel(folder) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    let output = Command::new(&program)
        .args(["run", "--require", "--class", "latency", "--socket"])
        .arg(daemon.socket())
        .arg("--")
        .arg(&own)
        .args(["--exact", "subject", "--nocapture"])
        .env(SUBJECT, &program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The class of a socket of this process as `netchannel ss` shows it, and its source.
fn shown(program: &Path, socket: &impl AsRawFd) -> (String, String) {
    let output = Command::new(program)
        .args(["ss", "--json", "--program", &std::process::id().to_string()])
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let descriptor = format!("\"descriptor\": {},", socket.as_raw_fd());
    let entry = text.split("  {").find(|entry| entry.contains(&descriptor));
    let entry = entry.unwrap_or_else(|| panic!("it is not listed: {text}"));
    let field = |name: &str| {
        let rest = entry.split(&format!("\"{name}\": \"")).nth(1).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    assert_ne!(field("path"), "kernel", "{entry}");
    (field("class"), field("class_source"))
}

#[test]
fn subject() {
    let Some(program) = std::env::var_os(SUBJECT) else {
        return;
    };
    let said = |socket: &TcpStream| {
        let (class, source) = shown(Path::new(&program), socket);
        format!("{class} {source}")
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let client = connect();
    let (server, _) = listener.accept().unwrap();
    assert_eq!(said(&client), "latency run");
    assert_eq!(said(&server), "latency run");

    set(&client, libc::IPPROTO_IP, libc::IP_TOS, 8 << 2).unwrap();
    assert_eq!(said(&client), "throughput DSCP");
    set(&client, libc::SOL_SOCKET, libc::SO_PRIORITY, 6).unwrap();
    assert_eq!(said(&client), "latency SO_PRIORITY");
    set(&client, SOL_NETCHANNEL, SO_APP_TYPE, 2).unwrap();
    assert_eq!(said(&client), "throughput SO_APP_TYPE");
    assert_eq!(get(&client, SOL_NETCHANNEL, SO_APP_TYPE), Ok(2));
    // The other end did not set a class.
    assert_eq!(said(&server), "latency run");
    set(&client, SOL_NETCHANNEL, SO_APP_TYPE, 0).unwrap();
    assert_eq!(said(&client), "latency SO_PRIORITY");

    let wrong = Err(libc::EINVAL);
    assert_eq!(set(&client, SOL_NETCHANNEL, SO_APP_TYPE, 3), wrong);
    assert_eq!(set(&client, SOL_NETCHANNEL, SO_APP_TYPE, -1), wrong);
    let unknown = Err(libc::ENOPROTOOPT);
    assert_eq!(set(&client, SOL_NETCHANNEL, 2, 1), unknown);
    assert_eq!(get(&client, SOL_NETCHANNEL, 2), Err(libc::ENOPROTOOPT));

    // Accepted sockets begin with their listener's class.
    set(&listener, SOL_NETCHANNEL, SO_APP_TYPE, 2).unwrap();
    let other = connect();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(said(&accepted), "throughput SO_APP_TYPE");
    assert_eq!(said(&other), "latency run");
}
