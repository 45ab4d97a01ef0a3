//! `conformance compare` and `conformance repeat`: many cases, as processes of their own.

use std::path::Path;
use std::time::{Duration, Instant};

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::{Report, Transport, Verdict, run_cases};

use crate::asked::{Options, names, parse, this_program};
use crate::between;

/// Runs cases over both transports. Returns exit status 0 if nothing differs.
pub fn compare(arguments: &[String]) -> i32 {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return 2;
        }
    };
    if options.hosts || options.tenant.is_some() {
        return between::compare(&options);
    }
    let Some(program) = &options.program else {
        eprintln!("--netchannel PROGRAM is missing");
        return 2;
    };
    let start = Instant::now();
    let cases = names(&options.words);
    let relay: &[&str] = if options.relay { &["--relay"] } else { &[] };
    let mut daemon = match PrivateDaemon::start_with(program, relay) {
        Ok(daemon) => daemon,
        Err(error) => {
            eprintln!("{} daemon cannot be started: {error}", program.display());
            return 2;
        }
    };
    let transport = Transport::NetChannel {
        program: program.clone(),
        socket: daemon.socket(),
    };
    let this = this_program();
    let under = run_all(&this, &transport, &cases, &options);
    let kernel = if options.only {
        Vec::new()
    } else {
        run_all(&this, &Transport::Kernel, &cases, &options)
    };
    let different = print_differences(&kernel, &under);
    if !daemon.is_running() {
        println!("the daemon ended during the run; its last words:");
        daemon
            .log()
            .lines()
            .rev()
            .take(5)
            .for_each(|line| println!("  {line}"));
    }
    println!(
        "{} cases, {different} differ or fail, {:.1} s",
        cases.len(),
        start.elapsed().as_secs_f64()
    );
    i32::from(different > 0)
}

fn run_all(this: &Path, transport: &Transport, cases: &[String], options: &Options) -> Vec<Report> {
    run_cases(this, transport, cases, options.jobs, options.limit, |_| {})
}

fn print_differences(kernel: &[Report], under: &[Report]) -> usize {
    let mut different = 0;
    for (index, report) in under.iter().enumerate() {
        let expected = kernel
            .get(index)
            .map_or(&Verdict::Passed, |report| &report.verdict);
        let skipped = report.verdict == Verdict::Skipped;
        if report.verdict == Verdict::Passed && *expected == Verdict::Passed
            || skipped && (kernel.is_empty() || *expected == Verdict::Skipped)
        {
            continue;
        }
        if different == 0 {
            println!("{:<58} {:<6} {:<6} message", "case", "kernel", "netch.");
        }
        different += 1;
        let expected_word = if kernel.is_empty() {
            "-"
        } else {
            expected.word()
        };
        let message = [report.verdict.message(), expected.message()].join(" ");
        println!(
            "{:<58} {expected_word:<6} {:<6} {}",
            report.case,
            report.verdict.word(),
            message.trim().replace('\n', " | ")
        );
    }
    different
}

/// Runs cases many times over kernel TCP; exit status 0 if all passed each time.
pub fn repeat(arguments: &[String]) -> i32 {
    let Some(times) = arguments.first().and_then(|text| text.parse::<u32>().ok()) else {
        eprintln!("repeat needs a number first");
        return 2;
    };
    let options = match parse(arguments.get(1..).unwrap_or_default()) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return 2;
        }
    };
    let cases = names(&options.words);
    let this = this_program();
    let mut failures = 0;
    let mut slowest = (Duration::ZERO, String::new());
    for round in 1..=times {
        for report in run_all(&this, &Transport::Kernel, &cases, &options) {
            if report.elapsed > slowest.0 {
                slowest = (report.elapsed, report.case.clone());
            }
            if !matches!(report.verdict, Verdict::Passed | Verdict::Skipped) {
                failures += 1;
                println!(
                    "round {round}: {} {}",
                    report.case,
                    report.verdict.message()
                );
            }
        }
    }
    println!(
        "{} cases, {times} times, {failures} failures; the slowest: {} in {:.2} s",
        cases.len(),
        slowest.1,
        slowest.0.as_secs_f64()
    );
    i32::from(failures > 0)
}
