//! The command line of `torture calls`, and a whole run: many cases by several pairs of runners, and their findings.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::runner::find_netchannel;
use netchannel_testkit::two_hosts::HostsError;

use super::compare::signature;
use super::coverage::Coverage;
use super::difference::Difference;
use super::generate;
use super::judge::Pair;
use super::place::Place;
use super::program::Program;
use super::report::{Finding, Report};
use super::rules;
use super::runner::Runner;
use super::settings::RunSettings;
use super::shrink::Shrinker;

const USAGE: &str = "usage: torture calls [OPTIONS]
  Random programs over kernel TCP and over NetChannel: where one can tell them apart is shown as a few steps.
options:
  --cases N          how many programs (default 2000)
  --seed N           what they are drawn from (default 1); a case is its seed and number
  --first N          the number of the first one (default 0)
  --way WAY          what is compared with kernel TCP (default both):
                       both      both ends under NetChannel
                       relay     the same, through the daemon's relay
                       restart   the same, with a daemon that is killed and started again now and then
                       one-end   children that are made before all else go without the library
                       hosts     children that are made before all else live on another host
                       kernel    kernel TCP once more: what the judge itself cannot hold steady
  --fresh            each program is executed anew, and not a child of one that ran others
  --netchannel PROG  the program under test (default: the one beside this program, or NETCHANNEL_PROGRAM)
  --jobs N           pairs of runners at a time (default: three per processor)
  --replay FILE      one program, as a finding shows it, instead of drawn ones
  --show N           print the program of a number, and end
  --stop N           end after so many findings that are not alike
  --no-shrink        leave findings as long as they are
  --keep FOLDER      write each finding there: its steps, and C that shows it
  --open             tell differences that are known and not mended yet, too
  --coverage         say what was called with what, and what never was
  --json             all of it as one JSON object
examples:
  torture calls --cases 2000 --seed 7
  torture calls --cases 1000000 --seed 20301 --keep findings
  torture calls --way relay --fresh --cases 500
  torture calls --replay findings/1.steps
exit status: 0 no difference that is not kept, 1 there was one, 2 wrong usage, 77 there is no program to test";

/// The options of the command line.
struct Options {
    cases: u64,
    seed: u64,
    first: u64,
    way: String,
    fresh: bool,
    netchannel: Option<PathBuf>,
    jobs: usize,
    replay: Option<PathBuf>,
    show: Option<u64>,
    stop: usize,
    shrink: bool,
    keep: Option<PathBuf>,
    coverage: bool,
    json: bool,
}

/// How long a call must sleep until it counts as waiting. This is longer than the time-outs that programs use.
const PATIENCE: Duration = Duration::from_millis(30);
/// As [`PATIENCE`], for calls that only another step can end.
const HASTE: Duration = Duration::from_millis(3);
/// How long bytes through daemons may be in transit.
const SETTLING: Duration = Duration::from_millis(2);
/// One program in this many is run without haste.
const PATIENTLY: u64 = 16;
/// Pairs of runners for each processor. Runners mostly wait.
const PAIRS: usize = 3;

const WAYS: [&str; 6] = ["both", "relay", "restart", "one-end", "hosts", "kernel"];

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        cases: 2000,
        seed: 1,
        first: 0,
        way: "both".to_owned(),
        fresh: false,
        netchannel: None,
        jobs: PAIRS * std::thread::available_parallelism().map_or(1, usize::from),
        replay: None,
        show: None,
        stop: usize::MAX,
        shrink: true,
        keep: None,
        coverage: false,
        json: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| format!("{text} is no number"))
        };
        let small = |number: u64| usize::try_from(number).map_err(|error| error.to_string());
        match word.as_str() {
            "--cases" => options.cases = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--first" => options.first = number(value()?)?,
            "--way" => options.way.clone_from(value()?),
            "--fresh" => options.fresh = true,
            "--netchannel" => options.netchannel = Some(PathBuf::from(value()?)),
            "--jobs" => options.jobs = small(number(value()?)?)?.clamp(1, 64),
            "--replay" => options.replay = Some(PathBuf::from(value()?)),
            "--show" => options.show = Some(number(value()?)?),
            "--stop" => options.stop = small(number(value()?)?)?,
            "--no-shrink" => options.shrink = false,
            "--keep" => options.keep = Some(PathBuf::from(value()?)),
            "--open" => rules::OPEN_TOO.store(true, Ordering::Relaxed),
            "--coverage" => options.coverage = true,
            "--json" => options.json = true,
            _ => return Err(format!("{word} is not understood")),
        }
    }
    if !WAYS.contains(&options.way.as_str()) {
        return Err(format!(
            "{} is none of the ways: {}",
            options.way,
            WAYS.join(", ")
        ));
    }
    Ok(options)
}

