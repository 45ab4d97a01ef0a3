//! The registry of the links and listeners of this process, and requests to all of them at once.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use netchannel_abi::link::Role;
use netchannel_abi::message::Operation;

use super::daemon_renewal;
use super::resetting::reset;
use super::wake_ups;
use super::{Listener, Pending};
use crate::descriptors::attach;
use crate::descriptors::names::Target;
use crate::ground::lock::Lock;
use crate::ground::sys;
use crate::sockets::foreign;
use crate::sockets::link::{LinkEnd, LinkUse};

/// Links and listeners of this process.
pub(super) struct Registry {
    clients: Vec<&'static LinkEnd>,
    pub(super) servers: Vec<&'static LinkEnd>,
    pub(super) listeners: Vec<&'static Listener>,
}

impl Registry {
    /// The links over which connections may be announced: after one was left, only anchors without a use come over it.
    pub(super) fn open_servers(&self) -> impl Iterator<Item = &'static LinkEnd> {
        let servers = self.servers.iter().copied();
        servers.filter(|link| link.is_alive() && !link.has_left())
    }

    /// The listener to which a daemon gave this number: rarely a former daemon, whose numbers are behind locks.
    fn listener(&self, number: u32) -> Option<&'static Listener> {
        let all = || self.listeners.iter().copied();
        all()
            .find(|listener| listener.number() == number)
            .or_else(|| all().find(|listener| listener.has_number(number)))
    }
}

pub(super) static REGISTRY: Lock<Registry> = Lock::new(Registry {
    clients: Vec::new(),
    servers: Vec::new(),
    listeners: Vec::new(),
});

/// Moves new connections from all links to their listeners.
pub fn poll_jobs() {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    let mut starved = false;
    for link in &registry.servers {
        if !link.is_alive() || !link.has_jobs() {
            continue;
        }
        link.take_jobs(|number, loan, announced| {
            let Some(mut pending) = Pending::new(link, loan) else {
                return;
            };
            pending.announced = announced;
            // A link to a listener of this tenant alone, of which the other one has another number.
            let number = if link.tenant().is_none() {
                number
            } else {
                link.listener
            };
            match registry.listener(number) {
                Some(listener) => listener.push(pending),
                None => reset(&pending),
            }
        });
        starved |= link.is_starved();
    }
    if starved != are_starved() {
        STARVED.store(starved, Ordering::Relaxed);
    }
}

/// Whether connections can not be taken because there are no numbers for their descriptors.
pub fn are_starved() -> bool {
    STARVED.load(Ordering::Relaxed)
}

/// Some link was starved at the last look.
static STARVED: AtomicBool = AtomicBool::new(false);

/// Asks for doorbells on all links. True when a connection came meanwhile.
pub fn listen_for_jobs() -> bool {
    let Some(registry) = REGISTRY.lock() else {
        return true;
    };
    let mut came = false;
    let loops = wake_ups::accepts_soon();
    for link in &registry.servers {
        if link.is_alive() {
            link.listen_for_jobs(loops);
            came |= link.has_jobs();
        }
    }
    came
}

/// Whether connections may be announced to this process over links of its own.
pub fn has_server_links() -> bool {
    let registry = REGISTRY.lock();
    registry.is_none_or(|registry| registry.open_servers().next().is_some())
}

/// Whether a daemon or stack may announce connections to this process.
pub(super) fn has_relayed_links() -> bool {
    let registry = REGISTRY.lock();
    let is_relayed = |link: &LinkEnd| link.relayed.load(Ordering::Relaxed);
    registry.is_none_or(|registry| registry.open_servers().any(is_relayed))
}

/// Publishes that a thread that watches listeners is awake; `soon` says whether it will look at them again soon.
pub fn awake(soon: bool) {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in &registry.servers {
        if link.is_alive() {
            link.set_awake(soon);
        }
    }
}

/// Resets the state of the links to "awake". A thread that slept or looked for connections, in a call that is over, has
/// left them as asleep or looping, which was harmless while only this process accepted. A loop publishes its state again
/// when it looks.
pub(super) fn mark_awake() {
    if wake_ups::anybody_sleeps() {
        return;
    }
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in &registry.servers {
        if link.is_alive() {
            link.set_awake(false);
        }
    }
}

/// Reads the channels of all links: doorbells, anchors, hang-ups.
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

