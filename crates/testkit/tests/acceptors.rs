//! Processes of several users that accept from the same listeners, each with its own links. A connection that one of
//! them was notified of and does not accept goes to the others. Needs root; left out by name otherwise.

mod served;
#[path = "served/subject.rs"]
mod subject;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netchannel_testkit::sys::{self, IN};
use served::Served;
use subject::Subject;

/// The users that the two workers switch to.
const USERS: [libc::uid_t; 2] = [33, 34];

fn start() -> Option<Served> {
    // SAFETY: plain question.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: to become another user's takes root");
        return None;
    }
    Served::start(&[])
}

fn signal(process: i32, signal: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Like Apache's workers with two listeners: a worker that sleeps is woken for both, accepts from one, and works for
/// long.
#[test]
fn what_a_busy_process_was_told_of_another_one_accepts() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "server");
    let numbers = server.said("numbers:");
    let numbers: Vec<i32> = numbers
        .split(' ')
        .map(|word| word.parse().unwrap())
        .collect();
    let [port, other, first, second] = numbers[..] else {
        panic!("two ports, two processes");
    };
    let mut client = Subject::start(&served, &format!("client {port}"));
    for _ in 0..3 {
        assert_eq!(client.ask("connect"), "ok");
        assert_eq!(client.ask("greeted"), first.to_string());
        assert!(served.connections() > 0, "{}", served.ask(&["ss"]));
    }
    // The first worker sleeps for both listeners. It is announced a connection of one listener while the kernel has one
    // of the other.
    std::thread::sleep(Duration::from_millis(200));
    signal(first, libc::SIGSTOP);
    assert_eq!(client.ask("connect"), "ok");
    let kernels = TcpStream::connect(("127.0.0.1", u16::try_from(other).unwrap()));
    let mut kernels = kernels.unwrap();
    signal(first, libc::SIGCONT);
    let mut who = [0; 10];
    kernels.read_exact(&mut who).unwrap();
    assert_eq!(String::from_utf8_lossy(&who).trim(), first.to_string());
    assert_eq!(server.ask("go"), "ok");
    assert_eq!(client.ask("greeted"), second.to_string());
}

#[test]
fn subject() {
    let Some(part) = served::part() else { return };
    match part.split_once(' ') {
        Some((_, port)) => client(port.parse().unwrap()),
        None => server(),
    }
}

/// A child that ends with its parent, as another user.
fn fork_as(user: libc::uid_t, child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the harness has started no thread that holds anything the child needs; no pointers.
    unsafe {
        let made = libc::fork();
        if made == 0 {
            assert_eq!(libc::setgid(user), 0);
            assert_eq!(libc::setuid(user), 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            child();
            libc::_exit(0);
        }
        made
    }
}

fn greet(mut connection: TcpStream) {
    let name = format!("{:10}", std::process::id());
    connection.write_all(name.as_bytes()).unwrap();
    let _ = connection.read(&mut [0]);
}

fn server() {
    let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    for listener in &listeners {
        listener.set_nonblocking(true).unwrap();
    }
    let [port, other] = [0, 1].map(|which| listeners[which].local_addr().unwrap().port());
    let (mut go, told) = std::io::pipe().unwrap();
    let accept = |listener: &TcpListener| {
        let (connection, _) = listener.accept().ok()?;
        connection.set_nonblocking(false).unwrap();
        Some(connection)
    };
    let wait = || {
        let set = sys::epoll_create().unwrap();
        for listener in &listeners {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, listener.as_raw_fd(), IN, 7).unwrap();
        }
        move || sys::epoll_wait(set, 16, -1).unwrap()
    };
    let first = fork_as(USERS[0], || {
        let wait = wait();
        loop {
            wait();
            if let Some(connection) = accept(&listeners[1]) {
                let mut connection = connection;
                let name = format!("{:10}", std::process::id());
                connection.write_all(name.as_bytes()).unwrap();
                loop {
                    std::thread::park();
                }
            }
            if let Some(connection) = accept(&listeners[0]) {
                greet(connection);
            }
        }
    });
    let second = fork_as(USERS[1], || {
        go.read_exact(&mut [0]).unwrap();
        let wait = wait();
        loop {
            wait();
            if let Some(connection) = accept(&listeners[0]) {
                greet(connection);
            }
        }
    });
    println!("\nnumbers: {port} {other} {first} {second}");
    for line in std::io::stdin().lines() {
        line.unwrap();
        (&told).write_all(&[0]).unwrap();
        println!("answer: ok");
    }
}

fn client(port: u16) {
    let mut connection = None;
    for line in std::io::stdin().lines() {
        let answer = if line.unwrap() == "connect" {
            drop(connection.take());
            let made = TcpStream::connect(("127.0.0.1", port)).unwrap();
            made.set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            connection = Some(made);
            "ok".to_owned()
        } else {
            let mut who = [0; 10];
            let got = connection.as_mut().unwrap().read_exact(&mut who);
            got.map_or_else(
                |error| error.to_string(),
                |()| String::from_utf8_lossy(&who).trim().to_owned(),
            )
        };
        println!("answer: {answer}");
    }
}
