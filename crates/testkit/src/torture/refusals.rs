//! Connections that a daemon cannot or will not carry, and ends that come at once. The same faults over kernel TCP show
//! the same. Each fault prints its observations.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::Random;
use netchannel_testkit::two_hosts::{TwoHosts, Which};

use crate::plain::{any_of_b, expect, ready, wait_until_virtual, witness, witness_with};
use crate::program::Program;
use crate::{Options, witness};

/// The number of simultaneous connects.
const MANY: usize = 1000;
/// The number of programs that are killed, unless `--rounds` says otherwise.
const VICTIMS: u64 = 300;
/// How many of them run at the same time.
const AT_ONCE: usize = 32;
/// Within this time no state of them is left.
const CLEARED: Duration = Duration::from_secs(20);
/// The number of descriptors that a daemon has left. A program can attach and has a link.
const FEW: usize = 16;
/// An address that the other host does not accept as an address of this host.
const STRANGE: &str = "10.99.0.1";
/// The longest pause when one of two cables is cut: about 0.6 s where processors are free.
const PAUSE: Duration = Duration::from_secs(2);

/// Makes a thousand connects without blocking. All must succeed, and none may take longer than a program's patience.
pub fn many_connects(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let address = serve(hosts, options)?;
    many(hosts, options, &address.1, MANY, "")
}

/// The connecting program binds an address of its host that the other daemon does not know.
pub fn unknown_source(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let address = serve(hosts, options)?;
    let own = hosts.hosts().a.v4(0).to_string();
    run(
        hosts,
        Which::A,
        &["addr", "add", &format!("{STRANGE}/32"), "dev", "lo"],
    )?;
    run(hosts, Which::B, &["route", "add", STRANGE, "via", &own])?;
    many(hosts, options, &address.1, 20, STRANGE)
}

/// Leaves each daemon in turn only [`FEW`] free descriptors.
pub fn no_descriptors(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let address = serve(hosts, options)?;
    let mut texts = Vec::new();
    for which in [Which::A, Which::B] {
        let Some(daemon) = hosts.daemon(which) else {
            texts.push(many(hosts, options, &address.1, 200, "")?);
            continue;
        };
        daemon.limit_descriptors(FEW);
        texts.push(many(hosts, options, &address.1, 200, "")?);
    }
    Ok(texts.join("; "))
}

/// The daemon of the server's host ends in good order while a connection waits. The connection is reset at once, and
/// new ones work.
pub fn daemon_ends(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let (_server, address) = serve(hosts, options)?;
    let mut client = witness(hosts, options, Which::A, "call", &address);
    expect(&mut client, &["connected"])?;
    expect(&mut client, &["echoed"])?;
    let Some(daemon) = hosts.daemon(Which::B) else {
        return Ok("left out: kernel TCP has no daemon".to_owned());
    };
    daemon.end();
    let ended = Instant::now();
    expect(&mut client, &["gone ECONNRESET"])?;
    let after = ended.elapsed();
    if after > Duration::from_secs(1) {
        return Err(format!("reset after {:.1} s only", after.as_secs_f64()));
    }
    let then = many(hosts, options, &address, 5, "")?;
    Ok(format!(
        "reset after {:.2} s; then {then}",
        after.as_secs_f64()
    ))
}

/// Kills programs while they connect, or right after. None of their connections may stay.
pub fn clients_killed(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let address = serve(hosts, options)?;
    let wanted = options.rounds.unwrap_or(VICTIMS);
    let mut random = Random::new(options.seed);
    let (mut begun, mut killed) = (0, 0);
    let mut living: Vec<Program> = Vec::new();
    while killed < wanted {
        if begun < wanted && living.len() < AT_ONCE {
            let words = ["--index", &random.between(1, 6).to_string()].map(str::to_owned);
            living.push(witness_with(
                hosts,
                options,
                Which::A,
                "victim",
                &address.1,
                &words,
            ));
            begun += 1;
            continue;
        }
        let before = living.len();
        living.retain_mut(Program::is_running);
        killed += u64::try_from(before - living.len()).unwrap_or(0);
        thread::sleep(Duration::from_millis(1));
    }
    let seconds = nothing_left(hosts, options, CLEARED)
        .map_err(|text| format!("{killed} killed, {text}"))?
        .as_secs_f64();
    Ok(format!(
        "{killed} killed, nothing left after {seconds:.1} s"
    ))
}

