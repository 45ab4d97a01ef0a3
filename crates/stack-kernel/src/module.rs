//! The module where it runs: a thread of the daemon, or a process.

use crate::doors;
use crate::worker::{KernelWorker, Mail, Message};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::worker;
use netchannel_stack_process::control::Bind;
use netchannel_stack_process::endpoint::{Endpoint, Received};
use netchannel_stack_process::process::{ProcessEnd, ToProcess};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Binds a published port here, for a module that runs in the daemon's network namespace.
pub const BIND: Bind = doors::bind;

/// The module as a thread.
#[derive(Debug)]
pub struct KernelThread {
    mail: Arc<Mail>,
    thread: Option<JoinHandle<()>>,
}

impl KernelThread {
    /// Starts a worker without tenants.
    ///
    /// # Errors
    /// When no thread or no descriptor can be had.
    pub fn start(name: &str) -> Result<Self, Errno> {
        let mail = Arc::new(Mailbox::new()?);
        let kernel = KernelWorker::new(Arc::clone(&mail))?;
        // As much of the name as a thread's has room for.
        let name: String = format!("kernel-{name}").chars().take(15).collect();
        let thread = worker::spawn(name, kernel)?;
        Ok(Self {
            mail,
            thread: Some(thread),
        })
    }

    /// A session for another tenant: CoreEngine's end.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn session(&self) -> Result<OwnedFd, Errno> {
        let (own, other) = Endpoint::pair()?;
        self.mail.send(Message::Session(own));
        Ok(other)
    }
}

impl Drop for KernelThread {
    fn drop(&mut self) {
        self.mail.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            // A worker that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Runs the module as a process until the daemon ends the connection.
///
/// # Errors
/// A sentence where the daemon refuses it, or nothing can be had.
pub fn run_process(name: &str, mut daemon: ProcessEnd) -> Result<(), String> {
    let kernel = KernelThread::start(name).map_err(|errno| format!("cannot start ({errno})"))?;
    loop {
        match daemon.hear() {
            Received::Message((ToProcess::Welcome(fairness), _), _) => {
                kernel.mail.send(Message::Fairness(fairness));
            }
            Received::Message((ToProcess::Session, Some(socket)), _) => {
                kernel.mail.send(Message::Session(socket));
            }
            Received::Message((ToProcess::Refused(why), _), _) => return Err(why),
            Received::Message((ToProcess::Session, None), _) | Received::Garbage => {
                return Err(
                    "the daemon speaks another language: start a stack of its version".to_owned(),
                );
            }
            Received::Ended => return Ok(()),
            Received::Nothing => {
                let mut watched = [PollFd::new(&daemon, PollFlags::IN)];
                // A signal ends the wait, and perhaps the process.
                let _ = poll(&mut watched, None);
            }
        }
    }
}
