//! Listeners: the kernel's TCP listener, and beside it the virtual connections that came over
//! links or in offers of the daemon.

use std::collections::VecDeque;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation, listen_flags};

use crate::bell::{self, Bell};
use crate::epoll::EpollSet;
use crate::link::{LinkEnd, Loan, reset_side};
use crate::lock::Lock;
use crate::names::Target;
use crate::socket::Socket;
use crate::{attach, clock, foreign, limits, names, sys};

/// A connection that waits to be accepted.
#[derive(Clone, Copy)]
pub struct Pending {
    /// The link it came over.
    pub link: &'static LinkEnd,
    /// Its slot and anchor.
    pub loan: Loan,
}

/// A listener of this process. Never freed: a thread may still sleep in accept.
pub struct Listener {
    /// The daemon's number.
    pub number: u32,
    /// Where the daemon's offers come; shared with forked children and other holders.
    channel: AtomicI32,
    /// Where it listens.
    pub address: Address,
    /// Not closed by this process.
    pub open: AtomicBool,
    /// Accepted so far, to give the kernel's queue its turn.
    pub turns: AtomicU64,
    /// Connections that ever came.
    arrived: AtomicU64,
    /// Wakes threads that sleep for connections without an event loop.
    pub bell: Bell,
    /// Event loops that want to hear of connections.
    watchers: Lock<Vec<&'static EpollSet>>,
    pending: Lock<VecDeque<Pending>>,
}

/// Links and listeners of this process.
struct Registry {
    clients: Vec<&'static LinkEnd>,
    servers: Vec<&'static LinkEnd>,
    listeners: Vec<&'static Listener>,
}

static REGISTRY: Lock<Registry> = Lock::new(Registry {
    clients: Vec::new(),
    servers: Vec::new(),
    listeners: Vec::new(),
});

