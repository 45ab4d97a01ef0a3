//! `torture`: seeded connections whose every byte is compared, and processes killed at random.
//!
//! An ordinary socket program of two processes. The content and the end of a connection are derived from the seed and
//! the connection's number, so that both ends know them and a failure can be repeated.

mod between;
mod blocking;
mod calls;
mod ends;
mod endure;
mod errors;
mod faults;
mod flow;
mod hand_over;
mod handed;
mod holders;
mod hostile;
mod interrupter;
mod killer;
mod limits;
mod outages;
mod pipe;
mod plain;
mod program;
mod readiness;
mod receiver;
mod refusals;
mod rounds;
mod script;
mod sender;
mod servers;
mod shared;
mod step;
mod users;
mod witness;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netchannel_testkit::support::{
    Baton, Family, PATIENCE, fork_child, listener_with, prepare_process, set_int, tcp,
    uninterrupted,
};
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

use readiness::Kind;
use script::Script;

const USAGE: &str = "usage:
  torture bytes  [OPTIONS] [--mode blocking|poll|level|edge|handed|shared|all]
  torture killer [OPTIONS] [--rounds N]
  torture hostile [OPTIONS] [--rounds N]
  torture servers [OPTIONS] [--rounds N] [--only SHAPE] [--except SHAPE]
                     servers and clients of drawn shapes (prefork, fork for each, passing, threads...), whose connections pass
                     from hand to hand while signals interrupt and stop them. Rounds are such families
  torture shared [OPTIONS] [--rounds N]
                     one connection with several writers and readers, threads or processes. Rounds are such connections
  torture handed [OPTIONS] [--rounds N]
                     one connection whose ends go from process to process, by fork, exec, spawn and messages, while bytes
                     flow both ways. Rounds are such connections
  torture between [OPTIONS] [--mode M|servers] [--netchannel PROGRAM] [--tenant out|in|channels]
                     bytes or servers between two hosts, over kernel TCP without a program. A tenant of one host connects
                     to kernel TCP of the other one (out), serves it (in), or connects over channels
  torture faults [OPTIONS] [--netchannel PROGRAM] [--only NAME]
                     bytes between two hosts while channels are killed, a cable is out, a daemon dies; what
                     daemons cannot take; over kernel TCP without a program. Rounds are clients to kill
  torture hosts  [OPTIONS] [--netchannel PROGRAM] [--only NAME] [--rounds N]
                     what is wrong between hosts (cable, loss, address), under programs over kernel TCP and over NetChannel
                     at the same time: what the second kind meets must be no worse. Rounds are seeds of each (default 1)
  torture limits [OPTIONS] [--rounds N] [--only SERVER/CLIENT]
                     servers and clients with 64, 300, 1024 numbers for descriptors, by the soft and hard limit (300) or the soft
                     one (soft-300), or with the caller's (own). Rounds are connections of each pair (default 5000)
  torture users [OPTIONS] [--netchannel PROGRAM] [--only PART,...]
                     as root: three users under root's daemon, one of them hostile
options:
  --seed N           what is drawn from (default: the time; it is printed)
  --seconds N        how long (default 10)
  --connections N    at the same time (default 16)
  --threads N        loops per process, for poll, level and edge (default 2)
  --family v4|v6     (default: both)
exit status: 0 all was well, 1 something was not, 2 wrong usage";

/// The number that tells a server to stop.
const STOP: u64 = u64::MAX;

/// Whether the other host may be unreachable for a while, or the transport of the bytes may be lost. Connecting is then
/// retried.
static OUTAGES: AtomicBool = AtomicBool::new(false);

