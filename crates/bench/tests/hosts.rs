//! Experiments between two hosts, for a moment each, with a stand-in for `netchannel`.
//!
//! It has no test harness: who is not root must be alone in the process when it gains its rights, and started again with other
//! words this program is the workloads, the stand-in, and a benchmark to be interrupted. Where namespaces are not allowed it is
//! skipped, and says so.

mod support;

use netchannel_bench::{
    BenchError, Case, HostsExperiment, HostsOptions, PatternsArguments, PatternsReport, Place,
    Report, Row, TenantsArguments, Transport, WorkerCommand, run_between_hosts, run_patterns,
    run_tenants, worker,
};
use netchannel_namespaces::{Cores, gain_rights};
use std::fs;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use support::{INTERRUPTED, children_of, interrupt_once_there_are, own_path};

const WORKER: &str = "bench-worker";
/// The stand-in gives programs AF_UNIX for NetChannel, if this is set; otherwise it leaves them with kernel TCP.
const AF_UNIX: &str = "STAND_IN_AF_UNIX";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(WORKER) => return worker::main(words.into_iter().skip(1)).into(),
        Some(INTERRUPTED) => return to_be_interrupted(),
        Some("daemon") => return stand_in_daemon(&words),
        Some("run") => return stand_in_run(&words),
        Some("tenants") => return stand_in_tenants(&words),
        // It knows neither configurations nor sockets.
        Some("config" | "ss" | "peers" | "channels") => return ExitCode::from(2),
        Some("--list") => {
            println!("hosts: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Err(error) = gain_rights() {
        println!("skipped: hosts: {error}");
        return ExitCode::SUCCESS;
    }
    tests()
}

