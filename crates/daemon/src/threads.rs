//! The threads of this process, and the processor time of each, as the kernel counts it.

use netchannel_control::hosts::Hosts;
use std::path::Path;

/// Adds every thread under its name.
pub fn show(hosts: &mut Hosts) {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for task in tasks.flatten() {
        if let Some((thread, name, nanoseconds)) = read(&task.path()) {
            let worker = hosts.worker_mut(&name);
            worker.thread = thread;
            worker.processor_nanoseconds = worker.processor_nanoseconds.max(nanoseconds);
        }
    }
}

fn read(task: &Path) -> Option<(u32, String, u64)> {
    let thread = task.file_name()?.to_str()?.parse().ok()?;
    let name = std::fs::read_to_string(task.join("comm")).ok()?;
    // The time on a processor, the time waiting for one, and the number of time slices.
    let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
    let nanoseconds = times.split_whitespace().next()?.parse().ok()?;
    Some((thread, name.trim_end().to_owned(), nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_seen() {
        let mut hosts = Hosts::default();
        let worked = std::thread::Builder::new()
            .name("works".to_owned())
            .spawn(|| {
                let mut hosts = Hosts::default();
                while hosts.worker_mut("works").processor_nanoseconds < 1_000_000 {
                    show(&mut hosts);
                }
                hosts
            });
        let worked = worked.unwrap().join().unwrap();
        let worker = worked.workers.iter().find(|one| one.name == "works");
        assert!(worker.unwrap().thread > 0);
        show(&mut hosts);
        assert!(!hosts.workers.is_empty());
    }
}
