//! `conformance compare --hosts`: every case whose structure allows it between two hosts, over kernel TCP and over
//! NetChannel. `--tenant`: the same with a program of a tenant at one end, and kernel TCP at the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use netchannel_testkit::differences::{kept, kept_through_the_relay};
use netchannel_testkit::far::Side;
use netchannel_testkit::left_out;
use netchannel_testkit::runner::{Report, Verdict, run_all, run_case_between, run_command};
use netchannel_testkit::support::SKIPPED;
use netchannel_testkit::tenant_differences;
use netchannel_testkit::two_hosts::{Carrier, HostsError, TwoHosts};
use netchannel_testkit::unsteady;

use crate::asked::{Options, names, this_program};

/// The ends that can be on the other host. Each is tried once.
const SIDES: [Side; 2] = [Side::Server, Side::Client];

/// Runs cases between hosts. Returns exit status 0 if nothing differs from kernel TCP, 77 if two hosts cannot be made
/// here.
pub fn compare(options: &Options) -> i32 {
    let start = Instant::now();
    let program = options.program.as_deref();
    let made = match options.tenant {
        Some(_) => TwoHosts::make_with_tenant(program, options.over_channels),
        None => TwoHosts::make(program),
    };
    let mut hosts = match made {
        Ok(hosts) => hosts,
        Err(HostsError::Unsupported(text)) => {
            println!("skipped: {text}");
            return SKIPPED;
        }
        Err(HostsError::Failed(text)) => {
            eprintln!("{text}");
            return 2;
        }
    };
    let cases = names(&options.words);
    let this = this_program();
    let between = |carrier: Carrier, side: Side, cases: &[String]| {
        run_all(cases, options.jobs, |case| {
            run_case_between(&this, &hosts, carrier, side, case, options.limit)
        })
    };
    let mut tally = Tally {
        number: if options.over_channels {
            |case, side| {
                kept_through_the_relay(case).or_else(|| tenant_differences::kept(case, side))
            }
        } else if options.tenant.is_some() {
            tenant_differences::kept
        } else {
            // Between hosts the daemon forwards connections, as its relay does.
            |case, _| kept_through_the_relay(case)
        },
        apart: BTreeMap::new(),
        different: Vec::new(),
        kept: Vec::new(),
        left_out: BTreeMap::new(),
    };
    let mut within: BTreeMap<String, String> = BTreeMap::new();
    for side in far_sides(options) {
        let cases = tally.leave_out(side, &cases);
        let is_kept = |case: &str| (tally.number)(case, side).is_some();
        let pairs = both_ways(options, &cases, is_kept, |carrier, cases| {
            between(carrier, side, cases)
        });
        for (kernel, netchannel) in pairs {
            // Over NetChannel the case may have failed before it printed the mark.
            let both = [Some(&kernel), netchannel.as_ref()];
            let reason = both.into_iter().flatten().find_map(Report::not_between);
            match reason {
                Some(reason) => {
                    within.insert(kernel.case.clone(), reason.to_owned());
                }
                None => tally.add(side, &kernel, netchannel.as_ref()),
            }
        }
    }
    // A case that ran between hosts with one of its two ends need not run within one host.
    within.retain(|case, _| !tally.apart.contains_key(case));
    if options.within && options.program.is_some() {
        let cases: Vec<String> = within.keys().cloned().collect();
        for report in run_within(&this, &hosts, &cases, options) {
            tally.add_within(&report);
        }
    }
    tally.print(&within);
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

/// The ends that are on host b, one after the other.
fn far_sides(options: &Options) -> Vec<Side> {
    let Some(tenants) = options.tenant else {
        return SIDES.to_vec();
    };
    let other = |side: &Side| match side {
        Side::Server => Side::Client,
        Side::Client => Side::Server,
    };
    tenants.iter().map(other).collect()
}

/// Runs each case over kernel TCP and, where there is one, over NetChannel: both in full, or kernel TCP only for cases
/// that do not pass otherwise.
fn both_ways(
    options: &Options,
    cases: &[String],
    kept: impl Fn(&str) -> bool,
    run: impl Fn(Carrier, &[String]) -> Vec<Report>,
) -> Vec<(Report, Option<Report>)> {
    let carrier = match options.tenant {
        Some(_) if options.over_channels => Carrier::TenantOverChannels,
        Some(_) => Carrier::Tenant,
        None => Carrier::NetChannel,
    };
    let none = |reports: Vec<Report>| reports.into_iter().map(|one| (one, None)).collect();
    if options.program.is_none() {
        return none(run(Carrier::Kernel, cases));
    }
    let is_apart = |one: &Report| one.not_between().is_none();
    let over_netchannel = |cases: &[String]| {
        let mut reports = run(carrier, cases);
        unsteady::settle(&mut reports, &kept, |case| {
            run(carrier, &[case.to_owned()]).remove(0)
        });
        reports
    };
    if !options.only {
        let (apart, within_one_host): (Vec<_>, Vec<_>) =
            run(Carrier::Kernel, cases).into_iter().partition(is_apart);
        let cases: Vec<String> = apart.iter().map(|one| one.case.clone()).collect();
        let netchannel = over_netchannel(&cases);
        let pairs = apart.into_iter().zip(netchannel.into_iter().map(Some));
        return pairs.chain(none(within_one_host)).collect();
    }
    let netchannel = over_netchannel(cases);
    let suspects = netchannel
        .iter()
        .filter(|one| is_apart(one) && one.verdict != Verdict::Passed);
    let suspects: Vec<String> = suspects.map(|one| one.case.clone()).collect();
    let mut kernel = run(Carrier::Kernel, &suspects).into_iter();
    let pairs = netchannel.into_iter().map(|one| {
        let report = if suspects.contains(&one.case) {
            kernel.next()
        } else {
            None
        };
        (report.unwrap_or_else(|| one.clone()), Some(one))
    });
    pairs.collect()
}

/// Runs cases unchanged on host a, under its daemon.
fn run_within(this: &Path, hosts: &TwoHosts, cases: &[String], options: &Options) -> Vec<Report> {
    run_all(cases, options.jobs, |case| {
        let command = hosts.command(this, hosts.a(), Carrier::NetChannel);
        run_command(command, case, options.limit)
    })
}

fn daemons_ended(hosts: &mut TwoHosts) -> bool {
    let places = [hosts.a(), hosts.b()];
    let mut ended = places.into_iter().any(|which| {
        let daemon = hosts.daemon(which);
        daemon.is_some_and(|daemon| !daemon.is_running())
    });
    let tenant = hosts.tenant();
    ended |= tenant.is_some_and(|tenant| !tenant.daemon().is_running());
    if ended {
        println!("a daemon ended during the run:\n{}", hosts.logs());
    }
    ended
}

/// The results.
struct Tally {
    /// The number of a difference that a case shows with that end on host b, and that is kept.
    number: fn(&str, Side) -> Option<&'static str>,
    /// Cases that ran between hosts, and how often.
    apart: BTreeMap<String, usize>,
    /// Lines about cases that differ.
    different: Vec<String>,
    /// Lines about differences that are kept.
    kept: Vec<String>,
    /// The cases that are left out, by reason.
    left_out: BTreeMap<&'static str, Vec<String>>,
}

impl Tally {
    /// The cases that test something with this end on the other host. Notes the others.
    fn leave_out(&mut self, side: Side, cases: &[String]) -> Vec<String> {
        let mut rest = Vec::with_capacity(cases.len());
        for case in cases {
            match left_out::reason(case, side) {
                Some(reason) => {
                    let name = format!("{case} (far {})", side.word());
                    self.left_out.entry(reason).or_default().push(name);
                }
                None => rest.push(case.clone()),
            }
        }
        rest
    }

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
        let number = (self.number)(&kernel.case, side);
        let lines = match number {
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

    fn print(&self, within: &BTreeMap<String, String>) {
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
        if !self.left_out.is_empty() {
            println!("left out:");
            for (reason, cases) in &self.left_out {
                println!("  {reason} ({}): {}", cases.len(), cases.join(", "));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_exists() {
        let cases = names(&[]);
        for name in left_out::names() {
            assert!(cases.iter().any(|case| case.starts_with(name)), "{name}");
        }
        for name in tenant_differences::names() {
            assert!(cases.iter().any(|case| case.starts_with(name)), "{name}");
        }
    }
}
