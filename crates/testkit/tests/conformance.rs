//! Every case of the conformance suite, over kernel TCP and under NetChannel, with the same result.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::differences::{kept, kept_through_the_relay};
use netchannel_testkit::runner::{
    Report, Transport, Verdict, find_netchannel, run_case, run_cases,
};
use netchannel_testkit::unsteady;

const CONFORMANCE: &str = env!("CARGO_BIN_EXE_conformance");

/// Longer than the watchdog of the cases themselves.
const LIMIT: Duration = Duration::from_secs(30);

fn cases() -> Vec<String> {
    let output = Command::new(CONFORMANCE)
        .arg("list")
        .output()
        .expect("conformance list");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn run(transport: &Transport) -> Vec<Report> {
    let cases = cases();
    assert!(
        cases.len() > 400,
        "only {} cases: the list is broken",
        cases.len()
    );
    let reports = run_cases(Path::new(CONFORMANCE), transport, &cases, 4, LIMIT, |_| {});
    assert_eq!(reports.len(), cases.len());
    reports
}

/// A table of the cases that did not pass, empty if all passed.
fn failures(reports: &[Report]) -> String {
    let mut table = String::new();
    for report in reports {
        if matches!(report.verdict, Verdict::Failed(_) | Verdict::TimedOut(_)) {
            let message = report.verdict.message().replace('\n', " | ");
            let seconds = report.elapsed.as_secs_f64();
            let word = report.verdict.word();
            let _ = writeln!(
                table,
                "{word} {:<58} {seconds:6.2} s  {message}",
                report.case
            );
        }
    }
    table
}

#[test]
fn kernel_tcp_passes_every_case() {
    let mut reports = run(&Transport::Kernel);
    let again = |case: &str| run_case(Path::new(CONFORMANCE), &Transport::Kernel, case, LIMIT);
    unsteady::settle(&mut reports, |_| false, again);
    let table = failures(&reports);
    assert!(table.is_empty(), "over kernel TCP:\n{table}");
}

/// Runs all cases under NetChannel, with more arguments for the daemon. Fails for differences that are not kept.
fn run_under_netchannel(arguments: &[&str], kept: fn(&str) -> Option<&'static str>) {
    let Some(program) = find_netchannel(Path::new(CONFORMANCE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let mut daemon =
        PrivateDaemon::start_with(&program, arguments).expect("a folder and the daemon");
    let transport = Transport::NetChannel {
        program,
        socket: daemon.socket(),
    };
    let mut reports = run(&transport);
    unsteady::settle(
        &mut reports,
        |case| kept(case).is_some(),
        |case| run_case(Path::new(CONFORMANCE), &transport, case, LIMIT),
    );
    let (kept, other): (Vec<_>, Vec<_>) = reports
        .into_iter()
        .partition(|report| kept(&report.case).is_some());
    println!("differences that are kept:\n{}", failures(&kept));
    let table = failures(&other);
    assert!(
        table.is_empty(),
        "under NetChannel {arguments:?}:\n{table}\ndaemon:\n{}",
        daemon.log()
    );
    assert!(
        daemon.is_running(),
        "the daemon ended meanwhile:\n{}",
        daemon.log()
    );
}

#[test]
fn netchannel_passes_every_case() {
    run_under_netchannel(&[], kept);
}

#[test]
fn netchannel_passes_every_case_through_the_relay() {
    run_under_netchannel(&["--relay"], kept_through_the_relay);
}

#[test]
fn a_case_that_fails_is_told() {
    // Tests the runner itself: an unknown case is a failure, and so is a case that is cut short.
    let limit = Duration::from_secs(30);
    let missing = ["no_such_case".to_owned()];
    let reports = run_cases(
        Path::new(CONFORMANCE),
        &Transport::Kernel,
        &missing,
        1,
        limit,
        |_| {},
    );
    assert!(
        matches!(reports[0].verdict, Verdict::Failed(_)),
        "{reports:?}"
    );
    let slow = ["corner_11_linger_positive_gives_up_in_time_v4".to_owned()];
    let limit = Duration::from_millis(200);
    let reports = run_cases(
        Path::new(CONFORMANCE),
        &Transport::Kernel,
        &slow,
        1,
        limit,
        |_| {},
    );
    assert!(
        matches!(reports[0].verdict, Verdict::TimedOut(_)),
        "{reports:?}"
    );
}
