//! `torture`: seeded connections whose every byte is compared, and processes killed at random.
//!
//! An ordinary socket program of two processes. What a connection carries and how it ends is drawn
//! from the seed and its number, so both ends know it and a failure can be repeated.

mod blocking;
mod flow;
mod hostile;
mod killer;
mod readiness;
mod script;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{
    Baton, Family, count_descriptors, fork_child, listener_with, prepare_process, set_int, tcp,
    uninterrupted,
};
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

use readiness::Kind;
use script::Script;

const USAGE: &str = "usage:
  torture bytes  [OPTIONS] [--mode blocking|poll|level|edge|all]
  torture killer [OPTIONS] [--rounds N]
  torture hostile [OPTIONS] [--rounds N]
options:
  --seed N           what is drawn from (default: the time; it is printed)
  --seconds N        how long (default 10)
  --connections N    at the same time (default 16)
  --threads N        loops per process, for poll, level and edge (default 2)
  --family v4|v6     (default: both)
exit status: 0 all was well, 1 something was not, 2 wrong usage";

/// The number that tells a server to stop.
const STOP: u64 = u64::MAX;

/// How many descriptors a library may keep for later when all connections have ended: some pools of
/// 64, however many connections there were (thousands).
const KEPT: usize = 256;

/// What the command line asks for.
struct Options {
    seed: u64,
    seconds: u64,
    connections: usize,
    threads: usize,
    family: Option<Family>,
    mode: String,
    rounds: Option<u64>,
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut options = Options {
        seed: time.map_or(1, |time| time.as_secs()),
        seconds: 10,
        connections: 16,
        threads: 2,
        family: None,
        mode: "all".to_owned(),
        rounds: None,
    };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{word}: {value} is no number"))
        };
        let small = || {
            let number = number()?.clamp(1, 1_000);
            usize::try_from(number).map_err(|error| error.to_string())
        };
        match word.as_str() {
            "--seed" => options.seed = number()?,
            "--seconds" => options.seconds = number()?,
            "--connections" => options.connections = small()?,
            "--threads" => options.threads = small()?,
            "--rounds" => options.rounds = Some(number()?),
            "--mode" => options.mode.clone_from(value),
            "--family" if value == "v4" => options.family = Some(Family::V4),
            "--family" if value == "v6" => options.family = Some(Family::V6),
            _ => return Err(format!("{word} {value} is not understood")),
        }
    }
    Ok(options)
}

/// How the two processes of a run work.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Blocking,
    Readiness(Kind),
}

fn modes(name: &str) -> Option<Vec<Mode>> {
    let all = [
        ("blocking", Mode::Blocking),
        ("poll", Mode::Readiness(Kind::Poll)),
        ("level", Mode::Readiness(Kind::Level)),
        ("edge", Mode::Readiness(Kind::Edge)),
    ];
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|(known, _)| name == "all" || name == *known)
        .collect();
    (!chosen.is_empty()).then(|| chosen.into_iter().map(|(_, mode)| mode).collect())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = parse(arguments.get(1..).unwrap_or_default());
    let command = arguments.first().map(String::as_str);
    let (options, modes) = match options {
        Ok(options) if matches!(command, Some("bytes" | "killer" | "hostile")) => {
            match modes(&options.mode) {
                Some(modes) => (options, modes),
                None => usage("there is no such mode"),
            }
        }
        Ok(_) => usage("say bytes, killer or hostile"),
        Err(text) => usage(&text),
    };
    prepare_process();
    sys::ignore_signal(libc::SIGPIPE).expect("sigaction");
    if command == Some("killer") {
        killer::run(&options);
        return;
    }
    if command == Some("hostile") {
        hostile::run(&options);
        return;
    }
    let families = options
        .family
        .map_or(vec![Family::V4, Family::V6], |family| vec![family]);
    let runs = u64::try_from(modes.len() * families.len()).unwrap_or(1);
    let each = Duration::from_millis(options.seconds * 1000 / runs);
    for mode in modes {
        for family in &families {
            bytes(&options, mode, *family, each);
        }
    }
}

fn usage(text: &str) -> ! {
    eprintln!("{text}\n{USAGE}");
    std::process::exit(2)
}