/// Runs the command. Returns its exit status.
pub fn run(words: &[String]) -> i32 {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return 0;
    }
    let options = match parse(words) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}\n{USAGE}");
            return 2;
        }
    };
    if let Some(number) = options.show {
        print!(
            "{}",
            generate::program(options.seed, number, options.way == "hosts")
        );
        return 0;
    }
    match judge(&options) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("torture calls: {error}");
            1
        }
    }
}

/// State that all workers of a run share.
struct Run<'a> {
    options: &'a Options,
    place: &'a Place,
    next: AtomicU64,
    over: AtomicBool,
    report: Mutex<Report>,
    this: PathBuf,
}

fn judge(options: &Options) -> Result<i32, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut netchannel = None;
    if options.way != "kernel" {
        netchannel = options
            .netchannel
            .clone()
            .or_else(|| find_netchannel(&this));
        if netchannel.is_none() {
            println!("skipped: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
            return Ok(netchannel_testkit::support::SKIPPED);
        }
    }
    let words: &[&str] = if options.way == "relay" {
        &["--relay"]
    } else {
        &[]
    };
    let through = matches!(options.way.as_str(), "relay" | "hosts");
    rules::THROUGH_DAEMONS.store(through, Ordering::Relaxed);
    let place = match Place::make(netchannel, words, options.way == "hosts") {
        Ok(place) => place,
        Err(HostsError::Unsupported(text)) => {
            println!("skipped: {text}");
            return Ok(netchannel_testkit::support::SKIPPED);
        }
        Err(HostsError::Failed(text)) => return Err(text),
    };
    let start = Instant::now();
    let before = place.descriptors();
    let run = Run {
        options,
        place: &place,
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        report: Mutex::new(Report::default()),
        this,
    };
    if let Some(path) = &options.replay {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let program = Program::read(&text).map_err(|line| format!("not understood: {line}"))?;
        return replay(&run, &program);
    }
    if options.way != "kernel" {
        check_virtual(&run)?;
    }
    work(&run)?;
    let mut report = run.report.into_inner().map_err(|error| error.to_string())?;
    report.elapsed = start.elapsed();
    report.daemon = place.left_over(before, options.way == "restart");
    report.print(options.json, options.coverage, options.seed);
    if let Some(folder) = &options.keep {
        report
            .keep(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(i32::from(!report.is_clean()))
}

/// Checks that a connection of the program under test is virtual: its port is then outside the kernel's range.
/// Otherwise the run would judge nothing.
fn check_virtual(run: &Run<'_>) -> Result<(), String> {
    let (before, client) = if run.options.way == "hosts" {
        ("1 @0 fork(1)\n", 1)
    } else {
        ("", 0)
    };
    let text = format!(
        "{before}2 @0 socket(AF_INET, SOCK_STREAM, 0)\n3 @0 listen(v2, 5)\n4 @0 getsockname(v2, right)\n\
         5 @{client} socket(AF_INET, SOCK_STREAM, 0)\n6 @{client} connect(v5, {{of,v2,4,0}})\n7 @{client} getsockname(v5, right)"
    );
    let program = Program::read(&text)?;
    let mut pair = run.pair()?;
    let start = Instant::now();
    loop {
        let seen = pair.other.run(&program, pair.settings)?;
        let port = seen
            .last()
            .and_then(|line| line.split("port(").nth(1))
            .and_then(|rest| rest.split(')').next());
        let port: u32 = port
            .and_then(|port| port.parse().ok())
            .ok_or_else(|| format!("no connection: {seen:?}"))?;
        match run.place.kernel_ports() {
            Some((low, high)) if (low..=high).contains(&port) => {
                // Two daemons may not have connected to each other yet.
                if start.elapsed() > Duration::from_secs(10) {
                    return Err(format!(
                        "connections are not virtual (port {port}): there is nothing to judge"
                    ));
                }
            }
            _ => return Ok(()),
        }
    }
}

fn work(run: &Run<'_>) -> Result<(), String> {
    let failure = Mutex::new(None);
    let restarts = run.options.way == "restart";
    std::thread::scope(|scope| {
        for _ in 0..run.options.jobs {
            scope.spawn(|| {
                if let Err(error) = worker(run)
                    && let Ok(mut failure) = failure.lock()
                {
                    *failure = Some(error);
                    run.over.store(true, Ordering::Relaxed);
                }
            });
        }
        while restarts && !is_over(run) {
            std::thread::sleep(Duration::from_millis(700));
            run.place.restart();
        }
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

fn is_over(run: &Run<'_>) -> bool {
    run.over.load(Ordering::Relaxed) || run.next.load(Ordering::Relaxed) >= run.options.cases
}

impl Run<'_> {
    fn pair(&self) -> Result<Pair, String> {
        let failed = |error: std::io::Error| error.to_string();
        let way = self.options.way.as_str();
        let start = |[near, far]: [Option<Command>; 2], what| {
            let mut near = near.ok_or_else(|| "there is no host".to_owned())?;
            if way == "one-end" {
                near.env(super::act::ONE_END, "1");
            }
            Runner::start(near, far, what).map_err(failed)
        };
        Ok(Pair {
            kernel: start(self.place.over_kernel(&self.this), "kernel TCP")?,
            other: start(self.place.over_other(&self.this), "NetChannel")?,
            settings: RunSettings {
                patience: PATIENCE,
                haste: HASTE,
                settling: if matches!(way, "relay" | "hosts") {
                    SETTLING
                } else {
                    Duration::ZERO
                },
                fresh: self.options.fresh,
            },
        })
    }
}

fn worker(run: &Run<'_>) -> Result<(), String> {
    let mut pair = run.pair()?;
    let mut coverage = Coverage::default();
    loop {
        let index = run.next.fetch_add(1, Ordering::Relaxed);
        if index >= run.options.cases || run.over.load(Ordering::Relaxed) {
            break;
        }
        let number = run.options.first + index;
        let program = generate::program(run.options.seed, number, run.options.way == "hosts");
        pair.settings.haste = if number.is_multiple_of(PATIENTLY) {
            PATIENCE
        } else {
            HASTE
        };
        match pair.judge(&program) {
            Ok((comparison, seen)) => {
                coverage.add(&program, &seen);
                let known = {
                    let mut report = run.report.lock().map_err(|error| error.to_string())?;
                    report.count(&program, &comparison, number)
                };
                if let Some(difference) = comparison.difference.filter(|_| !known) {
                    found(run, &mut pair, &program, &difference, number)?;
                }
            }
            Err(error) => {
                // The program made the runner itself fail. The program is recorded, and the run goes on with a new
                // runner.
                let mut report = run.report.lock().map_err(|error| error.to_string())?;
                report.lost(&program, number, &error);
                drop(report);
                pair = run.pair()?;
            }
        }
    }
    let mut report = run.report.lock().map_err(|error| error.to_string())?;
    report.coverage.join(coverage);
    Ok(())
}

/// Shortens and records a new difference.
fn found(
    run: &Run<'_>,
    pair: &mut Pair,
    program: &Program,
    difference: &Difference,
    number: u64,
) -> Result<(), String> {
    let mut finding = Finding {
        signature: signature(program, difference),
        number,
        seed: run.options.seed,
        program: program.clone(),
        difference: difference.clone(),
        kernel: Vec::new(),
        times: 1,
    };
    if run.options.shrink {
        let shorter = Shrinker::new(pair, program, difference).shrink(program, difference);
        let (comparison, mut seen) = pair.look(&shorter, 2)?;
        if let Some(difference) = comparison.difference {
            finding.program = shorter;
            finding.difference = difference;
            finding.kernel = seen.swap_remove(0);
        }
    }
    let mut report = run.report.lock().map_err(|error| error.to_string())?;
    report.add(finding);
    if report.findings() >= run.options.stop {
        run.over.store(true, Ordering::Relaxed);
    }
    Ok(())
}

fn replay(run: &Run<'_>, program: &Program) -> Result<i32, String> {
    let mut pair = run.pair()?;
    let kernel = pair.kernel.run(program, pair.settings)?;
    let other = pair.other.run(program, pair.settings)?;
    for (place, step) in program.steps.iter().enumerate() {
        println!("{step}");
        let at = |seen: &[String]| seen.get(place).cloned().unwrap_or_default();
        let (kernel, other) = (at(&kernel), at(&other));
        if kernel == other {
            println!("      {kernel}");
        } else {
            println!("    - {kernel}\n    + {other}");
        }
    }
    let (comparison, _) = pair.look(program, 3)?;
    match comparison.difference {
        None => println!("SAME"),
        Some(difference) => {
            let often = if difference.always {
                ""
            } else {
                ", not always"
            };
            println!(
                "DIFFER at {}{often}\n  - {}\n  + {}",
                program.steps[difference.place], difference.kernel, difference.other
            );
            return Ok(1);
        }
    }
    Ok(0)
}
