//! The queue to which clients connect when none of the acceptors of a listener sleeps or is about to look: a local
//! socket that all of them have, from the first fork on. As over TCP it belongs to the listener, not to a process:
//!
//! ```text
//!  client --connect, as [link, slot, memory]--> queue: in the kernel, as many as the backlog says --> anybody's accept
//! ```
//!
//! What a client says is the name of its end, so that it is there with the connection: nobody is kept waiting by a client
//! that is silent. The first acceptor gets the connection. A busy or killed process keeps none from the others; pending
//! connections are lost with the last process that has the queue. The connected pair is the connection's anchor. The rings
//! are the client's: it keeps the ledger of both ends of that link.

use core::sync::atomic::{AtomicBool, Ordering};

use netchannel_abi::directory;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, Role};
use netchannel_abi::message::{Operation, queue_flags};
use netchannel_abi::queued::QueuedConnection;
use netchannel_ring::side;

use super::daemon_renewal;
use super::{Listener, Pending};
use crate::descriptors::channel::Channel;
use crate::descriptors::{attach, confinement, credentials, gateway, limits, names};
use crate::ground::{clock, sys};
use crate::sockets::foreign;
use crate::sockets::link::{LinkEnd, Loan};

/// Whatever user the daemon names, root can read all memory.
const ROOT: u32 = 0;
/// No user whom the daemon names.
const NOBODY: u32 = u32::MAX;
/// A client of this process's user sends the memory right after it has connected, but may be stopped in between. In
/// nanoseconds.
const MESSAGE_TIMEOUT: u64 = 100_000_000;

/// How often a connection is offered again to acceptors that have too many offers, before the tenant's stack waits for them.
const OFFERS: u32 = 5;
/// Nanoseconds between two offers.
const PAUSE: i64 = 1_000_000;

/// The queue, in a process that shares it.
pub(super) struct Queue {
    socket: Channel,
    name: u64,
    /// The daemon was told that this process no longer shares it.
    left: AtomicBool,
    /// The present daemon does not count this process among those that share it.
    refused: AtomicBool,
    /// It is from before a fork that made this process.
    inherited: AtomicBool,
}

impl Queue {
    pub fn open(backlog: i32) -> Option<&'static Self> {
        let name = sys::random().max(1);
        let listen = || sys::local::listener(&directory::queue_name(name), backlog);
        let socket = limits::for_library(listen).ok()?;
        Some(Box::leak(Box::new(Self {
            socket: Channel::new(socket),
            name,
            left: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            inherited: AtomicBool::new(false),
        })))
    }

    /// The descriptor to sleep on, -1 after the end.
    pub fn number(&self) -> i32 {
        self.socket.number()
    }

    pub fn is_open(&self) -> bool {
        self.number() >= 0
    }

    /// Its name, 0 where this process has left it, or has no part in it.
    pub fn name(&self) -> u64 {
        let leaves = self.left.load(Ordering::Relaxed) || self.refused.load(Ordering::Relaxed);
        if self.number() < 0 || leaves {
            return 0;
        }
        self.name
    }

    /// Another daemon is asked anew.
    pub fn forget_refusal(&self) {
        self.refused.store(false, Ordering::Relaxed);
    }

    /// Whether a connection is pending. Asks the kernel.
    pub fn any(&self) -> bool {
        sys::is_readable(self.number())
    }

    /// Takes the oldest connection: for the list of this process, or, with the flags of an accept, with the number that
    /// the accept returns.
    ///
    /// # Errors
    /// `EMFILE` where there are no numbers for it.
    fn take(&self, listener: &Listener, flags: Option<i32>) -> Result<Option<Pending>, i32> {
        loop {
            let accepted = self.socket.with(|fd| match flags {
                Some(flags) => limits::for_program(|| sys::local::accept(fd, flags)),
                None => limits::for_library(|| sys::local::accept(fd, libc::SOCK_CLOEXEC)),
            });
            match accepted {
                Some(Ok((anchor, client))) => {
                    let said = client.read(QueuedConnection::of_name);
                    let admitted = said.and_then(|said| admit(anchor, &said, listener));
                    if let Some(mut pending) = admitted {
                        match flags {
                            Some(flags) => {
                                pending.in_place = true;
                                pending.loan.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
                            }
                            None => pending.loan.anchor = attach::make_internal(anchor),
                        }
                        return Ok(Some(pending));
                    }
                    // The other end sees a reset.
                    sys::close(anchor);
                }
                Some(Err(libc::EINTR | libc::ECONNABORTED)) => {}
                Some(Err(libc::EMFILE)) if self.any() => return Err(libc::EMFILE),
                _ => return Ok(None),
            }
        }
    }

    pub fn end(&self) {
        self.socket.end();
    }

    pub fn relocate(&self, from: i32, to: i32) {
        self.socket.relocate(from, to);
    }

    /// Whether a relative had it before this process.
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::Relaxed)
    }

    pub fn reset_in_child(&self) {
        self.socket.reset_in_child();
        self.inherited.store(true, Ordering::Relaxed);
    }
}

