//! Sender and receiver of a one-way stream, on two hosts with processors of their own, are told apart by their chains alone.
//!
//! It has no test harness: started again with other words this program is the sender and the receiver, and who is not root must be
//! alone in the process when it gains its rights. What is not allowed here is skipped, and said so.

use clap::Parser;
use netchannel_namespaces::{Hosts, gain_rights};
use netchannel_profile::{Arguments, ByChain, Report};
use netchannel_taxonomy::{Category, Side};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ExitCode, Stdio};

/// So many percent may be told wrong.
const WRONG: f64 = 3.0;
const LEAST: u64 = 200;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => receive(address),
        ["send", address] => send(address),
        ["--list", ..] => println!("sides: test"),
        _ => test(),
    }
    ExitCode::SUCCESS
}

fn receive(address: &str) {
    let listener = TcpListener::bind(address).expect("a listener");
    println!("{}", listener.local_addr().expect("an address"));
    let (mut socket, _) = listener.accept().expect("a connection");
    let mut buffer = vec![0; 128 << 10];
    while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
}

fn send(address: &str) {
    let mut socket = TcpStream::connect(address).expect("a connection");
    let buffer = vec![0; 128 << 10];
    while socket.write_all(&buffer).is_ok() {}
}

fn test() {
    if let Err(error) = gain_rights() {
        println!("skipped: sides: {error}");
        return;
    }
    let hosts = match Hosts::make() {
        Ok(hosts) if !hosts.a.processors().is_empty() => hosts,
        Ok(_) => {
            println!("skipped: sides: one processor");
            return;
        }
        Err(error) => {
            println!("skipped: sides: {error}");
            return;
        }
    };
    let this = std::env::current_exe().expect("this program");
    let mut receiver = hosts.b.command(&this);
    let receiver = receiver.args(["receive", &format!("{}:0", hosts.b.address())]);
    let mut receiver = Ended(receiver.stdout(Stdio::piped()).spawn().expect("a receiver"));
    let mut address = String::new();
    let output = receiver.0.stdout.take().expect("its output");
    BufReader::new(output)
        .read_line(&mut address)
        .expect("its address");
    let mut sender = hosts.a.command(&this);
    let sender = Ended(
        sender
            .args(["send", address.trim()])
            .spawn()
            .expect("a sender"),
    );
    let processors = [&hosts.a, &hosts.b].map(|host| listed(host.processors()));
    let Some(report) = profile(&processors) else {
        return;
    };
    // Others on this machine may have streams of their own meanwhile, whose processors say nothing.
    let ours = [&sender, &receiver].map(|end| end.0.id());
    let mut by_chain = ByChain::default();
    let mut copied = [0, 0];
    for program in &report.programs {
        if program
            .processes
            .iter()
            .any(|process| ours.contains(process))
        {
            by_chain.merge(program.by_chain);
            for (copied, side) in copied.iter_mut().zip([Side::Sender, Side::Receiver]) {
                *copied += program
                    .sides
                    .get(&side)
                    .map_or(0, |counts| counts.get(Category::Copy));
            }
        }
    }
    let ByChain { told, wrong } = by_chain;
    assert!(told >= LEAST, "only {told} samples of the stream");
    assert!(
        copied.iter().all(|copied| *copied > 0),
        "one side copies nothing: {copied:?}"
    );
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of samples are far below 2^53"
    )]
    let share = 100.0 * wrong as f64 / told as f64;
    println!("{share:.2} % of {told} samples told wrong");
    assert!(share < WRONG, "{share} % told wrong");
    println!("test sides ... ok");
}

/// A child that does not outlive the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listed(numbers: &[usize]) -> String {
    let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
    numbers.join(",")
}

/// None where the kernel may not be sampled.
fn profile([sender, receiver]: &[String; 2]) -> Option<Report> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("profile.json");
    let mut words = vec![
        "profile",
        "--json",
        "--system",
        "--frequency",
        "999",
        "--for",
        "2s",
    ];
    words.extend([
        "--sender-processors",
        sender,
        "--receiver-processors",
        receiver,
    ]);
    words.extend(["--output", output.to_str().expect("its name")]);
    if let Err(error) = Line::parse_from(words).arguments.execute() {
        println!("skipped: sides: {error}");
        return None;
    }
    let report: Report =
        serde_json::from_slice(&std::fs::read(&output).expect("a profile")).expect("JSON");
    if let Some(note) = report.notes.iter().find(|note| note.contains("sysctl")) {
        println!("skipped: sides: {note}");
        return None;
    }
    Some(report)
}
