//! One run: samples are taken while a command runs, or for a time.

use crate::error::Error;
use crate::events::{Sampler, Target};
use crate::named::Named;
use crate::notes;
use crate::output::{Folded, fold};
use crate::recording::{KernelSymbols, Pinned, Recording, UserSymbols};
use crate::report::Report;
use crate::tally::tally;
use crate::work::{Counters, Work, WorkReport};
use netchannel_taxonomy::{Category, Taxonomy};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The rings are emptied so often.
const PERIOD: Duration = Duration::from_millis(50);
/// How long a command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);

/// The target and the options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// A command to run meanwhile.
    pub command: Vec<OsString>,
    /// An existing process.
    pub process: Option<u32>,
    /// All programs.
    pub is_system: bool,
    /// The duration, where there is no command.
    pub duration: Duration,
    /// Samples of a busy processor in a second; none: as many as are usual of the clock.
    pub frequency: Option<u64>,
    /// Which side has which processors.
    pub pinned: Pinned,
    /// Whether chains are wanted.
    pub folds: bool,
    /// The work of a run, where the user gave it.
    pub work: Option<Work>,
}

/// Takes one profile. It ends early, with the present samples, when `stop` is set. The target is announced when the
/// measurement begins.
///
/// # Errors
/// When no samples can be taken, or none were.
pub fn run(
    options: &Options,
    taxonomy: &Taxonomy,
    stop: &AtomicBool,
    folded: &mut Folded,
    announce: impl FnOnce(),
) -> Result<Report, Error> {
    let target = match (options.is_system, options.process) {
        (true, _) => Target::System,
        (false, Some(pid)) => Target::Process(pid),
        (false, None) => Target::Children,
    };
    let symbols = KernelSymbols::here().unwrap_or_default();
    let processors = processors();
    let mut recording = Recording::new(Rc::new(symbols), options.pinned.clone());
    if has_ended(options.process) {
        return Err(Error::NoProcess(options.process.unwrap_or_default()));
    }
    // An event of each thread is changed at each switch of threads, which slows programs with many switches down. So
    // the processors are sampled where that is allowed, and other samples are left out.
    let mut samples_all = true;
    let mut sampler = Sampler::start(Target::System, options.frequency, &processors)
        .or_else(|_| {
            samples_all = target == Target::System;
            Sampler::start(target, options.frequency, &processors)
        })
        .map_err(|error| Error::refused(error, target))?;
    let (clock, frequency) = (sampler.clock(), sampler.frequency());
    let sees_kernel = sampler.sees_kernel();
    announce();
    let work_report = WorkReport::new();
    // Where the kernel does not count, there is no other source.
    let mut counters = Counters::of(options.process).ok();
    let (begun, own) = (Instant::now(), own_seconds());
    let mut child = match options.command.split_first() {
        Some((program, words)) => Some(start(program, words, work_report.as_ref())?),
        None => None,
    };
    let measured = options.process.or(child.as_ref().map(Child::id));
    if let Some(pid) = measured.filter(|_| samples_all && !options.is_system) {
        recording.only(pid);
    }
    let is_over = |child: &mut Option<Child>| match child {
        // A child that can not be waited for has ended.
        Some(child) => !matches!(child.try_wait(), Ok(None)),
        None => begun.elapsed() >= options.duration || has_ended(options.process),
    };
    // Relaxed: the flag guards no other data.
    while !is_over(&mut child) && !stop.load(Ordering::Relaxed) {
        sampler.poll(|record| recording.on_record(record));
        std::thread::sleep(PERIOD);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let counted = counters.as_mut().and_then(Counters::work);
    sampler.finish(|record| recording.on_record(record));
    if let Some(child) = &mut child {
        end(child);
    }
    let symbols = UserSymbols::of(&recording);
    let named = Named::new(&recording, &symbols, taxonomy);
    let mut report = tally(&named);
    report.version = env!("CARGO_PKG_VERSION").to_owned();
    report.kernel = kernel_release();
    report.target = described(options);
    report.clock = clock.name().to_owned();
    report.frequency = frequency;
    report.seconds = seconds;
    report.processors = processors.len();
    report.repeats = 1;
    report.own_seconds = own_seconds() - own;
    let work_report = work_report.as_ref().and_then(WorkReport::work);
    let counted = counted.filter(|_| uses_the_network(&report));
    report.work = options.work.or(work_report).or(counted);
    report.notes = notes::of(&report, &recording, sees_kernel);
    if options.folds {
        fold(&named, folded);
    }
    Ok(report)
}

/// From this percentage of the busy samples on, it is about the network, so that a gigabyte of that has a cost.
const NETWORK: f64 = 10.0;

fn uses_the_network(report: &Report) -> bool {
    let categories = [Category::TcpIp, Category::Netdevice, Category::Skb];
    let shares = categories.map(|category| report.categories.share(category));
    shares.into_iter().sum::<f64>() >= NETWORK
}

fn start(
    program: &OsString,
    words: &[OsString],
    work_report: Option<&WorkReport>,
) -> Result<Child, Error> {
    let mut command = Command::new(program);
    command.args(words);
    if let Some((name, path)) = work_report.map(WorkReport::variable) {
        command.env(name, path);
    }
    let started = command.spawn();
    started.map_err(|source| Error::Start {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Ends a command that has not ended by itself, so that nothing is left running.
fn end(child: &mut Child) {
    let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
    if ended(child) {
        return;
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // An error means that the process has ended.
        let _ = kill_process(pid, Signal::TERM);
    }
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        if ended(child) {
            return;
        }
        std::thread::sleep(PERIOD);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn has_ended(process: Option<u32>) -> bool {
    let path = process.map(|pid| format!("/proc/{pid}"));
    path.is_some_and(|path| !std::path::Path::new(&path).exists())
}

fn described(options: &Options) -> String {
    let command: Vec<_> = options
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let command = command.join(" ");
    match (options.is_system, options.process) {
        (true, _) if command.is_empty() => "system".to_owned(),
        (true, _) => format!("system, while {command}"),
        (false, Some(pid)) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} {}", name.trim()).trim().to_owned()
        }
        (false, None) => command,
    }
}

/// The present processors, such as "0-3,8".
fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let list = list(text.trim()).unwrap_or_default();
    if list.is_empty() { vec![0] } else { list }
}

/// Reads a list of processors.
///
/// # Errors
/// The mistake.
pub fn list(text: &str) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1 << 16 => all.extend(first..=last),
            _ => return Err(format!("{part:?} is no processor or range such as 0-3")),
        }
    }
    Ok(all)
}

fn kernel_release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Processor seconds of this process.
fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    let seconds = u32::try_from(time.tv_sec).unwrap_or(0);
    f64::from(seconds) + f64::from(nanoseconds) / 1e9
}

/// Says that nothing was sampled, and why that may be.
pub fn nothing(options: &Options, seconds: f64) -> Error {
    Error::Nothing(if options.command.is_empty() {
        format!(
            "no sample in {seconds:.1} s: nothing of it ran; measure while it has work, or longer"
        )
    } else {
        format!(
            "no sample: the command ended after {seconds:.3} s and used too little of a processor; \
             let it do more, or raise --frequency"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_as_the_kernel_lists_them() {
        assert_eq!(list("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert_eq!(list("7").unwrap(), [7]);
        for text in ["", "a", "3-1", "1,,2", "0-4000000000"] {
            assert!(list(text).is_err(), "{text}");
        }
    }
}
