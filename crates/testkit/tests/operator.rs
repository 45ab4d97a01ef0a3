//! The operator's view of two hosts is correct: two daemons, programs that exchange bytes, and the output of commands
//! about them.
//!
//! The test has no test harness: a user other than root must be alone in the process to gain the right to make
//! namespaces. With other arguments this program is the test's clients and servers. Where namespaces are not allowed
//! the test prints that it is skipped.

use std::io::{BufRead, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use netchannel_namespaces::Configuration;
use netchannel_testkit::runner::find_netchannel;
use netchannel_testkit::two_hosts::{Carrier, HostsError, TwoHosts, Which};
use serde_json::Value;

/// Ports of the programs: one under NetChannel, and one over kernel TCP.
const PORT: u16 = 4100;
const PLAIN: u16 = 4101;
const ENDS: u16 = 4102;
/// Bytes of a message.
const MESSAGE: usize = 256 << 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let port = |at: usize| words[at].parse().expect("a port");
    match words.first().map(String::as_str) {
        Some("serve") => serve(port(1)),
        Some("talk") => talk(&words[1], port(2)),
        Some("ends") => ends(port(1)),
        Some("connect") => connect(words[1].parse().expect("an address"), port(2)),
        Some("--list") => {
            println!("operator: test");
            ExitCode::SUCCESS
        }
        _ => test(),
    }
}

/// A listener, of which the starter of this program is told.
fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind(("0.0.0.0", port)).expect("a listener");
    println!("listens");
    listener
}

/// Sends back all bytes.
fn serve(port: u16) -> ExitCode {
    let listener = listen(port);
    for stream in listener.incoming() {
        std::thread::spawn(move || {
            let mut stream = stream.expect("a connection");
            let mut bytes = vec![0; MESSAGE];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                if stream.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
        });
    }
    ExitCode::SUCCESS
}

/// Accepts one connection and reads until it is reset. An ordinary end is a failure.
fn ends(port: u16) -> ExitCode {
    let listener = listen(port);
    let (mut stream, _) = listener.accept().expect("a connection");
    loop {
        match stream.read(&mut [0; 100]) {
            Ok(0) => return ExitCode::FAILURE,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                return ExitCode::SUCCESS;
            }
        }
    }
}

/// Sends messages and compares the echoes, until its input ends.
fn talk(address: &str, port: u16) -> ExitCode {
    let mut stream = TcpStream::connect((address, port)).expect("a connection");
    let ended = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut round = 0_u8;
    while !ended.is_finished() {
        let sent: Vec<u8> = (0..MESSAGE)
            .map(|at| u8::try_from(at % 251).expect("a byte").wrapping_add(round))
            .collect();
        let mut writer = stream.try_clone().expect("a descriptor");
        let mut got = vec![0; MESSAGE];
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&sent).expect("a whole message"));
            stream.read_exact(&mut got).expect("a whole answer");
        });
        assert!(sent == got, "other bytes came back");
        round = round.wrapping_add(1);
    }
    ExitCode::SUCCESS
}

/// Connects once and keeps the socket, whatever the result, until its input ends.
fn connect(address: Ipv4Addr, port: u16) -> ExitCode {
    // SAFETY: plain numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    let to = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("a family"),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(address).to_be(),
        },
        sin_zero: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&to)).expect("a length");
    // SAFETY: the address is a local of that length.
    unsafe { libc::connect(socket, (&raw const to).cast(), length) };
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}

/// A running program. Dropping the value ends it.
struct Running(Child);

impl Running {
    /// Closes the program's input and waits for its end.
    fn finish(mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().expect("a status");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    hosts: TwoHosts,
    netchannel: PathBuf,
    own: PathBuf,
}

impl World {
    fn start(
        &self,
        which: Which,
        carrier: Carrier,
        words: &[&str],
        class: Option<&str>,
    ) -> Running {
        let mut command = self.hosts.command(&self.own, which, carrier);
        command.args(words).stdin(Stdio::piped());
        if let Some(class) = class {
            command.env("NETCHANNEL_CLASS", class);
        }
        Running(command.spawn().expect("a program"))
    }

    /// Starts a program on host b, and waits until it listens.
    fn start_listening(&self, carrier: Carrier, words: &[&str]) -> Running {
        let mut command = self.hosts.command(&self.own, Which::B, carrier);
        command.args(words).stdin(Stdio::piped());
        let mut started = command.stdout(Stdio::piped()).spawn().expect("a program");
        let mut said = std::io::BufReader::new(started.stdout.take().expect("its output"));
        said.read_line(&mut String::new()).expect("that it listens");
        Running(started)
    }

    fn socket(&mut self, which: Which) -> PathBuf {
        self.hosts.daemon(which).expect("a daemon").socket()
    }

