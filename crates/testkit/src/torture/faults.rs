//! Real faults between two hosts: channels are killed, the cable is pulled, a daemon dies.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Family, Random};
use netchannel_testkit::two_hosts::{TwoHosts, Which};

use crate::between::{Transfer, make_hosts_with};
use crate::plain::{
    NOTICE, any_of_b, carried_by_kernel, expect, ready, wait_until_virtual, witness,
};
use crate::program::Program;
use crate::readiness::Kind;
use crate::{Mode, Options, refusals};
use netchannel_namespaces::Configuration;

/// How often channels are killed during a transfer.
const KILLS: usize = 100;
/// The port on which daemons listen for each other.
const PORT: u16 = 7117;
/// How long the cable is unplugged.
const OUTAGE: Duration = Duration::from_secs(10);

/// How long channels are killed at most.
const LONGEST: Duration = Duration::from_secs(120);

/// A fault's test. Returns the line to print, or the failure.
type Fault = fn(&mut TwoHosts, &Options) -> Result<String, String>;

const FAULTS: [(&str, Fault); 10] = [
    ("channels_killed", channels_killed),
    ("cable_pulled", cable_pulled),
    ("stopped_reader", stopped_reader),
    ("daemon_killed", daemon_killed),
    ("many_connects", refusals::many_connects),
    ("unknown_source", refusals::unknown_source),
    ("no_descriptors", refusals::no_descriptors),
    ("daemon_ends", refusals::daemon_ends),
    ("clients_killed", refusals::clients_killed),
    ("one_of_two_cables", refusals::one_of_two_cables),
];

/// Runs the faults whose names are given, or all. Returns the exit status.
pub fn run(options: &Options) -> i32 {
    let mut failures = 0;
    for (name, fault) in FAULTS {
        if !name.contains(&options.only) {
            continue;
        }
        // Each fault has its own hosts, so that it does not see what another one has left.
        let configuration = Configuration {
            two_cables: name.contains("cables"),
            ..Configuration::default()
        };
        let mut hosts = match make_hosts_with(options, &configuration) {
            Ok(hosts) => hosts,
            Err(status) => return status,
        };
        let start = Instant::now();
        let outcome = fault(&mut hosts, options);
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(text) => println!("{name}: {text} ({seconds:.1} s)"),
            Err(text) => {
                failures += 1;
                println!("FAIL {name}: {text} ({seconds:.1} s)\n{}", hosts.logs());
            }
        }
    }
    i32::from(failures > 0)
}

fn transfer(hosts: &TwoHosts, options: &Options, seconds: u64) -> Transfer {
    // More than the usual patience, because the ends must sit out outages.
    let options = &Options {
        patience: Duration::from_secs(60),
        ..options.clone()
    };
    let mode = Mode::Readiness(Kind::Edge);
    Transfer::start(
        hosts,
        options,
        mode,
        Family::V4,
        Duration::from_secs(seconds),
    )
}

/// Kills the transport connections of channels at random, a hundred times, while bytes are compared.
fn channels_killed(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    if options.netchannel.is_none() {
        return Ok("left out: kernel TCP has no channels".to_owned());
    }
    wait_until_virtual(hosts)?;
    let mut random = Random::new(options.seed);
    let (mut killed, mut transfers) = (0, 0);
    let latest = Instant::now() + LONGEST;
    while killed < KILLS {
        let mut transfer = transfer(hosts, options, 5);
        transfers += 1;
        while killed < KILLS && transfer.is_running() {
            thread::sleep(Duration::from_millis(random.between(20, 200) as u64));
            let which = if random.once_in(2) {
                Which::A
            } else {
                Which::B
            };
            killed += kill_channels(hosts, which)?;
        }
        transfer.finish(Duration::from_secs(60))?;
        if Instant::now() > latest {
            return Err(format!("only {killed} channels could be killed"));
        }
    }
    Ok(format!(
        "{killed} channels killed during {transfers} transfers, every one completed"
    ))
}

