//! Programs with few descriptor numbers: servers and clients under `ulimit -n`, with soft and hard limits, use up their
//! remaining numbers repeatedly. Every answer must arrive on the connection that asked, and no connection may be reset.
//!
//! ```text
//!  client: socket, connect, send a question ... until EMFILE, or a drawn number of them; then answers, as they come; closes some
//!  server: accept ... until EMFILE; answers each question once; closes what the client has closed
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{
    Family, PATIENCE, PATIENCE_MILLISECONDS, Random, listener_with, set_nonblocking,
};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::Options;
use crate::program::{Program, this_program};

/// A descriptor limit of a program.
#[derive(Clone, Copy)]
enum Limit {
    /// The soft and the hard limit.
    Both(u64),
    /// The soft limit. The hard limit is the caller's.
    Soft(u64),
    /// The caller's limits.
    Own,
}

/// Limits of server and client.
const PAIRS: [(Limit, Limit); 8] = [
    (Limit::Both(64), Limit::Both(64)),
    (Limit::Both(300), Limit::Both(300)),
    (Limit::Both(1024), Limit::Both(1024)),
    (Limit::Both(64), Limit::Own),
    (Limit::Own, Limit::Both(300)),
    (Limit::Soft(64), Limit::Soft(64)),
    (Limit::Soft(300), Limit::Soft(300)),
    (Limit::Soft(64), Limit::Both(1024)),
];
/// Connections of each pair, unless `--rounds` says otherwise.
const CONNECTIONS: u64 = 5_000;
/// The most connections that the server holds, where it has numbers for more.
const MOST: usize = 1_200;

impl std::fmt::Display for Limit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Both(limit) => write!(formatter, "{limit}"),
            Self::Soft(limit) => write!(formatter, "soft-{limit}"),
            Self::Own => write!(formatter, "own"),
        }
    }
}

/// Runs all pairs, or those that `--only` names. Returns the exit status.
pub fn run(options: &Options) -> i32 {
    let rounds = options.rounds.unwrap_or(CONNECTIONS);
    let mut status = 0;
    let mut any = false;
    for (server, client) in PAIRS {
        let title = format!("{server}/{client}");
        if !title.contains(&options.only) {
            continue;
        }
        any = true;
        let start = Instant::now();
        match pair(options, (server, client), rounds) {
            Ok(summary) => println!(
                "PASS limits: server/client {title}, seed {}, {rounds} connections, {summary}, {:.1} s",
                options.seed,
                start.elapsed().as_secs_f64()
            ),
            Err(error) => {
                println!(
                    "FAIL limits: server/client {title}, seed {}: {error}",
                    options.seed
                );
                status = 1;
            }
        }
    }
    if !any {
        eprintln!("no pair of limits has {:?} in its name", options.only);
        return 2;
    }
    status
}

fn pair(
    options: &Options,
    (server, client): (Limit, Limit),
    rounds: u64,
) -> Result<String, String> {
    let command = |word: &str, limit, address: SocketAddr| {
        let mut command = Command::new(this_program());
        command
            .arg(word)
            .args(["--seed", &options.seed.to_string()])
            .args(["--rounds", &rounds.to_string()])
            .args(["--address", &address.to_string()]);
        under(&mut command, limit);
        command
    };
    let family = options.family.unwrap_or(Family::V4);
    let mut server = Program::start(command("limits-serve", server, family.loopback(0)));
    let line = server.line();
    let address = line
        .strip_prefix("ready ")
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| format!("the server says {line:?}: {}", server.rest()))?;
    let mut client = Program::start(command("limits-drive", client, address));
    // The slowest machine makes a thousand connections a second.
    let end = Instant::now() + Duration::from_secs(60 + rounds / 500);
    let driven = client.end(end)?;
    let served = server.end(Instant::now() + PATIENCE)?;
    Ok(format!("{}; {}", driven.trim_end(), served.trim_end()))
}

/// Makes the program start under the limit, as under a shell's `ulimit -n`.
fn under(command: &mut Command, limit: Limit) {
    let hard = sys::descriptor_limit().map_or(u64::MAX, |limit| limit.rlim_max);
    let (soft, hard) = match limit {
        Limit::Both(limit) => (limit, limit),
        Limit::Soft(limit) => (limit, hard),
        Limit::Own => return,
    };
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: one system call, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// The question of a connection, derived from its number: 16 bytes or more, with the number first.
fn question(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let most = if random.once_in(20) { 500 } else { 20 };
    let words = random.between(2, most);
    let mut bytes = Vec::with_capacity(words * 8);
    bytes.extend(number.to_be_bytes());
    bytes.extend(u64::try_from(words).unwrap_or(0).to_be_bytes());
    while bytes.len() < words * 8 {
        bytes.extend(random.number().to_be_bytes());
    }
    bytes
}

fn answer(question: &[u8]) -> Vec<u8> {
    question.iter().map(|byte| !byte).collect()
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * 8..index * 8 + 8)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The server runs until it has answered a number of connections and seen their end.
pub fn serve(options: &Options) {
    let rounds = options.rounds.unwrap_or(CONNECTIONS);
    let family = Family::of(options.address);
    let (listening, address) = listener_with(family, 4096);
    set_nonblocking(listening);
    let set = sys::epoll_create().expect("epoll_create");
    let readable = libc::EPOLLIN.cast_unsigned();
    let add = |socket: Descriptor| {
        let data = u64::try_from(socket).unwrap_or(0);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, readable, data).expect("epoll_ctl");
    };
    add(listening);
    println!("ready {address}");
    let mut open: HashMap<Descriptor, Vec<u8>> = HashMap::new();
    let (mut ended, mut refused) = (0_u64, 0_u64);
    while ended < rounds {
        sys::alarm(60);
        let events = sys::epoll_wait(set, 64, PATIENCE_MILLISECONDS * 3).expect("epoll_wait");
        assert!(
            !events.is_empty(),
            "nothing comes, {ended} of {rounds} ended"
        );
        for event in events {
            let socket = Descriptor::try_from(event.data).expect("a number");
            if socket != listening {
                let asked = open.get_mut(&socket).expect("one of those that are open");
                if step(socket, asked, options.seed) {
                    open.remove(&socket);
                    ended += 1;
                }
                continue;
            }
            while open.len() < MOST {
                match sys::accept(listening) {
                    Ok(socket) => {
                        set_nonblocking(socket);
                        add(socket);
                        let before = open.insert(socket, Vec::new());
                        assert!(before.is_none(), "a number was given twice");
                    }
                    Err(Errno(libc::EAGAIN)) => break,
                    Err(Errno(libc::EMFILE)) => {
                        refused += 1;
                        break;
                    }
                    Err(errno) => panic!("accept: {errno:?}"),
                }
            }
        }
    }
    assert!(open.is_empty(), "{} connections too many", open.len());
    println!("server without a number {refused} times");
}

