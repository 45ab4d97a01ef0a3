//! How long a program waits for its first link while somebody asks `ss` in a loop over programs that lie in every word of their regions,
//! beside the same without either. Two daemons, `ss` and the liars are processes of their own; rounds alternate.
//!
//! `cargo bench -p netchannel-daemon --bench loop -- [--liars 200] [--rounds 9] [--connects 500]`

#[path = "../tests/support/mod.rs"]
mod support;

use netchannel_abi::message::Operation;
use netchannel_abi::program::{ENTRIES_OFFSET, Header};
use netchannel_abi::program::{HOLDERS, Holder, SocketEntry, State, holder, size};
use netchannel_control::types::{Request, Response};
use netchannel_daemon::{Daemon, Limits, Options};
use netchannel_shm::{Access, Region};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use support::Client;

const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let path = |index: usize| PathBuf::from(arguments.get(index).expect("a path"));
    match arguments.get(1).map(String::as_str) {
        Some("daemon") => serve(path(2)),
        Some("ss") => ask_always(&path(2)),
        Some("liars") => lie(&path(2), arguments[3].parse().expect("a number")),
        _ => measure(&arguments),
    }
}

fn serve(socket: PathBuf) {
    let daemon = Daemon::bind(Options {
        socket,
        idle_exit: None,
        limits: Limits::default(),
        version: "bench".to_owned(),
        configuration: None,
        relay_local: false,
        library: None,
        tenant: None,
    });
    daemon.expect("a daemon").serve().expect("to serve");
}

fn ask_always(daemon: &Path) {
    let (mut answers, since) = (0_u32, Instant::now());
    loop {
        match netchannel_control::request(daemon, Request::Sockets, PATIENCE) {
            Ok(Response::Sockets(sockets)) if answers == 0 => {
                let count = sockets.list.len();
                let took = since.elapsed().as_secs_f64();
                eprintln!(
                    "the first ss: {count} sockets in {took:.2} s, cut: {}",
                    sockets.cut
                );
            }
            Ok(_) => {}
            Err(error) => eprintln!("ss: {error}"),
        }
        answers += 1;
    }
}

/// Programs with something in every word of their regions. Says so by closing its output.
fn lie(daemon: &Path, count: usize) {
    let entries = usize::try_from(Limits::default().entries).expect("small");
    let here = std::os::unix::fs::MetadataExt::ino(
        &std::fs::metadata("/proc/self/ns/pid").expect("a namespace"),
    );
    let mut kept = Vec::new();
    for _ in 0..count {
        let mut client = connect(daemon);
        let (answer, descriptors) = client.attach();
        assert_eq!(answer.status, 0);
        let raw = descriptors[0].as_raw_fd();
        let region = Region::map(raw, size(entries), Access::ReadWrite).expect("a region");
        let words: &[AtomicU64] = region.slice(0, region.size() / 8).expect("words");
        for (word, index) in words.iter().zip(0_u64..) {
            word.store(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, Relaxed);
        }
        for index in 0..entries {
            let place = ENTRIES_OFFSET + index * size_of::<SocketEntry>();
            let entry: &SocketEntry = region.at(place).expect("an entry");
            entry.state.store(State::Virtual as u32, Relaxed);
        }
        for index in 0..HOLDERS {
            let record: &Holder = region.at(holder(entries, index)).expect("a record");
            let process = 1 + u64::try_from(index).unwrap_or(0) * 7919;
            record.process.store(here << 32 | process, Relaxed);
        }
        let header: &Header = region.at(0).expect("a header");
        header.high_water.store(u32::MAX, Relaxed);
        header.holders.store(u32::MAX, Relaxed);
        kept.push((client, descriptors));
    }
    // SAFETY: nobody in this process writes to its output.
    unsafe { libc::close(1) };
    std::thread::sleep(Duration::from_secs(3600));
}

fn connect(daemon: &Path) -> Client {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(daemon).expect("an address");
    rustix::net::connect(&socket, &address).expect("a daemon");
    Client::over(socket)
}

