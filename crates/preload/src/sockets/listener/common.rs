//! The queue that a process and its relatives have together. TCP has one queue of connections for all processes that have a listener.
//! Here each has its own links. So from the first fork on, what one of them has taken off its links and does not accept at once goes
//! into a pair of sockets that all of them have:
//!
//! ```text
//!  links of one process --> its own list --+-- its accept
//!                                          +-- a look, a fork, a busy process --> common queue --> anybody's accept
//! ```
//!
//! A look by poll, select or epoll takes nothing that way. What waits there is lost with the last of them only, as over TCP.

use core::sync::atomic::{AtomicBool, Ordering, fence};

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, Role};
use netchannel_abi::program::SocketEntry;

use super::queue::Queue;
use super::wake_ups;
use super::{Listener, Named, Pending, get_up, poll_jobs};
use crate::descriptors::channel::Channel;
use crate::descriptors::{attach, limits, names};
use crate::ground::{clock, sys};
use crate::sockets::link::Loan;
use crate::sockets::{foreign, socket};

/// Words of a message: what a process that has not seen the link needs to know of a connection.
const WORDS: usize = 16;
const BYTES: usize = WORDS * size_of::<u64>();
/// The ring that goes along, where there is no plenty.
const LEAST_APART_LOG2: u32 = 18;
/// As [`wake_ups::SOON`], of a loop that accepts as soon as it is told: it may have waited for its processor.
const LATE: u64 = 20_000 * clock::MICROSECOND;
/// How often a process that finds another one taking tries again.
const TRIES: usize = 100;

/// What relatives have together: both ends of the queue of what one of them has taken, and the queue to which clients connect.
pub(super) struct Common {
    takes: Channel,
    puts: Channel,
    /// The listener's, which all of them share. Its own indexes count connections: of receiving those that were ever put in, of
    /// sending those that were taken.
    entry: &'static SocketEntry,
    queue: Option<&'static Queue>,
}

