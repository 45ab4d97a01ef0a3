//! Faults between two hosts, compared with kernel TCP. Programs over kernel TCP and over NetChannel ask for echoes at
//! the same time, over the same cable. The second kind must see no worse effects than the first.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::Random;
use netchannel_testkit::two_hosts::{Carrier, TwoHosts, Which};

use crate::Options;
use crate::between::make_hosts;
use crate::endure::Observations;
use crate::plain::{any_of_b, expect, ready, wait_until_virtual};
use crate::program::{Program, this_program};
use crate::refusals::{nothing_left, run as ip};

/// How much longer than over kernel TCP a pause may be, from the end of the fault on.
const LONGER: Duration = Duration::from_secs(1);
/// The time before the fault, and after it.
const QUIET: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(2);
/// TCP doubles its retransmission pauses: after half a minute without answers it may retry only half a minute later.
const LATEST: Duration = Duration::from_secs(120);
/// Within this time no connection is left.
const CLEARED: Duration = Duration::from_secs(10);
/// The size of a packet: an XDP program takes no packet larger than a page.
const PACKET: u16 = 1500;
const SMALL_PACKET: u16 = 576;

/// A fault.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The device of host b is down.
    Cable,
    /// This fraction of all packets to host b is lost.
    Loss(f64),
    /// Host b has lost its address.
    Address,
    /// The packet size is lowered and raised again.
    SmallPackets,
}

/// The faults with their names and durations in milliseconds.
const OUTAGES: [(&str, Fault, u64); 9] = [
    ("cable_1_s", Fault::Cable, 1_000),
    ("cable_5_s", Fault::Cable, 5_000),
    ("cable_30_s", Fault::Cable, 30_000),
    ("silence_1_s", Fault::Loss(1.0), 1_000),
    ("silence_10_s", Fault::Loss(1.0), 10_000),
    ("address_5_s", Fault::Address, 5_000),
    ("loss_5_percent", Fault::Loss(0.05), 5_000),
    ("loss_30_percent", Fault::Loss(0.3), 5_000),
    ("small_packets", Fault::SmallPackets, 3_000),
];

/// Runs the faults whose names are given, or all, `--rounds` times with different seeds. Returns the exit status.
pub fn run(options: &Options) -> i32 {
    let mut failures = 0;
    for (name, fault, milliseconds) in OUTAGES {
        if !name.contains(&options.only) {
            continue;
        }
        let mut hosts = match make_hosts(options) {
            Ok(hosts) => hosts,
            Err(status) => return status,
        };
        if let Err(error) = hosts.hosts().packets(PACKET, 64) {
            eprintln!("{error}");
            return 1;
        }
        // Whether a connect gets an error or waits depends on the moment, so errors are compared over all rounds.
        let mut errors: [[BTreeSet<String>; 2]; 2] = Default::default();
        for round in 0..options.rounds.unwrap_or(1) {
            let options = &Options {
                seed: options.seed.wrapping_add(round),
                ..options.clone()
            };
            // Moves the fault to another moment within the retransmission pauses each time.
            let shift = Random::new(options.seed).below(250) as u64;
            let lasting = Duration::from_millis(milliseconds + shift);
            match compare(&mut hosts, options, fault, lasting, &mut errors) {
                Ok(text) => println!("{name}, seed {}: {text}", options.seed),
                Err(text) => {
                    failures += 1;
                    let seed = options.seed;
                    println!("FAIL {name}, seed {seed}: {text}\n{}", hosts.logs());
                }
            }
        }
        let [kernel, ours] = &errors;
        for (kernel, ours) in kernel.iter().zip(ours) {
            for error in ours.difference(kernel) {
                failures += 1;
                println!("FAIL {name}: {error}, in no round so over kernel TCP");
            }
        }
    }
    i32::from(failures > 0)
}

