//! What `netchannel profile` costs what it measures, at its default frequency: the same work in turns without it and under it.
//!
//! cargo run --release -p netchannel-profile --example cost -- [PAIRS [SECONDS [WORK]]]
//!
//! For each kind of work it prints one line, `stream: 0.3 % slower (-0.4 to 1.1), 41 pairs of 0.5 s: within 2 %`. The figure is the
//! median of the pairs, the interval is where the true median lies at odds of 15 to 1. Exit status 1 where it lies beyond as a whole.
//!
//! Threads are bound to processors. Where they are free, whether two that talk share a processor is the scheduler's choice, which differs from
//! run to run, and makes a factor of two.

use clap::Parser;
use netchannel_profile::Arguments;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Percent of the rate that it may cost.
const MOST: f64 = 2.0;
/// A stream and requests between two processors, requests on one, and what never waits.
const WORKS: [&str; 4] = ["stream", "rpc", "rpc-on-one", "loop"];

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["work", kind, seconds] = words[..] {
        let time = Duration::from_secs_f64(seconds.parse().unwrap_or(1.0));
        println!("{}", work(kind, time));
        return ExitCode::SUCCESS;
    }
    if words.first() == Some(&"profile") {
        return match Line::parse_from(words).arguments.execute() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let number = |place: usize, usual: f64| {
        let word = words.get(place).and_then(|word| word.parse().ok());
        word.filter(|number| *number > 0.0).unwrap_or(usual)
    };
    let (pairs, seconds) = (number(0, 41.0), number(1, 0.5));
    let only = words.get(2);
    let mut missed = false;
    for kind in WORKS
        .iter()
        .filter(|kind| only.is_none_or(|only| only == *kind))
    {
        match compare(kind, pairs, seconds) {
            Ok(costs) => missed |= say(kind, &costs, seconds),
            Err(reason) => println!("{kind}: {reason}"),
        }
    }
    if missed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Percent that each pair is slower under a profile.
fn compare(kind: &str, pairs: f64, seconds: f64) -> Result<Vec<f64>, String> {
    let mut costs = Vec::new();
    let mut is_profiled_first = false;
    while f64::from(u32::try_from(costs.len()).unwrap_or(u32::MAX)) < pairs {
        let mut rates = [0.0; 2];
        for profiled in [is_profiled_first, !is_profiled_first] {
            rates[usize::from(profiled)] = rate(kind, seconds, profiled)?;
        }
        costs.push(100.0 * (1.0 - rates[1] / rates[0]));
        is_profiled_first = !is_profiled_first;
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs)
}

fn rate(kind: &str, seconds: f64, profiled: bool) -> Result<f64, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(&this);
    if profiled {
        command
            .args(["profile", "--json", "--output", "/dev/null", "--"])
            .arg(&this);
    }
    command.args(["work", kind, &seconds.to_string()]);
    let output = command.stderr(Stdio::piped()).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0);
    rate.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// So many of the smallest and of the largest of `count` pairs lie outside of the interval: the true median is below the rest of them, or above,
/// in at most one case of 16.
fn left_out(count: usize) -> usize {
    // Of `count` tosses, so many ways have a given number of heads, as a share of all.
    let mut share = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut both = 2.0 * share;
    let mut out = 0;
    while both <= 1.0 / 16.0 && 2 * (out + 1) < count {
        out += 1;
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        share *= number(count - out + 1) / number(out);
        both += 2.0 * share;
    }
    out.saturating_sub(1)
}

/// True where it costs too much.
fn say(kind: &str, costs: &[f64], seconds: f64) -> bool {
    let count = costs.len();
    let out = left_out(count);
    let (low, middle, high) = (costs[out], costs[count / 2], costs[count - 1 - out]);
    let verdict = if high <= MOST {
        "within"
    } else if low > MOST {
        "more than"
    } else {
        "not told whether within"
    };
    println!(
        "{kind}: {middle:.1} % slower ({low:.1} to {high:.1}), {count} pairs of {seconds} s: {verdict} {MOST} %"
    );
    low > MOST
}

/// Work for a time, and its rate: gigabytes, round trips or rounds in a second.
fn work(kind: &str, time: Duration) -> f64 {
    let begun = Instant::now();
    let done = match kind {
        "stream" => stream(begun, time),
        "rpc" => rpc(begun, time, 1),
        "rpc-on-one" => rpc(begun, time, 0),
        _ => rounds(begun, time),
    };
    done / begun.elapsed().as_secs_f64()
}

/// Binds this thread to one of the processors that it may use, the last one where there are fewer.
fn bind(place: usize) {
    let allowed = sched_getaffinity(None).expect("its processors");
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|number| allowed.is_set(*number))
        .collect();
    let mut one = CpuSet::new();
    one.set(all[place.min(all.len() - 1)]);
    sched_setaffinity(None, &one).expect("one of its processors");
}

fn both() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let client = TcpStream::connect(listener.local_addr().expect("its address"));
    let (server, _) = listener.accept().expect("a connection");
    (client.expect("a connection"), server)
}

fn stream(begun: Instant, time: Duration) -> f64 {
    let (mut sender, mut receiver) = both();
    let buffer = vec![1; 128 << 10];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            bind(1);
            while begun.elapsed() < time && sender.write_all(&buffer).is_ok() {}
        });
        bind(0);
        let mut buffer = vec![0; 128 << 10];
        let mut gigabytes = 0.0;
        while let Ok(bytes @ 1..) = receiver.read(&mut buffer) {
            gigabytes += f64::from(u32::try_from(bytes).unwrap_or(0)) / 1e9;
        }
        gigabytes
    })
}

fn rpc(begun: Instant, time: Duration, place: usize) -> f64 {
    let (mut client, mut server) = both();
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("an option");
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            bind(place);
            let mut buffer = [0; 4096];
            while server.read_exact(&mut buffer).is_ok() && server.write_all(&buffer).is_ok() {}
        });
        bind(0);
        let mut buffer = [0; 4096];
        let mut count = 0.0;
        while begun.elapsed() < time {
            client.write_all(&buffer).expect("a request");
            client.read_exact(&mut buffer).expect("an answer");
            count += 1.0;
        }
        drop(client);
        count
    })
}

fn rounds(begun: Instant, time: Duration) -> f64 {
    bind(0);
    let (mut count, mut sum) = (0.0, 0_u64);
    while begun.elapsed() < time {
        for number in 0..1_000_000_u64 {
            sum = black_box(sum.wrapping_add(number));
        }
        count += 1.0;
    }
    count
}
