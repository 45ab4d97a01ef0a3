//! A connection is in transit to another process, in a message, over an `exec` or a spawn, while its daemon ends. It arrives
//! intact, whether or not another daemon serves by then.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use netchannel_testkit::sys;

use crate::served::{self, Served};
use crate::subject::Subject;

/// The descriptors that a subject has after its exec.
const INHERITED: &str = "NETCHANNEL_TEST_INHERITED";

pub fn play(part: &str) {
    match part {
        "sends" => sends(),
        "receives" => receives(),
        "executes" => executes(),
        "executed" => executed(),
        "spawns" => spawns(),
        "spawned" => spawned(),
        _ => {}
    }
}

/// Two ends of a connection of this process to itself.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

fn next_line() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Sends ends to a receiver at a given path, keeps the other ends, and then does nothing but wait for lines.
fn sends() {
    let pairs = [(); 3].map(|()| pair());
    println!("\nready");
    let path = next_line();
    let channel = UnixStream::connect(path).unwrap();
    let mut kept = pairs.map(|(mut client, server)| {
        client.write_all(b"unread").unwrap();
        sys::send_descriptor(channel.as_raw_fd(), server.as_raw_fd()).unwrap();
        client
    });
    println!("answer: sent");
    while next_line() == "talk" {
        for client in &mut kept {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        }
        println!("answer: ok");
    }
}

fn receives() {
    let path = std::env::temp_dir().join(format!("netchannel-travels-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    println!("\npath: {}", path.display());
    assert_eq!(next_line(), "receive");
    let (channel, _) = listener.accept().unwrap();
    let _ = std::fs::remove_file(&path);
    let told = (0..3).map(|_| {
        let fd = sys::recv_descriptor(channel.as_raw_fd()).unwrap();
        // SAFETY: it was just received.
        let mut stream = unsafe { TcpStream::from_raw_fd(fd) };
        // It is a TCP socket, and not one end of a pump.
        stream.set_nodelay(true)?;
        let mut bytes = [0; 6];
        stream.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"unread");
        stream.write_all(b"x")?;
        Ok(stream)
    });
    let told: std::io::Result<Vec<TcpStream>> = told.collect();
    println!(
        "answer: {}",
        told.as_ref()
            .map_or_else(ToString::to_string, |_| "ok".to_owned())
    );
    next_line();
}

/// What happens while a connection is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Send,
    End,
    Start,
}

fn in_a_message(events: &[Event]) {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let mut receiver = Subject::start(&served, "receives");
    let path = receiver.said("path:");
    let mut sender = Subject::start(&served, "sends");
    sender.said("ready");
    assert!(served.connections() >= 3, "{}", served.ask(&["ss"]));
    for event in events {
        match event {
            Event::Send => assert_eq!(sender.ask(&path), "sent"),
            Event::End => served.daemon.kill(),
            Event::Start => served.daemon.start_again().unwrap(),
        }
    }
    assert_eq!(receiver.ask("receive"), "ok");
    assert_eq!(sender.ask("talk"), "ok");
}

#[test]
fn what_lies_in_a_message_while_a_daemon_follows_another() {
    in_a_message(&[Event::Send, Event::End, Event::Start]);
}

#[test]
fn what_lies_in_a_message_while_the_daemon_ends() {
    in_a_message(&[Event::Send, Event::End]);
}

#[test]
fn what_is_sent_while_no_daemon_serves() {
    in_a_message(&[Event::End, Event::Send]);
}

#[test]
fn what_is_sent_before_the_next_daemon_comes() {
    in_a_message(&[Event::End, Event::Send, Event::Start]);
}

/// Answers each byte of a client that connects, and then executes itself when told to.
fn executes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nport: {}", listener.local_addr().unwrap().port());
    let (connection, _) = listener.accept().unwrap();
    answer(&connection).unwrap();
    execute(connection, listener);
}

fn answer(mut connection: &TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    connection.read_exact(&mut byte)?;
    connection.write_all(&byte)
}