/// Takes up a connection as its client describes it. The memory of a link is taken from a program of this process's user
/// only; for another user's link the daemon gives the memory and names the user.
fn admit(anchor: i32, said: &QueuedConnection, listener: &Listener) -> Option<Pending> {
    let client = sys::local::peer(anchor).ok()?;
    let is_own = client.uid == credentials::owner();
    let user = credentials::at_daemon(client.uid).unwrap_or(NOBODY);
    let number = said.link;
    let build = |memory| {
        let of = listener.number();
        foreign::link(Role::Server, number, of, (said.slots, said.arena), memory)
    };
    // Nobody waits for the word of another user's program.
    let memory = (said.sends_memory && is_own).then(|| sent_memory(anchor));
    let link = match memory.flatten() {
        Some(memory) => build(memory)?,
        None => match foreign::queued_link(number, listener.number(), user) {
            Some(known) => known,
            None => build(match fetch_renewed(number, listener, is_own) {
                Ok((memory, named)) if named == u64::from(user) => memory,
                Ok((memory, _)) => {
                    sys::close(memory);
                    return None;
                }
                // The memory is another program's, or the user is not the one that the client names.
                Err(libc::EPERM) => return None,
                Err(_) if is_own => borrow(client.pid, said.memory)?,
                Err(_) => return None,
            })?,
        },
    };
    let mut pending = open(link, anchor, Handle::from_word(said.handle), said.ring);
    match &mut pending {
        Some(pending) => {
            pending.announced = said.announced;
            link.set_origin(false, u64::from(user));
            link.note_queue_client(client.pid);
        }
        None => link.remove_user(),
    }
    pending
}

/// As [`fetch`]. Where the memory can not be borrowed from the client, there may be another daemon, which the client
/// knows already.
fn fetch_renewed(link: u64, listener: &Listener, can_be_borrowed: bool) -> Result<(i32, u64), i32> {
    match fetch(link, listener.number()) {
        Err(error) if error != libc::EPERM && !can_be_borrowed => {
            daemon_renewal::catch_up();
            fetch(link, listener.number())
        }
        fetched => fetched,
    }
}

/// The memory of a link, from the daemon, and the user of its client.
///
/// # Errors
/// `EPERM` where programs of another user have or may have it; `ENOENT` where no daemon knows it.
#[cold]
fn fetch(link: u64, listener: u32) -> Result<(i32, u64), i32> {
    let mut words = [0; 14];
    (words[0], words[1]) = (u64::from(listener), link);
    let mut received = [-1; sys::MOST];
    let (answer, count) = attach::request(Operation::Join, words, &[], &mut received)?;
    let fds = received.get(..count).unwrap_or(&[]);
    match *fds {
        [memory] => Ok((memory, answer.words[2])),
        _ => {
            fds.iter().for_each(|fd| sys::close(*fd));
            Err(libc::EPROTO)
        }
    }
}

/// The memory of a link from the client itself, a program of this user, where no daemon knows it.
#[cold]
fn borrow(client: i32, number: u32) -> Option<i32> {
    let path = std::ffi::CString::new(format!("/proc/{client}/fd/{number}")).ok()?;
    limits::for_library(|| sys::open(&path, libc::O_RDWR)).ok()
}

fn open(link: &'static LinkEnd, anchor: i32, handle: Handle, ring: u64) -> Option<Pending> {
    let slot = link.slot(handle.index)?;
    if !link.admit(handle) {
        return None;
    }
    let index = handle.index as usize;
    let small = link.layout.small_ring(Role::Server, index);
    side::set_up(&slot.server, handle.generation, small);
    let loan = Loan {
        handle,
        anchor,
        nonblocking: false,
    };
    let mut pending = Pending::new(link, loan)?;
    pending.take_ring(ring);
    Some(pending)
}

/// Waits until the message is there or its time is over, whatever signals come.
#[cold]
fn wait_for_message(anchor: i32) {
    let until = clock::nanoseconds().saturating_add(MESSAGE_TIMEOUT);
    let mut set = [libc::pollfd {
        fd: anchor,
        events: libc::POLLIN,
        revents: 0,
    }];
    loop {
        let left = i64::try_from(until.saturating_sub(clock::nanoseconds())).unwrap_or(0);
        if sys::poll(&mut set, left, core::ptr::null()) != Err(libc::EINTR) {
            return;
        }
    }
}