/// Kills the transport connections of all channels of a host. Returns how many there were.
fn kill_channels(hosts: &TwoHosts, which: Which) -> Result<usize, String> {
    let filter = format!("( sport = :{PORT} or dport = :{PORT} )");
    let output = hosts
        .host(which)
        .command("ss")
        .args(["-K", "-H", "-t", "-n", "state", "established", &filter])
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("ss: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter(|line| line.contains(':')).count())
}

/// Unplugs the cable for ten seconds during a transfer.
fn cable_pulled(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    let virtually = options.netchannel.is_some();
    if virtually {
        wait_until_virtual(hosts)?;
    }
    let text = |error: netchannel_namespaces::Error| error.to_string();
    let mut transfer = transfer(hosts, options, 14);
    thread::sleep(Duration::from_secs(1));
    hosts.hosts().cable(false).map_err(text)?;
    thread::sleep(OUTAGE);
    let alive = transfer.is_running();
    hosts.hosts().cable(true).map_err(text)?;
    if !alive {
        let outcome = transfer.finish(Duration::from_secs(1));
        return Err(format!("it ended while the cable was out: {outcome:?}"));
    }
    transfer.finish(Duration::from_secs(90))?;
    Ok("every transfer completed after ten seconds without a cable".to_owned())
}

/// Runs a connection whose reader has stopped, beside a transfer. The other connections must make progress.
fn stopped_reader(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    if options.netchannel.is_some() {
        wait_until_virtual(hosts)?;
    }
    let mut server = witness(hosts, options, Which::B, "hold", &any_of_b(hosts));
    let address = ready(&mut server)?;
    let mut client = witness(hosts, options, Which::A, "pour", &address);
    expect(&mut client, &["full"])?;
    let text = transfer(hosts, options, 2).finish(Duration::from_secs(60))?;
    let line = text.lines().next().unwrap_or_default();
    if text.contains(" 0 MB") {
        return Err(format!("beside a reader that has stopped: {line}"));
    }
    Ok(format!("beside a reader that has stopped: {line}"))
}

/// Kills the daemon of host b while a connection waits. The connection's own end sees an error at once, and the other
/// end when the daemon is back, as after a crash. Meanwhile new connections go over kernel TCP, and later over
/// channels, also to the server that ran all along.
fn daemon_killed(hosts: &mut TwoHosts, options: &Options) -> Result<String, String> {
    if options.netchannel.is_none() {
        return Ok("left out: kernel TCP has no daemon".to_owned());
    }
    wait_until_virtual(hosts)?;
    let mut server = witness(hosts, options, Which::B, "serve", &any_of_b(hosts));
    let address = ready(&mut server)?;
    let mut client = witness(hosts, options, Which::A, "call", &address);
    expect(&mut client, &["connected"])?;
    expect(&mut client, &["echoed"])?;
    if carried_by_kernel(&server, &address) {
        return Err("the connection is not virtual".to_owned());
    }
    hosts.daemon(Which::B).expect("a daemon").kill();
    let killed = Instant::now();
    let errors = ["gone ECONNRESET", "gone ETIMEDOUT", "gone EPIPE"];
    let at_b = expect(&mut server, &errors)?;
    // Host a knows of no error yet, as after a crash. Until host a has noticed that host b is unreachable, a new
    // connection may fail.
    let meanwhile = connect_until(hosts, options, (&server, &address), true)?;
    let daemon = hosts.daemon(Which::B).expect("a daemon");
    daemon.start_again().map_err(|error| error.to_string())?;
    let back = Instant::now();
    let at_a = expect(&mut client, &errors)?;
    wait_until_virtual(hosts)?;
    let channels = back.elapsed();
    let again = connect_until(hosts, options, (&server, &address), false)?;
    Ok(format!(
        "host b: {at_b}; kernel TCP {:.1} s after it; host a: {at_a}, channels {:.1} s after the daemon was back, those to the same server {:.1} s",
        (meanwhile - killed).as_secs_f64(),
        channels.as_secs_f64(),
        (again - back).as_secs_f64()
    ))
}

/// Connects until the kernel carries a connection to a server, or until it does not. Returns the time that took.
fn connect_until(
    hosts: &TwoHosts,
    options: &Options,
    (server, address): (&Program, &str),
    by_kernel: bool,
) -> Result<Instant, String> {
    let start = Instant::now();
    while start.elapsed() < NOTICE {
        let mut client = witness(hosts, options, Which::A, "call", address);
        let connected = client.line() == "connected" && client.line() == "echoed";
        if connected && carried_by_kernel(server, address) == by_kernel {
            return Ok(Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let what = if by_kernel {
        "without"
    } else {
        "over channels to"
    };
    Err(format!("there is no connection {what} the other daemon"))
}
