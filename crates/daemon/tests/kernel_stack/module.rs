//! The module, as CoreEngine and the daemon's loop have it.

use crate::worker::{Kernel, Letter, Mail};
use netchannel_abi::address::Address;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Command, Engine, ListenerChange};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::stack::{Stack, StackHandle};
use netchannel_service::worker;
use rustix::io::Errno;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// What was asked of kernel sockets, by their addresses: type of service and priority.
static OPTIONS: Mutex<Vec<(SocketAddr, (u8, u32))>> = Mutex::new(Vec::new());

/// A socket has these options.
pub fn note_options(of: SocketAddr, options: (u8, u32)) {
    OPTIONS.lock().unwrap().push((of, options));
}

/// The options of a socket.
pub fn options_of(at: SocketAddr) -> Option<(u8, u32)> {
    let all = OPTIONS.lock().unwrap();
    all.iter()
        .find(|(of, _)| *of == at)
        .map(|(_, options)| *options)
}

#[derive(Debug)]
struct Handle {
    mail: Arc<Mail>,
    count: Arc<Count>,
}

impl StackHandle for Handle {
    fn send(&self, command: Command) {
        self.mail.letters.send(Letter::Core(command));
    }

    fn descriptors(&self) -> usize {
        self.count.held()
    }
}

/// The module.
#[derive(Debug)]
pub struct KernelStack {
    handle: Rc<Handle>,
    /// Where programs are to connect to by it, as long as that is not published.
    remotes: Vec<Address>,
    thread: Option<JoinHandle<()>>,
}

impl KernelStack {
    pub fn start(
        remotes: Vec<Address>,
        door: Option<(TcpListener, Address)>,
    ) -> Result<Self, Errno> {
        let mail = Arc::new(Mail {
            letters: Mailbox::new()?,
            requests: Mailbox::new()?,
        });
        let count = Arc::new(Count::of_half());
        let kernel = Kernel::new(Arc::clone(&mail), Arc::clone(&count), door)?;
        Ok(Self {
            handle: Rc::new(Handle { mail, count }),
            remotes,
            thread: Some(worker::spawn("kernel".to_owned(), kernel)?),
        })
    }
}

impl Stack for KernelStack {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.handle) as Rc<dyn StackHandle>
    }

    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.handle.mail.requests.as_fd()]
    }

    fn on_doorbell(&mut self, _: usize, engine: &mut dyn Engine, _: Instant) {
        for request in self.handle.mail.requests.take_some(64) {
            engine.request(request);
        }
    }

    fn on_loop_pass(&mut self, engine: &mut dyn Engine, _: Instant) {
        for address in self.remotes.drain(..) {
            let number = engine.next_remote();
            // First: a program can connect as soon as it sees the entry.
            let letter = Letter::Remote(number, address);
            self.handle.mail.letters.send(letter);
            engine.add_remote(number, &address).unwrap();
        }
    }

    fn on_listener(&mut self, news: ListenerChange) {
        self.handle.mail.letters.send(Letter::Listener(news));
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