impl Common {
    fn make(entry: &'static SocketEntry, queue: Option<&'static Queue>) -> Option<&'static Self> {
        let (takes, puts) = limits::for_library(|| sys::socket_pair(libc::SOCK_SEQPACKET)).ok()?;
        Some(Box::leak(Box::new(Self {
            takes: Channel::new(takes),
            puts: Channel::new(puts),
            entry,
            queue,
        })))
    }

    /// The queue to which clients connect.
    pub fn queue(&self) -> Option<&'static Queue> {
        self.queue
    }

    /// The number to sleep on, -1 after the end.
    pub fn number(&self) -> i32 {
        self.takes.number()
    }

    /// The number of the queue of clients, -1 for none.
    fn queued(&self) -> i32 {
        self.queue().map_or(-1, Queue::number)
    }

    pub fn arrived(&self) -> u64 {
        self.entry.receive.own.load(Ordering::Relaxed)
    }

    /// Whether a connection waits in it. Asks the kernel only where as many were not taken as were put in: one counts before it puts
    /// and after it has taken, so that equal counts say that it is empty. Who is killed between leaves them unequal.
    pub fn any(&self) -> bool {
        // Acquire: pairs with the release in `put`; what was taken first, so that no connection hides the next one.
        let taken = self.entry.transmit.own.load(Ordering::Acquire);
        if self.entry.receive.own.load(Ordering::Acquire) == taken {
            return false;
        }
        sys::is_readable(self.number())
    }

    /// False where it has no room.
    fn put(&self, pending: &Pending) -> bool {
        let Pending {
            link,
            loan,
            named,
            ring,
            era,
            ..
        } = pending;
        let memory = link.memory();
        if memory < 0 {
            return false;
        }
        let apart = link.set_apart(loan.handle, LEAST_APART_LOG2);
        let (local, peer) = (named.local.to_words(), named.peer.to_words());
        let words: [u64; WORDS] = [
            link.number,
            u64::from(link.listener),
            link.layout.slots as u64,
            link.layout.arena as u64,
            loan.handle.to_word(),
            u64::from(link.relayed.load(Ordering::Relaxed)) << 1 | u64::from(loan.nonblocking),
            link.user().map_or(u64::MAX, u64::from),
            apart.map_or(*ring, Geometry::to_word),
            local[0],
            local[1],
            local[2],
            peer[0],
            peer[1],
            peer[2],
            named.owner,
            *era,
        ];
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // Before it can be taken: who takes it sees that it came. Release: pairs with the acquire in `any`.
        let arrived = &self.entry.receive.own;
        arrived.fetch_add(1, Ordering::Release);
        let send = |fd| sys::send_message(fd, &bytes, &[memory, loan.anchor], libc::MSG_DONTWAIT);
        let sent = self.puts.with(send).is_some_and(|sent| sent.is_ok());
        if !sent {
            arrived.fetch_sub(1, Ordering::Relaxed);
            link.take_back(loan.handle);
        }
        sent
    }

    /// # Errors
    /// `EMFILE` where one waits and there are no numbers for its descriptors.
    fn take(&self) -> Result<Option<Pending>, i32> {
        for _ in 0..TRIES {
            if !self.any() {
                return Ok(None);
            }
            let (mut bytes, mut fds) = ([0; BYTES], [-1; sys::MOST]);
            let receive =
                |fd| sys::with_file_lock(fd, || limits::receive_message(fd, &mut bytes, &mut fds));
            match self.takes.with(receive) {
                Some(Ok((length, count))) => {
                    if length > 0 {
                        // Release: pairs with the acquire in `any`.
                        self.entry.transmit.own.fetch_add(1, Ordering::Release);
                    }
                    let fds = fds.get(..count).unwrap_or(&[]);
                    match bytes.get(..length).filter(|got| got.len() == BYTES) {
                        None => fds.iter().for_each(|fd| sys::close(*fd)),
                        Some(whole) => {
                            if let Some(pending) = read(whole, fds) {
                                return Ok(Some(pending));
                            }
                        }
                    }
                }
                Some(Err(libc::EMFILE)) => return Err(libc::EMFILE),
                // Another process is about to take one.
                Some(Err(libc::EAGAIN | libc::EINTR)) => sys::yield_now(),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// A connection that a relative has put in.
fn read(bytes: &[u8], fds: &[i32]) -> Option<Pending> {
    let [memory, anchor] = *fds else {
        fds.iter().for_each(|fd| sys::close(*fd));
        return None;
    };
    let mut words = [0; WORDS];
    for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
    }
    let [number, of, slots, arena, handle, flags, user, ring, ..] = words;
    let [.., l0, l1, l2, p0, p1, p2, owner, era] = words;
    let listener = u32::try_from(of).unwrap_or(0);
    let Some(link) = foreign::link(Role::Server, number, listener, (slots, arena), memory) else {
        // The other end sees a reset.
        sys::close(anchor);
        return None;
    };
    link.is_from(flags & 2 != 0, user);
    let loan = Loan {
        handle: Handle::from_word(handle),
        anchor: attach::make_internal(anchor),
        nonblocking: flags & 1 != 0,
    };
    if link.is_own() {
        link.take_back(loan.handle);
    }
    let named = Named {
        local: Address::from_words([l0, l1, l2]),
        peer: Address::from_words([p0, p1, p2]),
        owner,
    };
    let ring = Geometry::from_word(ring);
    let index = loan.handle.index as usize;
    let usable = !link.is_own() && link.layout.accepts(Role::Server, index, ring);
    let ring = if usable { ring.to_word() } else { 0 };
    Some(Pending {
        link,
        loan,
        named,
        ring,
        announced: 0,
        in_place: false,
        era,
    })
}

impl Listener {
    /// The queue that this process has together with its relatives.
    #[inline]
    pub(super) fn common(&self) -> Option<&'static Common> {
        // SAFETY: set from leaked boxes, never freed. Acquire: pairs with the release in `make_common`.
        unsafe { self.common.load(Ordering::Acquire).as_ref() }
    }

    /// With the queue of clients that it has already with relatives of another user, or else the one that `open` makes.
    fn make_common(
        &self,
        entry: &'static SocketEntry,
        open: impl FnOnce(i32) -> Option<&'static Queue>,
    ) {
        if self.common().is_some_and(|common| common.number() >= 0) {
            return;
        }
        let before = self.common().and_then(Common::queue);
        let before = before.filter(|queue| queue.is_open());
        let queue = before.or_else(|| open(self.backlog.load(Ordering::Relaxed)));
        let Some(made) = Common::make(entry, queue) else {
            return;
        };
        let place = core::ptr::from_ref(made).cast_mut();
        self.common.store(place, Ordering::Release);
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

    /// The numbers of those queues to sleep on, -1 where there is none.
    pub fn queues(&self) -> [i32; 2] {
        let common = self.common();
        common.map_or([-1; 2], |common| [common.number(), common.queued()])
    }

    /// A connection of that queue, the oldest.
    pub(super) fn take_common(&self) -> Option<Pending> {
        let taken = self.common()?.take();
        if let Err(error) = taken {
            self.starved.store(error == libc::EMFILE, Ordering::Relaxed);
        }
        taken.ok().flatten()
    }

    /// What waits in this process alone is for all of them, where there are others.
    pub fn share(&self) {
        if self.pending.any()
            && self.common().is_some()
            && names::is_shared(&self.address, self.number())
        {
            self.put_all();
        }
    }

    /// No set watches it any more. A loop that accepts soon may be about to add it again, as nginx does with every 16th connection, to
    /// be the last of those whom the kernel wakes.
    pub fn rest_soon(&self) {
        if self.common().is_some() && wake_ups::accepts_soon() {
            self.unwatched.store(true, Ordering::Relaxed);
            UNWATCHED.store(true, Ordering::Relaxed);
        } else {
            self.rest();
        }
    }

    /// No set watches it any more: what was announced to this process meanwhile is for all who have it.
    fn rest(&self) {
        if self.common().is_some() {
            get_up();
            // Pairs with the fence in `announce`: a client sees that nobody loops, or its connection is seen here.
            fence(Ordering::SeqCst);
            poll_jobs();
            self.share();
        }
    }

    /// The same by a look: a process that has just accepted without waiting is an event loop, and accepts what it has seen.
    pub fn share_unless_accepting(&self) {
        if self.pending.any() && self.common().is_some() {
            let accepted = self.accepted.load(Ordering::Relaxed);
            // A loop may have waited for its processor.
            let soon = if wake_ups::accepts_soon() {
                LATE
            } else {
                wake_ups::SOON
            };
            if clock::now().wrapping_sub(accepted) > soon {
                self.share();
            }
        }
    }

    /// An accept that does not wait has taken a connection.
    pub fn note_accept(&self) {
        if self.common().is_some() {
            let now = clock::now();
            self.accepted.store(now, Ordering::Relaxed);
            wake_ups::accepts(now);
        }
    }

    /// Whether this process can leave what it has taken to its relatives: one that became another user's can not. What it takes from
    /// the queue of clients without accepting it is kept from them.
    pub(super) fn can_share(&self) -> bool {
        self.common()
            .is_some_and(|common| common.puts.number() >= 0)
    }

    /// Whether what this process has taken stays with it, and it accepts from time to time only: its relatives are of another user, and
    /// no loop of its watches connections beside its listeners.
    #[inline]
    pub fn keeps_what_it_takes(&self) -> bool {
        !wake_ups::serves() && !self.can_share()
    }

    fn put_all(&self) {
        if !self.can_share() {
            return;
        }
        if self.pending.any() {
            // What came before through the other queue goes first.
            self.look_into_queue();
        }
        while let Some(pending) = self.pending.pop() {
            if !self.put_common(&pending) {
                return self.pending.push_front(pending);
            }
        }
    }

    /// Leaves a connection of its own list to this process and its relatives. False where they have no queue, or no room in it.
    pub(super) fn put_common(&self, pending: &Pending) -> bool {
        let Some(common) = self.common() else {
            return false;
        };
        // One is as good as another: what was counted here is counted there.
        self.arrived.fetch_sub(1, Ordering::Relaxed);
        if !common.put(pending) {
            self.arrived.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        attach::close_internal(pending.loan.anchor);
        pending.link.used_less();
        true
    }

    /// Whether nobody else accepts from the queues of this process.
    pub(super) fn is_alone(&self) -> bool {
        let Some(common) = self.common() else {
            return true;
        };
        // Acquire: pairs with the release of who lets the listener go.
        let relatives = common.entry.references.load(Ordering::Acquire);
        let is_shared = || names::is_shared(&self.address, self.number());
        let with_others =
            common.number() < 0 && common.queue().is_some_and(Queue::is_open) && is_shared();
        !with_others && (common.number() < 0 || relatives <= 1)
    }

    /// Whether a process has the listener that has no part in the queue of this one's relatives: as the new program of an upgrade.
    pub(super) fn has_strangers(&self) -> bool {
        let name = self.common().and_then(Common::queue).map_or(0, Queue::name);
        let (address, number) = (&self.address, self.number());
        names::is_shared(address, number) && (name == 0 || names::queue_of(address, number) != name)
    }

    /// This process goes: what waits in the queues stays for the relatives that remain. Where none of them has a part in the queue of
    /// clients, or they may never accept, as the old master of an upgrade, it is taken to this process' list, to be handed to everybody.
    pub(super) fn leave_to_others(&self) {
        let has_queue = self
            .common()
            .and_then(Common::queue)
            .is_some_and(Queue::is_open);
        let stays = !self.has_strangers()
            && if has_queue {
                self.is_left_to_others()
            } else {
                !self.is_alone()
            };
        if !stays {
            self.empty_common();
        }
    }

    /// Whether anybody else may accept from it: a relative, or another program.
    pub(super) fn has_other_holders(&self) -> bool {
        !self.is_alone() || names::is_shared(&self.address, self.number())
    }

    /// This process goes: what waits in the queues is taken to its own list.
    pub(super) fn empty_common(&self) {
        self.leave_queue();
        self.empty_taken();
    }

    /// The same of what relatives have taken, and not of the queue of clients.
    pub(super) fn empty_taken(&self) {
        while let Some(pending) = self.take_common() {
            self.pending.push_back(pending);
        }
    }

    /// This process is another user's: it has no part in what its relatives take. The queue of clients stays.
    pub(super) fn forsake_common(&self) {
        if let Some(common) = self.common() {
            common.takes.end();
            common.puts.end();
        }
    }

    /// It has no part in the queue any more.
    pub(super) fn leave_common(&self) {
        if let Some(common) = self.common() {
            common.takes.end();
            common.puts.end();
            common.queue().inspect(|queue| queue.end());
        }
    }

    pub(super) fn relocate_common(&self, from: i32, to: i32) {
        if let Some(common) = self.common() {
            common.takes.relocate(from, to);
            common.puts.relocate(from, to);
            common.queue().inspect(|queue| queue.relocate(from, to));
        }
    }

    pub(super) fn reset_common_in_child(&self) {
        if let Some(common) = self.common() {
            common.takes.reset_in_child();
            common.puts.reset_in_child();
            common.queue().inspect(|queue| queue.reset_in_child());
        }
    }
}

/// Some listener may be one that no set watches any more, see [`Listener::rest_soon`].
static UNWATCHED: AtomicBool = AtomicBool::new(false);

/// A loop waits again, without the listeners that it has removed and not added again.
#[inline]
pub fn rest_unwatched() {
    if UNWATCHED.load(Ordering::Relaxed) {
        rest_now();
    }
}

#[cold]
fn rest_now() {
    UNWATCHED.store(false, Ordering::Relaxed);
    super::links::for_each_listener(|listener| {
        let is_watched = || listener.watchers.lock().is_none_or(|all| !all.is_empty());
        if listener.unwatched.swap(false, Ordering::Relaxed) && !is_watched() {
            listener.rest();
        }
    });
}

/// Before the daemon is told of a child: it will have a part in the queues.
pub fn before_adoption(listening: &socket::Socket) {
    if let Some(listener) = listening.listener() {
        listener.make_common(listening.entry, Queue::open);
    }
}

/// Before the numbers become few: what waits here may be left to a child, and nothing more comes.
pub fn before_poverty(listening: &socket::Socket) {
    let listener = listening.listener();
    if let Some(listener) = listener.filter(|listener| listener.pending.any()) {
        listener.make_common(listening.entry, |_| None);
    }
}

/// Before a fork: what waits is for the child too.
pub fn before_fork(listening: &socket::Socket) {
    listening.listener().inspect(|listener| listener.put_all());
}