/// The links to programs that connect to this one.
pub fn server_links() -> Vec<LinkUse> {
    let registry = REGISTRY.lock();
    let servers = registry.iter().flat_map(|registry| &registry.servers);
    servers.filter_map(|link| link.begin_use()).collect()
}

/// Most links to one listener: beyond them the kernel spreads the load.
const MOST_LINKS: usize = 16;
/// Most links for each holder of a listener: one holder may take two offers, and another none.
const LINKS_FOR_EACH: usize = 4;

/// A link to a program that holds the listener, made by the daemon if need be, and whether its other end was claimed.
/// Of links whose other end several processes may hold, only one is used whose process will accept soon.
///
/// # Errors
/// The daemon's refusal; `EAGAIN` when all acceptors are busy.
pub fn client_link(target: &Target) -> Result<(&'static LinkEnd, bool), i32> {
    if let Ok(found) = known_link(target)? {
        return Ok(found);
    }
    // Threads that connect at once for the first time share one link. A signal handler that interrupted the making of a
    // link makes one of its own.
    let _making = MAKING.lock();
    let known = match known_link(target)? {
        Ok(found) => return Ok(found),
        Err(known) => known,
    };
    if target.queue != 0 && ENTERED.fetch_add(1, Ordering::Relaxed) % PAUSE != PAUSE - 1 {
        return Err(libc::EAGAIN);
    }
    forget_ended_links();
    let most = if target.queue != 0 {
        most_beside_queue(target)
    } else {
        LINKS_FOR_EACH * target.holders.max(1)
    };
    if known >= MOST_LINKS.min(most) {
        return Err(libc::EAGAIN);
    }
    make_link(target)
}

/// Connections that go through a queue before another link is made to one of its acceptors.
const PAUSE: usize = 32;
/// Connections that went through queues.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

/// How many links are useful beside a queue: one for each event loop, once an event loop has accepted from the queue. A
/// process that sleeps in accept takes from the queue only, so its death loses no more than the connections that it has
/// accepted.
fn most_beside_queue(target: &Target) -> usize {
    let loops = |link: &&'static LinkEnd| {
        link.is_queued() && link.listener == target.listener && link.accepted_by_loop()
    };
    if !target.shared {
        1
    } else if own_link(Role::Client, loops).is_some() {
        target.holders
    } else {
        0
    }
}

/// Counts searches for a link that must be claimed.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Held by the thread that makes a link.
static MAKING: Lock<()> = Lock::new(());

/// Held while links are left: a thread that leaves the same ones goes on when they have been left.
pub(super) static LEAVING: Lock<()> = Lock::new(());

/// A suitable link whose other end lives, and whether it was claimed; or how many are suitable but busy.
fn known_link(target: &Target) -> Result<Result<(&'static LinkEnd, bool), usize>, i32> {
    loop {
        let registry = REGISTRY.lock().ok_or(libc::EDEADLK)?;
        // Links that must be claimed take turns.
        let turn = match registry.clients.len() {
            most @ 2.. if target.shared => TURN.fetch_add(1, Ordering::Relaxed) % most,
            _ => 0,
        };
        let (later, first) = registry.clients.split_at_checked(turn).unwrap_or_default();
        let clients = first.iter().chain(later).copied();
        let fits = clients
            .filter(|link| link.listener == target.link() && link.is_own() && link.is_alive())
            .filter(|link| !link.is_queued());
        if target.shared {
            let shared = |link: &'static LinkEnd| link.shared.store(true, Ordering::Relaxed);
            fits.clone().for_each(shared);
        }
        let is_shared = |link: &'static LinkEnd| link.shared.load(Ordering::Relaxed);
        // A sleeping process may be killed before it takes what was announced to it, or work before it accepts: where
        // there is a queue, only loops are woken.
        let claim = |link: &'static LinkEnd| !target.has_queue() && link.claim();
        let loops = [
            LinkEnd::has_idle_loop,
            LinkEnd::has_sleeping_loop,
            LinkEnd::has_loop,
        ];
        let Some((link, claimed)) = choose(fits.clone(), is_shared, claim, loops) else {
            return Ok(Err(fits.count()));
        };
        drop(registry);
        if link.check() {
            return Ok(Ok((link, claimed)));
        }
    }
}

