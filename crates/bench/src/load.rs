//! Whether others use the processors: then figures say little.

/// So much of a processor in a hundred may be in use by others.
const QUIET: f64 = 25.0;

/// What is said before a benchmark on a machine that is busy.
pub fn sentence() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    told(&text, processors)
}

fn told(load: &str, processors: usize) -> Option<String> {
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
    assert_eq!(told("0.30 0.10 0.05 1/100 1", 2), None);
    assert!(
        told("1.70 0.10 0.05 1/100 1", 2)
            .unwrap()
            .contains("load 1.7 on 2")
    );
    assert_eq!(told("", 2), None);
}
