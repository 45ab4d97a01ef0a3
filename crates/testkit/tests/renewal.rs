//! A daemon ends and another one serves. Programs that ran before go on meanwhile, cost nothing while they wait, and
//! are known to the new daemon as soon as they accept or connect.

mod served;
#[path = "served/subject.rs"]
mod subject;
#[path = "renewal/travels.rs"]
mod travels;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use netchannel_testkit::support::Baton;
use netchannel_testkit::sys::{self, IN};
use served::Served;
use subject::Subject;

/// Processor time that a subject and its children have used, in hundredths of a second.
fn ticks(subject: &Subject) -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|one| std::fs::read_to_string(one.path().join("stat")).ok());
    let used = stats.filter_map(|stat| {
        let (number, after_name) = (stat.split_once(' ')?.0, stat.rsplit_once(')')?.1);
        let words: Vec<u64> = after_name
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        let own = u64::from(subject.child.id());
        let counts = number.parse() == Ok(own) || words[1] == own;
        counts.then(|| words[11] + words[12])
    });
    used.sum()
}

/// A server that plays `part`, a client, and the server's port.
fn begun(served: &Served, part: &str) -> (Subject, Subject, String) {
    let mut server = Subject::start(served, part);
    let port = server.said("port:");
    let mut client = Subject::start(served, "client");
    client.said("ready");
    (server, client, port)
}

/// A server that plays `part`, a client that has a connection to it, and the line that makes the client connect once
/// more.
fn connected(served: &Served, part: &str) -> (Subject, Subject, String) {
    let (server, mut client, port) = begun(served, part);
    let connect = format!("connect {port}");
    assert_eq!(client.ask(&connect), "ok");
    assert!(served.connections() >= 2, "{}", served.ask(&["ss"]));
    (server, client, connect)
}

fn daemons_come_and_go(part: &str) {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let (server, mut client, connect) = connected(&served, part);
    for _ in 0..2 {
        served.daemon.kill();
        // Long enough to detect a process that asks in a loop, wherever it runs.
        let before = ticks(&server) + ticks(&client);
        std::thread::sleep(Duration::from_secs(1));
        let used = ticks(&server) + ticks(&client) - before;
        assert!(used < 20, "{used} ticks of a second without a daemon");
        assert_eq!(client.ask("talk"), "ok", "what was connected goes on");
        assert_eq!(client.ask(&connect), "ok", "new connections come about");
        served.daemon.start_again().unwrap();
        until_virtual(&served, &mut client, &connect);
        assert_eq!(client.ask("talk"), "ok");
        let mut newcomer = Subject::start(&served, "client");
        newcomer.said("ready");
        assert_eq!(newcomer.ask(&connect), "ok");
        assert_eq!(newcomer.ask("talk"), "ok");
        assert_eq!(client.ask("again"), "ok");
    }
}

/// Connects until the daemon shows both ends.
fn until_virtual(served: &Served, client: &mut Subject, connect: &str) {
    let begun = Instant::now();
    while served.connections() < 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "nothing goes over the new daemon's links: {} {}",
            served.ask(&["ss"]),
            served.daemon.log()
        );
        assert_eq!(client.ask("again"), "ok");
        assert_eq!(client.ask(connect), "ok");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The first daemon starts long after the server.
fn the_daemon_comes_late(part: &str) {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    served.daemon.kill();
    let (_server, mut client, port) = begun(&served, part);
    let connect = format!("connect {port}");
    for _ in 0..2 {
        assert_eq!(client.ask(&connect), "ok");
    }
    served.daemon.start_again().unwrap();
    until_virtual(&served, &mut client, &connect);
    assert_eq!(client.ask("talk"), "ok", "what was connected goes on");
}

#[test]
fn a_server_older_than_the_daemon_with_an_event_loop() {
    the_daemon_comes_late("events");
}

#[test]
fn a_server_older_than_the_daemon_that_polls() {
    the_daemon_comes_late("polls");
}