/// Chooses a link whose other end only one process can hold, or else a shared one that can be claimed; and returns
/// whether it was claimed. As over TCP, sleepers in a call go before processes at work. Of event loops, those go first
/// that are awake and have little to do.
fn choose<'a, L: 'a>(
    links: impl Iterator<Item = &'a L> + Clone,
    is_shared: impl Fn(&'a L) -> bool,
    claim: impl Fn(&'a L) -> bool,
    loops: [fn(&L) -> bool; 3],
) -> Option<(&'a L, bool)> {
    let own = links.clone().find(|link| !is_shared(link));
    let found = |link| (link, true);
    own.map(|link| (link, false))
        .or_else(|| links.clone().find(|link| claim(link)).map(found))
        .or_else(|| {
            loops
                .iter()
                .find_map(|has| links.clone().find(|link| has(link)))
                .map(found)
        })
}

fn make_link(target: &Target) -> Result<(&'static LinkEnd, bool), i32> {
    let number = target.listener;
    let mut words = [0; 14];
    words[0] = u64::from(number);
    words[1..4].copy_from_slice(&target.destination.to_words());
    let mut received = [-1; sys::MOST];
    let (answer, count) = attach::request(Operation::Connect, words, &[], &mut received)?;
    let fds = received.get(..count).unwrap_or(&[]);
    let sizes = (answer.words[1], answer.words[2]);
    let (link, of) = (answer.words[0], target.link());
    let link = LinkEnd::adopt(Role::Client, link, of, sizes, 0, fds).ok_or(libc::EPROTO)?;
    link.set_origin(false, answer.words[4]);
    link.set_tenant([answer.words[5], answer.words[6], answer.words[7]]);
    link.shared.store(target.shared, Ordering::Relaxed);
    let mut registry = REGISTRY.lock().ok_or(libc::EDEADLK)?;
    registry.clients.retain(|link| link.is_alive());
    registry.clients.push(link);
    Ok((link, false))
}

/// The link whose connections go through the queue of a listener.
///
/// # Errors
/// The daemon's refusal.
pub fn queued_link(target: &Target) -> Result<&'static LinkEnd, i32> {
    let _making = MAKING.lock();
    // A link that was made for acceptors of another user can be read by that user.
    let fits = |link: &&'static LinkEnd| {
        link.is_queued()
            && link.is_alive()
            && link.listener == target.listener
            && link.user() == Some(target.queue_user)
    };
    if let Some(known) = own_link(Role::Client, fits) {
        return Ok(known);
    }
    let mut words = [0; 14];
    words[0] = u64::from(target.listener);
    words[1..4].copy_from_slice(&target.destination.to_words());
    words[4] = 1;
    let mut received = [-1; sys::MOST];
    let (answer, count) = attach::request(Operation::Connect, words, &[], &mut received)?;
    let fds = received.get(..count).unwrap_or(&[]);
    let &[memory] = fds else {
        fds.iter().for_each(|fd| sys::close(*fd));
        return Err(libc::EPROTO);
    };
    let sizes = (answer.words[1], answer.words[2]);
    let link = LinkEnd::adopt_queued(answer.words[0], target.listener, sizes, memory);
    let link = link.ok_or(libc::EPROTO)?;
    link.set_origin(false, answer.words[4]);
    let mut registry = REGISTRY.lock().ok_or(libc::EDEADLK)?;
    // Idle links of closed listeners, and of a former daemon.
    let idle = |link: &&&LinkEnd| link.is_queued() && link.live.load(Ordering::Relaxed) == 0;
    if registry.clients.iter().filter(idle).count() >= MOST_LINKS {
        registry
            .clients
            .iter()
            .filter(idle)
            .for_each(|link| link.fail());
        registry.clients.retain(|link| link.is_alive());
    }
    registry.clients.push(link);
    Ok(link)
}

/// Leaves all queues: this process accepts from none of them any more.
pub fn leave_queues() {
    for_each_listener(Listener::leave_queue);
}

/// Called when this process has become another user's: it keeps the queues that it has announced to the daemon.
pub fn keep_queues_if_announced() {
    for_each_listener(Listener::keep_queue_if_announced);
}

/// Returns to all queues: the exec has failed.
pub fn return_to_queues() {
    for_each_listener(Listener::return_to_queue);
}

/// Whether any listener of this process is `wanted`.
pub(super) fn any_listener(wanted: impl Fn(&Listener) -> bool) -> bool {
    let registry = REGISTRY.lock();
    registry.is_some_and(|registry| registry.listeners.iter().any(|listener| wanted(listener)))
}