/// The memory of the link in the client's message. Where the message does not come in time, or there is no number for it,
/// the memory is had otherwise.
fn sent_memory(anchor: i32) -> Option<i32> {
    let mut fds = [-1; sys::MOST];
    let mut take = || limits::for_library(|| sys::message(anchor, &mut [0], &mut fds, 0));
    let mut got = take();
    if got == Err(libc::EAGAIN) {
        wait_for_message(anchor);
        got = take();
    }
    let (_, count, _) = got.ok()?;
    match *fds.get(..count)? {
        [memory] => Some(memory),
        ref fds => {
            fds.iter().for_each(|fd| sys::close(*fd));
            None
        }
    }
}

/// (client) Whether a connection may enter the queue of a listener: acceptors of another user get its memory from the
/// daemon.
pub fn may_enter(target: &names::Target) -> bool {
    target.queue != 0
        && (Some(target.queue_user) == credentials::at_daemon(credentials::owner())
            || attach::is_daemon_alive())
}

/// (client) Connects to the queue of a listener, for a connection whose slot is filled in. Returns the client's end of
/// the anchor.
///
/// # Errors
/// Those of `connect` and `sendmsg`; `ECONNREFUSED` where not all holders of the listener share the queue any more.
pub fn enter(link: &LinkEnd, handle: Handle, target: &names::Target) -> Result<i32, i32> {
    link.mark_waiting(handle);
    // For programs of other users the daemon vouches for the memory.
    let is_given = Some(target.queue_user) == credentials::at_daemon(credentials::owner());
    let memory = is_given.then(|| link.memory_for(target.holders)).flatten();
    let said = QueuedConnection {
        link: link.number,
        slots: link.layout.slots as u64,
        arena: link.layout.arena as u64,
        handle: handle.to_word(),
        ring: link.lent_ring(handle).map_or(0, Geometry::to_word),
        memory: u32::try_from(link.memory()).unwrap_or(u32::MAX),
        sends_memory: memory.is_some(),
        announced: clock::now(),
    };
    let (name, own) = (directory::queue_name(target.queue), said.to_name());
    let anchor = match limits::for_library(|| sys::local::connect(&name, &own)) {
        // A tenant's programs may be in several network namespaces, and the name is of one.
        Err(libc::ECONNREFUSED) if gateway::is_used() => return offer(link, handle, target),
        connected => connected?,
    };
    // Another process may have taken the name by now.
    let is_known = |user| user == ROOT || credentials::at_daemon(user) == Some(target.queue_user);
    if !sys::local::peer(anchor).is_ok_and(|server| is_known(server.uid)) {
        sys::close(anchor);
        return Err(libc::ECONNREFUSED);
    }
    let sent = memory.map_or(Ok(0), |memory| {
        sys::send_message(anchor, &[0], &[memory], libc::MSG_DONTWAIT)
    });
    // A leaving process announces that before it takes pending connections: either this is seen here, or it sees the
    // connection.
    core::sync::atomic::fence(Ordering::SeqCst);
    let still = names::queue_of(&target.destination, target.listener) == target.queue;
    match sent {
        Ok(_) if still || !link.withdraw(handle) => Ok(anchor),
        sent => {
            sys::close(anchor);
            Err(sent.err().unwrap_or(libc::ECONNREFUSED))
        }
    }
}

/// (client) As [`enter`], where the queue is out of reach: the daemon offers the connection to the acceptors.
#[cold]
fn offer(link: &LinkEnd, handle: Handle, target: &names::Target) -> Result<i32, i32> {
    let (anchor, theirs) = limits::for_library(sys::local::anchor_pair)?;
    let made = sys::fcntl(anchor, libc::F_SETFL, sys::int(libc::O_NONBLOCK));
    let mut words = [0; 14];
    words[0] = u64::from(target.listener);
    words[1] = link.number;
    words[2] = u64::from(handle.index);
    words[3] = link.lent_ring(handle).map_or(0, Geometry::to_word);
    let offer = || attach::request(Operation::Enter, words, &[theirs], &mut [-1; sys::MOST]);
    let mut offered = made.and_then(|_| offer());
    for _ in 0..OFFERS {
        if !matches!(offered, Err(libc::EAGAIN)) {
            break;
        }
        // The acceptors have not taken what they were offered before.
        sys::sleep(PAUSE);
        offered = offer();
    }
    sys::close(theirs);
    match offered {
        Ok(_) => Ok(anchor),
        Err(error) => {
            sys::close(anchor);
            Err(error)
        }
    }
}

impl Listener {
    /// Takes a connection of the queue, for an accept with these flags, or for the list of this process.
    pub(super) fn take_queued(&self, flags: Option<i32>) -> Option<Pending> {
        let queue = self.shared_queues()?.queue()?;
        if credentials::is_root() && self.is_of_other_user(queue) {
            if flags.is_some() {
                self.leave_foreign_queue(queue);
            }
            return None;
        }
        let taken = queue.take(self, flags);
        if let Err(error) = taken {
            self.starved.store(error == libc::EMFILE, Ordering::Relaxed);
        }
        let mut taken = taken.ok().flatten();
        taken
            .iter_mut()
            .for_each(|pending| pending.era = self.eras.now());
        taken
    }

