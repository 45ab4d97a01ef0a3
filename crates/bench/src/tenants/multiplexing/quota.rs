//! A limit of the processor time of some processes: a control group of the kernel's, of either version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// In each of these the quota is given anew, in microseconds: short, as a request may wait for the next one.
const PERIOD: f64 = 20_000.0;
/// The least quota that the kernel takes.
const LEAST_QUOTA: f64 = 1_000.0;
/// The least part of a processor.
pub const LEAST: f64 = LEAST_QUOTA / PERIOD;

/// A group of its own, which goes with this value.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
    is_second: bool,
}

impl Quota {
    /// A group that has no limit yet.
    pub fn make(name: &str) -> io::Result<Self> {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let second = Path::new("/sys/fs/cgroup");
        let is_second = !first.join("cpu.cfs_quota_us").exists() && !first.join("tasks").exists();
        let parent = if is_second { second } else { first };
        if is_second {
            // Refused where processes live beside groups; then the group below has no quota, which is told.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
        }
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        let quota = Quota { folder, is_second };
        quota.lift()?;
        Ok(quota)
    }

    /// Lets all threads of a process live in it.
    pub fn add(&self, process: libc::pid_t) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }

    /// Gives its processes this part of a processor.
    pub fn limit(&self, part: f64) -> io::Result<()> {
        let quota = LEAST_QUOTA.max(part * PERIOD);
        self.write(&format!("{quota:.0}"))
    }

    /// Gives them as much as they want.
    pub fn lift(&self) -> io::Result<()> {
        self.write(if self.is_second { "max" } else { "-1" })
    }

    fn write(&self, quota: &str) -> io::Result<()> {
        if self.is_second {
            return fs::write(self.folder.join("cpu.max"), format!("{quota} {PERIOD}"));
        }
        fs::write(self.folder.join("cpu.cfs_period_us"), PERIOD.to_string())?;
        fs::write(self.folder.join("cpu.cfs_quota_us"), quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // What lives in it still goes up.
        let processes = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        if let Some(parent) = self.folder.parent() {
            for process in processes.lines() {
                let _ = fs::write(parent.join("cgroup.procs"), process);
            }
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_limit_and_goes() {
        let name = format!("netchannel-bench-test-{}", std::process::id());
        let Ok(quota) = Quota::make(&name) else {
            println!("skipped: no control groups");
            return;
        };
        quota.limit(0.25).unwrap();
        let folder = quota.folder.clone();
        assert!(folder.exists());
        drop(quota);
        assert!(!folder.exists());
    }
}
