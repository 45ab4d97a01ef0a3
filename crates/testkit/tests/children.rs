//! Children that end without closing their descriptors leave no state in the processes that go on: no entry, no slot,
//! no ring. This test runs itself under NetChannel, with room for few connections, and checks the daemon's status.

mod served;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use netchannel_testkit::support::pattern;
use served::Served;

/// Room for simultaneous connections, a tenth of the connections that the test makes.
const ROOM: [&str; 4] = ["--slots", "32", "--sockets-per-program", "64"];
const CONNECTIONS: usize = 320;
/// Too large for a ring that need not be lent.
const LARGE: usize = 16 << 10;

fn nothing_is_left_of(subject: &str) {
    let Some(running) = Served::start(&ROOM) else {
        return;
    };
    // The subject reports when its work is done, and waits until it may end.
    let mut child = running.run(subject);
    let output = BufReader::new(child.stdout.take().unwrap());
    let done = output.lines().any(|line| line.unwrap().contains("done"));
    assert!(done, "{subject} failed");
    let begun = Instant::now();
    while running.connections() > 0 {
        let waited = begun.elapsed() < Duration::from_secs(30);
        assert!(waited, "{} connections are shown", running.connections());
        std::thread::sleep(Duration::from_millis(20));
    }
    // No connection fell back for lack of room. (Where an ended child may still accept, as far as is known, the kernel
    // is asked.)
    let status = running.ask(&["status"]).to_string();
    for reason in ["quota", "link-failed"] {
        assert!(!status.contains(reason), "{status}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_leaves_without_closing() {
    nothing_is_left_of("leaves");
}

#[test]
fn who_is_killed() {
    nothing_is_left_of("killed");
}

#[test]
fn who_was_there_when_others_came_and_went() {
    nothing_is_left_of("bystanders");
}

#[test]
fn subject() {
    match served::part().as_deref() {
        // SAFETY: ends the process at once, as the kernel would.
        Some("leaves") => each_has_a_child(|| unsafe { libc::_exit(0) }),
        // SAFETY: as above.
        Some("killed") => each_has_a_child(|| unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
        }),
        Some("bystanders") => bystanders(),
        _ => return,
    }
    println!("done");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Forks. The child does `work` and nothing else.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls and copies, and ends.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) }
        }
        child => child,
    }
}

fn wait(child: i32) {
    // SAFETY: no pointers.
    let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(waited, child);
}

/// The client sends bytes and gets them back.
fn talk(client: &mut TcpStream) {
    let sent = pattern(0, LARGE);
    let mut got = vec![0; LARGE];
    client.write_all(&sent).unwrap();
    client.read_exact(&mut got).unwrap();
    assert!(sent == got, "other bytes came back");
}

/// A server whose children serve a connection each and `end`.
fn each_has_a_child(end: impl Fn()) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let child = fork(|| {
            let mut bytes = [0; LARGE];
            if server.read_exact(&mut bytes).is_ok() && server.write_all(&bytes).is_ok() {
                end();
            }
        });
        drop(server);
        talk(&mut client);
        wait(child);
        let ended = client.read(&mut [0]);
        assert!(matches!(ended, Ok(0)), "{ended:?}");
    }
}

/// A server with children that have nothing to do with its connections, which are closed while they live.
fn bystanders() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..CONNECTIONS / 4 {
        let mut pairs: Vec<_> = (0..4)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        let (mut told, teller) = std::os::unix::net::UnixStream::pair().unwrap();
        let child = fork(|| {
            let _ = told.read(&mut [0]);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        });
        for (client, server) in &mut pairs {
            server.write_all(&pattern(0, LARGE)).unwrap();
            client.read_exact(&mut vec![0; LARGE]).unwrap();
        }
        drop(pairs);
        (&teller).write_all(&[0]).unwrap();
        wait(child);
    }
}
