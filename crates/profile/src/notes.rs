//! What a profile could not see, the reason, and the remedy: a sentence each.

use crate::recording::Recording;
use crate::report::{Report, percent};
use netchannel_taxonomy::Category;

/// From this share of the samples on, it is worth saying.
const WORTH: f64 = 5.0;
/// More than this is unclassified where the taxonomy does not know a kernel.
const STRANGE: f64 = 1.0;
/// From this number of samples on, a share of a half is known to ten points.
const ENOUGH: u64 = 100;

/// All notes on a run.
pub fn of(report: &Report, recording: &Recording, sees_kernel: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !sees_kernel {
        notes.push(format!(
            "only user space is shown: the kernel's part is kept from ordinary users (kernel.perf_event_paranoid is {}); \
             as root, or after `sysctl kernel.perf_event_paranoid=1`, it is shown",
            setting("perf_event_paranoid")
        ));
    } else if recording.kernel().is_empty() {
        notes.push(format!(
            "the names of the kernel's functions are hidden (kernel.kptr_restrict is {}), so its part is unclassified; \
             as root, or after `sysctl kernel.kptr_restrict=0`, they are shown",
            setting("kptr_restrict")
        ));
    }
    let busy = report.categories.total();
    if (1..ENOUGH).contains(&busy) {
        notes.push(format!(
            "too few samples to compare shares ({busy}): measure it for longer, let it do more, or raise \
             --frequency"
        ));
    }
    let unclassified = report.categories.share(Category::Unclassified);
    if sees_kernel && !recording.kernel().is_empty() && unclassified >= STRANGE {
        notes.push(format!(
            "{unclassified:.1} % of the samples are in functions that the taxonomy does not have; --unclassified lists them, and \
             --taxonomy FILE adds them"
        ));
    }
    let late = percent(report.late, busy);
    if report.clock == "cpu-clock" && late >= WORTH {
        notes.push(format!(
            "no counter of cycles here (a virtual machine?): {late:.0} % of the samples came late, since interrupts were off, \
             and are charged to who let them in again"
        ));
    }
    if report.lost > 0 {
        notes.push(format!(
            "{} records were lost, since they came faster than they were read; a lower --frequency keeps them",
            report.lost
        ));
    }
    let nameless = report.functions.iter().filter(|function| {
        let is_file = function.name.starts_with('[') && function.name != "[unknown]";
        is_file && percent(function.samples, busy) >= WORTH
    });
    for function in nameless {
        notes.push(format!(
            "{:.0} % of the samples are in functions of {} that have no names: it has no symbols for them, which its package of debug symbols \
             or a build with -g would bring",
            percent(function.samples, busy),
            function.name.trim_matches(['[', ']'])
        ));
    }
    notes
}

fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