/// Waits until neither daemon has a connection with the other host. Returns how long that took.
pub fn nothing_left(
    hosts: &mut TwoHosts,
    options: &Options,
    limit: Duration,
) -> Result<Duration, String> {
    let start = Instant::now();
    loop {
        let left = [Which::A, Which::B].map(|which| left(hosts, options, which));
        if left == [0, 0] {
            return Ok(start.elapsed());
        }
        if start.elapsed() > limit {
            return Err(format!("{left:?} connections left"));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Cuts one of two cables, and then the other. Connections to the other address must go on.
pub fn one_of_two_cables(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let (_server, address) = serve(hosts, options)?;
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let second = format!("{}:{port}", hosts.hosts().b.v4_of_second_cable());
    let mut worst = Vec::new();
    for (cut, call) in [("veth0", &second), ("veth1", &address)] {
        let words = ["--milliseconds", "4000"].map(str::to_owned);
        let mut client = witness_with(hosts, options, Which::A, "ping", call, &words);
        expect(&mut client, &["connected"])?;
        thread::sleep(Duration::from_millis(500));
        run(hosts, Which::B, &["link", "set", cut, "down"])?;
        let line = client.line();
        run(hosts, Which::B, &["link", "set", cut, "up"])?;
        let pause = line
            .strip_prefix("paused ")
            .and_then(|word| word.parse().ok());
        let Some(pause) = pause.map(Duration::from_millis) else {
            return Err(format!("with {cut} cut: {line:?}"));
        };
        if pause > PAUSE {
            return Err(format!("with {cut} cut: a pause of {pause:?}"));
        }
        worst.push(format!("{:.2} s", pause.as_secs_f64()));
    }
    Ok(format!(
        "longest pause at the other address: {}",
        worst.join(", ")
    ))
}

fn serve(hosts: &TwoHosts, options: &Options) -> Result<(Program, String), String> {
    if options.netchannel.is_some() {
        wait_until_virtual(hosts)?;
    }
    let mut server = witness(hosts, options, Which::B, "serve-many", "0.0.0.0:0");
    let answer = ready(&mut server)?;
    let port = answer.rsplit_once(':').map_or("0", |(_, port)| port);
    let address = any_of_b(hosts).replace(":0", &format!(":{port}"));
    // The other host learns of the listener in a moment.
    thread::sleep(Duration::from_millis(300));
    Ok((server, address))
}

/// Connects `count` times without blocking. All connects must succeed.
fn many(
    hosts: &TwoHosts,
    options: &Options,
    address: &str,
    count: usize,
    source: &str,
) -> Result<String, String> {
    let mut words = vec!["--rounds".to_owned(), count.to_string()];
    if !source.is_empty() {
        words.extend(["--only".to_owned(), source.to_owned()]);
    }
    let mut client = witness_with(hosts, options, Which::A, "many", address, &words);
    let line = client.line();
    if line.starts_with(&witness::all_made(count)) {
        Ok(line)
    } else {
        Err(line)
    }
}

/// The number of connections with the other host that a daemon has.
fn left(hosts: &mut TwoHosts, options: &Options, which: Which) -> usize {
    let (Some(program), Some(daemon)) = (&options.netchannel, hosts.daemon(which)) else {
        return 0;
    };
    let socket = daemon.socket();
    let output = Command::new(program)
        .args(["peers", "--json", "--socket"])
        .arg(socket)
        .stderr(Stdio::null())
        .output();
    let text = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    // Searches the text of the JSON, because no parser is available: `"sockets": 3`.
    let counts = text.split("\"sockets\":").skip(1);
    let number = |rest: &str| {
        let digits: String = rest
            .trim_start()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<usize>().unwrap_or(usize::MAX)
    };
    counts.map(number).sum()
}

/// Runs `ip` on a host.
pub fn run(hosts: &TwoHosts, which: Which, words: &[&str]) -> Result<(), String> {
    let status = hosts.host(which).command("ip").args(words).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("ip {words:?}: {other:?}")),
    }
}