/// One run: a server process, and this one as client.
fn bytes(options: &Options, mode: Mode, family: Family, duration: Duration) {
    let watchdog = u32::try_from(duration.as_secs() + 30).unwrap_or(60);
    let Options {
        seed,
        connections,
        threads,
        ..
    } = *options;
    let ready = Baton::new();
    let server = fork_child(|| {
        sys::alarm(watchdog);
        let before = count_descriptors();
        let (listening, address) = listener_with(family, 1024);
        ready.send(u64::from(address.port()));
        match mode {
            Mode::Blocking => blocking::serve(listening, seed),
            Mode::Readiness(kind) => several(threads, move || {
                readiness::serve(listening, seed, kind);
            }),
        }
        let after = count_descriptors();
        assert!(
            after <= before + KEPT,
            "{after} descriptors are left in the server of {before}"
        );
    });
    sys::alarm(watchdog);
    let address = family.loopback(u16::try_from(ready.receive()).expect("a port"));
    let numbers = Arc::new(AtomicU64::new(0));
    let before = flow::BYTES.load(Ordering::Relaxed);
    let end = Instant::now() + duration;
    match mode {
        Mode::Blocking => blocking::drive(address, seed, connections, &numbers, end),
        Mode::Readiness(kind) => {
            let numbers = Arc::clone(&numbers);
            several(threads, move || {
                readiness::drive(
                    address,
                    seed,
                    connections.div_ceil(threads),
                    kind,
                    &numbers,
                    end,
                );
            });
        }
    }
    let stops = if matches!(mode, Mode::Blocking) {
        1
    } else {
        threads
    };
    for _ in 0..stops {
        let socket = tcp(family);
        sys::connect(socket, address).expect("connect");
        send_number(socket, STOP).expect("send");
        // Closed by the one that stops; only then may the next come, or one loop takes both.
        let _ = sys::recv(socket, &mut [0_u8], 0);
        sys::close(socket).expect("close");
    }
    server.join();
    ready.close();
    let bytes = flow::BYTES.load(Ordering::Relaxed) - before;
    println!(
        "PASS bytes: {mode:?} {family:?}, seed {seed}, {} connections, {} MB received",
        numbers.load(Ordering::Relaxed),
        bytes / 1_000_000
    );
}

fn several(threads: usize, work: impl Fn() + Send + Clone + 'static) {
    let handles: Vec<_> = (0..threads)
        .map(|_| std::thread::spawn(work.clone()))
        .collect();
    for handle in handles {
        handle.join().expect("a panic ends the process");
    }
}

fn send_number(socket: Descriptor, number: u64) -> Outcome<()> {
    let bytes = number.to_be_bytes();
    let sent = uninterrupted(|| sys::send(socket, &bytes, libc::MSG_NOSIGNAL))?;
    assert_eq!(sent, 8, "eight bytes fit into an empty connection");
    Ok(())
}

/// Connects for a script and says its number. `None` if the other end died meanwhile.
fn try_open(address: SocketAddr, script: &Script) -> Outcome<Option<Descriptor>> {
    let family = if address.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let socket = tcp(family);
    if let Some(size) = script.buffers {
        set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, size);
        set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, size);
    }
    if let Err(errno) = uninterrupted(|| sys::connect(socket, address)) {
        sys::close(socket).expect("close");
        return Err(errno);
    }
    match send_number(socket, script.number) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno(libc::ECONNRESET | libc::EPIPE)) => {
            sys::close(socket).expect("close");
            Ok(None)
        }
        Err(errno) => Err(errno),
    }
}

fn open(address: SocketAddr, script: &Script) -> Descriptor {
    match try_open(address, script) {
        Ok(Some(socket)) => socket,
        other => panic!("{script:?}: connect: {other:?}"),
    }
}

/// The number a client said, or `None` if it died before.
fn read_number(socket: Descriptor) -> Option<u64> {
    let mut bytes = [0_u8; 8];
    match uninterrupted(|| sys::recv(socket, &mut bytes, libc::MSG_WAITALL)) {
        Ok(8) => Some(u64::from_be_bytes(bytes)),
        Ok(size) => {
            assert_eq!(size, 0, "a part of a number");
            None
        }
        Err(Errno(libc::ECONNRESET)) => None,
        Err(errno) => panic!("recv of a number: {errno:?}"),
    }
}

fn accept_script(socket: Descriptor) -> u64 {
    read_number(socket).expect("a client that lives says its number")
}
