//! Listeners: the kernel's TCP listener, and beside it the virtual connections that come over links or in offers of the
//! daemon.

mod awaiting;
pub mod daemon_renewal;
mod departing;
mod hand_over;
mod leaving;
mod links;
mod looks;
mod option_snapshots;
mod pending;
mod pending_connection;
mod pending_queue;
mod queue;
mod renewal;
mod resetting;
mod scarcity;
mod shared_queues;
pub mod sleeping;
mod sole_acceptor;
mod strangers;
mod wait_set;
pub mod wake_ups;

pub use resetting::reset;

use std::sync::OnceLock;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::Role;
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation, listen_flags};
use netchannel_abi::program::RELAY;
use netchannel_ring::side;

use crate::descriptors::channel::Channel;
use crate::descriptors::{attach, credentials, limits, names};
use crate::ground::lock::Lock;
use crate::ground::{process, sys};
use crate::sockets::link::{LinkEnd, Loan};
use crate::sockets::socket::Socket;
use crate::sockets::{foreign, options};
use wake_ups::WakeUps;

use links::REGISTRY;
use option_snapshots::OptionSnapshots;
use pending_queue::PendingQueue;
use shared_queues::SharedQueues;

pub use departing::stop_looking;
pub use hand_over::{
    expect_no_more, hand_on_at_exit, hand_on_to_next, hand_over, have_retired, retire_all, withdraw,
};
pub use links::{
    client_link, end_client_links, has_server_links, keep_queues_if_announced, leave_links,
    leave_queues, listen_for_jobs, numbers, own_link, poll_jobs, queued_link, read_channels,
    relocate, reset_in_child, return_to_queues, server_links,
};
pub use pending_connection::{Addresses, Pending};
pub use queue::{enter, may_enter};
pub use shared_queues::{before_adoption, before_fork, before_scarcity, settle_unwatched};
pub use sole_acceptor::{leave_at, leave_if_late};
pub use wait_set::{WaitSet, place};

/// An event loop that watches a listener.
pub trait Watcher: Sync {
    /// Notifies the loop of a connection.
    fn has_connection(&self);
    /// Lets the loop watch a channel; `exclusive` is 0 or `EPOLLEXCLUSIVE`.
    fn add_channel(&self, fd: i32, exclusive: u32);
    /// Lets the loop watch a queue, for one event for each connection; -1 for none.
    fn add_queue(&self, fd: i32, exclusive: u32);
    /// Ends the watch of a descriptor.
    fn remove_channel(&self, fd: i32);
}

