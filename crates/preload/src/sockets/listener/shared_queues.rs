//! The queues that a process shares with its relatives. TCP has one queue of connections for all processes that hold a
//! listener; here each process has its own links. So from the first fork on, connections that a process has taken off
//! its links and does not accept at once go into a pair of sockets that all relatives have:
//!
//! ```text
//!  links of one process --> its own list --+-- its accept
//!                                          +-- a look, a fork, a busy process --> common queue --> anybody's accept
//! ```
//!
//! A look by poll, select or epoll leaves connections in these queues. They are lost only with the last of the
//! relatives, as over TCP.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::Role;
use netchannel_abi::program::SocketEntry;

use super::queue::Queue;
use super::scarcity;
use super::wake_ups;
use super::{Addresses, Listener, Pending, stop_looking};
use crate::descriptors::channel::Channel;
use crate::descriptors::{attach, limits, names};
use crate::ground::sys;
use crate::sockets::link::Loan;
use crate::sockets::{foreign, socket};

/// Words of a message: all that a process that does not know the link needs for the connection.
const WORDS: usize = 21;
const BYTES: usize = WORDS * size_of::<u64>();
/// How often a process tries again while another one takes a connection.
const TRIES: usize = 100;

/// The queues that relatives share: both ends of the queue of taken connections, and the queue to which clients
/// connect.
pub(super) struct SharedQueues {
    receive_end: Channel,
    send_end: Channel,
    /// The listener's entry, which all relatives share. Its own indices count connections: that of receiving those that
    /// were ever put into the queue, that of sending those that were taken.
    entry: &'static SocketEntry,
    queue: Option<&'static Queue>,
}