#[test]
fn a_server_older_than_the_daemon_that_sleeps_in_accept() {
    the_daemon_comes_late("accepts");
}

#[test]
fn servers_older_than_the_daemon_that_were_forked() {
    the_daemon_comes_late("forked");
}

#[test]
fn a_server_that_begins_to_listen_in_between() {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let mut server = Subject::start(&served, "late");
    server.said("attached");
    served.daemon.kill();
    writeln!(server.hears, "listen").unwrap();
    let port = server.said("port:");
    let mut client = Subject::start(&served, "client");
    client.said("ready");
    let connect = format!("connect {port}");
    assert_eq!(client.ask(&connect), "ok");
    served.daemon.start_again().unwrap();
    until_virtual(&served, &mut client, &connect);
}

#[test]
fn a_server_with_an_event_loop() {
    daemons_come_and_go("events");
}

#[test]
fn a_server_that_sleeps_in_accept() {
    daemons_come_and_go("accepts");
}

#[test]
fn a_server_that_polls() {
    daemons_come_and_go("polls");
}

#[test]
fn servers_that_were_forked() {
    daemons_come_and_go("forked");
}

/// The first whom the next daemon knows is killed: who waits at the listener is its relatives' still, as over TCP.
#[test]
fn a_server_that_forks_in_between() {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let (mut server, mut client, port) = begun(&served, "between");
    served.daemon.kill();
    assert_eq!(server.ask("fork"), "ok");
    served.daemon.start_again().unwrap();
    let begun = Instant::now();
    while served.connections() < 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "no link");
        assert_eq!(server.ask("look"), "ok");
        assert_eq!(client.ask(&format!("reach {port}")), "ok");
    }
    drop(server);
    assert_eq!(client.ask("talk"), "ok");
}

/// A parent closes its listener while no daemon serves: what waits there is its worker's.
fn a_parent_leaves(order: [&str; 2]) {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let (mut server, mut client, port) = begun(&served, "leaves");
    for step in order {
        match step {
            "reach" => assert_eq!(client.ask(&format!("reach {port}")), "ok"),
            _ => assert_eq!(server.ask(step), "ok"),
        }
    }
    served.daemon.kill();
    assert_eq!(server.ask("close"), "ok");
    assert_eq!(server.ask("accept"), "ok");
    assert_eq!(client.ask("talk"), "ok");
}

#[test]
fn a_parent_leaves_what_came_after_the_fork() {
    a_parent_leaves(["fork", "reach"]);
}

#[test]
fn a_parent_leaves_what_came_before_the_fork() {
    a_parent_leaves(["reach", "fork"]);
}

/// Like nginx' workers, which clear the environment and give up the user that made the listener.
#[test]
fn servers_that_gave_up_what_they_were() {
    daemons_come_and_go("changed");
}

#[test]
fn subject() {
    match served::part().as_deref() {
        Some("client") => client(),
        Some("accepts") => accepts(&listen()),
        Some(part @ ("events" | "polls")) => serves(&listen(), part == "polls"),
        Some("forked") => forked(|| ()),
        Some("changed") => forked(change),
        Some("between") => forks_in_between(),
        Some("leaves") => leaves(),
        Some("late") => {
            drop(TcpListener::bind("127.0.0.1:0").unwrap());
            println!("\nattached");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            serves(&listen(), false);
        }
        Some(part) => travels::play(part),
        None => {}
    }
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nport: {}", listener.local_addr().unwrap().port());
    listener
}

fn accepts(listener: &TcpListener) {
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        std::thread::spawn(move || echoes(&mut connection));
    }
}

fn echoes(connection: &mut TcpStream) {
    let mut byte = [0];
    while matches!(connection.read(&mut byte), Ok(1)) {
        connection.write_all(&byte).unwrap();
    }
}