impl Listener {
    /// Tells the daemon that `fd` listens. `None` where there is no daemon or it refuses.
    pub fn register(fd: i32, backlog: i32) -> Option<&'static Self> {
        attach::ensure()?;
        let address = names::of_kernel(fd, false)?;
        let mut words = [0; 14];
        words[..3].copy_from_slice(&address.to_words());
        words[3] = sys::cookie(fd).ok()?;
        words[4] = u64::try_from(backlog).unwrap_or(0);
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
        let (answer, count) = attach::request(Operation::Listen, words, &[], &mut received).ok()?;
        if count != 1 {
            received.iter().take(count).for_each(|fd| sys::close(*fd));
            return None;
        }
        let number = u32::try_from(answer.words[0]).ok()?;
        let made: &'static Self = Box::leak(Box::new(Self {
            number,
            channel: AtomicI32::new(attach::keep(received[0])),
            address,
            open: AtomicBool::new(true),
            turns: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            bell: Bell::new(),
            watchers: Lock::new(Vec::new()),
            pending: Lock::new(VecDeque::new()),
        }));
        REGISTRY.lock()?.listeners.push(made);
        Some(made)
    }

    /// A connection that waits, if one does.
    pub fn take(&self) -> Option<Pending> {
        let found = self.pending.lock()?.pop_front();
        if found.is_some() {
            return found;
        }
        poll_jobs();
        self.pending.lock()?.pop_front()
    }

    /// Whether a connection waits. Looks at the links, not at the kernel.
    pub fn has_pending(&self) -> bool {
        if self
            .pending
            .lock()
            .is_some_and(|pending| !pending.is_empty())
        {
            return true;
        }
        poll_jobs();
        self.pending
            .lock()
            .is_some_and(|pending| !pending.is_empty())
    }

    /// Puts a connection back that could not be accepted for want of a descriptor.
    pub fn push_front(&self, pending: Pending) {
        if let Some(mut queue) = self.pending.lock() {
            queue.push_front(pending);
        }
    }

    fn push(&self, pending: Pending) {
        if let Some(mut queue) = self.pending.lock() {
            queue.push_back(pending);
        }
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.has_connection());
        }
    }

    /// Connections that ever came. Only to notice a change.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// The set hears of connections from now on.
    pub fn watch(&self, set: &'static EpollSet) {
        if let Some(mut watchers) = self.watchers.lock() {
            watchers.push(set);
        }
    }

    /// No longer, as often as it was asked for.
    pub fn unwatch(&self, set: &EpollSet) {
        if let Some(mut watchers) = self.watchers.lock()
            && let Some(index) = watchers.iter().position(|known| core::ptr::eq(*known, set))
        {
            watchers.swap_remove(index);
        }
    }

    /// Where the daemon's offers come; shared with forked children and other holders.
    pub fn channel(&self) -> i32 {
        self.channel.load(Ordering::Relaxed)
    }

    /// Takes the daemon's offers. True when any came.
    pub fn take_offers(&self) -> bool {
        let mut any = false;
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let mut fds = [-1; sys::MOST];
            let got = limits::receive_message(self.channel(), &mut bytes, &mut fds);
            let Ok((length, count)) = got else { return any };
            if length == 0 {
                return any;
            }
            let fds = fds.get(..count).unwrap_or(&[]);
            match bytes.get(..length).and_then(Message::from_bytes) {
                Some(message) if message.operation == Operation::Offer as u32 => {
                    any |= self.take_offer(&message, fds);
                    // One at a time: other holders of the listener shall have their share.
                    return any;
                }
                _ => fds.iter().for_each(|fd| sys::close(*fd)),
            }
        }
    }

    fn take_offer(&self, message: &Message, fds: &[i32]) -> bool {
        let words = &message.words;
        let first = usize::try_from(words[6]).unwrap_or(usize::MAX);
        // A connection handed on by another holder comes with its one anchor.
        if words[7] == 1 {
            return self.take_handed_on(words, fds, first).is_some();
        }
        let sizes = (words[2], words[3]);
        let link = LinkEnd::adopt(Role::Server, words[0], self.number, sizes, first, fds);
        let Some(link) = link else { return false };
        link.expecting.store(true, Ordering::Relaxed);
        if let Some(mut registry) = REGISTRY.lock() {
            registry.servers.retain(|link| link.is_alive());
            registry.servers.push(link);
        }
        crate::epoll::add_link(link);
        self.bell.ring_all();
        true
    }

    fn take_handed_on(&self, words: &[u64; 14], fds: &[i32], slot: usize) -> Option<()> {
        let [memory, channel, anchor] = *fds else {
            fds.iter().for_each(|fd| sys::close(*fd));
            return None;
        };
        sys::close(channel);
        let sizes = (words[2], words[3]);
        let index = u32::try_from(slot).ok()?;
        let link = foreign::link(Role::Server, words[0], self.number, sizes, memory)?;
        let shared = link.slot(index)?;
        let generation = shared.client.generation.load(Ordering::Acquire);
        reset_side(
            &shared.server,
            generation,
            link.layout.small_ring(Role::Server, slot),
        );
        let nonblocking = sys::fcntl(anchor, libc::F_GETFL, 0)
            .is_ok_and(|flags| flags & sys::int(libc::O_NONBLOCK) != 0);
        let loan = Loan {
            handle: Handle { index, generation },
            anchor: attach::keep(anchor),
            nonblocking,
        };
        self.push(Pending { link, loan });
        Some(())
    }

    /// Descriptors to sleep on besides the TCP listener itself.
    pub fn wake_descriptors(&self) -> Vec<i32> {
        let mut list = vec![self.channel()];
        if let Some(registry) = REGISTRY.lock() {
            list.extend(
                registry
                    .servers
                    .iter()
                    .filter(|l| l.is_alive())
                    .map(|l| l.channel()),
            );
        }
        list
    }

    /// This process closes the listener. `last` when no other process holds it: then what waits is
    /// reset, as TCP does; otherwise it is handed to the others.
    pub fn close(&'static self, last: bool) {
        if last {
            poll_jobs();
        } else {
            clear_links(
                |link| link.listener == self.number,
                || self.hand_on_all(false),
            );
        }
        self.open.store(false, Ordering::Release);
        if let Some(mut registry) = REGISTRY.lock() {
            registry
                .listeners
                .retain(|listener| !core::ptr::eq(*listener, self));
        }
        if last {
            self.take_all().iter().for_each(reset);
        } else {
            self.hand_on_all(false);
        }
        // Links to a listener that is gone bring no more connections: those that are open go on.
        let links = server_links();
        for link in links.iter().filter(|link| link.listener == self.number) {
            link.fail();
        }
        let mut words = [0; 14];
        words[0] = u64::from(self.number);
        let mut none = [-1; sys::MOST];
        let _ = attach::request(Operation::Unlisten, words, &[], &mut none);
        attach::drop_kept(self.channel());
        self.bell.silence();
    }

    fn take_all(&self) -> VecDeque<Pending> {
        let waiting = self.pending.lock();
        waiting.map_or_else(VecDeque::new, |mut queue| core::mem::take(&mut *queue))
    }

    fn hand_on_all(&self, to_next_image: bool) {
        for pending in self.take_all() {
            if !self.hand_on(&pending, to_next_image) {
                reset(&pending);
            }
        }
    }

    fn hand_on(&self, pending: &Pending, to_next_image: bool) -> bool {
        let mut words = [0; 14];
        words[0] = pending.link.number;
        words[1] = u64::from(self.number);
        words[2] = u64::from(pending.loan.handle.index);
        words[3] = u64::from(to_next_image);
        // A connection that came without its link's channel goes on with another's.
        let spare = if pending.link.is_own() {
            None
        } else {
            sys::socket_pair(libc::SOCK_SEQPACKET).ok()
        };
        let channel = spare.map_or(pending.link.channel(), |pair| pair.0);
        let fds = [pending.link.memory(), channel, pending.loan.anchor];
        let mut none = [-1; sys::MOST];
        let done = attach::request(Operation::Reoffer, words, &fds, &mut none).is_ok();
        if let Some((one, other)) = spare {
            sys::close(one);
            sys::close(other);
        }
        if done {
            attach::drop_kept(pending.loan.anchor);
        }
        done
    }
}