/// The options of the command line.
#[derive(Clone)]
struct Options {
    seed: u64,
    seconds: u64,
    connections: usize,
    threads: usize,
    family: Option<Family>,
    mode: String,
    rounds: Option<u64>,
    /// The program under test, between hosts.
    netchannel: Option<PathBuf>,
    /// Part of the name of a fault.
    only: String,
    except: Option<String>,
    /// The address of one end, where the other end is on another host.
    address: SocketAddr,
    /// How long the other host of a run is unreachable.
    milliseconds: u64,
    /// How long connections may make no progress.
    patience: Duration,
    /// What a tenant does, where one end is a tenant's.
    tenant: Option<between::Tenant>,
    /// The descriptor of the board that programs of a round share.
    board: Descriptor,
    /// The descriptor that a program goes on with.
    descriptor: Descriptor,
    /// The index of this process among several users or programs.
    index: usize,
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
        netchannel: None,
        only: String::new(),
        except: None,
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        milliseconds: 0,
        patience: PATIENCE,
        tenant: None,
        board: -1,
        descriptor: -1,
        index: 0,
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
            "--netchannel" => options.netchannel = Some(PathBuf::from(value)),
            "--only" => options.only.clone_from(value),
            "--except" => options.except = Some(value.clone()),
            "--address" => {
                options.address = value
                    .parse()
                    .map_err(|_| format!("{value} is no address"))?
            }
            "--milliseconds" => options.milliseconds = number()?,
            "--index" => options.index = usize::try_from(number()?).unwrap_or(0),
            "--tenant" => match between::Tenant::of(value) {
                Some(tenant) => options.tenant = Some(tenant),
                None => return Err(format!("--tenant {value}: say out, in or channels")),
            },
            "--descriptor" => options.descriptor = Descriptor::try_from(number()?).unwrap_or(-1),
            "--board" => options.board = Descriptor::try_from(number()?).unwrap_or(-1),
            "--patience" => options.patience = Duration::from_secs(number()?),
            "--family" if value == "v4" => options.family = Some(Family::V4),
            "--family" if value == "v6" => options.family = Some(Family::V6),
            _ => return Err(format!("{word} {value} is not understood")),
        }
    }
    Ok(options)
}

/// How the two processes of a run work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Blocking,
    Readiness(Kind),
    /// Each connection goes from process to process.
    Handed,
    /// Each connection has several writers and readers.
    Shared,
}

const MODES: [(&str, Mode); 6] = [
    ("blocking", Mode::Blocking),
    ("poll", Mode::Readiness(Kind::Poll)),
    ("level", Mode::Readiness(Kind::Level)),
    ("edge", Mode::Readiness(Kind::Edge)),
    ("handed", Mode::Handed),
    ("shared", Mode::Shared),
];

impl Mode {
    /// The mode's word on the command line.
    fn name(self) -> &'static str {
        let known = MODES.iter().find(|(_, mode)| *mode == self);
        known.map_or("edge", |(name, _)| name)
    }
}

fn modes(name: &str) -> Option<Vec<Mode>> {
    let chosen: Vec<_> = MODES
        .into_iter()
        .filter(|(known, _)| name == "all" || name == *known)
        .collect();
    (!chosen.is_empty()).then(|| chosen.into_iter().map(|(_, mode)| mode).collect())
}

fn main() {
    let mut arguments = std::env::args().skip(1).collect::<Vec<_>>().into_iter();
    let command = arguments.next().unwrap_or_default();
    let mut rest: Vec<String> = arguments.collect();
    if let Some(status) = calls::run(&command, &rest) {
        std::process::exit(status);
    }
    let asks = |word: &String| word == "--help" || word == "-h";
    if rest.iter().chain([&command]).any(asks) {
        return println!("{USAGE}");
    }
    if command == handed::GOES_ON {
        return handed::executed(&rest);
    }
    let witness = if command == "witness" && !rest.is_empty() {
        rest.remove(0)
    } else {
        String::new()
    };
    let options = match parse(&rest) {
        Ok(options) => options,
        Err(text) => usage(&text),
    };
    if command == "between" && options.mode == "servers" {
        std::process::exit(servers::run_apart(&options));
    }
    let Some(modes) = modes(&options.mode) else {
        usage("there is no such mode")
    };
    let families = options
        .family
        .map_or(vec![Family::V4, Family::V6], |family| vec![family]);
    match command.as_str() {
        "between" => std::process::exit(between::run(&options, &modes, &families)),
        "faults" => std::process::exit(faults::run(&options)),
        "hosts" => std::process::exit(outages::run(&options)),
        "limits" => std::process::exit(limits::run(&options)),
        "users" => std::process::exit(users::run(&options)),
        "users-hostile" => return users::hostile::run(&options),
        "witness" => return witness::run(&witness, &options),
        _ => {}
    }
    OUTAGES.store(options.patience > PATIENCE, Ordering::Relaxed);
    prepare_process();
    sys::ignore_signal(libc::SIGPIPE).expect("sigaction");
    let duration = Duration::from_millis(options.milliseconds);
    match command.as_str() {
        "bytes" => {
            let runs = u64::try_from(modes.len() * families.len()).unwrap_or(1);
            let each = Duration::from_millis(options.seconds * 1000 / runs);
            for mode in modes {
                for family in &families {
                    bytes(&options, mode, *family, each);
                }
            }
        }
        "killer" => killer::run(&options),
        "hostile" => hostile::run(&options),
        "servers" => std::process::exit(servers::run(&options)),
        "shared" => std::process::exit(shared::run(&options)),
        "handed" => std::process::exit(handed::run(&options)),
        "servers-serve" => servers::serve(&options),
        "servers-drive" => servers::drive(&options),
        "servers-executed" => servers::executed(&options),
        servers::HOLDS => servers::executed_to_hold(&options, false),
        servers::RECEIVES => servers::executed_to_hold(&options, true),
        "limits-serve" => limits::serve(&options),
        "limits-drive" => limits::drive(&options),
        "users-serve" => without_watchdog(|| users::serve(&options)),
        "users-drive" => without_watchdog(|| users::drive(&options)),
        "users-visit" => without_watchdog(|| users::visit(&options)),
        "serve" => between::serve(&options, modes[0], duration),
        "drive" => {
            let sum = ends::drive(options.address, &options, modes[0], duration);
            println!("PASS {}, seed {}, {sum}", modes[0].name(), options.seed);
        }
        _ => usage(
            "say bytes, killer, hostile, servers, shared, handed, between, faults, hosts, limits or users",
        ),
    }
}

