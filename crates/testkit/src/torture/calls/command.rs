//! The command line of `torture calls`, and a whole run: many cases by several pairs of runners, and what they found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::runner::{PrivateDaemon, Transport, command, find_netchannel};

use super::compare::{Difference, signature};
use super::conduct::Manner;
use super::coverage::Coverage;
use super::generate;
use super::judge::Pair;
use super::program::Program;
use super::report::{Finding, Report};
use super::runner::Runner;
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
                       kernel    kernel TCP once more: what the judge itself can not hold steady
  --fresh            each program is executed anew, and not a child of one that ran others
  --netchannel PROG  the program under test (default: the one beside this program, or NETCHANNEL_PROGRAM)
  --jobs N           pairs of runners at a time (default: one per processor)
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

/// What the command line asks for.
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

const WAYS: [&str; 5] = ["both", "relay", "restart", "one-end", "kernel"];

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        cases: 2000,
        seed: 1,
        first: 0,
        way: "both".to_owned(),
        fresh: false,
        netchannel: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
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
            "--open" => super::rules::OPEN_TOO.store(true, Ordering::Relaxed),
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

/// Runs the command; its exit status.
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
        print!("{}", generate::program(options.seed, number));
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

/// What all workers of a run share.
struct Run<'a> {
    options: &'a Options,
    next: AtomicU64,
    over: AtomicBool,
    report: Mutex<Report>,
    transport: Transport,
    this: PathBuf,
}

fn judge(options: &Options) -> Result<i32, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut daemon = None;
    let transport = if options.way == "kernel" {
        Transport::Kernel
    } else {
        let Some(program) = options
            .netchannel
            .clone()
            .or_else(|| find_netchannel(&this))
        else {
            println!("skipped: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
            return Ok(netchannel_testkit::support::SKIPPED);
        };
        let words: &[&str] = if options.way == "relay" {
            &["--relay"]
        } else {
            &[]
        };
        let started =
            PrivateDaemon::start_with(&program, words).map_err(|error| error.to_string())?;
        let socket = started.socket();
        // It opens what it needs for itself in its first moments.
        std::thread::sleep(Duration::from_millis(300));
        daemon = Some(started);
        Transport::NetChannel { program, socket }
    };
    let run = Run {
        options,
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        report: Mutex::new(Report::default()),
        transport,
        this,
    };
    let start = Instant::now();
    let before = daemon.as_ref().map_or(0, PrivateDaemon::descriptors);
    if let Some(path) = &options.replay {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let program = Program::read(&text).map_err(|line| format!("not understood: {line}"))?;
        return replay(&run, &program);
    }
    if options.way != "kernel" {
        be_virtual(&run)?;
    }
    work(&run, &mut daemon)?;
    let mut report = run.report.into_inner().map_err(|error| error.to_string())?;
    report.elapsed = start.elapsed();
    if let Some(daemon) = &mut daemon {
        report.daemon = left_over(daemon, before, options.way == "restart");
    }
    report.print(options.json, options.coverage, options.seed);
    if let Some(folder) = &options.keep {
        report
            .keep(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(i32::from(!report.is_clean()))
}

/// A connection of the program under test must be a virtual one, or nothing would be judged: its port is then outside the kernel's range.
fn be_virtual(run: &Run<'_>) -> Result<(), String> {
    let text = "1 @0 socket(AF_INET, SOCK_STREAM, 0)\n2 @0 listen(v1, 5)\n3 @0 getsockname(v1, right)\n\
                4 @0 socket(AF_INET, SOCK_STREAM, 0)\n5 @0 connect(v4, {of,v1,4,0})\n6 @0 getsockname(v4, right)";
    let mut pair = run.pair()?;
    let seen = pair.other.run(&Program::read(text)?, pair.manner)?;
    let port = seen
        .last()
        .and_then(|line| line.split("port(").nth(1))
        .and_then(|rest| rest.split(')').next());
    let port: u32 = port
        .and_then(|port| port.parse().ok())
        .ok_or_else(|| format!("no connection: {seen:?}"))?;
    let range =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut range = range
        .split_whitespace()
        .filter_map(|word| word.parse::<u32>().ok());
    match (range.next(), range.next()) {
        (Some(low), Some(high)) if (low..=high).contains(&port) => Err(format!(
            "connections are not virtual (port {port}): there is nothing to judge"
        )),
        _ => Ok(()),
    }
}

/// What a daemon has kept of programs that are gone.
///
/// What an image left for the next one stays for five minutes where that one had no number to fetch it by: at most three descriptors for each.
fn left_over(daemon: &mut PrivateDaemon, before: usize, restarted: bool) -> Option<String> {
    if !daemon.is_running() {
        return Some(format!("the daemon has ended:\n{}", daemon.log()));
    }
    let start = Instant::now();
    while daemon.descriptors() > before && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let now = daemon.descriptors();
    let deposits = match daemon.deposits() {
        Ok(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Err(error) => return Some(error),
    };
    let left = deposits.saturating_mul(3);
    if now > before && now <= before + left {
        eprintln!(
            "kept by open: {} descriptors of what nobody could fetch",
            now - before
        );
        return None;
    }
    (now > before && !restarted).then(|| {
        format!(
            "the daemon keeps {} descriptors of programs that are gone, of:\n{}",
            now - before,
            daemon.descriptor_names().join("\n")
        )
    })
}

fn work(run: &Run<'_>, daemon: &mut Option<PrivateDaemon>) -> Result<(), String> {
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
        if let Some(daemon) = daemon.as_mut().filter(|_| restarts) {
            while !is_over(run) {
                std::thread::sleep(Duration::from_millis(700));
                daemon.kill();
                std::thread::sleep(Duration::from_millis(50));
                let _ = daemon.start_again();
            }
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
        let mut kernel = Command::new(&self.this);
        let mut other = command(&self.this, &self.transport);
        if way == "one-end" {
            for command in [&mut kernel, &mut other] {
                command.env(super::act::ONE_END, "1");
            }
        }
        Ok(Pair {
            kernel: Runner::start(kernel, "kernel TCP").map_err(failed)?,
            other: Runner::start(other, "NetChannel").map_err(failed)?,
            manner: Manner {
                patience: Duration::from_millis(30),
                settling: Duration::from_micros(if way == "relay" { 2000 } else { 0 }),
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
        let program = generate::program(run.options.seed, number);
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
                // The runner itself was lost: by what the program did. It is found out which, and work goes on.
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

/// A difference that is new: it is made shorter and taken down.
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
    let kernel = pair.kernel.run(program, pair.manner)?;
    let other = pair.other.run(program, pair.manner)?;
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

/// How often each rule excused something.
pub type Excuses = BTreeMap<&'static str, u64>;

/// A folder's file of a finding.
pub fn file(folder: &Path, index: usize, kind: &str) -> PathBuf {
    folder.join(format!("{index}.{kind}"))
}
