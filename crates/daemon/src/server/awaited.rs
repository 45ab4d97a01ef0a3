//! Programs that `netchannel run` has begun and that may have no socket yet, such as a shell or a script that sleeps. The daemon that
//! was started for them does not end before them.

use super::Daemon;
use crate::watch::Subject;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Most programs of one user. The daemon does not wait for further ones.
const MOST_OF_USER: usize = 256;

/// The programs that are awaited, by their process ids.
#[derive(Debug, Default)]
pub struct Awaited(BTreeMap<u32, (u32, OwnedFd)>);

impl Awaited {
    /// Adds a process of `user`, in the place of a former one with its id. Returns its descriptor, which becomes readable at its end.
    /// `None` where it has ended, can not be seen from here, or the user has too many.
    fn add(&mut self, process: u32, user: u32) -> Option<&OwnedFd> {
        self.0.remove(&process);
        if self.0.values().filter(|(owner, _)| *owner == user).count() >= MOST_OF_USER {
            return None;
        }
        let id = Pid::from_raw(i32::try_from(process).ok()?)?;
        let opened = pidfd_open(id, PidfdFlags::empty()).ok()?;
        let (_, descriptor) = self.0.entry(process).or_insert((user, opened));
        Some(descriptor)
    }

    /// A process has ended.
    pub fn remove(&mut self, process: u32) {
        self.0.remove(&process);
    }

    /// Whether none is awaited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Daemon {
    /// A process of `user` becomes a program that may attach later. A daemon that does not end by itself need not know of it.
    pub(super) fn await_program(&mut self, (user, process): (u32, u32)) {
        if self.options.idle_exit.is_none() {
            return;
        }
        let added = self.awaited.add(process, user);
        let watched = added.map(|ended| self.watch.add(ended, Subject::Awaited(process)));
        if matches!(watched, Some(Err(_))) {
            self.awaited.remove(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_only_so_many_and_others_have_theirs() {
        let mut awaited = Awaited::default();
        let own = std::process::id();
        assert!(awaited.add(own, 1).is_some() && awaited.add(own, 1).is_some());
        let others = (1 << 30..).take(MOST_OF_USER - 1);
        for process in others {
            let (_, known) = awaited.0.get(&own).unwrap();
            let copy = known.try_clone().unwrap();
            awaited.0.insert(process, (1, copy));
        }
        let mut child = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .unwrap();
        assert!(awaited.add(child.id(), 1).is_none());
        assert!(awaited.add(child.id(), 2).is_some());
        awaited.remove(own);
        assert!(awaited.add(own, 1).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(awaited.add(child.id(), 2).is_none(), "it has ended");
        awaited.remove(own);
        assert!(!awaited.is_empty());
    }
}