fn tests() -> ExitCode {
    // A directory of our own, so that what is left behind is ours.
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory");
    // SAFETY: no other thread exists.
    unsafe { std::env::set_var("TMPDIR", directory.path()) };
    let tests: [(&str, fn()); 8] = [
        (
            "every_experiment_gives_figures",
            every_experiment_gives_figures,
        ),
        (
            "what_kernel_tcp_carried_is_said_to_have_fallen_back",
            what_kernel_tcp_carried_is_said_to_have_fallen_back,
        ),
        (
            "every_experiment_of_a_tenant_gives_figures",
            every_experiment_of_a_tenant_gives_figures,
        ),
        ("every_pattern_gives_figures", every_pattern_gives_figures),
        ("losses_and_ladders_are_made", losses_and_ladders_are_made),
        ("delays_are_made_or_refused", delays_are_made_or_refused),
        ("a_wrong_name_is_told", a_wrong_name_is_told),
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

fn options(experiments: &[HostsExperiment]) -> HostsOptions {
    HostsOptions {
        experiments: experiments.to_vec(),
        transports: vec![Transport::Tcp, Transport::Netchannel],
        seconds: 0.1,
        pairs: 1,
        channels: 1,
        congestion_control: None,
        of_channels: None,
        cores: Cores::Own,
        netchannel: own_path(),
        worker: WorkerCommand {
            program: own_path(),
            arguments: vec![WORKER.into()],
        },
        progress: false,
    }
}

fn rows(report: &Report) -> impl Iterator<Item = (Case, &Row)> {
    let rows = |case: &'_ netchannel_bench::CaseReport| case.case;
    report
        .cases
        .iter()
        .flat_map(move |case| case.rows.iter().map(move |row| (rows(case), row)))
}

fn every_experiment_gives_figures() {
    // SAFETY: no other thread exists.
    unsafe { std::env::set_var(AF_UNIX, "yes") };
    // Redis cannot be given another address by the stand-in, and connections need more than one.
    let built_in = [
        HostsExperiment::Stream,
        HostsExperiment::Messages,
        HostsExperiment::Pingpong,
        HostsExperiment::Isolation,
        HostsExperiment::Channels,
    ];
    let report = run_between_hosts(&options(&built_in)).expect("a report");
    // SAFETY: no other thread exists.
    unsafe { std::env::remove_var(AF_UNIX) };
    assert!(report.is_complete(), "{}", report.table());
    assert!(matches!(report.place, Place::TwoHosts { .. }));
    assert_eq!(report.cases.len(), 1 + 3 + 2 + 2 + 1, "{}", report.table());
    for (case, row) in rows(&report) {
        let median = &row.median;
        assert!(
            median.rate > 0.0 && median.rate.is_finite(),
            "{case:?} {row:?}"
        );
        let sides = median.sides.expect("both sides");
        assert!(sides.client > 0.0 && sides.server > 0.0, "{case:?} {row:?}");
        assert!(row.ratio_to_tcp.is_some(), "{case:?} {row:?}");
        assert_eq!(
            median.latency.is_some(),
            case.latency_of().is_some(),
            "{case:?}"
        );
    }
}

#[derive(clap::Parser)]
struct Tenants {
    #[command(flatten)]
    arguments: TenantsArguments,
}

fn every_experiment_of_a_tenant_gives_figures() {
    // The stand-in for a daemon has no tenants that meet, and slirp4netns loses a wake-up now and then.
    let words = [
        "tenants",
        "--kernel-only",
        "stream",
        "pingpong",
        "connections",
        "http",
        "latency",
        "--quiet",
        "--seconds",
        "0.1",
        "--pairs",
        "1",
    ];
    let Tenants { arguments } = clap::Parser::parse_from(words);
    let worker = options(&[]).worker;
    let report = run_tenants(&arguments.options(own_path(), worker)).expect("a report");
    assert!(report.is_complete(), "{}", report.table());
    assert!(matches!(report.place, Place::Tenant { .. }));
    let has_http = report.absent.is_empty();
    assert_eq!(
        report.cases.len(),
        7 + 2 * usize::from(has_http),
        "{}",
        report.table()
    );
    for (case, row) in rows(&report) {
        let sides = row.median.sides.expect("both sides");
        assert!(
            row.median.rate > 0.0 && sides.server > 0.0,
            "{case:?} {row:?}"
        );
        assert!(row.ratio_to_tcp.is_some(), "{case:?} {row:?}");
    }
}

#[derive(clap::Parser)]
struct Patterns {
    #[command(flatten)]
    arguments: PatternsArguments,
}

fn patterns(words: &str) -> PatternsReport {
    let words = ["patterns", "--quiet", "--seconds", "0.1"]
        .into_iter()
        .chain(words.split_whitespace());
    let Patterns { arguments } = clap::Parser::parse_from(words);
    let worker = options(&[]).worker;
    run_patterns(&arguments, own_path(), worker).expect("a report")
}

fn every_pattern_gives_figures() {
    // SAFETY: no other thread exists.
    unsafe { std::env::set_var(AF_UNIX, "yes") };
    let report = patterns("--flows 2 --pairs 2");
    // SAFETY: no other thread exists.
    unsafe { std::env::remove_var(AF_UNIX) };
    assert!(report.is_complete(), "{}", report.table());
    assert_eq!(report.rows.len(), 7 + 3);
    for row in &report.rows {
        for runs in [&row.kernel, &row.netchannel] {
            let median = runs.median().expect("figures");
            assert!(median.rate > 0.0 && median.rate.is_finite(), "{row:?}");
            let sides = median.sides.expect("both sides");
            assert!(sides.client > 0.0 && sides.server > 0.0, "{row:?}");
        }
        let ratio = row.ratio.expect("pairs");
        assert!(ratio.low <= ratio.middle && ratio.middle <= ratio.high);
    }
}

fn losses_and_ladders_are_made() {
    // SAFETY: no other thread exists.
    unsafe { std::env::set_var(AF_UNIX, "yes") };
    let ladder =
        patterns("single --optimisations none,tso-gro,jumbo,pinned --buffer 64KiB --pairs 1");
    let loss = patterns("single --loss 0,0.01 --pairs 1");
    // SAFETY: no other thread exists.
    unsafe { std::env::remove_var(AF_UNIX) };
    assert!(ladder.is_complete(), "{}", ladder.table());
    assert_eq!(ladder.rows.len(), 4);
    let failure = &loss.rows[0].kernel.failure;
    if failure.as_ref().is_some_and(|text| text.contains("XDP")) {
        println!("left out: no XDP program");
        return;
    }
    assert!(loss.is_complete(), "{}", loss.table());
}

fn delays_are_made_or_refused() {
    // SAFETY: no other thread exists.
    unsafe { std::env::set_var(AF_UNIX, "yes") };
    let report = patterns("rpc --size 4096 --flows 1 --delay 0ms,5ms --pairs 1");
    // SAFETY: no other thread exists.
    unsafe { std::env::remove_var(AF_UNIX) };
    if let Some(failure) = &report.rows[0].kernel.failure {
        assert!(failure.contains("nfnetlink_queue nft_queue"), "{failure}");
        println!("left out: no queue for packets");
        return;
    }
    assert!(report.is_complete(), "{}", report.table());
    let p50 = |row: usize| {
        report.rows[row].kernel.runs[0]
            .latency
            .expect("a latency")
            .p50
    };
    assert!(p50(0) < 5e6 && p50(1) >= 5e6, "{}", report.table());
}

fn what_kernel_tcp_carried_is_said_to_have_fallen_back() {
    let report = run_between_hosts(&options(&[HostsExperiment::Connections])).expect("a report");
    assert!(report.failures.is_empty(), "{}", report.table());
    assert!(!report.is_complete());
    let names: Vec<&str> = rows(&report).map(|(_, row)| row.name()).collect();
    assert_eq!(names, ["kernel TCP", "TCP (fell back)"]);
}

fn a_wrong_name_is_told() {
    let mut options = options(&[HostsExperiment::Stream]);
    options.congestion_control = Some("carrier-pigeons".to_owned());
    let refused = run_between_hosts(&options).expect_err("there is no such thing");
    let text = refused.to_string();
    assert!(
        text.contains("carrier-pigeons") && text.contains("reno"),
        "{text}"
    );
}

fn an_interrupt_ends_all_programs() {
    // A guard, a server and eight clients.
    interrupt_once_there_are(10, Duration::from_secs(20));
}

fn to_be_interrupted() -> ExitCode {
    let mut options = options(&[HostsExperiment::Connections]);
    options.transports = vec![Transport::Tcp];
    options.seconds = 60.0;
    match run_between_hosts(&options) {
        Err(BenchError::Interrupted) => ExitCode::from(130),
        other => panic!("{other:?}"),
    }
}

fn after<'a>(words: &'a [String], name: &str) -> &'a str {
    let place = words.iter().position(|word| word == name);
    &words[place.expect("the option") + 1]
}

