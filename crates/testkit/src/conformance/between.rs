//! `conformance compare --hosts`: every case whose structure allows it between two hosts, over kernel TCP and over NetChannel.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use netchannel_testkit::differences::kept;
use netchannel_testkit::far::Side;
use netchannel_testkit::runner::{Over, Report, Verdict, run_all, run_case_between, run_command};
use netchannel_testkit::support::SKIPPED;
use netchannel_testkit::two_hosts::{Absent, TwoHosts};

use crate::compare::{Options, names, this_program};

/// The ends that are on the other host, once each.
const SIDES: [Side; 2] = [Side::Server, Side::Client];

/// Runs cases between hosts; exit status 0 if nothing differs from kernel TCP, 77 if there can be no two hosts here.
pub fn compare(options: &Options) -> i32 {
    let start = Instant::now();
    let mut hosts = match TwoHosts::make(options.program.as_deref()) {
        Ok(hosts) => hosts,
        Err(Absent::NotHere(text)) => {
            println!("skipped: {text}");
            return SKIPPED;
        }
        Err(Absent::Failed(text)) => {
            eprintln!("{text}");
            return 2;
        }
    };
    let cases = names(&options.words);
    let this = this_program();
    let between = |over: Over, side: Side, cases: &[String]| {
        run_all(cases, options.jobs, |case| {
            run_case_between(&this, &hosts, over, side, case, options.limit)
        })
    };
    let mut tally = Tally::default();
    let mut within: BTreeMap<String, String> = BTreeMap::new();
    for side in SIDES {
        let kernel = between(Over::Kernel, side, &cases);
        let (apart, here): (Vec<_>, Vec<_>) = kernel
            .into_iter()
            .partition(|report| !matches!(report.verdict, Verdict::NotBetween(_)));
        for report in here {
            let reason = report.verdict.message().to_owned();
            within.insert(report.case, reason);
        }
        let cases: Vec<String> = apart.iter().map(|report| report.case.clone()).collect();
        let netchannel = match &options.program {
            Some(_) => between(Over::NetChannel, side, &cases),
            None => Vec::new(),
        };
        for (index, kernel) in apart.iter().enumerate() {
            tally.add(side, kernel, netchannel.get(index));
        }
    }
    // What one of the two ways could do is between hosts.
    within.retain(|case, _| !tally.apart.contains_key(case));
    if options.within && options.program.is_some() {
        let cases: Vec<String> = within.keys().cloned().collect();
        for report in run_within(&this, &hosts, &cases, options) {
            tally.add_within(&report);
        }
    }
    tally.tell(&within);
    let ended = daemons_ended(&mut hosts);
    println!(
        "{} cases between hosts, {} within one, {} differ or fail, {:.1} s",
        tally.apart.len(),
        within.len(),
        tally.different.len(),
        start.elapsed().as_secs_f64()
    );
    i32::from(!tally.different.is_empty() || ended)
}

/// Cases as they are, on host a, under its daemon.
fn run_within(this: &Path, hosts: &TwoHosts, cases: &[String], options: &Options) -> Vec<Report> {
    run_all(cases, options.jobs, |case| {
        let command = hosts.command(this, hosts.a(), Over::NetChannel);
        run_command(command, case, options.limit)
    })
}

fn daemons_ended(hosts: &mut TwoHosts) -> bool {
    let places = [hosts.a(), hosts.b()];
    let ended = places.into_iter().any(|which| {
        let daemon = hosts.daemon(which);
        daemon.is_some_and(|daemon| !daemon.is_running())
    });
    if ended {
        println!("a daemon ended during the run:\n{}", hosts.logs());
    }
    ended
}

/// What came out.
#[derive(Default)]
struct Tally {
    /// Cases that ran between hosts, and how often.
    apart: BTreeMap<String, usize>,
    /// Lines about those that differ.
    different: Vec<String>,
    /// Lines about differences that are kept.
    kept: Vec<String>,
}

impl Tally {
    fn add(&mut self, side: Side, kernel: &Report, netchannel: Option<&Report>) {
        *self.apart.entry(kernel.case.clone()).or_default() += 1;
        let good = |verdict: &Verdict| matches!(verdict, Verdict::Passed | Verdict::Skipped);
        let verdict = netchannel.map(|report| &report.verdict);
        if good(&kernel.verdict) && verdict.is_none_or(|verdict| *verdict == kernel.verdict) {
            return;
        }
        let message = verdict.unwrap_or(&kernel.verdict).message();
        let name = format!("{} (far {})", kernel.case, side.word());
        let line = format!(
            "{name:<66} {:<6} {:<6} {}",
            kernel.verdict.word(),
            verdict.map_or("-", Verdict::word),
            message.replace('\n', " | ")
        );
        let lines = match kept(&kernel.case) {
            Some(_) if good(&kernel.verdict) => &mut self.kept,
            _ => &mut self.different,
        };
        lines.push(line);
    }

    fn add_within(&mut self, report: &Report) {
        if matches!(report.verdict, Verdict::Passed | Verdict::Skipped)
            || kept(&report.case).is_some()
        {
            return;
        }
        let (case, word) = (&report.case, report.verdict.word());
        let message = report.verdict.message().replace('\n', " | ");
        self.different
            .push(format!("{case:<66} {:<6} {word:<6} {message}", "-"));
    }

    fn tell(&self, within: &BTreeMap<String, String>) {
        if !within.is_empty() {
            println!("within one host, as nothing of them can be on another:");
            let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (case, reason) in within {
                reasons.entry(reason).or_default().push(case);
            }
            for (reason, cases) in reasons {
                println!("  {reason} ({}): {}", cases.len(), cases.join(" "));
            }
        }
        for (title, lines) in [
            ("differences that are kept", &self.kept),
            ("DIFFERENT", &self.different),
        ] {
            if !lines.is_empty() {
                println!(
                    "{title}:\n{:<66} {:<6} {:<6} message",
                    "case", "kernel", "netch."
                );
                lines.iter().for_each(|line| println!("{line}"));
            }
        }
    }
}