/// Runs both kinds of programs under one fault.
fn compare(
    hosts: &mut TwoHosts,
    options: &Options,
    fault: Fault,
    lasting: Duration,
    errors: &mut [[BTreeSet<String>; 2]; 2],
) -> Result<String, String> {
    let mut kinds = vec![Carrier::Kernel];
    if options.netchannel.is_some() {
        wait_until_virtual(hosts)?;
        kinds.push(Carrier::NetChannel);
    }
    let started = kinds
        .iter()
        .map(|carrier| start(hosts, options, *carrier, QUIET + lasting + AFTER));
    let mut pairs = started.collect::<Result<Vec<_>, String>>()?;
    // The programs count from a moment before this one, so their times after the end are a little longer.
    let start = Instant::now();
    thread::sleep(QUIET);
    let restore = inflict(hosts, fault)?;
    thread::sleep(lasting);
    restore(hosts)?;
    let over = start.elapsed();
    let latest = Instant::now() + LATEST;
    let ended = pairs
        .iter_mut()
        .map(|(_, client)| client.end(latest).and_then(|text| read(&text)));
    let observations = ended.collect::<Result<Vec<_>, String>>()?;
    drop(pairs);
    let texts: Vec<String> = observations
        .iter()
        .map(|observations| describe(observations, over))
        .collect();
    for (errors, observations) in errors.iter_mut().zip(&observations) {
        for (errors, observations) in errors.iter_mut().zip(observations) {
            errors.extend(observations.errors.iter().cloned());
        }
    }
    if let [kernel, ours] = &observations[..] {
        // A connection that gave up says nothing of the end of its pause. New ones are tried again.
        let all_went_on = kernel[0].errors.is_empty() && ours[0].errors.is_empty();
        for (kind, kernel, ours, goes_on) in [
            ("standing", &kernel[0], &ours[0], all_went_on),
            ("new", &kernel[1], &ours[1], true),
        ] {
            no_worse(kernel, ours, goes_on.then_some(over))
                .map_err(|text| format!("{kind}: {text} ({})", texts.join(", NetChannel ")))?;
        }
        nothing_left(hosts, options, CLEARED)?;
    }
    Ok(format!("kernel TCP {}", texts.join(", NetChannel ")))
}

/// Starts a server on host b and its client.
fn start(
    hosts: &TwoHosts,
    options: &Options,
    carrier: Carrier,
    duration: Duration,
) -> Result<(Program, Program), String> {
    let program = |which, what: &str, address: &str| {
        let mut command = hosts.command(&this_program(), which, carrier);
        command.args(["witness", what, "--address", address]);
        command.args(["--seed", &options.seed.to_string()]);
        command.args(["--milliseconds", &duration.as_millis().to_string()]);
        Program::start(command)
    };
    let mut server = program(Which::B, "serve-many", &any_of_b(hosts));
    let address = ready(&mut server)?;
    // The other host learns of the listener in a moment.
    thread::sleep(Duration::from_millis(300));
    let mut client = program(Which::A, "endure", &address);
    expect(&mut client, &["connected"])?;
    Ok((server, client))
}

/// Undoes a fault.
type Restore = Box<dyn FnOnce(&TwoHosts) -> Result<(), String>>;

fn inflict(hosts: &TwoHosts, fault: Fault) -> Result<Restore, String> {
    let text = |error: netchannel_namespaces::Error| error.to_string();
    Ok(match fault {
        Fault::Cable => {
            hosts.hosts().cable(false).map_err(text)?;
            Box::new(move |hosts| hosts.hosts().cable(true).map_err(text))
        }
        Fault::Loss(part) => {
            let loss = hosts
                .hosts()
                .lose(part)
                .map_err(|error| error.to_string())?;
            Box::new(move |_| {
                drop(loss);
                Ok(())
            })
        }
        Fault::Address => {
            let address = format!("{}/16", hosts.hosts().b.v4(0));
            ip(hosts, Which::B, &["addr", "del", &address, "dev", "veth0"])?;
            Box::new(move |hosts| ip(hosts, Which::B, &["addr", "add", &address, "dev", "veth0"]))
        }
        Fault::SmallPackets => {
            hosts.hosts().packets(SMALL_PACKET, 64).map_err(text)?;
            Box::new(move |hosts| hosts.hosts().packets(PACKET, 64).map_err(text))
        }
    })
}

fn read(text: &str) -> Result<[Observations; 2], String> {
    let of = |kind: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(kind));
        line.ok_or_else(|| format!("it says {text:?}"))?.parse()
    };
    Ok([of("standing ")?, of("new ")?])
}

fn describe([lasting_ones, new]: &[Observations; 2], over: Duration) -> String {
    let kind = |observations: &Observations| {
        let errors: Vec<&str> = observations.errors.iter().map(String::as_str).collect();
        format!(
            "{:.2} s, {:.2} s after the end, {} {}",
            observations.pause.as_secs_f64(),
            after(observations, over).as_secs_f64(),
            observations.rounds,
            errors.join(",")
        )
    };
    format!(
        "standing {}new {}",
        kind(lasting_ones),
        kind(new).trim_end()
    )
}

/// How long after the end of a fault its last slow answer came.
fn after(observations: &Observations, over: Duration) -> Duration {
    observations.slow_until.saturating_sub(over)
}

/// Checks that NetChannel's results are no worse than the kernel's, for a fault that ended after `over` where both went on.
fn no_worse(
    kernel: &Observations,
    ours: &Observations,
    over: Option<Duration>,
) -> Result<(), String> {
    if let Some(over) = over
        && after(ours, over) > after(kernel, over) + LONGER
    {
        let pause = after(ours, over);
        return Err(format!("a pause of {pause:?} after the end"));
    }
    if ours.rounds == 0 && kernel.rounds > 0 {
        return Err("no echo came".to_owned());
    }
    Ok(())
}
