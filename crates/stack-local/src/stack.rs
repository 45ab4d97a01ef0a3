//! The module's half on the daemon's thread.

use super::worker::{Local, Mail};
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Command, Engine, StackRequest};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::{Stack, StackHandle};
use netchannel_service::worker;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Requests that CoreEngine answers before other work has its turn.
const MOST_REQUESTS: usize = 64;

/// The handle by which CoreEngine sends commands to the module.
#[derive(Debug)]
struct Handle {
    mail: Arc<Mail>,
    count: Arc<Count>,
}

impl StackHandle for Handle {
    fn send(&self, command: Command) {
        self.mail.commands.send(command);
    }

    fn descriptors(&self) -> usize {
        self.count.held()
    }
}

/// The module.
#[derive(Debug)]
pub struct LocalStack {
    handle: Rc<Handle>,
    thread: Option<JoinHandle<()>>,
}

impl LocalStack {
    /// Starts the module, which handles every connection to a listener of this host. `owners` are the ports that
    /// programs may use.
    ///
    /// # Errors
    /// When descriptors or a thread can not be had.
    pub fn start(owners: PublishedPorts) -> Result<Self, Errno> {
        let count = Arc::new(Count::of_half());
        let mail = Arc::new(Mail {
            commands: Mailbox::new()?,
            requests: Mailbox::new()?,
        });
        let local = Local::new(Arc::clone(&mail), Arc::clone(&count), owners)?;
        Ok(Self {
            handle: Rc::new(Handle { mail, count }),
            thread: Some(worker::spawn("relay".to_owned(), local)?),
        })
    }

    /// Takes requests of the worker. Where there are many, only the first ones: the doorbell rings again for the rest.
    #[must_use]
    pub fn take_requests(&self) -> Vec<StackRequest> {
        self.handle.mail.requests.take_some(MOST_REQUESTS)
    }
}

impl Stack for LocalStack {
    fn name(&self) -> &'static str {
        "local"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.handle) as Rc<dyn StackHandle>
    }

    fn routes_all(&self) -> bool {
        true
    }

    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.handle.mail.requests.as_fd()]
    }

    fn on_doorbell(&mut self, _: usize, engine: &mut dyn Engine, _: Instant) {
        for request in self.take_requests() {
            engine.request(request);
        }
    }
}

impl Drop for LocalStack {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that ended with an error has already reported it.
            let _ = thread.join();
        }
    }
}
