//! Whether others use the processors: then figures say little.

/// The load of other processes, in percent of a processor, up to which a machine counts as quiet.
const QUIET: f64 = 25.0;

/// The warning before a benchmark on a busy machine.
pub fn sentence() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    warning(&text, processors)
}

fn warning(load: &str, processors: usize) -> Option<String> {
    let recent: f64 = load.split_whitespace().next()?.parse().ok()?;
    (recent * 100.0 > QUIET * processors as f64).then(|| {
        format!(
            "others use this machine (load {recent} on {processors} processors): NetChannel waits by looking, and needs \
             processors that are free; figures will be lower than on a machine that is otherwise idle"
        )
    })
}

#[test]
fn a_busy_machine_is_told_of() {
    assert_eq!(warning("0.30 0.10 0.05 1/100 1", 2), None);
    assert!(
        warning("1.70 0.10 0.05 1/100 1", 2)
            .unwrap()
            .contains("load 1.7 on 2")
    );
    assert_eq!(warning("", 2), None);
}
