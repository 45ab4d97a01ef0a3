//! Servers whose workers run as another user than the listening master. A waiting connection goes to the first worker
//! that accepts, whatever the others do, as over TCP. Needs root; left out by name otherwise.

mod served;
#[path = "served/subject.rs"]
mod subject;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netchannel_testkit::support::eventually;
use netchannel_testkit::sys::{self, IN};
use served::Served;
use subject::Subject;

/// The user of the workers, and of some clients.
const WORKERS: libc::uid_t = 33;
const STRANGER: libc::uid_t = 34;
/// How long no answer must arrive where no worker is free.
const QUIET: Duration = Duration::from_millis(200);

fn start() -> Option<Served> {
    // SAFETY: plain question.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: to become another user's takes root");
        return None;
    }
    Served::start(&[])
}

/// A master with two workers, and a client of some user.
fn two_workers(served: &Served, how: &str, user: libc::uid_t) -> (Subject, Subject) {
    let mut server = Subject::start(served, &format!("server {how}"));
    let port = server.said("port:");
    assert_eq!(server.ask("fork"), "ok");
    assert_eq!(server.ask("fork"), "ok");
    let client = Subject::start(served, &format!("client {port} {user}"));
    (server, client)
}

/// Begins a connection, and waits for the process id of the worker that accepts it.
fn accepted(client: &mut Subject, number: usize) -> String {
    assert_eq!(client.ask("begin"), number.to_string());
    client.ask(&format!("who {number}"))
}

/// Begins a connection that no free worker can accept.
fn waits(client: &mut Subject, number: usize) {
    assert_eq!(client.ask("begin"), number.to_string());
    assert_eq!(client.ask(&format!("quiet {number}")), "ok");
}

fn busy_workers_keep_nothing(how: &str, user: libc::uid_t) {
    let Some(served) = start() else { return };
    let (mut server, mut client) = two_workers(&served, how, user);
    // Several rounds, so that all remembered state of a worker is in place.
    for first in [0, 4, 8, 12] {
        let one = accepted(&mut client, first);
        let other = accepted(&mut client, first + 1);
        assert_ne!(one, other, "who serves a connection accepts no other");
        waits(&mut client, first + 2);
        waits(&mut client, first + 3);
        assert_eq!(client.ask(&format!("end {first}")), "ok");
        assert_eq!(client.ask(&format!("who {}", first + 2)), one);
        assert_eq!(client.ask(&format!("end {}", first + 1)), "ok");
        assert_eq!(client.ask(&format!("who {}", first + 3)), other);
        assert_eq!(client.ask(&format!("end {}", first + 2)), "ok");
        assert_eq!(client.ask(&format!("end {}", first + 3)), "ok");
    }
    eventually("none is left", || served.connections() == 0);
    // A worker that starts later gets the connections that already wait.
    let old = [accepted(&mut client, 16), accepted(&mut client, 17)];
    waits(&mut client, 18);
    assert!(served.connections() > 0, "{}", served.ask(&["ss"]));
    assert_eq!(server.ask("fork"), "ok");
    let new = client.ask("who 18");
    assert!(!old.contains(&new), "{new} is none of {old:?}");
    // A worker that leaves in good order, or is killed, takes no connection with it.
    for (number, how) in [(16, "close"), (17, "die")] {
        let waiting = number + 3;
        waits(&mut client, waiting);
        assert_eq!(client.ask(&format!("{how} {number}")), "ok");
        assert_eq!(client.ask(&format!("quiet {waiting}")), "ok");
    }
    assert_eq!(client.ask("end 18"), "ok");
    assert_eq!(client.ask("who 19"), new);
    assert_eq!(client.ask("end 19"), "ok");
    assert_eq!(client.ask("who 20"), new);
}

#[test]
fn workers_that_sleep_in_accept() {
    busy_workers_keep_nothing("accept", 0);
}

#[test]
fn workers_that_watch_the_listener_alone() {
    busy_workers_keep_nothing("epoll", 0);
}

#[test]
fn workers_that_poll() {
    busy_workers_keep_nothing("poll", 0);
}

#[test]
fn clients_of_the_workers_user() {
    busy_workers_keep_nothing("accept", WORKERS);
}

#[test]
fn clients_of_another_user() {
    busy_workers_keep_nothing("epoll", STRANGER);
}

/// The memory that a process shares writably: inode of each mapping.
fn shared_memory(process: &str) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let shared = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_shared = words[1].starts_with("rw") && words[1].ends_with('s');
        is_shared.then(|| words[4].to_owned())
    };
    maps.lines().filter_map(shared).collect()
}