/// Handles input on a connection. Returns whether the connection has ended.
fn step(socket: Descriptor, asked: &mut Vec<u8>, seed: u64) -> bool {
    let mut bytes = [0; 4096];
    let count = match sys::recv(socket, &mut bytes, 0) {
        Ok(count) => count,
        Err(Errno(libc::EAGAIN)) => return false,
        Err(errno) => panic!("the server's recv after {asked:?}: {errno:?}"),
    };
    if count == 0 {
        let number = word(asked, 0).expect("a whole question");
        assert_eq!(*asked, question(seed, number), "question {number}");
        sys::close(socket).expect("close");
        return true;
    }
    asked.extend(bytes.get(..count).unwrap_or(&[]));
    let whole = word(asked, 1).map(|words| words.saturating_mul(8));
    if whole == u64::try_from(asked.len()).ok() {
        let answer = answer(asked);
        let sent = sys::send(socket, &answer, libc::MSG_NOSIGNAL);
        assert_eq!(sent, Ok(answer.len()), "a short answer fits");
    }
    false
}

/// The client makes a number of connections, as many at a time as it has descriptor numbers for.
pub fn drive(options: &Options) {
    let rounds = options.rounds.unwrap_or(CONNECTIONS);
    let mut random = Random::new(options.seed);
    let mut open: Vec<(Descriptor, u64)> = Vec::new();
    let (mut next, mut refused) = (0_u64, 0_u64);
    let mut most = 0;
    while next < rounds || !open.is_empty() {
        sys::alarm(60);
        let wanted = random.between(1, MOST);
        while next < rounds && open.len() < wanted {
            let Some(socket) = connect(options, next) else {
                refused += 1;
                break;
            };
            open.push((socket, next));
            next += 1;
        }
        most = most.max(open.len());
        // Takes the answers of all connections or of some. In the second case new connections are made beside the
        // remaining ones.
        let leave = if random.once_in(3) {
            0
        } else {
            random.below(open.len().max(1))
        };
        while open.len() > leave || next == rounds && !open.is_empty() {
            take_answers(&mut open, options.seed);
        }
    }
    println!("{most} at a time, client without a number {refused} times");
}

/// A connection whose question has been sent. `None` if no descriptor number is left.
fn connect(options: &Options, number: u64) -> Option<Descriptor> {
    let domain = Family::of(options.address);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let socket = match sys::socket(domain.domain(), kind, 0) {
        Ok(socket) => socket,
        Err(Errno(libc::EMFILE)) => return None,
        Err(errno) => panic!("socket: {errno:?}"),
    };
    let connected = sys::connect(socket, options.address);
    assert_eq!(connected, Ok(()), "connect of {number}");
    let question = question(options.seed, number);
    let sent = sys::send(socket, &question, libc::MSG_NOSIGNAL);
    assert_eq!(sent, Ok(question.len()), "question {number}");
    Some(socket)
}

/// Waits for answers, compares them with the questions, and closes the connections.
fn take_answers(open: &mut Vec<(Descriptor, u64)>, seed: u64) {
    let mut entries: Vec<libc::pollfd> = open
        .iter()
        .map(|(socket, _)| libc::pollfd {
            fd: *socket,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ready = sys::poll(&mut entries, PATIENCE_MILLISECONDS * 3).expect("poll");
    assert!(ready > 0, "no answer comes: {} wait", open.len());
    let mut at = 0;
    open.retain(|(socket, number)| {
        let is_ready = entries[at].revents != 0;
        at += 1;
        if !is_ready {
            return true;
        }
        let expected = answer(&question(seed, *number));
        let mut bytes = vec![0; expected.len() + 1];
        let mut have = 0;
        while have < expected.len() {
            match sys::recv(*socket, &mut bytes[have..], 0) {
                Ok(0) => panic!("answer {number} ends after {have} bytes"),
                Ok(count) => have += count,
                Err(errno) => panic!("answer {number}: {errno:?}"),
            }
        }
        assert_eq!(bytes.get(..have), Some(&*expected), "answer {number}");
        sys::close(*socket).expect("close");
        false
    });
}