fn stand_in_daemon(words: &[String]) -> ExitCode {
    let control = format!("{}.control", after(words, "--socket"));
    let listener = UnixListener::bind(control).expect("the control socket");
    while listener.accept().is_ok() {}
    ExitCode::FAILURE
}

/// It leaves programs of a tenant with the network of their host.
fn stand_in_tenants(words: &[String]) -> ExitCode {
    let Some(place) = words.iter().rposition(|word| word == "--") else {
        println!("[{{\"name\": \"bench\"}}]");
        return ExitCode::SUCCESS;
    };
    let program = &words[place + 1..];
    panic!("{}", Command::new(&program[0]).args(&program[1..]).exec());
}

fn stand_in_run(words: &[String]) -> ExitCode {
    if words.contains(&"--help".to_owned()) {
        return ExitCode::SUCCESS;
    }
    let socket = after(words, "--socket");
    let place = words
        .iter()
        .position(|word| word == "--")
        .expect("a program");
    let mut program = words[place + 1..].to_vec();
    if std::env::var_os(AF_UNIX).is_some() {
        for word in program.iter_mut().filter(|word| *word == "tcp:10.77.2.1:0") {
            *word = format!("unix:{socket}.{}", std::process::id());
        }
    }
    panic!("{}", Command::new(&program[0]).args(&program[1..]).exec());
}