/// Clients of two users and of root are served by the same workers, and the master accepts beside them.
#[test]
fn nobody_shares_what_is_not_his() {
    let Some(served) = start() else { return };
    let (mut server, mut client) = two_workers(&served, "accept", STRANGER);
    let port = server.ask("port");
    let mut other = Subject::start(&served, &format!("client {port} {WORKERS}"));
    let workers = [accepted(&mut client, 0), accepted(&mut other, 0)];
    let [one, two] = [&client, &other].map(|one| shared_memory(&one.child.id().to_string()));
    assert!(one.is_disjoint(&two), "clients share {one:?}, {two:?}");
    assert!(served.connections() > 0, "{}", served.ask(&["ss"]));
    // The master accepts connections for which no worker is free.
    waits(&mut client, 1);
    assert_eq!(server.ask("accept"), "ok");
    let master = server.child.id().to_string();
    let mut late = Subject::start(&served, &format!("client {port} {STRANGER}"));
    assert_eq!(accepted(&mut late, 0), master);
    let of_master = shared_memory(&master);
    for worker in &workers {
        let theirs = shared_memory(worker);
        assert!(of_master.is_disjoint(&theirs), "{of_master:?}, {theirs:?}");
    }
    // Connections that waited for the workers stay the workers'.
    assert_eq!(client.ask("end 0"), "ok");
    assert_eq!(client.ask("who 1"), workers[0]);
}

#[test]
fn subject() {
    let Some(part) = served::part() else { return };
    let mut words = part.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("server"), Some(how), None) => server(how),
        (Some("client"), Some(port), Some(user)) => {
            client(port.parse().unwrap(), user.parse().unwrap());
        }
        _ => panic!("no part {part}"),
    }
}

fn become_user(user: libc::uid_t) {
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::setgid(user), 0);
        assert_eq!(libc::setuid(user), 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

fn server(how: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    println!("\nport: {port}");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "fork" => {
                // SAFETY: the harness has started no thread that holds anything the child needs.
                if unsafe { libc::fork() } == 0 {
                    become_user(WORKERS);
                    work(&listener, how);
                }
                println!("answer: ok");
            }
            "port" => println!("answer: {port}"),
            _ => {
                println!("answer: ok");
                listener.set_nonblocking(false).unwrap();
                loop {
                    serve(listener.accept().unwrap().0);
                }
            }
        }
    }
}

/// Serves one connection after the other; ends when a client says so.
fn work(listener: &TcpListener, how: &str) -> ! {
    let set = sys::epoll_create().unwrap();
    if how != "accept" {
        listener.set_nonblocking(true).unwrap();
    }
    if how == "epoll" {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listener.as_raw_fd(), IN, 0).unwrap();
    }
    loop {
        match how {
            "epoll" => drop(sys::epoll_wait(set, 16, -1).unwrap()),
            "poll" => {
                let mut all = [libc::pollfd {
                    fd: listener.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                }];
                sys::poll(&mut all, -1).unwrap();
            }
            _ => {}
        }
        let Ok((connection, _)) = listener.accept() else {
            continue;
        };
        connection.set_nonblocking(false).unwrap();
        if serve(connection) {
            std::process::exit(0);
        }
    }
}

/// Sends the process id, and waits for the end. True where the worker is to end, too.
fn serve(mut connection: TcpStream) -> bool {
    let greeting = format!("{:10}", std::process::id());
    connection.write_all(greeting.as_bytes()).unwrap();
    let mut said = [0];
    match connection.read(&mut said) {
        Ok(1) if said == *b"d" => {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            true
        }
        Ok(1) => true,
        _ => false,
    }
}

fn client(port: u16, user: libc::uid_t) {
    if user != 0 {
        become_user(user);
    }
    let mut all: Vec<Option<TcpStream>> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: usize = number.parse().unwrap();
        let wait = |stream: &mut TcpStream, limit| {
            let mut who = [0; 10];
            stream.set_read_timeout(Some(limit)).unwrap();
            stream.read_exact(&mut who)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&who).trim().to_owned())
        };
        let answer = match word {
            "begin" => {
                all.push(Some(TcpStream::connect(("127.0.0.1", port)).unwrap()));
                (all.len() - 1).to_string()
            }
            "who" => wait(all[number].as_mut().unwrap(), Duration::from_secs(20))
                .unwrap_or_else(|error| error.to_string()),
            "quiet" => match wait(all[number].as_mut().unwrap(), QUIET) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => "ok".to_owned(),
                other => format!("{other:?}"),
            },
            "end" => {
                drop(all[number].take());
                "ok".to_owned()
            }
            // The worker that serves it ends, in good order or by a signal.
            _ => {
                let stream = all[number].as_mut().unwrap();
                let byte = if word == "die" { b"d" } else { b"c" };
                stream.write_all(byte).unwrap();
                let _ = stream.read(&mut [0]);
                drop(all[number].take());
                "ok".to_owned()
            }
        };
        println!("answer: {answer}");
    }
}