/// One thread for all, with a set or with `poll`.
fn serves(listener: &TcpListener, polls: bool) {
    listener.set_nonblocking(true).unwrap();
    let set = sys::epoll_create().unwrap();
    let add = |fd: i32, data| {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, fd, IN, data).unwrap();
    };
    add(listener.as_raw_fd(), 0);
    let mut connections: Vec<Option<TcpStream>> = vec![None];
    loop {
        let told: Vec<usize> = if polls {
            let watched = |fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let fds = connections.iter().skip(1);
            let fds = fds.map(|one| one.as_ref().map_or(-1, |one| one.as_raw_fd()));
            let mut all: Vec<_> = std::iter::once(listener.as_raw_fd())
                .chain(fds)
                .map(watched)
                .collect();
            sys::poll(&mut all, -1).unwrap();
            let told = all.iter().enumerate().filter(|(_, one)| one.revents != 0);
            told.map(|(index, _)| index).collect()
        } else {
            let told = sys::epoll_wait(set, 16, -1).unwrap();
            told.iter()
                .map(|told| usize::try_from(told.data).unwrap())
                .collect()
        };
        for index in told {
            if index == 0 {
                if let Ok((connection, _)) = listener.accept() {
                    add(connection.as_raw_fd(), connections.len() as u64);
                    connections.push(Some(connection));
                }
                continue;
            }
            let Some(connection) = connections[index].as_mut() else {
                continue;
            };
            let mut byte = [0];
            match connection.read(&mut byte) {
                Ok(1) => connection.write_all(&byte).unwrap(),
                _ => connections[index] = None,
            }
        }
    }
}

/// Two workers behind one listener, and a parent that only waits.
fn forked(begin: impl Fn()) {
    let listener = listen();
    for _ in 0..2 {
        fork_worker(|| {
            begin();
            serves(&listener, false);
        });
    }
    loop {
        std::thread::park();
    }
}

/// It ends with its parent, unless it says otherwise.
fn fork_worker(work: impl Fn()) {
    let parent = std::process::id();
    // SAFETY: the harness has started no thread that holds anything the child needs.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: no pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if std::os::unix::process::parent_id() == parent {
            work();
        }
        std::process::exit(1);
    }
}

/// A parent that accepts what has come when it is asked to look, and a worker that serves one connection once its parent
/// has ended.
fn forks_in_between() {
    let listener = listen();
    listener.set_nonblocking(true).unwrap();
    let parent = std::process::id();
    for line in std::io::stdin().lines() {
        if line.unwrap() == "fork" {
            fork_worker(|| {
                // SAFETY: no pointers. Nobody else ends it.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                    libc::alarm(60);
                }
                while std::os::unix::process::parent_id() == parent {
                    std::thread::sleep(Duration::from_millis(10));
                }
                listener.set_nonblocking(false).unwrap();
                echoes(&mut listener.accept().unwrap().0);
            });
        }
        // By this it follows to the next daemon.
        drop(listener.accept());
        println!("answer: ok");
    }
}

/// A parent that forks, closes its listener and lets the worker accept as it is told.
fn leaves() {
    let mut listener = Some(listen());
    let told = Baton::new();
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "fork" => fork_worker(|| {
                told.take();
                echoes(&mut listener.as_ref().unwrap().accept().unwrap().0);
            }),
            "close" => drop(listener.take()),
            _ => told.pass(),
        }
        println!("answer: ok");
    }
}

fn change() {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: no other thread uses the environment, and no pointers.
    unsafe {
        libc::clearenv();
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(NOBODY), 0);
            // The change of the user has reset this.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
    }
}

fn client() {
    println!("\nready");
    let mut connections = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("reach", port)) => connections = vec![connect_to(port)],
            Some((_, port)) => {
                connections.push(connect_to(port));
                talk(connections.last_mut().unwrap());
            }
            None if line == "talk" => talk(&mut connections[0]),
            // All but the first connection, which is to live on.
            None => connections.truncate(1),
        }
        println!("answer: ok");
    }
}

fn connect_to(port: &str) -> TcpStream {
    let made = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    made.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    made
}

fn talk(connection: &mut TcpStream) {
    let mut byte = [0];
    connection.write_all(b"x").unwrap();
    connection.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}