/// Resets a connection that nobody will accept.
fn reset(pending: &Pending) {
    let Some(slot) = pending.link.slot(pending.loan.handle.index) else {
        return;
    };
    let flags = side_flags::FIN | side_flags::CLOSED | side_flags::RESET;
    let ring = pending
        .link
        .layout
        .small_ring(Role::Server, pending.loan.handle.index as usize);
    pending
        .link
        .finish(slot, pending.loan.handle, flags, None, [ring; 2]);
    if let Some(wake) = netchannel_ring::waiter::announce_data(&slot.client.waiter)
        && let Some(index) = wake.cell
        && let Some(cell) = pending.link.cell(Role::Client, index)
    {
        let slot = pending.loan.handle.index as usize;
        netchannel_ring::cell::mark(&cell.asleep, &cell.summary, &cell.ready, slot);
    }
    // The anchor's end wakes whoever sleeps.
    attach::drop_kept(pending.loan.anchor);
    pending.link.used_less();
}

/// Moves new connections from all links to their listeners.
pub fn poll_jobs() {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in &registry.servers {
        if !link.is_alive() || !link.has_jobs() {
            continue;
        }
        link.take_jobs(|number, loan| {
            let pending = Pending { link, loan };
            match registry
                .listeners
                .iter()
                .find(|listener| listener.number == number)
            {
                Some(listener) => listener.push(pending),
                None => reset(&pending),
            }
        });
    }
}

/// Asks for doorbells on all links. True when a connection came meanwhile.
pub fn listen_for_jobs() -> bool {
    let Some(registry) = REGISTRY.lock() else {
        return true;
    };
    let mut came = false;
    for link in &registry.servers {
        if link.is_alive() {
            link.listen_for_jobs();
            came |= link.has_jobs();
        }
    }
    came
}

/// A thread that watches listeners is awake, and looks at them again soon.
pub fn loops() {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in &registry.servers {
        if link.is_alive() {
            link.awake(true);
        }
    }
}

/// Reads the channels of all links: doorbells, anchors, ends.
pub fn read_channels() {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in &registry.servers {
        if link.is_alive() {
            link.read_channel();
        }
    }
}

/// The links to programs that connect to us.
pub fn server_links() -> Vec<&'static LinkEnd> {
    REGISTRY
        .lock()
        .map(|registry| registry.servers.clone())
        .unwrap_or_default()
}

/// More links than this to one listener are not made: beyond them the kernel spreads the load.
const MOST_LINKS: usize = 16;

/// A link to a program that holds the listener, made by the daemon if need be, and whether its
/// other end was claimed. Where several processes hold it, only one that will accept soon is taken.
///
/// # Errors
/// The daemon's refusal; `EAGAIN` when all who could accept are busy.
pub fn client_link(target: &Target) -> Result<(&'static LinkEnd, bool), i32> {
    let number = target.listener;
    let mut known;
    loop {
        let found = {
            let registry = REGISTRY.lock().ok_or(libc::EDEADLK)?;
            known = 0;
            registry.clients.iter().copied().find(|link| {
                let fits = link.listener == number && link.is_own() && link.is_alive();
                known += usize::from(fits);
                fits && (!target.shared || link.claim())
            })
        };
        match found {
            Some(link) if link.check() => return Ok((link, target.shared)),
            Some(_) => {}
            None => break,
        }
    }
    forget_ended_links();
    if known >= MOST_LINKS {
        return Err(libc::EAGAIN);
    }
    let mut words = [0; 14];
    words[0] = u64::from(number);
    let mut received = [-1; sys::MOST];
    let (answer, count) = attach::request(Operation::Connect, words, &[], &mut received)?;
    let fds = received.get(..count).unwrap_or(&[]);
    let sizes = (answer.words[1], answer.words[2]);
    let link =
        LinkEnd::adopt(Role::Client, answer.words[0], number, sizes, 0, fds).ok_or(libc::EPROTO)?;
    let mut registry = REGISTRY.lock().ok_or(libc::EDEADLK)?;
    registry.clients.retain(|link| link.is_alive());
    registry.clients.push(link);
    Ok((link, false))
}

