//! The built-in experiments, for a moment, over the transports every Linux machine has.
//!
//! It has no test harness: the workloads are this program itself, started again.

use netchannel_bench::{Experiment, Launcher, Options, Transport, WorkerCommand, run, worker};
use std::path::PathBuf;
use std::process::ExitCode;

const WORKER: &str = "bench-worker";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == WORKER).is_some() {
        return worker::main(words);
    }
    if std::env::args().any(|word| word == "--list") {
        println!("transports: test");
        return ExitCode::SUCCESS;
    }
    let before = leftovers();
    built_in_experiments_give_figures();
    a_failing_workload_fails_the_report();
    assert_eq!(
        leftovers(),
        before,
        "temporary directories were left behind"
    );
    println!("test transports ... ok");
    ExitCode::SUCCESS
}

fn options(worker: PathBuf) -> Options {
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
            program: worker,
            arguments: vec![WORKER.into()],
        },
        progress: false,
    }
}

fn built_in_experiments_give_figures() {
    let own = std::env::current_exe().expect("own path");
    let report = run(&options(own)).expect("a report");
    assert!(report.is_complete(), "{}", report.table());
    assert_eq!(report.cases.len(), 3);
    for case in &report.cases {
        let transports: Vec<Transport> = case.rows.iter().map(|row| row.transport).collect();
        assert_eq!(
            transports,
            [Transport::Tcp, Transport::Unix],
            "{}",
            case.title
        );
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
                // A socket call takes longer than this, and no cycle longer than the run.
                assert!(latency.p50 > 100.0, "{latency:?}");
                assert!(
                    latency.p50 <= latency.p99 && latency.p99 <= latency.p999,
                    "{latency:?}"
                );
                assert!(latency.p999 < 1e9, "{latency:?}");
            }
        }
    }
    let absent: Vec<&str> = report
        .absent
        .iter()
        .map(|absence| absence.what.as_str())
        .collect();
    assert_eq!(absent, ["NetChannel"], "{:?}", report.absent);
    assert!(
        report.absent[0].reason.contains("/nonexistent/netchannel"),
        "{:?}",
        report.absent
    );
}

fn a_failing_workload_fails_the_report() {
    let report = run(&options(PathBuf::from("/bin/false"))).expect("a report");
    assert!(!report.is_complete());
    assert_eq!(report.failures.len(), 6, "{:?}", report.failures);
    assert!(report.cases.is_empty());
}

/// Directories of this process's experiments would have its children's sockets in them.
fn leftovers() -> usize {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("the temporary directory");
    let ours = |name: &str| name.starts_with("netchannel-bench-");
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(ours))
        .count()
}
