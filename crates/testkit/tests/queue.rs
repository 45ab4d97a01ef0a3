//! A process that connects to the queue of a listener and sends nonsense, or belongs to another user, harms no
//! connection. This test runs itself under NetChannel.

use std::fs;
use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::find_netchannel;

/// Marks the test program as the subject.
const SUBJECT: &str = "NETCHANNEL_TEST_QUEUE";
const HONEST: u8 = 8;
const NOBODY: u32 = 65534;

#[test]
fn nonsense_in_a_queue_harms_nobody() {
    let own = std::env::current_exe().unwrap();
    let Some(program) = find_netchannel(own.parent().unwrap()) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    let output = Command::new(&program)
        .args(["run", "--require", "--socket"])
        .arg(daemon.socket())
        .arg("--")
        .arg(&own)
        .args(["--exact", "subject", "--nocapture"])
        .env(SUBJECT, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Runs `work` in a forked process, whose exit status is the result.
fn fork_to(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child uses what it has and ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the process if the test has failed without it.
            unsafe { libc::alarm(60) };
            // A panic must not go on in the frames of the parent.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the process.
            unsafe { libc::_exit(done.unwrap_or(101)) }
        }
        child => child,
    }
}

fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: a local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// The name of the only queue of this process.
fn own_queue() -> String {
    let sockets: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let all = fs::read_to_string("/proc/net/unix").unwrap();
    let mut names = all.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(6);
        let (inode, name) = (fields.next()?, fields.next()?);
        let is_own = sockets.iter().any(|socket| socket == inode);
        (is_own && name.starts_with("@netchannel-queue-")).then(|| name[1..].to_owned())
    });
    names.next().expect("a queue")
}

fn enter(name: &str) -> UnixStream {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    UnixStream::connect_addr(&address).unwrap()
}

/// Enters the queue under a name of its own, which describes a connection.
fn enter_as(name: &str, own: &[u8]) -> UnixStream {
    let address = |name: &[u8]| {
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap();
        // The first byte of an abstract name is zero.
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        (address, libc::socklen_t::try_from(3 + name.len()).unwrap())
    };
    // SAFETY: the addresses are locals of that length; the descriptor is the stream's.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        let (own, length) = address(own);
        assert_eq!(libc::bind(socket, (&raw const own).cast(), length), 0);
        let (server, length) = address(name.as_bytes());
        assert_eq!(libc::connect(socket, (&raw const server).cast(), length), 0);
        UnixStream::from_raw_fd(socket)
    }
}

/// The name of an end that describes a connection, with these characters instead of its first ones.
fn description(characters: &[u8]) -> Vec<u8> {
    let mut name = b"netchannel-connection-".to_vec();
    name.extend_from_slice(characters);
    name.resize(22 + 75, b'0');
    name
}

/// The characters of a description that promises the memory of its link.
fn promise(number: usize) -> Vec<u8> {
    let mut characters = format!("{number:063}").into_bytes();
    characters.push(b'P');
    characters
}

/// More silent clients than a server can wait for one after the other, of another user: all of them stay.
const SILENT: usize = 100;
/// Less than the server would need if it did.
const PATIENCE: Duration = Duration::from_secs(6);

fn be_silent(name: &str, listener: &TcpListener, mut all_entered: UnixStream) -> i32 {
    // SAFETY: changes this process only, which is no holder of the listener any more.
    unsafe {
        assert_eq!(libc::close(listener.as_raw_fd()), 0);
        assert_eq!(libc::setuid(NOBODY), 0);
    }
    let silent: Vec<_> = (0..SILENT)
        .map(|number| match number % 2 {
            0 => enter(name),
            _ => enter_as(name, &description(&promise(number))),
        })
        .collect();
    all_entered.write_all(&[1]).unwrap();
    assert!(is_let_go(enter(name), &[0; 56]));
    drop(silent);
    0
}

/// Whether the server closes a queue connection on which these bytes were sent.
fn is_let_go(mut stream: UnixStream, said: &[u8]) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let sent = stream.write_all(said);
    let left = stream.read(&mut [0]);
    // An end, or the reset of what was not read.
    sent.is_err() || left.map_or_else(|error| error.kind() != WouldBlock, |count| count == 0)
}

fn serve(listener: &TcpListener, count: u8) -> i32 {
    for _ in 0..count {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    }
    0
}

fn ask(address: SocketAddr, byte: u8) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[byte]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [byte]);
}

#[test]
fn subject() {
    if std::env::var_os(SUBJECT).is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = fork_to(|| serve(&listener, HONEST));
    let name = own_queue();
    ask(address, 0);
    // Its sender may still be about to say something, and closes.
    drop(enter(&name));
    // Closed before, perhaps.
    let _ = enter(&name).write_all(&[1; 10]);
    for (byte, character) in (1..).zip(*b"0Ao") {
        let own = description(&[character; 75]);
        assert!(is_let_go(enter_as(&name, &own), &[byte; 56]));
        ask(address, byte);
    }
    for own in [&description(b"z")[..], b"netchannel-connection-", b"else"] {
        assert!(is_let_go(enter_as(&name, own), &[7; 400]));
    }
    // A program of this user that promises the memory and sends none is waited for.
    assert!(is_let_go(enter_as(&name, &description(&promise(0))), &[]));
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        let (mut all_entered, told) = UnixStream::pair().unwrap();
        let strangers = fork_to(|| be_silent(&name, &listener, told.try_clone().unwrap()));
        all_entered.read_exact(&mut [0]).unwrap();
        ask(address, 4);
        assert_eq!(wait_for(strangers), 0);
    } else {
        println!("left out: another user's process (no root)");
        ask(address, 4);
    }
    (5..HONEST).for_each(|byte| ask(address, byte));
    assert_eq!(wait_for(server), 0);
}
