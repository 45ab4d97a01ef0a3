//! A process that connects to the queue of a listener and sends nonsense, or belongs to another user, harms no
//! connection. This test runs itself under NetChannel.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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
            let status = work();
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
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

/// Whether the server closes a queue connection on which these bytes were sent.
fn is_let_go(name: &str, said: &[u8]) -> bool {
    let mut stream = enter(name);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let sent = stream.write_all(said);
    sent.is_err() || !matches!(stream.read(&mut [0]), Ok(1))
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
    // Half a message: its sender may still be about to send the rest, and closes.
    drop(enter(&name));
    enter(&name).write_all(&[1; 10]).unwrap();
    for said in [[0_u8; 56], [0xff; 56], [0x41; 56]] {
        assert!(is_let_go(&name, &said));
        ask(address, said[0]);
    }
    assert!(is_let_go(&name, &[7; 400]));
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        let stranger = fork_to(|| {
            // SAFETY: changes this process only.
            assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
            i32::from(!is_let_go(&name, &[0; 56]))
        });
        assert_eq!(wait_for(stranger), 0);
    } else {
        println!("left out: another user's process (no root)");
    }
    (4..HONEST).for_each(|byte| ask(address, byte));
    assert_eq!(wait_for(server), 0);
}