/// Runs work that another process watches.
fn without_watchdog(work: impl FnOnce()) {
    sys::alarm(0);
    work();
}

fn usage(text: &str) -> ! {
    eprintln!("{text}\n{USAGE}");
    std::process::exit(2)
}

/// One run: a server process, and this process as the client.
fn bytes(options: &Options, mode: Mode, family: Family, duration: Duration) {
    let ready = Baton::new();
    let server = fork_child(|| {
        let (listening, address) = listener_with(family, 1024);
        step::keep_urgent_bytes(listening);
        ready.send(u64::from(address.port()));
        ends::serve(listening, options, mode, duration);
    });
    let address = family.loopback(u16::try_from(ready.receive()).expect("a port"));
    let sum = ends::drive(address, options, mode, duration);
    server.join();
    ready.close();
    println!(
        "PASS bytes: {mode:?} {family:?}, seed {}, {sum}",
        options.seed
    );
}

fn send_number(socket: Descriptor, number: u64) -> Outcome<()> {
    let bytes = number.to_be_bytes();
    let sent = uninterrupted(|| sys::send(socket, &bytes, libc::MSG_NOSIGNAL))?;
    assert_eq!(sent, 8, "eight bytes fit into an empty connection");
    Ok(())
}

fn set_buffers(socket: Descriptor, script: &Script) {
    if let Some(size) = script.buffers {
        set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, size);
        set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, size);
    }
}

/// Connects for a script and sends its number. `None` if the other end died meanwhile.
fn try_open(address: SocketAddr, script: &Script) -> Outcome<Option<Descriptor>> {
    let socket = tcp(Family::of(address));
    set_buffers(socket, script);
    if let Err(errno) = uninterrupted(|| sys::connect(socket, address)) {
        sys::close(socket).expect("close");
        return Err(errno);
    }
    step::expect_as_new(socket, 0);
    step::keep_urgent_bytes(socket);
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
    loop {
        match try_open(address, script) {
            Ok(Some(socket)) => return socket,
            Err(Errno(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ETIMEDOUT))
                if OUTAGES.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            other => panic!("{script:?}: connect: {other:?}"),
        }
    }
}

/// The number that a client sent over a new connection, or `None` if the client died before.
fn read_number(socket: Descriptor) -> Option<u64> {
    step::expect_as_new(socket, 1);
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

/// The number that a living client sends. `None` where bytes sent before a reset may be lost with their transport.
fn accept_script(socket: Descriptor) -> Option<u64> {
    let number = read_number(socket);
    assert!(
        number.is_some() || OUTAGES.load(Ordering::Relaxed),
        "a client that lives says its number"
    );
    number
}