/// Adds a link to event loops that watch any listener. Registered by the module that knows the loops.
pub static ADD_LINK: OnceLock<fn(&'static LinkEnd)> = OnceLock::new();

/// Most connections of the kernel that are taken before virtual ones at first.
const MOST_OLD: u32 = 256;

/// A listener of this process. Never freed: a thread may still sleep in accept.
pub struct Listener {
    /// The daemon's number.
    number: AtomicU32,
    /// The numbers that former daemons gave it: their links live on.
    former: Lock<Vec<u32>>,
    /// The channel of the daemon's offers; shared with forked children and other holders.
    channel: Lock<&'static Channel>,
    backlog: AtomicI32,
    /// The address of the listener.
    pub address: Address,
    /// The cookie of its kernel socket: another socket may have its descriptor by the time that a daemon is told of it.
    cookie: u64,
    /// Not closed by this process.
    open: AtomicBool,
    /// Counts accepts, to give the kernel's queue its turn.
    pub turns: AtomicU64,
    /// Accepts that still look at the kernel's queue first, unless one finds it empty: connections from before other
    /// programs knew of the listener are there, and are older than any virtual one.
    old_turns: AtomicU32,
    /// Counts connections that have come.
    arrived: AtomicU64,
    /// When an accept that does not wait last took a connection.
    accepted: AtomicU64,
    /// This process has called accept.
    accepts: AtomicBool,
    /// What names this process among those that look for connections; 0 before it does.
    looker: AtomicU64,
    /// When an accept that waits last took a connection.
    waiting_accept: AtomicU64,
    /// How many such accepts in a row began soon after the one before.
    quick_accepts: AtomicU32,
    /// When these last told the links that somebody looks.
    published: AtomicU64,
    /// It was inherited over an exec, or received.
    is_inherited: bool,
    /// A look has left connections with the daemon, which may still be there.
    is_left: AtomicBool,
    /// A set of the program has reported it because of virtual connections, and no accept has found their end since.
    was_reported: AtomicBool,
    /// The kernel has reported it since its queue was last seen empty, or its queue was never looked at.
    kernel_reported: AtomicBool,
    /// An event loop was told of a connection in the kernel's queue, and no accept has tried that since.
    told_by_kernel: AtomicBool,
    /// Wakes threads that sleep for connections without an event loop.
    pub wake_ups: WakeUps,
    /// The set in which a blocking accept sleeps, null before the first sleep.
    wait_set: AtomicPtr<WaitSet>,
    /// Event loops that watch it.
    watchers: Lock<Vec<&'static dyn Watcher>>,
    /// The last loop has removed it, and has not waited since.
    unwatched: AtomicBool,
    /// Held by the thread that takes offers.
    taking: Lock<()>,
    /// There is an offer in the channel for whose descriptors there were no numbers.
    starved: AtomicBool,
    /// This process closes it, others hold it: offers are for them.
    is_leaving: AtomicBool,
    /// The channel is none, but tells when a daemon comes.
    awaits_daemon: AtomicBool,
    /// How often the daemon has refused it, since it was last announced.
    refusals: AtomicU32,
    /// No more offers are wanted: the listener is withdrawn from the daemon after the last one.
    is_retiring: AtomicBool,
    /// How often a program that is no relative may have come to hold it.
    strangers: AtomicU32,
    /// File actions of a spawn give it to another program.
    is_given: AtomicBool,
    /// These are relatives that have the socket since before it listened.
    awaits_relatives: AtomicBool,
    pending: PendingQueue,
    /// Options that held when connections came that are still pending.
    eras: OptionSnapshots,
    /// The queues that relatives share with this process; null before the first fork.
    shared_queues: AtomicPtr<SharedQueues>,
}

impl Socket {
    /// The listener of a listening socket.
    #[inline]
    pub fn listener(&self) -> Option<&'static Listener> {
        let known = self.local.listener.load(Ordering::Acquire);
        // SAFETY: set from listeners, which are leaked boxes and never freed.
        unsafe { known.cast::<Listener>().as_ref() }
    }
}