pub(super) fn for_each_listener(each: impl Fn(&Listener)) {
    let listeners = REGISTRY.lock().map(|registry| registry.listeners.clone());
    listeners.into_iter().flatten().for_each(each);
}

/// Drops links whose other end has ended: their descriptors are needed elsewhere.
fn forget_ended_links() {
    let Some(mut registry) = REGISTRY.lock() else {
        return;
    };
    registry.clients.retain(|link| link.check());
}

/// The first link of this process that is `wanted`.
pub fn own_link(
    role: Role,
    wanted: impl Fn(&&'static LinkEnd) -> bool,
) -> Option<&'static LinkEnd> {
    let registry = REGISTRY.lock()?;
    let list = if role == Role::Client {
        &registry.clients
    } else {
        &registry.servers
    };
    list.iter()
        .copied()
        .find(|link| link.is_own() && wanted(link))
}

/// Ends the present links for new connections; existing connections go on.
pub fn end_client_links() {
    let links = REGISTRY
        .lock()
        .map(|mut registry| core::mem::take(&mut registry.clients));
    links.into_iter().flatten().for_each(LinkEnd::fail);
}

/// Drops all links: this process becomes another user's.
pub fn leave_links() {
    if let Some(mut registry) = REGISTRY.lock() {
        registry.clients.clear();
        registry.servers.clear();
        for listener in &registry.listeners {
            listener.leave_shared_queue();
        }
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
                .map(|listener| listener.number())
                .collect()
        })
        .unwrap_or_default()
}

/// In a forked child: the listeners are kept, the links are the parent's.
pub fn reset_in_child() {
    daemon_renewal::reset_in_child();
    REGISTRY.reset();
    MAKING.reset();
    LEAVING.reset();
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
        listener.channel.reset();
        listener.former.reset();
        listener
            .offers()
            .inspect(|channel| channel.reset_in_child());
        listener.watchers.reset();
        listener.eras.reset_in_child();
        listener.accepts.store(false, Ordering::Relaxed);
        listener.looker.store(0, Ordering::Relaxed);
        listener.taking.reset();
        listener.wake_ups.close();
        listener.end_wait_set_in_child();
        listener.note_kernel_report();
        listener.pending.reset_in_child();
        listener.reset_shared_in_child();
    }
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    let Some(registry) = REGISTRY.lock() else {
        return;
    };
    for link in registry.clients.iter().chain(&registry.servers) {
        link.relocate(from, to);
    }
    for listener in &registry.listeners {
        listener
            .offers()
            .inspect(|channel| channel.relocate(from, to));
        listener.wake_ups.relocate(from, to);
        listener.relocate_wait_set(from, to);
        listener.pending.relocate(from, to);
        listener.relocate_shared(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct End {
        /// Several processes may hold its other end.
        shared: bool,
        /// Its process can be claimed.
        idle: bool,
        /// Its loop is awake and has little to do, sleeps, or is awake.
        loops: [bool; 3],
    }

    #[test]
    fn a_link_that_several_processes_may_have_is_claimed() {
        let own = End::default();
        let busy = End {
            shared: true,
            ..own
        };
        let idle = End { idle: true, ..busy };
        let looping = |which| End {
            loops: [0, 1, 2].map(|loops| loops == which),
            ..busy
        };
        let [near, resting, working] = [0, 1, 2].map(looping);
        let chosen = |links: &[End]| {
            let loops: [fn(&End) -> bool; 3] =
                [|end| end.loops[0], |end| end.loops[1], |end| end.loops[2]];
            choose(links.iter(), |end| end.shared, |end| end.idle, loops)
                .map(|(end, claimed)| (*end, claimed))
        };
        assert_eq!(chosen(&[busy, near]), Some((near, true)));
        assert_eq!(chosen(&[near, idle]), Some((idle, true)));
        assert_eq!(chosen(&[working, resting, near]), Some((near, true)));
        assert_eq!(chosen(&[busy, working, resting]), Some((resting, true)));
        assert_eq!(chosen(&[busy, working]), Some((working, true)));
        assert_eq!(chosen(&[own]), Some((own, false)));
        assert_eq!(chosen(&[busy, idle, own]), Some((own, false)));
        assert_eq!(chosen(&[busy, idle]), Some((idle, true)));
        assert_eq!(chosen(&[busy]), None);
    }
}
