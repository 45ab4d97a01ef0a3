//! Cases that fail beside others and pass alone. They are reported by name, so that their cause is looked for. A few of
//! them do not fail a run: an effect that a busy machine shows once in a thousand times is no reason to distrust the
//! other results.

use crate::runner::{Report, Verdict};

/// The highest number of unsteady cases that do not count as failed. Where more cases fail, all of them count.
const MOST: usize = 4;
/// How often each case must pass alone.
const TIMES: usize = 5;

/// Repeats cases that failed, if they are few. A case that passes alone each time counts as passed, and a line
/// `unsteady: ...` reports it. Cases that are `kept` are not repeated.
pub fn settle(reports: &mut [Report], kept: impl Fn(&str) -> bool, again: impl Fn(&str) -> Report) {
    let failed = |report: &&mut Report| {
        matches!(report.verdict, Verdict::Failed(_) | Verdict::TimedOut(_)) && !kept(&report.case)
    };
    let mut failed: Vec<_> = reports.iter_mut().filter(failed).collect();
    if failed.len() > MOST {
        return;
    }
    for report in &mut failed {
        let passes = |_| again(&report.case).verdict == Verdict::Passed;
        if (0..TIMES).all(passes) {
            let message = report.verdict.message().replace('\n', " | ");
            println!(
                "unsteady: {}, which passes alone {TIMES} times: {message}",
                report.case
            );
            report.verdict = Verdict::Passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn report(case: &str, passed: bool) -> Report {
        let failed = || Verdict::Failed("said why".to_owned());
        Report {
            case: case.to_owned(),
            verdict: if passed { Verdict::Passed } else { failed() },
            elapsed: Duration::ZERO,
        }
    }

    fn failures(reports: &[Report]) -> Vec<&str> {
        let failed = reports.iter().filter(|one| one.verdict != Verdict::Passed);
        failed.map(|one| one.case.as_str()).collect()
    }

    #[test]
    fn who_fails_again_has_failed() {
        let mut reports = vec![report("a", false), report("b", true), report("c", false)];
        let runs = Cell::new(0);
        settle(
            &mut reports,
            |_| false,
            |case| {
                runs.set(runs.get() + 1);
                // The second case fails in its fourth run.
                report(case, runs.get() != TIMES + 4)
            },
        );
        assert_eq!((failures(&reports), runs.get()), (vec!["c"], TIMES + 4));
    }

    #[test]
    fn many_that_fail_are_not_repeated() {
        let names = ["a", "b", "c", "d", "e", "kept"];
        let mut reports: Vec<_> = names.iter().map(|name| report(name, false)).collect();
        let kept = |case: &str| case == "kept";
        settle(&mut reports, kept, |_| unreachable!("nothing is repeated"));
        assert_eq!(failures(&reports), names);
        let mut few = reports.split_off(4);
        settle(&mut few, kept, |case| report(case, true));
        assert_eq!(failures(&few), ["kept"]);
    }
}