    /// The output of a command on one of the hosts.
    fn ask(&mut self, which: Which, words: &[&str]) -> Value {
        let socket = self.socket(which);
        let output = Command::new(&self.netchannel)
            .args(words)
            .args(["--json", "--socket"])
            .arg(socket)
            .output()
            .expect("an answer");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Repeats a command until its output is as wanted.
    fn until(&mut self, which: Which, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let answer = self.ask(which, words);
            if wanted(&answer) {
                return answer;
            }
            if start.elapsed() > Duration::from_secs(30) {
                let logs = self.hosts.logs();
                let shown = [Which::A, Which::B].map(|which| self.ask(which, &["ss"]));
                panic!("{words:?} says {answer:#}\nsockets of both hosts: {shown:#?}\n{logs}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn file(&mut self, which: Which) -> PathBuf {
        self.socket(which).with_file_name("netchannel.toml")
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The first socket with a path.
fn of_path<'a>(sockets: &'a Value, path: &str) -> Option<&'a Value> {
    list(sockets).iter().find(|one| text(one, "path") == path)
}

fn test() -> ExitCode {
    let own = std::env::current_exe().expect("own path");
    let Some(netchannel) = find_netchannel(own.parent().expect("a folder")) else {
        println!("skipped: operator: no netchannel program is built");
        return ExitCode::SUCCESS;
    };
    let configuration = Configuration {
        more: "[limits]\nworkers = 4\n",
        ..Configuration::default()
    };
    let hosts = match TwoHosts::make_with(Some(&netchannel), &configuration) {
        Ok(hosts) => hosts,
        Err(HostsError::Unsupported(why)) => {
            println!("skipped: operator: {why}");
            return ExitCode::SUCCESS;
        }
        Err(HostsError::Failed(why)) => panic!("{why}"),
    };
    let mut world = World {
        hosts,
        netchannel,
        own,
    };
    let there = world.hosts.host(Which::B).v4(0).to_string();
    let _server = world.start_listening(Carrier::NetChannel, &["serve", &PORT.to_string()]);
    world.until(Which::A, &["peers"], |peers| knows_port(peers, PORT));
    let words = ["talk", &there, &PORT.to_string()];
    let talker = world.start(Which::A, Carrier::NetChannel, &words, Some("throughput"));
    what_is_shown(&mut world);
    println!("test what_is_shown ... ok");
    policies_change(&mut world);
    println!("test policies_change ... ok");
    channels_come_and_go(&mut world, talker);
    println!("test channels_come_and_go ... ok");
    fallbacks_say_why(&mut world, &there);
    println!("test fallbacks_say_why ... ok");
    println!("test a_dead_daemon_is_no_end ... ok");
    ExitCode::SUCCESS
}

fn what_is_shown(world: &mut World) {
    let served = |source: &'static str| {
        move |sockets: &Value| {
            of_path(sockets, "channel").is_some_and(|one| {
                text(one, "class") == "throughput"
                    && text(one, "class_source") == source
                    && text(one, "channels").contains("T0")
                    && number(&one["sent"]) > 0
                    && number(&one["received"]) > 0
            })
        }
    };
    let here = world.until(Which::A, &["ss"], served("run"));
    assert_eq!(text(of_path(&here, "channel").unwrap(), "host"), "b");
    let there = world.until(Which::B, &["ss"], served("peer"));
    assert_eq!(text(of_path(&there, "channel").unwrap(), "host"), "a");

    let peers = world.until(Which::A, &["peers"], |peers| {
        let peer = &peers[0];
        text(peer, "state") == "up"
            && number(&peer["sockets"]) == 1
            && number(&peer["opened"]) == 1
            && number(&peer["traffic"]["sent_bytes"]) > 1 << 20
            && number(&peer["traffic"]["received_bytes"]) > 1 << 20
            && number(&peer["round_trip_microseconds"]) > 0
    });
    assert_eq!(text(&peers[0], "reason"), "");
    let channels = world.until(Which::A, &["channels"], |channels| {
        let of = |class: &str| {
            let mut all = list(channels).iter();
            all.find(|one| text(one, "class") == class).cloned()
        };
        let (Some(latency), Some(throughput)) = (of("latency"), of("throughput")) else {
            return false;
        };
        number(&latency["worker"]) == 0
            && number(&throughput["worker"]) > 0
            && number(&throughput["traffic"]["sent_bytes"]) > 1 << 20
            && number(&throughput["traffic"]["writes"]) > 0
            && number(&throughput["round_trip_microseconds"]) > 0
    });
    for channel in list(&channels) {
        assert_eq!(text(channel, "state"), "up");
        assert!(text(channel, "remote").starts_with("10.77.2.1:"));
        assert_eq!(text(channel, "transport"), "tcp");
        assert_ne!(text(channel, "congestion_control"), "");
    }
}

/// Checks that the talker goes on.
fn still_talks(world: &mut World) {
    let sent = |sockets: &Value| of_path(sockets, "channel").map_or(0, |one| number(&one["sent"]));
    let before = sent(&world.ask(Which::A, &["ss"]));
    world.until(Which::A, &["ss"], |sockets| {
        sent(sockets) > before + (1 << 20)
    });
}

/// The policy of a kind, and whether it was set.
fn policy(policies: &Value, kind: &str) -> (String, bool) {
    let mut all = list(policies).iter();
    let found = all.find(|one| text(one, "kind") == kind).expect("a policy");
    (text(found, "setting").to_owned(), found["set"] == true)
}

fn policies_change(world: &mut World) {
    for name in ["sticky", "deficit-round-robin", "shortest-queue"] {
        world.ask(Which::A, &["set", "scheduler", name]);
        still_talks(world);
    }
    let (set, was_set) = policy(&world.ask(Which::A, &["set", "scheduler"]), "channel");
    assert!(set.starts_with("shortest-queue") && was_set, "{set}");
    let file = world.file(Which::A);
    let said = std::fs::read_to_string(&file).expect("the configuration");
    let changed = format!("{said}\n[scheduler]\nchannel = \"round-robin stay=1\"\n");
    std::fs::write(&file, changed).expect("a file");
    world.ask(Which::A, &["config", "reload"]);
    let (set, was_set) = policy(&world.ask(Which::A, &["set", "scheduler"]), "channel");
    assert!(set.starts_with("round-robin") && !was_set, "{set}");
    still_talks(world);
    let peers = world.ask(Which::A, &["peers"]);
    assert_eq!(number(&peers[0]["opened"]), 1);
    assert_eq!(number(&peers[0]["lost_channels"]), 0);
}

/// Whether the other host has said that a program listens there.
fn knows_port(peers: &Value, port: u16) -> bool {
    list(&peers[0]["ports"]).contains(&port.into())
}

/// The number of channels that carry connections.
fn up(peers: &Value) -> u64 {
    number(&peers[0]["throughput"]["up"])
}

fn channels_come_and_go(world: &mut World, talker: Running) {
    let policy = [
        "set",
        "scheduler",
        "hysteresis",
        "most=3",
        "busy=2%",
        "idle=1%",
        "busy-for=50ms",
        "idle-for=300ms",
        "pause=50ms",
    ];
    world.ask(Which::A, &policy);
    world.until(Which::A, &["peers"], |peers| up(peers) == 3);
    world.until(Which::A, &["ss"], |sockets| {
        let used = of_path(sockets, "channel").map_or("", |one| text(one, "channels"));
        used.ends_with("T0,T1,T2")
    });
    still_talks(world);
    talker.finish();
    world.until(Which::A, &["peers"], |peers| up(peers) == 1);
    // The other host releases the channels, too: it does not dial them again.
    world.until(Which::B, &["peers"], |peers| up(peers) == 1);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(up(&world.ask(Which::A, &["peers"])), 1);
    let peers = world.ask(Which::A, &["peers"]);
    assert_eq!(number(&peers[0]["lost_channels"]), 0);
    assert_eq!(number(&peers[0]["traffic"]["repeated_bytes"]), 0);
}

/// Connects, and checks the reason why the connection went over kernel TCP.
fn fallback(world: &mut World, address: &str, port: u16, reason: &str) {
    let words = ["connect", address, &port.to_string()];
    let program = world.start(Which::A, Carrier::NetChannel, &words, None);
    world.until(Which::A, &["ss"], |sockets| {
        let mut all = list(sockets).iter();
        all.any(|one| text(one, "path") == "kernel" && text(one, "reason") == reason)
    });
    program.finish();
}

fn fallbacks_say_why(world: &mut World, there: &str) {
    let _plain = world.start_listening(Carrier::Kernel, &["serve", &PLAIN.to_string()]);
    fallback(world, there, PLAIN, "no-listener");
    fallback(world, "10.99.9.9", PORT, "remote");
    let words = ["ends", &ENDS.to_string()];
    let reader = world.start_listening(Carrier::NetChannel, &words);
    world.until(Which::A, &["peers"], |peers| knows_port(peers, ENDS));
    let words = ["connect", there, &ENDS.to_string()];
    let _client = world.start(Which::A, Carrier::NetChannel, &words, None);
    world.until(Which::B, &["ss"], |sockets| {
        let mut all = list(sockets).iter();
        let here = format!(":{ENDS}");
        all.any(|one| text(one, "path") == "channel" && text(one, "local").ends_with(&here))
    });
    if let Some(daemon) = world.hosts.daemon(Which::B) {
        daemon.kill();
    }
    // The death of a daemon is not an end of the stream.
    reader.finish();
    world.until(Which::A, &["peers"], |peers| {
        text(&peers[0], "state") != "up"
    });
    fallback(world, there, PORT, "peer-down");
    // The other daemon restarts: bytes that were moved before still count.
    let moved = |peers: &Value| number(&peers[0]["traffic"]["sent_bytes"]);
    let before = moved(&world.ask(Which::A, &["peers"]));
    assert!(before > 0);
    if let Some(daemon) = world.hosts.daemon(Which::B) {
        daemon.start_again().expect("a daemon");
    }
    let peers = world.until(Which::A, &["peers"], |peers| {
        text(&peers[0], "state") == "up" && number(&peers[0]["restarts"]) == 1
    });
    assert!(moved(&peers) >= before, "{before} {peers:#}");
}
