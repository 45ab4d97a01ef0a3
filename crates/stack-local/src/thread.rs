//! The relay as CoreEngine sees it: a thread that is told of links and asks for them.

use super::worker::Local;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Ask, Command};
use netchannel_service::mailbox::{Inbox, Mailbox, mailbox};
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::signal_stack::AlternateStack;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Questions of the relay that CoreEngine answers before others have their turn.
const MOST_ASKS: usize = 64;

/// The relay thread, from the daemon's side. Dropped, it ends with all its connections.
#[derive(Debug)]
pub struct Relay {
    commands: Mailbox<Command>,
    asks: Inbox<Ask>,
    count: Arc<Count>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts the relay that leads every connection to a listener of this host. `owners` say which ports programs may name.
    ///
    /// # Errors
    /// When descriptors or a thread can not be had.
    pub fn start(owners: PublishedPorts) -> Result<Self, Errno> {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // The other half is for programs to attach.
        let count = Arc::new(Count::new(usize::try_from(limit / 2).unwrap_or(usize::MAX)));
        let (commands, inbox) = mailbox()?;
        let (outbox, asks) = mailbox()?;
        let local = Local::new(inbox, outbox, Arc::clone(&count), owners)?;
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                let _stack = AlternateStack::new();
                local.run()
            })
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self {
            commands,
            asks,
            count,
            thread: Some(thread),
        })
    }

    /// Tells the relay something.
    pub fn tell(&self, command: Command) {
        self.commands.send(command);
    }

    /// Descriptors it holds besides a few for each link.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.count.held()
    }

    /// Rings when it asks something.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.asks.as_fd()
    }

    /// What it has asked: the first of it where it is much, the doorbell rings for the rest.
    pub fn take_asks(&self) -> Vec<Ask> {
        self.asks.hear();
        let next = std::iter::from_fn(|| self.asks.next());
        let taken: Vec<Ask> = next.take(MOST_ASKS).collect();
        if taken.len() == MOST_ASKS {
            self.asks.ring();
        }
        taken
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that ended otherwise has said why.
            let _ = thread.join();
        }
    }
}
