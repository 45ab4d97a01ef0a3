//! The module as the daemon has it: a thread that is told of links and asks for them.

use super::worker::{Local, Mail};
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Ask, Command};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::worker;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Questions that CoreEngine answers before others have their turn.
const MOST_ASKS: usize = 64;

/// The module. Dropped, it ends with all its connections.
#[derive(Debug)]
pub struct LocalStack {
    mail: Arc<Mail>,
    count: Arc<Count>,
    thread: Option<JoinHandle<()>>,
}

impl LocalStack {
    /// Starts it. It leads every connection to a listener of this host; `owners` say which ports programs may name.
    ///
    /// # Errors
    /// When descriptors or a thread can not be had.
    pub fn start(owners: PublishedPorts) -> Result<Self, Errno> {
        let count = Arc::new(Count::of_half());
        let mail = Arc::new(Mail {
            commands: Mailbox::new()?,
            asks: Mailbox::new()?,
        });
        let local = Local::new(Arc::clone(&mail), Arc::clone(&count), owners)?;
        Ok(Self {
            mail,
            count,
            thread: Some(worker::spawn("relay".to_owned(), local)?),
        })
    }

    /// Tells it something.
    pub fn tell(&self, command: Command) {
        self.mail.commands.send(command);
    }

    /// Descriptors it holds besides a few for each link.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.count.held()
    }

    /// Rings when it asks something.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.mail.asks.as_fd()
    }

    /// What it has asked: the first of it where it is much, the doorbell rings for the rest.
    #[must_use]
    pub fn take_asks(&self) -> Vec<Ask> {
        self.mail.asks.take_some(MOST_ASKS)
    }
}

impl Drop for LocalStack {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that ended otherwise has said why.
            let _ = thread.join();
        }
    }
}
