//! The relay as CoreEngine sees it: a thread that is told of links and asks for them.

use super::anchor::Count;
use super::link::Parts;
use super::local::Local;
use crate::AlternateStack;
use crate::published_ports::PublishedPorts;
use netchannel_abi::address::Address;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Questions of the relay that CoreEngine answers before others have their turn.
const MOST_ASKS: usize = 64;

/// The answer to [`Ask::Link`] where the listener is at another address than the connection means: no fault of the listener's, nor
/// of others that wait for it.
pub const ASTRAY: Errno = Errno::ADDRNOTAVAIL;

/// What CoreEngine tells the relay.
#[derive(Debug)]
pub enum Command {
    /// A program connects over a link: the server's end.
    Serve(Parts),
    /// The answer to [`Ask::Link`]: the client's end, and what is to be known of the listener.
    Link(u32, Result<(Parts, Manner), Errno>),
    /// Another answer: the listener is gone, but another one is at the destination.
    Moved {
        /// The one asked for.
        from: u32,
        /// The one to go to.
        to: u32,
    },
    /// The answer to [`Ask::Float`]: the client's end, and the channel that keeps it alive.
    Float(u32, Result<(Parts, OwnedFd), Errno>),
    /// The answer to [`Ask::Offer`].
    Offered(Ticket, Result<(), Errno>),
    /// What is to be known of a listener has changed.
    Manner(u32, Manner),
    /// A listener is gone.
    Gone(u32),
    /// The daemon ends.
    Stop,
}

/// How a listener takes connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Several processes hold it.
    pub shared: bool,
    /// Connections that may wait to be accepted, besides one.
    pub backlog: usize,
    /// Where it listens.
    pub address: Option<Address>,
}

/// A connection of the relay, by its number and what tells it from others of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its number.
    pub number: usize,
    /// Never the same for two connections.
    pub stamp: u64,
}

/// What the relay asks of CoreEngine.
#[derive(Debug)]
pub enum Ask {
    /// A link to a listener of this host, for a connection to this destination.
    Link(u32, Address),
    /// A link for connections to a listener that are offered one by one.
    Float(u32),
    /// Offer one connection to whoever accepts at a listener.
    Offer {
        /// Which connection.
        ticket: Ticket,
        /// The listener.
        listener: u32,
        /// Number of the link.
        link: u64,
        /// Slot of the connection.
        slot: u32,
        /// The program's end of its anchor.
        anchor: OwnedFd,
    },
    /// A link that the relay asked for is not used any more.
    Forget(u64),
}

/// One direction between the two threads.
#[derive(Clone, Debug)]
pub struct Mailbox<T> {
    letters: Sender<T>,
    bell: Arc<OwnedFd>,
}

/// The end of it that reads.
#[derive(Debug)]
pub struct Inbox<T> {
    letters: Receiver<T>,
    bell: Arc<OwnedFd>,
}

fn mailbox<T>() -> Result<(Mailbox<T>, Inbox<T>), Errno> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, letters) = channel();
    let mailbox = Mailbox {
        letters: sender,
        bell: Arc::clone(&bell),
    };
    Ok((mailbox, Inbox { letters, bell }))
}

impl<T> Mailbox<T> {
    /// Sends, and wakes the reader. A reader that has ended needs nothing any more.
    pub fn send(&self, letter: T) {
        if self.letters.send(letter).is_ok() {
            ring(&self.bell);
        }
    }
}

fn ring(bell: &OwnedFd) {
    // Full is rung.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl<T> Inbox<T> {
    /// The next letter. Silence the bell first, with [`Self::hear`].
    pub fn next(&self) -> Option<T> {
        self.letters.try_recv().ok()
    }

    /// Rings the bell of the reader itself: it comes again.
    fn ring(&self) {
        ring(&self.bell);
    }

    /// Silences the bell: letters from now on ring it again.
    pub fn hear(&self) {
        // Nothing to read is silence.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
    }
}

impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

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
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.asks.as_fd()
    }

    /// What it has asked: the first of it where it is much, the bell rings for the rest.
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
