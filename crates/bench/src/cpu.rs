//! CPU time of other processes, to the nanosecond.

use std::collections::HashSet;
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// The CPU time of a living process and its descendants, including those that it has waited for; zero if it has ended.
pub fn of_tree(process: libc::pid_t) -> Duration {
    let both = |process| of_process(process) + of_waited_for(process);
    tree(process).into_iter().map(both).sum()
}

/// The process and its descendants.
pub fn tree(process: libc::pid_t) -> Vec<libc::pid_t> {
    let mut known = HashSet::from([process]);
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for child in children(parent) {
            if known.insert(child) {
                found.push(child);
            }
        }
    }
    found
}

/// CPU time of the kernel's threads that move packets when no process does, of the whole machine; zero where they cannot be
/// seen.
pub fn of_packet_threads() -> Duration {
    static THREADS: OnceLock<Vec<libc::pid_t>> = OnceLock::new();
    let threads = THREADS.get_or_init(packet_threads);
    threads.iter().copied().map(of_process).sum()
}

fn packet_threads() -> Vec<libc::pid_t> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes
        .filter(|process: &libc::pid_t| {
            let name = fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/") || name.starts_with("napi/"))
        })
        .collect()
}

fn children(process: libc::pid_t) -> Vec<libc::pid_t> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten().filter_map(|thread| {
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        Some(
            list.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<_>>(),
        )
    });
    lists.flatten().collect()
}

/// The CPU time of a living process alone.
pub fn of_process(process: libc::pid_t) -> Duration {
    let mut clock = 0;
    // SAFETY: `clock` is a live output.
    if unsafe { libc::clock_getcpuclockid(process, &raw mut clock) } != 0 {
        return Duration::ZERO;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live output.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of descendants that a living process has waited for, in the kernel's ticks.
fn of_waited_for(process: libc::pid_t) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // SAFETY: no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let per_second = u32::try_from(per_second).unwrap_or(0).max(1);
    Duration::from_secs(waited_for_ticks(&stat)) / per_second
}

/// The kernel's ticks of a living process alone: utime and stime.
pub fn ticks(process: libc::pid_t) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    sum_of_two(&stat, 11)
}

/// The fields cutime and cstime, counted from the end of the name, which may hold anything.
fn waited_for_ticks(stat: &str) -> u64 {
    sum_of_two(stat, 13)
}

/// Two fields, the first of which has so many between the name and itself.
fn sum_of_two(stat: &str, before: usize) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields
        .split_whitespace()
        .skip(before)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

/// User and system time of a `wait4` result, descendants that were waited for included.
pub fn of_usage(usage: &libc::rusage) -> Duration {
    let part = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    part(usage.ru_utime) + part(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn own_pid() -> libc::pid_t {
        libc::pid_t::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn work_shows_up_in_the_clock_of_a_process() {
        let before = of_tree(own_pid());
        let begin = Instant::now();
        let mut value = 1_u64;
        while begin.elapsed() < Duration::from_millis(20) {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        let used = of_tree(own_pid()).saturating_sub(before);
        assert!(used > Duration::from_millis(1), "{used:?}");
    }

    #[test]
    fn ticks_of_waited_for_children_are_found_behind_any_name() {
        let stat = "42 (a) 1 2) S 1 42 42 0 -1 4194560 107 9000 0 11 3 5 70 8 20 0 1 0 100 2 3";
        assert_eq!(waited_for_ticks(stat), 78);
        assert_eq!(sum_of_two(stat, 11), 8);
        assert_eq!(waited_for_ticks(""), 0);
    }

    #[test]
    fn children_belong_to_the_tree() {
        let mut child = std::process::Command::new("sleep")
            .arg("10")
            .spawn()
            .unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        // The kernel's list leaves children out while others of it end, as those of other tests do.
        let begin = Instant::now();
        while !tree(own_pid()).contains(&pid) {
            assert!(
                begin.elapsed() < Duration::from_secs(9),
                "never in the tree"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of_tree(pid), Duration::ZERO);
    }
}
