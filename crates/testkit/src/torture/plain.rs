//! The plain programs on two hosts: starting them, reading their output, and checking whether their connections are
//! virtual.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::Family;
use netchannel_testkit::two_hosts::{Carrier, TwoHosts, Which};

use crate::Options;
use crate::between::address_of;
use crate::program::{Program, this_program};

/// Within this time a waiting program must have noticed a fault.
pub const NOTICE: Duration = Duration::from_secs(20);

/// A free port of host b.
pub fn any_of_b(hosts: &TwoHosts) -> String {
    format!("{}:0", address_of(hosts, hosts.b(), Family::V4))
}

/// Starts one of the plain programs on a host, under NetChannel if that is under test.
pub fn witness(
    hosts: &TwoHosts,
    options: &Options,
    which: Which,
    what: &str,
    address: &str,
) -> Program {
    witness_with(hosts, options, which, what, address, &[])
}

/// As [`witness`], with more arguments.
pub fn witness_with(
    hosts: &TwoHosts,
    options: &Options,
    which: Which,
    what: &str,
    address: &str,
    words: &[String],
) -> Program {
    let carrier = crate::between::carrier(options);
    let mut command: Command = hosts.command(&this_program(), which, carrier);
    command.args(["witness", what, "--address", address]);
    command.args(words);
    Program::start(command)
}

pub fn ready(server: &mut Program) -> Result<String, String> {
    let line = server.line();
    let address = line.strip_prefix("ready ").map(str::to_owned);
    address.ok_or_else(|| format!("the server says {line:?}"))
}

pub fn expect(program: &mut Program, lines: &[&str]) -> Result<String, String> {
    let line = program.line();
    if lines.contains(&line.as_str()) {
        return Ok(line);
    }
    Err(format!("{line:?} instead of {lines:?}"))
}

/// Whether the kernel has established connections at the server's port, on the server's host.
pub fn carried_by_kernel(server: &Program, address: &str) -> bool {
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    let port = format!(":{:04X}", port.unwrap_or(0));
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", server.id())).unwrap_or_default();
    table.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&port)) && words.get(3) == Some(&"01")
    })
}

/// Waits until connections go over channels.
pub fn wait_until_virtual(hosts: &TwoHosts) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < NOTICE {
        let command = |which, what: &str, address: &str| {
            let mut command = hosts.command(&this_program(), which, Carrier::NetChannel);
            command.args(["witness", what, "--address", address]);
            Program::start(command)
        };
        let mut server = command(Which::B, "serve", &any_of_b(hosts));
        let address = ready(&mut server)?;
        let mut client = command(Which::A, "call", &address);
        expect(&mut client, &["connected"])?;
        expect(&mut client, &["echoed"])?;
        if !carried_by_kernel(&server, &address) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err("connections between the hosts go over kernel TCP".to_owned())
}