    /// Whether the queue is of programs of another user than root, which holds the listener beside them.
    fn is_of_other_user(&self, queue: &Queue) -> bool {
        queue.number() >= 0 && names::queue_user(&self.address, self.number()) != ROOT
    }

    /// Notes that this process accepts. For a process of root the daemon must know that before a relative becomes
    /// another user's, who would own the queue.
    #[inline]
    pub fn begin_accept(&self) {
        if !self.accepts.load(Ordering::Relaxed) {
            self.accepts.store(true, Ordering::Relaxed);
            if credentials::is_root() && !confinement::is_filtered() {
                self.announce_queue();
            }
        }
    }

    /// Leaves the queue in a process of root that accepts beside programs of another user, which must not get its
    /// connections; clients use other ways.
    #[cold]
    fn leave_foreign_queue(&self, queue: &Queue) {
        queue.left.store(true, Ordering::Relaxed);
        let _ = self.request_queue(0, queue_flags::ACCEPTS);
        self.end_queue(queue);
    }

    /// Called when the process has become another user's: keeps the queue where the daemon has agreed.
    pub(super) fn keep_queue_if_announced(&self) {
        if let Some(queue) = self.shared_queues().and_then(|shared| shared.queue())
            && queue.name() == 0
        {
            self.end_queue(queue);
        }
    }

    /// Closes the queue in this process.
    fn end_queue(&self, queue: &Queue) {
        self.unwatch_channel(queue.number());
        queue.end();
    }

    /// Tells the daemon that this process accepts from the queue. Where none answers, nothing is refused: the next one is
    /// told.
    pub(super) fn announce_queue(&self) {
        let queue = self.shared_queues().and_then(|shared| shared.queue());
        if let (Some(queue), Some((name, flags))) = (queue, self.queue_words()) {
            let answered = self.request_queue(name, flags);
            let refused = answered.is_err() && !attach::is_daemon_gone();
            queue.refused.store(refused, Ordering::Relaxed);
        }
    }

    /// The name of the queue in which this process has a part, and its flags.
    pub(super) fn queue_words(&self) -> Option<(u64, u64)> {
        let name = self.shared_queues()?.queue()?.name();
        let accepts = credentials::is_root() && self.accepts.load(Ordering::Relaxed);
        let flags = [
            (credentials::are_renumbered(), queue_flags::CONFINED),
            (accepts, queue_flags::ACCEPTS),
        ];
        let flags = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum();
        (name != 0).then_some((name, flags))
    }

    /// Returns how many programs share the queue and continue to accept.
    pub(super) fn request_queue(&self, name: u64, flags: u64) -> Result<u64, i32> {
        let mut words = self.request_words();
        (words[1], words[2]) = (name, flags);
        let mut none = [-1; sys::MOST];
        let answered = attach::request(Operation::Queue, words, &[], &mut none);
        answered.map(|(answer, _)| answer.words[0])
    }

    /// Takes all connections of the queue: this process accepts them soon, or leaves them to its relatives.
    pub(super) fn take_all_queued(&self) {
        while let Some(pending) = self.take_queued(None) {
            self.push(pending);
        }
    }

    /// Whether a connection is pending in the queue. Asks the kernel.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        let shared = self.shared_queues();
        shared.is_some_and(|shared| shared.queue().is_some_and(Queue::any))
    }

    /// Returns to the queue after an exec that has failed.
    pub(super) fn return_to_queue(&self) {
        if let Some(queue) = self.shared_queues().and_then(|shared| shared.queue())
            && queue.left.swap(false, Ordering::Relaxed)
        {
            self.announce_queue();
        }
    }

    /// Whether other programs continue with the queue when this process leaves it.
    pub(super) fn is_continued_by_others(&self) -> bool {
        let queue = self.shared_queues().and_then(|shared| shared.queue());
        let name = queue.map(Queue::name).filter(|name| *name != 0);
        let answered = name.map(|name| self.request_queue(name, queue_flags::LEAVES));
        answered.is_some_and(|answered| answered.is_ok_and(|others| others > 0))
    }

    /// Leaves the queue: clients are told before the pending connections are taken to this process's list.
    pub(super) fn leave_queue(&self) {
        self.leave_to_all();
        if let Some(queue) = self.shared_queues().and_then(|shared| shared.queue())
            && queue.name() != 0
        {
            queue.left.store(true, Ordering::Relaxed);
            let _ = self.request_queue(0, 0);
        }
        self.take_all_queued();
    }
}