impl SharedQueues {
    fn make(entry: &'static SocketEntry, queue: Option<&'static Queue>) -> Option<&'static Self> {
        let (receive_end, send_end) =
            limits::for_library(|| sys::socket_pair(libc::SOCK_SEQPACKET)).ok()?;
        Some(Box::leak(Box::new(Self {
            receive_end: Channel::new(receive_end),
            send_end: Channel::new(send_end),
            entry,
            queue,
        })))
    }

    /// The queue to which clients connect.
    pub fn queue(&self) -> Option<&'static Queue> {
        self.queue
    }

    /// The descriptor to sleep on, -1 after the end.
    pub fn number(&self) -> i32 {
        self.receive_end.number()
    }

    /// How many relatives hold the listener.
    pub fn holders(&self) -> u32 {
        // Acquire: pairs with the release of a process that drops the listener.
        self.entry.references.load(Ordering::Acquire)
    }

    /// The descriptor of the clients' queue, -1 for none.
    fn queued(&self) -> i32 {
        self.queue().map_or(-1, Queue::number)
    }

    /// What names the process that alone looks for connections.
    pub fn sole_looker(&self) -> &AtomicU64 {
        &self.entry.receive.noted
    }

    pub fn arrived(&self) -> u64 {
        self.entry.receive.own.load(Ordering::Relaxed)
    }

    /// Whether a connection is in the queue. The kernel is asked only where fewer were taken than put. A process counts
    /// a connection before it puts it and after it has taken it, so equal counts mean an empty queue. A process that is
    /// killed in between leaves unequal counts.
    pub fn any(&self) -> bool {
        // Acquire: pairs with the release in `put`. The count of taken connections is read first, so that no connection
        // hides the next one.
        let taken = self.entry.transmit.own.load(Ordering::Acquire);
        if self.entry.receive.own.load(Ordering::Acquire) == taken {
            return false;
        }
        sys::is_readable(self.number())
    }

    /// Puts a connection into the queue. False where it has no room.
    fn put(&self, pending: &Pending) -> bool {
        let Pending {
            link,
            loan,
            addresses,
            era,
            ..
        } = pending;
        let memory = link.memory();
        if memory < 0 {
            return false;
        }
        let ring = pending.ring_for_other();
        let (local, peer) = (addresses.local.to_words(), addresses.peer.to_words());
        let tenant = link.tenant().to_words();
        let words: [u64; WORDS] = [
            link.number,
            u64::from(link.listener),
            link.layout.slots as u64,
            link.layout.arena as u64,
            loan.handle.to_word(),
            u64::from(link.relayed.load(Ordering::Relaxed)) << 1 | u64::from(loan.nonblocking),
            link.user().map_or(u64::MAX, u64::from),
            ring,
            local[0],
            local[1],
            local[2],
            peer[0],
            peer[1],
            peer[2],
            addresses.owner,
            *era,
            tenant[0],
            tenant[1],
            tenant[2],
            link.identity.0,
            link.identity.1,
        ];
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // Before the connection can be taken, so that its taker sees it counted. Release: pairs with the acquire in
        // `any`.
        let arrived = &self.entry.receive.own;
        arrived.fetch_add(1, Ordering::Release);
        let send = |fd| sys::send_message(fd, &bytes, &[loan.anchor, memory], libc::MSG_DONTWAIT);
        let sent = self.send_end.with(send).is_some_and(|sent| sent.is_ok());
        if !sent {
            arrived.fetch_sub(1, Ordering::Relaxed);
            link.free_reserved(loan.handle);
        }
        sent
    }

    /// Takes a connection: for the list of this process, or for an accept with these flags.
    ///
    /// # Errors
    /// `EMFILE` where there is a connection and no number for its descriptors.
    fn take(&self, flags: Option<i32>) -> Result<Option<Pending>, i32> {
        for _ in 0..TRIES {
            if !self.any() {
                return Ok(None);
            }
            let (mut bytes, mut fds) = ([0; BYTES], [-1; sys::MOST]);
            let mut in_place = flags.filter(|_| limits::are_scarce());
            let receive = |fd| {
                sys::with_file_lock(fd, || {
                    if limits::are_scarce() {
                        let for_accept = in_place.is_some();
                        let got = scarcity::receive_anchor(
                            fd, &mut bytes, &mut fds, for_accept, has_link,
                        );
                        if got != Err(libc::EMFILE) {
                            return got;
                        }
                        in_place = None;
                    }
                    limits::receive_message(fd, &mut bytes, &mut fds)
                })
            };
            match self.receive_end.with(receive) {
                Some(Ok((length, count))) => {
                    if length > 0 {
                        // Release: pairs with the acquire in `any`.
                        self.entry.transmit.own.fetch_add(1, Ordering::Release);
                    }
                    let fds = fds.get(..count).unwrap_or(&[]);
                    match bytes.get(..length).filter(|got| got.len() == BYTES) {
                        None => fds.iter().for_each(|fd| sys::close(*fd)),
                        Some(whole) => {
                            if let Some(pending) = read(whole, fds, in_place) {
                                return Ok(Some(pending));
                            }
                        }
                    }
                }
                Some(Err(libc::EMFILE)) => return Err(libc::EMFILE),
                // Another process is taking a connection.
                Some(Err(libc::EAGAIN | libc::EINTR)) => sys::yield_now(),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Drops what is in the queue, for which this process may have no number: the other ends see a reset.
    pub fn discard(&self) {
        let mut tries = 0;
        while tries < TRIES && self.any() {
            let receive =
                |fd| sys::with_file_lock(fd, || sys::receive(fd, &mut [0], libc::MSG_DONTWAIT));
            match self.receive_end.with(receive) {
                Some(Ok(1..)) => {
                    // Release: pairs with the acquire in `any`.
                    self.entry.transmit.own.fetch_add(1, Ordering::Release);
                }
                Some(Err(libc::EAGAIN | libc::EINTR)) => {
                    tries += 1;
                    sys::yield_now();
                }
                _ => return,
            }
        }
    }
}

fn words_of(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
    }
    words
}

/// The memory of the link over which the connection of a message came, by device and inode.
fn memory_identity(bytes: &[u8]) -> (u64, u64) {
    let [.., device, inode] = words_of(bytes);
    (device, inode)
}

/// Whether this process has the link over which the connection of a message came.
fn has_link(bytes: &[u8]) -> bool {
    foreign::knows_link(Role::Server, memory_identity(bytes))
}

/// Reads a connection that a relative has put into the queue. `in_place` are the flags of the accept that returns the
/// number of its anchor.
fn read(bytes: &[u8], fds: &[i32], in_place: Option<i32>) -> Option<Pending> {
    let [number, of, slots, arena, handle, flags, user, ring, ..] = words_of(bytes);
    let [.., l0, l1, l2, p0, p1, p2, owner, era, t0, t1, t2, _, _] = words_of(bytes);
    let listener = u32::try_from(of).unwrap_or(0);
    let (anchor, link) = match *fds {
        [anchor, memory] => {
            let sizes = (slots, arena);
            let link = foreign::link(Role::Server, number, listener, sizes, memory);
            (anchor, link)
        }
        [anchor] => {
            let link = foreign::known_link(Role::Server, memory_identity(bytes));
            (anchor, link)
        }
        _ => {
            fds.iter().for_each(|fd| sys::close(*fd));
            return None;
        }
    };
    let Some(link) = link else {
        // The other end sees a reset.
        sys::close(anchor);
        return None;
    };
    link.set_origin(flags & 2 != 0, user);
    link.set_tenant([t0, t1, t2]);
    let loan = Loan {
        handle: Handle::from_word(handle),
        anchor: match in_place {
            Some(flags) => scarcity::place_anchor(anchor, flags),
            None => attach::make_internal(anchor),
        },
        nonblocking: flags & 1 != 0,
    };
    let addresses = Addresses {
        local: Address::from_words([l0, l1, l2]),
        peer: Address::from_words([p0, p1, p2]),
        owner,
    };
    let mut pending = Pending {
        link,
        loan,
        addresses,
        ring: 0,
        announced: 0,
        in_place: in_place.is_some(),
        era,
    };
    pending.take_ring(ring);
    Some(pending)
}

impl Listener {
    /// The queues that this process shares with its relatives.
    #[inline]
    pub(super) fn shared_queues(&self) -> Option<&'static SharedQueues> {
        // SAFETY: set from leaked boxes, never freed. Acquire: pairs with the release in `make_shared_queues`.
        unsafe { self.shared_queues.load(Ordering::Acquire).as_ref() }
    }

    /// Makes the queues, with the clients' queue that the process already shares with relatives of another user, or
    /// otherwise the one that `open` makes.
    fn make_shared_queues(
        &self,
        entry: &'static SocketEntry,
        open: impl FnOnce(i32) -> Option<&'static Queue>,
    ) {
        if self
            .shared_queues()
            .is_some_and(|shared| shared.number() >= 0)
        {
            return;
        }
        let before = self.shared_queues().and_then(SharedQueues::queue);
        let before = before.filter(|queue| queue.is_open());
        let queue = before.or_else(|| open(self.backlog.load(Ordering::Relaxed)));
        let Some(made) = SharedQueues::make(entry, queue) else {
            return;
        };
        let place = core::ptr::from_ref(made).cast_mut();
        self.shared_queues.store(place, Ordering::Release);
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| {
                set.add_queue(made.number(), 0);
                if before.is_none() {
                    set.add_queue(made.queued(), 0);
                }
            });
        }
        self.announce_queue();
    }

    /// Whether there are such queues.
    pub fn has_queues(&self) -> bool {
        self.queues().iter().any(|queue| *queue >= 0)
    }

    /// Whether clients connect to a queue that this process has.
    pub fn has_clients_queue(&self) -> bool {
        self.queues()[1] >= 0
    }

    /// The descriptors of the queues to sleep on, -1 where there is none.
    pub fn queues(&self) -> [i32; 2] {
        let shared = self.shared_queues();
        shared.map_or([-1; 2], |shared| [shared.number(), shared.queued()])
    }

    /// Takes the oldest connection that relatives have put into the queue: for an accept with these flags, or for the
    /// list of this process.
    pub(super) fn take_shared(&self, flags: Option<i32>) -> Option<Pending> {
        let taken = self.shared_queues()?.take(flags);
        if let Err(error) = taken {
            self.starved.store(error == libc::EMFILE, Ordering::Relaxed);
        }
        taken.ok().flatten()
    }

    /// Puts pending connections of this process into the common queue, where other processes hold the listener.
    pub fn share(&self) {
        if self.pending.any()
            && self.shared_queues().is_some()
            && names::is_shared(&self.address, self.number())
        {
            self.share_all();
        }
    }

    /// Called when no set watches the listener any more. A loop that accepts soon may be about to add it again, as
    /// nginx does with every 16th connection in order to be woken last by the kernel.
    pub fn unwatch_later(&self) {
        if self.shared_queues().is_some() && wake_ups::accepts_soon() {
            self.unwatched.store(true, Ordering::Relaxed);
            UNWATCHED.store(true, Ordering::Relaxed);
        } else {
            self.stop_looping();
        }
    }

    /// Publishes that no loop of this process watches the listener: connections announced to it go to all holders.
    fn stop_looping(&self) {
        if self.shared_queues().is_some() {
            stop_looking();
            self.share();
        }
    }

    /// Whether this process can put connections into the common queue: a process that became another user's can not.
    /// Such a process keeps what it takes from the clients' queue without accepting it.
    pub(super) fn can_share(&self) -> bool {
        self.shared_queues()
            .is_some_and(|shared| shared.send_end.number() >= 0)
    }

    /// Whether this process keeps what it takes and accepts from time to time only: its relatives are of another user,
    /// and none of its loops watches connections beside its listeners.
    #[inline]
    pub fn keeps_taken(&self) -> bool {
        !wake_ups::has_serving_loop() && !self.can_share()
    }

    fn share_all(&self) {
        if !self.can_share() {
            return;
        }
        if self.pending.any() {
            // Earlier connections of the clients' queue go first.
            self.take_all_queued();
        }
        while let Some(pending) = self.pending.pop() {
            if !self.put_shared(&pending) {
                return self.pending.push_front(pending);
            }
        }
    }

    /// Moves a pending connection to the common queue. False where there is none, or it has no room.
    pub(super) fn put_shared(&self, pending: &Pending) -> bool {
        let Some(shared) = self.shared_queues() else {
            return false;
        };
        // The connection is counted in the common queue from now on.
        self.arrived.fetch_sub(1, Ordering::Relaxed);
        if !shared.put(pending) {
            self.arrived.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        attach::close_internal(pending.loan.anchor);
        pending.link.remove_user();
        true
    }

    /// Takes all connections of the queues to the list of this process, which leaves them.
    pub(super) fn drain_shared(&self) {
        self.leave_queue();
        self.drain_taken();
    }

    /// As [`Self::drain_shared`], without the clients' queue.
    pub(super) fn drain_taken(&self) {
        while let Some(pending) = self.take_shared(None) {
            self.pending.push_back(pending);
        }
    }

    /// Leaves what waits to all relatives, where there are any. This process has the links from now on.
    #[cold]
    pub(super) fn share_before_scarcity(&self) {
        if self.is_only_acceptor() || !self.can_share() {
            return;
        }
        self.drain_taken();
        for pending in self.pending.take_all() {
            // Never removed: the link stays.
            pending.link.add_user();
            if !self.put_shared(&pending) {
                pending.link.remove_user();
                self.pending.push_back(pending);
            }
        }
    }

    /// Resets what is left in the queue for want of numbers.
    pub(super) fn discard_shared(&self) {
        self.shared_queues().inspect(|shared| shared.discard());
    }

    /// Leaves the queue of its relatives: this process becomes another user's. The clients' queue stays.
    pub(super) fn leave_shared_queue(&self) {
        if let Some(shared) = self.shared_queues() {
            shared.receive_end.end();
            shared.send_end.end();
        }
    }

    /// Closes this process's ends of the queues.
    pub(super) fn close_shared_queues(&self) {
        if let Some(shared) = self.shared_queues() {
            shared.receive_end.end();
            shared.send_end.end();
            shared.queue().inspect(|queue| queue.end());
        }
    }

    pub(super) fn relocate_shared(&self, from: i32, to: i32) {
        if let Some(shared) = self.shared_queues() {
            shared.receive_end.relocate(from, to);
            shared.send_end.relocate(from, to);
            shared.queue().inspect(|queue| queue.relocate(from, to));
        }
    }

    pub(super) fn reset_shared_in_child(&self) {
        if let Some(shared) = self.shared_queues() {
            shared.receive_end.reset_in_child();
            shared.send_end.reset_in_child();
            shared.queue().inspect(|queue| queue.reset_in_child());
        }
    }
}