/// This program as another part, with these descriptors.
fn this_program(part: &str, connection: TcpStream, listener: TcpListener) -> Command {
    let numbers = [connection.into_raw_fd(), listener.into_raw_fd()];
    for fd in numbers {
        // SAFETY: a number.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "subject", "--nocapture"])
        .env(served::SUBJECT, part)
        .env(INHERITED, format!("{},{}", numbers[0], numbers[1]));
    command
}

/// The descriptors of [`this_program`].
fn inherited() -> (TcpStream, TcpListener) {
    let told = std::env::var(INHERITED).unwrap();
    let (connection, listener) = told.split_once(',').unwrap();
    // SAFETY: descriptors that this program was started with.
    unsafe {
        (
            TcpStream::from_raw_fd(connection.parse().unwrap()),
            TcpListener::from_raw_fd(listener.parse().unwrap()),
        )
    }
}

/// Executes this program again, with these descriptors.
fn execute(connection: TcpStream, listener: TcpListener) -> ! {
    println!("\nthread: {}", sys::gettid());
    assert_eq!(next_line(), "execute");
    let error = this_program("executed", connection, listener).exec();
    panic!("{error}");
}

fn executed() {
    let (connection, listener) = inherited();
    println!("\nexecuted");
    answer(&connection).unwrap();
    let (newcomer, _) = listener.accept().unwrap();
    answer(&newcomer).unwrap();
    execute(connection, listener);
}

/// As [`executes`], but starts a program as a child, and ends.
fn spawns() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nport: {}", listener.local_addr().unwrap().port());
    let (connection, _) = listener.accept().unwrap();
    spawn(connection, listener);
}

#[expect(clippy::zombie_processes, reason = "this process ends first")]
fn spawn(connection: TcpStream, listener: TcpListener) {
    answer(&connection).unwrap();
    if next_line() == "spawn" {
        this_program("spawned", connection, listener)
            .spawn()
            .unwrap();
        // Before the program has begun to look for what it inherits.
        sys::exit_now(0);
    }
}

fn spawned() {
    let (connection, listener) = inherited();
    println!("\nspawned");
    spawn(connection, listener);
}

/// Makes the subject execute itself, and runs `then` before the new image has done anything.
fn at_its_exec(subject: &mut Subject, then: impl FnOnce()) {
    let thread: i32 = subject.said("thread:").parse().unwrap();
    let process = i32::try_from(subject.child.id()).unwrap();
    let trace = |request, thread: i32, word: libc::c_int| {
        // SAFETY: no memory is read or written.
        unsafe { libc::ptrace(request, thread, 0, libc::c_long::from(word)) }
    };
    let wait = || {
        let mut status = 0;
        // SAFETY: a local is written.
        let waited = unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) };
        assert_eq!(waited, process);
        status
    };
    assert_eq!(
        trace(libc::PTRACE_SEIZE, thread, libc::PTRACE_O_TRACEEXEC),
        0
    );
    writeln!(subject.hears, "execute").unwrap();
    loop {
        let status = wait();
        assert!(libc::WIFSTOPPED(status), "it ended: {status:x}");
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            break;
        }
        trace(libc::PTRACE_CONT, process, libc::WSTOPSIG(status));
    }
    then();
    assert_eq!(trace(libc::PTRACE_DETACH, process, 0), 0);
}

fn over_an_exec(next: bool) {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let (mut subject, mut client, connect) = crate::connected(&served, "executes");
    for _ in 0..2 {
        at_its_exec(&mut subject, || {
            served.daemon.kill();
            if next {
                served.daemon.start_again().unwrap();
            }
        });
        subject.said("executed");
        assert_eq!(client.ask("talk"), "ok");
        assert_eq!(client.ask(&connect), "ok");
    }
}

#[test]
fn what_goes_over_an_exec_while_a_daemon_follows_another() {
    over_an_exec(true);
}

#[test]
fn what_goes_over_an_exec_while_the_daemon_ends() {
    over_an_exec(false);
}

/// Neither the daemon nor who has started the program live when it begins.
#[test]
fn what_a_program_inherits_that_outlives_all_others() {
    let Some(mut served) = Served::start(&[]) else {
        return;
    };
    let (mut subject, mut client, _) = crate::connected(&served, "spawns");
    served.daemon.kill();
    for _ in 0..5 {
        writeln!(subject.hears, "spawn").unwrap();
        subject.said("spawned");
        assert_eq!(client.ask("talk"), "ok");
    }
}
