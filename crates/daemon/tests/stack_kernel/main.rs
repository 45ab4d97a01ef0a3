//! The contract of stack modules for tenants: the same tests where the module is a thread of the daemon, and where it is a process.
#![allow(clippy::duplicate_mod, reason = "the same tests, at two places")]

#[path = "../support/mod.rs"]
mod support;
mod taken_over;

use netchannel_stack_kernel::{KernelThread, run_process};
use netchannel_stack_process::endpoint::Endpoint;
use netchannel_stack_process::process::{DaemonEnd, Fairness, Hello, ProcessEnd, ToProcess};
use std::os::fd::OwnedFd;

/// Where the module runs.
#[derive(Clone, Copy)]
enum Place {
    /// In a thread that the daemon starts.
    Daemon,
    /// Behind the connection of a stack process, which another thread plays.
    Process,
}

impl Place {
    /// A session with a module that nobody ends before the tests do.
    fn session(self) -> OwnedFd {
        self.sessions(1).pop().unwrap()
    }

    /// So many sessions with one module.
    fn sessions(self, count: usize) -> Vec<OwnedFd> {
        match self {
            Self::Daemon => {
                let thread = KernelThread::start("test").unwrap();
                let sessions = (0..count).map(|_| thread.session().unwrap()).collect();
                std::mem::forget(thread);
                sessions
            }
            Self::Process => {
                let (one, two) = Endpoint::pair().unwrap();
                let process = ProcessEnd::begin(two, &Hello::new("kernel", "test")).unwrap();
                std::thread::spawn(move || run_process("test", process));
                let mut daemon = DaemonEnd::new(one);
                let welcome = ToProcess::Welcome(Fairness::Network);
                daemon.tell(&welcome, None).unwrap();
                let sessions = (0..count).map(|_| {
                    let (own, other) = Endpoint::pair().unwrap();
                    daemon.tell(&ToProcess::Session, Some(other)).unwrap();
                    own
                });
                let sessions = sessions.collect();
                std::mem::forget(daemon);
                sessions
            }
        }
    }
}

#[path = "."]
mod in_the_daemon {
    const PLACE: super::Place = super::Place::Daemon;
    #[path = "contract.rs"]
    mod contract;
    #[path = "crossing.rs"]
    mod crossing;
    #[path = "entering.rs"]
    mod entering;
    #[path = "meeting.rs"]
    mod meeting;
    #[path = "names.rs"]
    mod names;
}

#[path = "."]
mod as_a_process {
    const PLACE: super::Place = super::Place::Process;
    #[path = "contract.rs"]
    mod contract;
    #[path = "crossing.rs"]
    mod crossing;
    #[path = "entering.rs"]
    mod entering;
    #[path = "meeting.rs"]
    mod meeting;
    #[path = "names.rs"]
    mod names;
}
