//! The built-in experiments, for a moment each, and what happens when something goes wrong.
//!
//! It has no test harness: started again with other words, this program is the workloads, a
//! stand-in for `netchannel`, a server that answers wrongly, and a benchmark to be interrupted.

mod support;

use netchannel_bench::{
    BenchError, Experiment, Launcher, Options, Report, Transport, WorkerCommand, run, worker,
};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use support::{INTERRUPTED, children_of, interrupt_once_there_are, own_path};

const WORKER: &str = "bench-worker";
const WRONG_WORKER: &str = "wrong-worker";
/// The stand-in for `netchannel run` leaves programs with TCP if the daemon's socket has this name.
const TCP_AFTER_ALL: &str = "tcp.sock";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(WORKER) => worker::main(words.into_iter().skip(1)).into(),
        Some(WRONG_WORKER) => wrong_worker(words.into_iter().skip(1)),
        Some(INTERRUPTED) => to_be_interrupted(),
        Some("daemon") => stand_in_daemon(&words),
        Some("run") => stand_in_run(&words),
        Some("--list") => {
            println!("transports: test");
            ExitCode::SUCCESS
        }
        _ => tests(),
    }
}

fn tests() -> ExitCode {
    // A directory of our own, so that what is left behind is ours.
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("TMPDIR", directory.path()) };
    let tests: [(&str, fn()); 6] = [
        (
            "built_in_experiments_give_figures",
            built_in_experiments_give_figures,
        ),
        (
            "programs_are_run_under_netchannel",
            programs_are_run_under_netchannel,
        ),
        (
            "kernel_tcp_is_not_taken_for_netchannel",
            kernel_tcp_is_not_taken_for_netchannel,
        ),
        (
            "a_wrong_byte_fails_the_experiment",
            a_wrong_byte_fails_the_experiment,
        ),
        (
            "a_program_that_fails_is_named",
            a_program_that_fails_is_named,
        ),
        (
            "an_interrupt_ends_all_programs",
            an_interrupt_ends_all_programs,
        ),
    ];
    for (name, test) in tests {
        test();
        let left: Vec<_> = fs::read_dir(directory.path()).expect("a listing").collect();
        assert!(left.is_empty(), "{name} left {left:?}");
        assert_eq!(children_of(std::process::id()), "", "{name} left processes");
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn options() -> Options {
    Options {
        experiments: vec![
            Experiment::Stream,
            Experiment::Pingpong,
            Experiment::Connections,
        ],
        transports: Transport::ALL.to_vec(),
        seconds: 0.2,
        pairs: 1,
        launcher: Launcher {
            netchannel: PathBuf::from("/nonexistent/netchannel"),
            socket: None,
        },
        worker: WorkerCommand {
            program: own_path(),
            arguments: vec![WORKER.into()],
        },
        progress: false,
    }
}

fn check_figures(report: &Report, transports: &[Transport]) {
    assert!(report.is_complete(), "{}", report.table());
    assert_eq!(report.cases.len(), 3);
    for case in &report.cases {
        let measured: Vec<Transport> = case.rows.iter().map(|row| row.transport).collect();
        assert_eq!(measured, transports, "{}", case.title);
        for row in &case.rows {
            assert!(
                row.median.rate > 0.0 && row.median.rate.is_finite(),
                "{row:?}"
            );
            assert!(row.median.cpu_seconds > 0.0, "{row:?}");
            assert!(row.ratio_to_tcp.is_some(), "{row:?}");
            assert_eq!(
                row.median.latency.is_some(),
                case.latency_of.is_some(),
                "{row:?}"
            );
            if let Some(latency) = row.median.latency {
                // No system call is faster, and none of these runs is longer.
                assert!(latency.p50 > 100.0, "{latency:?}");
                assert!(
                    latency.p50 <= latency.p99 && latency.p99 <= latency.p999,
                    "{latency:?}"
                );
                assert!(latency.p999 < 10e9, "{latency:?}");
            }
        }
    }
}

fn built_in_experiments_give_figures() {
    let report = run(&options()).expect("a report");
    check_figures(&report, &[Transport::Tcp, Transport::Unix]);
    let absent: Vec<&str> = report
        .absent
        .iter()
        .map(|absence| absence.what.as_str())
        .collect();
    assert_eq!(absent, ["NetChannel"]);
    assert!(
        report.absent[0].reason.contains("/nonexistent/netchannel"),
        "{:?}",
        report.absent
    );
}

/// The stand-in puts AF_UNIX in the place of NetChannel and notes each program that it ran.
fn programs_are_run_under_netchannel() {
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory");
    let socket = directory.path().join("nc.sock");
    let report = run(&options_with_stand_in(&socket)).expect("a report");
    check_figures(&report, &Transport::ALL);
    let runs = fs::read_to_string(runs_of(&socket)).expect("the stand-in's file");
    // Two for the check, two, two, and one server with eight clients.
    assert_eq!(runs.lines().count(), 2 + 2 + 2 + 9, "{runs}");
}

fn kernel_tcp_is_not_taken_for_netchannel() {
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory");
    let socket = directory.path().join(TCP_AFTER_ALL);
    let report = run(&options_with_stand_in(&socket)).expect("a report");
    check_figures(&report, &[Transport::Tcp, Transport::Unix]);
    assert_eq!(report.absent[0].what, "NetChannel");
    let reason = &report.absent[0].reason;
    assert!(reason.contains("kernel TCP carried"), "{reason}");
}

fn options_with_stand_in(socket: &Path) -> Options {
    let launcher = Launcher {
        netchannel: own_path(),
        socket: Some(socket.to_owned()),
    };
    Options {
        launcher,
        ..options()
    }
}

fn a_wrong_byte_fails_the_experiment() {
    let mut options = options();
    options.experiments = vec![Experiment::Pingpong];
    options.transports = vec![Transport::Tcp];
    options.worker.arguments = vec![WRONG_WORKER.into()];
    let report = run(&options).expect("a report");
    assert!(!report.is_complete());
    let reason = &report.failures[0].reason;
    assert!(reason.contains("wrong byte in a reply"), "{reason}");
}

fn a_program_that_fails_is_named() {
    let mut options = options();
    options.worker.program = PathBuf::from("/bin/false");
    let report = run(&options).expect("a report");
    assert!(report.cases.is_empty());
    assert_eq!(report.failures.len(), 6, "{:?}", report.failures);
    let reason = &report.failures[0].reason;
    assert!(
        reason.contains("serve stream ended (exit status: 1)"),
        "{reason}"
    );
}

fn an_interrupt_ends_all_programs() {
    // A server and eight clients.
    interrupt_once_there_are(9, Duration::from_secs(10));
}

fn to_be_interrupted() -> ExitCode {
    let mut options = options();
    options.experiments = vec![Experiment::Connections];
    options.transports = vec![Transport::Tcp];
    options.seconds = 60.0;
    match run(&options) {
        Err(BenchError::Interrupted) => ExitCode::from(130),
        other => panic!("{other:?}"),
    }
}

/// Answers zeros where the complement of the request is due.
fn wrong_worker(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    if words[0] == "drive" {
        return worker::main(words).into();
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    println!("ready tcp:{}", listener.local_addr().expect("an address"));
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut message = [0; 64];
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&[0; 64]).is_ok() {}
    ExitCode::SUCCESS
}

fn after<'a>(words: &'a [String], name: &str) -> &'a str {
    let place = words
        .iter()
        .position(|word| word == name)
        .expect("the option");
    &words[place + 1]
}

fn runs_of(socket: &Path) -> PathBuf {
    socket.with_extension("runs")
}

fn stand_in_daemon(words: &[String]) -> ExitCode {
    let control = format!("{}.control", after(words, "--socket"));
    let listener = UnixListener::bind(control).expect("the control socket");
    while listener.accept().is_ok() {}
    ExitCode::FAILURE
}

fn stand_in_run(words: &[String]) -> ExitCode {
    assert!(words.contains(&"--require".to_owned()), "{words:?}");
    let socket = Path::new(after(words, "--socket"));
    let place = words
        .iter()
        .position(|word| word == "--")
        .expect("a program");
    let mut program = words[place + 1..].to_vec();
    let mut runs = fs::OpenOptions::new();
    let mut file = runs
        .append(true)
        .create(true)
        .open(runs_of(socket))
        .expect("a file");
    file.write_all(format!("{}\n", program.join(" ")).as_bytes())
        .expect("a line");
    if !socket.ends_with(TCP_AFTER_ALL) {
        for word in program.iter_mut().filter(|word| *word == "tcp:127.0.0.1:0") {
            *word = format!("unix:{}.{}", socket.display(), std::process::id());
        }
    }
    panic!("{}", Command::new(&program[0]).args(&program[1..]).exec());
}