/// What the daemon's channel had.
enum Received {
    /// An offer: whether it was a connection.
    Offer(bool),
    Nothing,
    /// The daemon has ended, whose channel this was.
    End(&'static Channel),
    /// It had ended before, and another one may have come.
    NoDaemon,
}

impl Listener {
    /// Announces the listener `fd` to the daemon; it was made by this image, or `inherited`. `None` where there is no
    /// daemon or it refuses.
    pub fn register(fd: i32, backlog: i32, inherited: bool) -> Option<&'static Self> {
        attach::ensure()?;
        let address = names::kernel_address(fd, false)?;
        // What an accept has to know before it reserves its number is found out here.
        let _ = (process::is_single_threaded(), credentials::is_root());
        // Another user may have made the socket: then it must be shown as a proof.
        let cookie = sys::cookie(fd).ok()?;
        let announce = |shown| Self::announce(fd, &address, cookie, backlog, shown, None);
        let (number, channel) = announce(false).or_else(|| announce(true))?;
        let made: &'static Self = Box::leak(Box::new(Self {
            number: AtomicU32::new(number),
            former: Lock::new(Vec::new()),
            channel: Lock::new(leaked(channel)),
            backlog: AtomicI32::new(backlog),
            address,
            cookie,
            open: AtomicBool::new(true),
            turns: AtomicU64::new(0),
            old_turns: AtomicU32::new(MOST_OLD),
            arrived: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            accepts: AtomicBool::new(false),
            looker: AtomicU64::new(0),
            waiting_accept: AtomicU64::new(0),
            quick_accepts: AtomicU32::new(0),
            published: AtomicU64::new(0),
            is_inherited: inherited,
            is_left: AtomicBool::new(false),
            was_reported: AtomicBool::new(false),
            kernel_reported: AtomicBool::new(true),
            told_by_kernel: AtomicBool::new(false),
            wake_ups: WakeUps::new(),
            wait_set: AtomicPtr::new(core::ptr::null_mut()),
            watchers: Lock::new(Vec::new()),
            unwatched: AtomicBool::new(false),
            taking: Lock::new(()),
            starved: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            awaits_daemon: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            is_retiring: AtomicBool::new(false),
            strangers: AtomicU32::new(0),
            is_given: AtomicBool::new(false),
            awaits_relatives: AtomicBool::new(false),
            pending: PendingQueue::new(),
            eras: OptionSnapshots::new(),
            shared_queues: AtomicPtr::new(core::ptr::null_mut()),
        }));
        REGISTRY.lock()?.listeners.push(made);
        Some(made)
    }

    /// Announces a changed backlog.
    pub fn change_backlog(&self, fd: i32, backlog: i32) {
        self.backlog.store(backlog, Ordering::Relaxed);
        if self.channel() < 0 || self.is_retiring.load(Ordering::Relaxed) {
            // The daemon does not know it any more: only the kernel accepts for it.
            return;
        }
        if let Some((_, channel)) =
            Self::announce(fd, &self.address, self.cookie, backlog, false, None)
        {
            sys::close(channel);
        }
    }

    /// Announces a changed `TCP_DEFER_ACCEPT`.
    pub fn change_deferral(&self, fd: i32) {
        self.change_backlog(fd, self.backlog.load(Ordering::Relaxed));
    }

    /// Announces a listener to the daemon and returns its number and the accept channel. With `shown`, the socket
    /// itself is sent as a proof, where another user may have made it.
    fn announce(
        fd: i32,
        address: &Address,
        cookie: u64,
        backlog: i32,
        shown: bool,
        queue: Option<(u64, u64)>,
    ) -> Option<(u32, i32)> {
        let mut words = [0; 14];
        words[..3].copy_from_slice(&address.to_words());
        words[3] = cookie;
        // The kernel takes a negative backlog as the largest.
        words[4] = u64::try_from(backlog).unwrap_or(u64::MAX);
        let on = |level, name, flag| match sys::option(fd, level, name) {
            Ok(value) if value != 0 => flag,
            _ => 0,
        };
        words[5] = on(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, listen_flags::V6_ONLY)
            | on(
                libc::SOL_SOCKET,
                libc::SO_REUSEPORT,
                listen_flags::REUSE_PORT,
            );
        let mut received = [-1; sys::MOST];
        words[6] = u64::from(shown);
        words[7] = options::defers_accept(fd);
        (words[8], words[9]) = queue.unwrap_or_default();
        let send = if shown {
            core::slice::from_ref(&fd)
        } else {
            &[]
        };
        let (answer, count) =
            attach::request(Operation::Listen, words, send, &mut received).ok()?;
        if count != 1 {
            received.iter().take(count).for_each(|fd| sys::close(*fd));
            return None;
        }
        Some((u32::try_from(answer.words[0]).ok()?, received[0]))
    }

    /// A request that names the listener's number.
    fn request_words(&self) -> [u64; 14] {
        let mut words = [0; 14];
        words[0] = u64::from(self.number());
        words
    }

    /// Notes that a set reports the listener because of virtual connections.
    pub fn note_reported(&self) {
        self.was_reported.store(true, Ordering::Relaxed);
    }

    /// Called where an accept has found nothing anywhere: what comes now may be found by the next one, without a report.
    pub fn end_report(&self) {
        self.was_reported.store(false, Ordering::Relaxed);
    }

    /// Notes that the kernel has reported a connection in its queue: an accept has to look there.
    pub fn note_kernel_report(&self) {
        // Release: pairs with the acquire in `may_skip_kernel`, in whichever thread the program accepts.
        self.kernel_reported.store(true, Ordering::Release);
    }

    /// As [`Self::note_kernel_report`], where a set passes the report on to the program.
    pub fn note_told_by_kernel(&self) {
        self.note_kernel_report();
        self.told_by_kernel.store(true, Ordering::Relaxed);
    }

    /// Whether an accept may try the kernel's queue before it looks for virtual connections: a set has told the program of
    /// a connection there, and of no virtual one. True once for each report.
    pub fn may_try_kernel(&self) -> bool {
        self.told_by_kernel.load(Ordering::Relaxed)
            && self.told_by_kernel.swap(false, Ordering::Relaxed)
            && !self.was_reported.load(Ordering::Relaxed)
    }

    /// Called before the kernel's queue is looked at.
    pub fn begin_kernel_look(&self) {
        self.kernel_reported.store(false, Ordering::Relaxed);
    }

    /// Whether an accept that finds no virtual connection may skip the kernel's queue: only virtual connections were
    /// reported to the program, and the kernel's will be. True once for each report.
    pub fn may_skip_kernel(&self) -> bool {
        self.was_reported.load(Ordering::Relaxed)
            && !self.kernel_reported.load(Ordering::Acquire)
            && self.was_reported.swap(false, Ordering::Relaxed)
    }

    /// Counts connections that have come. Only for noticing a change.
    pub fn arrived(&self) -> u64 {
        let shared = self.shared_queues().map_or(0, SharedQueues::arrived);
        self.arrived.load(Ordering::Relaxed).wrapping_add(shared)
    }

    /// Lets a set watch the listener.
    pub fn watch(&self, set: &'static dyn Watcher) {
        if let Some(mut watchers) = self.watchers.lock() {
            watchers.push(set);
        }
    }

    /// Ends one watch of the set.
    pub fn unwatch(&self, set: &dyn Watcher) {
        if let Some(mut watchers) = self.watchers.lock()
            && let Some(index) = watchers
                .iter()
                .position(|known| core::ptr::addr_eq(*known, set))
        {
            watchers.swap_remove(index);
        }
    }

    /// The daemon's number.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Whether a daemon gave it this number.
    pub fn has_number(&self, number: u32) -> bool {
        let before = || self.former.lock().is_some_and(|all| all.contains(&number));
        number == self.number() || before()
    }

    /// The channel of the daemon's offers. `None` in a signal handler that interrupted a change.
    fn offers(&self) -> Option<&'static Channel> {
        self.channel.lock().map(|channel| *channel)
    }

    /// The descriptor of that channel, -1 when the listener is closed or the daemon has ended.
    pub fn channel(&self) -> i32 {
        self.offers().map_or(-1, Channel::number)
    }

    /// Whether the daemon has sent offers. Asks the kernel.
    pub fn has_offers(&self) -> bool {
        sys::is_readable(self.channel())
    }

    /// Takes offers of the daemon. True when any came.
    pub fn take_offers(&self) -> bool {
        let any = self.take_next_offer();
        if !any && !self.starved.load(Ordering::Relaxed) && self.is_retiring.load(Ordering::Relaxed)
        {
            self.finish_retiring();
        }
        any
    }

    /// Whether the daemon has ended whose offers come over the channel: relatives may have no part in it.
    fn has_orphaned_offers(&self) -> bool {
        let orphaned = self
            .offers()
            .and_then(|channel| channel.with(sys::has_hung_up));
        orphaned == Some(true)
    }

    fn take_orphaned_offers(&self) {
        if self.has_orphaned_offers() {
            while self.take_next_offer() {}
        }
    }

    fn take_next_offer(&self) -> bool {
        match self.receive_offer() {
            Received::Offer(is_good) => return is_good,
            Received::Nothing => {}
            // Not while offers are taken: who renews the listeners takes offers, too.
            Received::End(lost) => self.lose_channel(lost),
            Received::NoDaemon => self.look_for_daemon(),
        }
        false
    }

    /// One at a time: other holders of the listener shall get their share.
    fn receive_offer(&self) -> Received {
        // `None` in a signal handler that interrupted the taking.
        let Some(_taking) = self.taking.lock() else {
            return Received::Nothing;
        };
        // Acquire: pairs with the release in `leave`, whose thread leaves all links that it sees.
        if self.is_leaving.load(Ordering::Acquire) {
            return Received::Nothing;
        }
        if self.awaits_daemon.load(Ordering::Relaxed) {
            return Received::NoDaemon;
        }
        let Some(channel) = self.offers() else {
            return Received::Nothing;
        };
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let mut fds = [-1; sys::MOST];
            let got = channel.with(|fd| {
                sys::with_file_lock(fd, || limits::receive_message(fd, &mut bytes, &mut fds))
            });
            let starved = got == Some(Err(libc::EMFILE));
            self.starved.store(starved, Ordering::Relaxed);
            let (length, count) = match got {
                None | Some(Err(libc::EAGAIN | libc::EINTR | libc::EMFILE)) => {
                    return Received::Nothing;
                }
                Some(Err(_) | Ok((0, _))) => return Received::End(channel),
                Some(Ok(got)) => got,
            };
            let fds = fds.get(..count).unwrap_or(&[]);
            match bytes.get(..length).and_then(Message::from_bytes) {
                Some(message) if message.operation == Operation::Offer as u32 => {
                    return Received::Offer(self.take_offer(&message, fds));
                }
                _ => fds.iter().for_each(|fd| sys::close(*fd)),
            }
        }
    }

    fn take_offer(&self, message: &Message, fds: &[i32]) -> bool {
        let words = &message.words;
        let first = usize::try_from(words[6]).unwrap_or(usize::MAX);
        // A connection that another holder has handed on comes with its one anchor.
        if words[7] == 1 {
            return self.take_handed_on(words, fds, first).is_some();
        }
        let sizes = (words[2], words[3]);
        let link = LinkEnd::adopt(Role::Server, words[0], self.number(), sizes, first, fds);
        let Some(link) = link else { return false };
        link.set_origin(words[5] == u64::from(RELAY), words[8]);
        link.set_tenant([words[9], words[10], words[11]]);
        link.expecting.store(true, Ordering::Relaxed);
        if let Some(mut registry) = REGISTRY.lock() {
            registry.servers.retain(|link| link.is_alive());
            registry.servers.push(link);
        }
        ADD_LINK.get().inspect(|add_link| add_link(link));
        self.wake_ups.wake_all();
        true
    }

    fn take_handed_on(&self, words: &[u64; 14], fds: &[i32], slot: usize) -> Option<()> {
        let [memory, channel, anchor] = *fds else {
            fds.iter().for_each(|fd| sys::close(*fd));
            return None;
        };
        sys::close(channel);
        let sizes = (words[2], words[3]);
        let index = u32::try_from(slot).unwrap_or(u32::MAX);
        let link = foreign::link(Role::Server, words[0], self.number(), sizes, memory);
        let Some((link, shared)) = link.and_then(|link| Some((link, link.slot(index)?))) else {
            // The other end sees a reset.
            link.inspect(|link| link.remove_user());
            sys::close(anchor);
            return None;
        };
        link.set_origin(words[5] == u64::from(RELAY), words[8]);
        link.set_tenant([words[9], words[10], words[11]]);
        let generation = shared.client.generation.load(Ordering::Acquire);
        side::set_up(
            &shared.server,
            generation,
            link.layout.small_ring(Role::Server, slot),
        );
        let nonblocking = sys::is_nonblocking(anchor);
        let loan = Loan {
            handle: Handle { index, generation },
            anchor: attach::make_internal(anchor),
            nonblocking,
        };
        let mut pending = Pending::new(link, loan)?;
        pending.take_ring(words[12]);
        self.push(pending);
        Some(())
    }
}

fn leaked(channel: i32) -> &'static Channel {
    Box::leak(Box::new(Channel::new(channel)))
}

/// Whether the kernel's connection is to be taken first this time; `waits` says whether there is one.
pub fn kernel_first(listener: &Listener, waits: impl FnOnce() -> bool) -> bool {
    let old = listener.old_turns.load(Ordering::Relaxed);
    if old == 0 {
        return listener.turns.fetch_add(1, Ordering::Relaxed) % 32 == 31 && waits();
    }
    let first = waits();
    let left = if first { old - 1 } else { 0 };
    listener.old_turns.store(left, Ordering::Relaxed);
    first
}