/// Ends a process with this one.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(arguments).stdout(Stdio::piped());
        Self(command.spawn().expect("a process"))
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.0);
        kill_process(process, signal).expect("a process of ours");
    }
}

/// A daemon with a listener whose program takes every link.
struct Side {
    socket: String,
    listener: u64,
    _server: Client,
    _daemon: Ended,
    rounds: Vec<[f64; 4]>,
}

impl Side {
    fn new(place: &Path, name: &str) -> Self {
        let socket = place.join(name).display().to_string();
        let daemon = Ended::start(&["daemon", &socket]);
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(format!("{socket}.control")).is_err()
            && since.elapsed() < Duration::from_secs(2)
            && !Path::new(&socket).exists()
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(100));
        let mut server = connect(Path::new(&socket));
        assert_eq!(server.attach().0.status, 0);
        let (listener, accepts) = server.listen();
        rustix::io::ioctl_fionbio(&accepts, false).expect("to wait");
        // What is offered is taken, and dropped.
        std::thread::spawn(move || while support::receive(&accepts).is_some() {});
        Self {
            socket,
            listener,
            _server: server,
            _daemon: daemon,
            rounds: Vec::new(),
        }
    }

    /// First connects of programs: a link, and with it the way to the daemon and Attach. In microseconds, P50 and P99 of each.
    fn round(&mut self, connects: usize) {
        let (mut links, mut firsts) = (Vec::new(), Vec::new());
        for _ in 0..connects {
            let begin = Instant::now();
            let mut client = connect(Path::new(&self.socket));
            assert_eq!(client.attach().0.status, 0);
            let attached = Instant::now();
            let status = client.status_of(Operation::Connect, &[self.listener]);
            assert_eq!(status, 0);
            links.push(attached.elapsed().as_secs_f64() * 1e6);
            firsts.push(begin.elapsed().as_secs_f64() * 1e6);
            drop(client);
            std::thread::sleep(Duration::from_micros(300));
        }
        let [link_50, link_99] = percentiles(links);
        let [first_50, first_99] = percentiles(firsts);
        self.rounds.push([link_50, link_99, first_50, first_99]);
    }

    fn median(&self, column: usize) -> f64 {
        let all = self.rounds.iter().map(|round| round[column]).collect();
        percentiles(all)[0]
    }
}

fn percentiles(mut all: Vec<f64>) -> [f64; 2] {
    all.sort_by(f64::total_cmp);
    [2, 100].map(|part| all[all.len() - 1 - (all.len() - 1) / part])
}

fn measure(arguments: &[String]) {
    let option = |name: &str, otherwise: usize| {
        let mut behind = arguments.iter().skip_while(|one| *one != name).skip(1);
        behind
            .next()
            .map_or(otherwise, |one| one.parse().expect("a number"))
    };
    let (liars, rounds) = (option("--liars", 200), option("--rounds", 9));
    let connects = option("--connects", 500);
    let place = tempfile::tempdir().expect("a folder");
    let mut alone = Side::new(place.path(), "alone.sock");
    let mut beset = Side::new(place.path(), "beset.sock");
    let mut lying = Ended::start(&["liars", &beset.socket, &liars.to_string()]);
    let output = lying.0.stdout.take();
    let _ = output.expect("its output").read_to_end(&mut Vec::new());
    let ss = Ended::start(&["ss", &beset.socket]);
    for _ in 0..rounds {
        ss.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(100));
        alone.round(connects);
        ss.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        beset.round(connects);
    }
    println!(
        "{liars} liars, {rounds} rounds of {connects} first connects; medians, in microseconds"
    );
    for (column, name) in [
        "link P50",
        "link P99",
        "attach and link P50",
        "attach and link P99",
    ]
    .iter()
    .enumerate()
    {
        let (one, other) = (alone.median(column), beset.median(column));
        println!(
            "{name:20} alone {one:8.1}   beset {other:8.1}   ratio {:.2}",
            other / one
        );
    }
}