/// A listener may be one that no set watches any more, see [`Listener::unwatch_later`].
static UNWATCHED: AtomicBool = AtomicBool::new(false);

/// Called when a loop waits again: it does not watch the listeners that it has removed and not added again.
#[inline]
pub fn settle_unwatched() {
    if UNWATCHED.load(Ordering::Relaxed) {
        settle_unwatched_now();
    }
}

#[cold]
fn settle_unwatched_now() {
    UNWATCHED.store(false, Ordering::Relaxed);
    super::links::for_each_listener(|listener| {
        let is_watched = || listener.watchers.lock().is_none_or(|all| !all.is_empty());
        if listener.unwatched.swap(false, Ordering::Relaxed) && !is_watched() {
            listener.stop_looping();
        }
    });
}

/// Makes the queues before the daemon is told of a child, which will share them.
pub fn before_adoption(listening: &socket::Socket) {
    if let Some(listener) = listening.listener() {
        listener.make_shared_queues(listening.entry, Queue::open);
        listener.end_looking_alone(listening.entry);
    }
}

/// Makes the queue before the process has no more numbers: its pending connections may be left to a child, and no more
/// will come.
pub fn before_scarcity(listening: &socket::Socket) {
    let listener = listening.listener();
    if let Some(listener) = listener.filter(|listener| listener.pending.any()) {
        listener.make_shared_queues(listening.entry, |_| None);
    }
}

/// Before a fork: shares pending connections with the child.
pub fn before_fork(listening: &socket::Socket) {
    match listening.listener() {
        Some(listener) if listener.pending.any() && listener.has_unrelated_holders() => {
            listener.leave_in_channel(false);
        }
        Some(listener) => listener.share_all(),
        None => {}
    }
}
