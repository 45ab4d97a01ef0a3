//! The module, as CoreEngine and the daemon's loop have it.

use crate::bell::Bell;
use crate::counters::Counters;
use crate::worker::{GuestWorker, Mail, Message};
use netchannel_guest::{Tunnel, Welcome};
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Command, Engine, ListenerChange};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::stack::{Stack, StackHandle};
use netchannel_service::worker;
use netchannel_shm::Region;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// Requests of the worker that are answered before the daemon's loop goes on.
const MOST_REQUESTS: usize = 64;

/// Why the module can not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The region is smaller than [`netchannel_guest::LEAST_SIZE`].
    TooSmall,
    /// No thread or no descriptor can be had.
    System(Errno),
}

impl From<Errno> for StartError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

#[derive(Debug)]
struct Handle {
    mail: Arc<Mail>,
    count: Arc<Count>,
}

impl StackHandle for Handle {
    fn send(&self, command: Command) {
        self.mail.messages.send(Message::Core(command));
    }

    fn descriptors(&self) -> usize {
        self.count.held()
    }
}

/// The module: one worker.
#[derive(Debug)]
pub struct GuestStack {
    handle: Rc<Handle>,
    counters: Arc<Counters>,
    /// The listener that stands for all the world, once CoreEngine has given its number.
    gateway: Option<u32>,
    thread: Option<JoinHandle<()>>,
}

impl GuestStack {
    /// Starts a worker over a region, which keeps at most so many `descriptors`. The host's first word, which says who the guest is, comes
    /// by the receiver.
    ///
    /// # Errors
    /// Why it can not start.
    pub fn start(
        region: Arc<Region>,
        bell: Option<Bell>,
        descriptors: usize,
    ) -> Result<(Self, mpsc::Receiver<Welcome>), StartError> {
        let mail = Arc::new(Mail {
            messages: Mailbox::new()?,
            requests: Mailbox::new()?,
        });
        let count = Arc::new(Count::new(descriptors));
        let counters = Arc::new(Counters::default());
        let tunnel = Tunnel::guest(region, Instant::now()).ok_or(StartError::TooSmall)?;
        let (sender, first) = mpsc::channel();
        let guest = GuestWorker::new(
            Arc::clone(&mail),
            Arc::clone(&count),
            Arc::clone(&counters),
            tunnel,
            bell,
            sender,
        )?;
        let thread = worker::spawn("guest".to_owned(), guest)?;
        let stack = Self {
            handle: Rc::new(Handle { mail, count }),
            counters,
            gateway: None,
            thread: Some(thread),
        };
        Ok((stack, first))
    }
}

impl Stack for GuestStack {
    fn name(&self) -> &'static str {
        "guest"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.handle) as Rc<dyn StackHandle>
    }

    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.handle.mail.requests.as_fd()]
    }

    fn on_doorbell(&mut self, _: usize, engine: &mut dyn Engine, _: Instant) {
        for request in self.handle.mail.requests.take_some(MOST_REQUESTS) {
            engine.request(request);
        }
    }

    fn on_loop_pass(&mut self, engine: &mut dyn Engine, _: Instant) {
        if self.gateway.is_none() {
            let number = engine.next_remote();
            // First: a program can connect as soon as it sees the number.
            self.handle.mail.messages.send(Message::Gateway(number));
            engine.set_gateway(number);
            self.gateway = Some(number);
        }
    }

    fn on_listener(&mut self, change: ListenerChange) {
        self.handle.mail.messages.send(Message::Listener(change));
    }

    fn connections(&self) -> u64 {
        self.counters.open.load(Ordering::Relaxed)
    }
}

impl Drop for GuestStack {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A worker that has panicked has said so.
            let _ = thread.join();
        }
    }
}