/// Lets go of links whose other end has gone: their descriptors are worth more elsewhere.
fn forget_ended_links() {
    let Some(mut registry) = REGISTRY.lock() else {
        return;
    };
    registry.clients.retain(|link| link.check());
}

/// This process has accepted a connection and may now be busy for long: what else has come is
/// handed to the other holders of the listener.
pub fn withdraw(listener: &'static Listener) {
    if bell::anybody_sleeps() {
        // Other threads of this process accept.
        return;
    }
    let links = server_links();
    for link in &links {
        link.awake(false);
    }
    core::sync::atomic::fence(Ordering::SeqCst);
    // The connection for which a link was made is on its way.
    let until = clock::now().wrapping_add(300 * clock::MICROSECOND);
    for link in &links {
        while link.expecting.load(Ordering::Relaxed) && !link.has_jobs() && clock::now() < until {
            core::hint::spin_loop();
        }
    }
    poll_jobs();
    let waiting = listener
        .pending
        .lock()
        .map(|mut queue| core::mem::take(&mut *queue));
    for pending in waiting.into_iter().flatten() {
        if !listener.hand_on(&pending, false) {
            listener.push(pending);
        }
    }
}

/// A link of this process by its number.
pub fn own_link(role: Role, number: u64) -> Option<&'static LinkEnd> {
    let registry = REGISTRY.lock()?;
    let list = if role == Role::Client {
        &registry.clients
    } else {
        &registry.servers
    };
    list.iter()
        .copied()
        .find(|link| link.number == number && link.is_own())
}

/// Before an exec: what waits to be accepted is left for the next image. The links end with this
/// one, so nobody may announce anything on them any more.
pub fn hand_over() {
    clear_links(
        |_| true,
        || {
            let listeners = REGISTRY.lock().map(|registry| registry.listeners.clone());
            for listener in listeners.into_iter().flatten() {
                listener.hand_on_all(true);
            }
        },
    );
}

/// Lets nobody announce anything more on some links, and has `hand_on` see to what was announced.
fn clear_links(which: impl Fn(&LinkEnd) -> bool, hand_on: impl Fn()) {
    let mut links = server_links();
    links.retain(|link| link.is_alive() && which(link));
    for link in &links {
        link.read_channel();
        link.hang_up();
    }
    poll_jobs();
    hand_on();
    if !links.is_empty() {
        // Who had looked before the end was to be seen has announced by now.
        sys::sleep(1_000_000);
        poll_jobs();
        hand_on();
    }
}

/// The numbers of the listeners this process holds.
pub fn numbers() -> Vec<u32> {
    REGISTRY
        .lock()
        .map(|registry| {
            registry
                .listeners
                .iter()
                .map(|listener| listener.number)
                .collect()
        })
        .unwrap_or_default()
}

/// In a forked child: the listeners are held too, the links are the parent's.
pub fn reset_in_child() {
    REGISTRY.reset();
    let Some(mut registry) = REGISTRY.lock() else {
        return;
    };
    let used = foreign::links_in_use();
    let Registry {
        clients, servers, ..
    } = &mut *registry;
    for link in clients.drain(..).chain(servers.drain(..)) {
        link.close_in_child(used.iter().any(|one| core::ptr::eq(*one, link)));
    }
    for listener in &registry.listeners {
        listener.pending.reset();
        listener.watchers.reset();
        listener.bell.silence();
        // What the parent has taken, the parent accepts.
        if let Some(mut pending) = listener.pending.lock() {
            pending
                .drain(..)
                .for_each(|pending| attach::drop_kept(pending.loan.anchor));
        }
    }
}

/// Whether the kernel's queue should be looked at first this time.
pub fn kernel_first(socket: &Socket) -> bool {
    socket
        .listener()
        .is_some_and(|listener| listener.turns.fetch_add(1, Ordering::Relaxed) % 32 == 31)
}

/// A descriptor of the library has moved.
pub fn relocate(from: i32, to: i32) {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in registry.clients.iter().chain(&registry.servers) {
        link.relocate(from, to);
    }
    for listener in &registry.listeners {
        let (order, channel) = (Ordering::Relaxed, &listener.channel);
        let _ = channel.compare_exchange(from, to, order, order);
        listener.bell.relocate(from, to);
        if let Some(mut pending) = listener.pending.lock()
            && let Some(found) = pending.iter_mut().find(|p| p.loan.anchor == from)
        {
            found.loan.anchor = to;
        }
    }
}
