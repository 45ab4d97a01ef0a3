//! Connections that wait and are not accepted here: handed to the other holders of the listener or
//! to the next image, or reset.

use core::sync::atomic::Ordering;

use netchannel_abi::message::Operation;

use super::links::{REGISTRY, Registry, any_listener, for_each_listener, leave_queues};
use super::renewal::announce_retired;
use super::resetting::reset;
use super::wake_ups;
use super::{Listener, Pending, poll_jobs, server_links};
use crate::descriptors::{attach, confinement, names};
use crate::ground::{clock, process, sys};
use crate::sockets::link::LinkEnd;

impl Listener {
    /// This process closes the listener. `last` when none of its relatives holds it. Where nobody does, what waits is reset, as TCP
    /// does; otherwise it is handed to the others.
    pub fn close(&'static self, last: bool) {
        let alone = last && !names::is_shared(&self.address, self.number());
        self.leave(alone, last);
    }

    /// The listener was shut down, for all who hold it: what waits is reset.
    pub fn shut(&'static self) {
        self.leave(true, true);
    }

    fn leave(&'static self, alone: bool, last: bool) {
        self.open.store(false, Ordering::Release);
        if alone {
            // What is on its way is reset here and now, not when its client looks for a server.
            while self.take_offers() {}
        } else {
            self.leaves.store(true, Ordering::Release);
            // A thread may be about to take one.
            drop(self.taking.lock());
        }
        // Before anything is reset: that makes room in the backlog, for which others wait. They come to another link, and are told.
        clear_links(
            |link| self.has_number(link.listener),
            || {
                if !alone {
                    self.hand_on_all(false);
                }
            },
        );
        if let Some(mut registry) = REGISTRY.lock() {
            registry
                .listeners
                .retain(|listener| !core::ptr::eq(*listener, self));
        }
        if alone {
            self.empty_common();
            self.pending.take_all().iter().for_each(reset);
        } else {
            self.leave_to_others();
            self.hand_on_all(false);
        }
        // Links to a listener that is gone bring no more connections: those that are open go on.
        let links = server_links();
        for link in links.iter().filter(|link| self.has_number(link.listener)) {
            link.fail();
        }
        if last {
            self.unlisten();
        } else {
            attach::notify_daemon(Operation::Unlisten, self.named());
        }
        self.offers().inspect(|channel| channel.end());
        self.leave_common();
        self.wake_ups.close();
    }

    /// Tells the daemon that this process has its part in the listener no longer.
    fn unlisten(&self) {
        // Where it was shut it listens for nobody any more.
        let mut words = self.named();
        words[1] = 1;
        let _ = attach::request(Operation::Unlisten, words, &[], &mut [-1; sys::MOST]);
    }

    /// Other programs come to the kernel's queue from now on. What is on its way here is taken off its channels, and accepted as ever;
    /// where that lacks numbers, the rest of it later.
    pub fn retire(&self) {
        self.leave_queue();
        self.retires.store(true, Ordering::Relaxed);
        while self.take_offers() {}
    }

    /// As [`Self::retire`], where the program begins: what is on its way here waits until it accepts. The numbers are the program's.
    pub fn retire_unhurried(&self) {
        self.unlisten();
        self.retires.store(true, Ordering::Relaxed);
    }

    /// The last offer was taken.
    #[cold]
    pub(super) fn finish_retiring(&self) {
        self.unlisten();
        while self.take_next_offer() {}
        self.end_channel();
        self.retires.store(false, Ordering::Relaxed);
        clear_links(|link| self.has_number(link.listener), || ());
    }

    fn hand_on_all(&self, to_next_image: bool) {
        for pending in self.pending.take_all() {
            let kept = self.hand_on(&pending, to_next_image)
                || !self.is_alone() && self.put_common(&pending);
            if !kept {
                reset(&pending);
            }
        }
    }

    fn hand_on(&self, pending: &Pending, to_next_image: bool) -> bool {
        let mut words = [0; 14];
        words[0] = pending.link.number;
        words[1] = u64::from(self.number());
        words[2] = u64::from(pending.loan.handle.index);
        words[3] = u64::from(to_next_image);
        // As the daemon said it that made the link; another one does not know.
        words[4] = pending.link.user().map_or(u64::MAX, u64::from);
        // A connection that came without its link's channel goes on with another's.
        let spare = if pending.link.is_own() && pending.link.is_alive() {
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
            attach::close_internal(pending.loan.anchor);
            pending.link.used_less();
        }
        done
    }
}

/// The process will have no numbers for more virtual connections: its listeners [retire](Listener::retire).
pub fn retire_all() {
    let listeners = REGISTRY.lock().map(|registry| registry.listeners.clone());
    listeners.into_iter().flatten().for_each(Listener::retire);
}

/// Whether all listeners have [retired](Listener::retire): no more virtual connections come.
pub fn have_retired() -> bool {
    let retired = |registry: &Registry| registry.listeners.iter().all(|one| one.channel() < 0);
    REGISTRY.lock().is_some_and(|registry| retired(&registry))
}

/// This process has accepted a connection and may now be busy for long: what else has come, to any of its listeners, is handed to
/// their other holders.
pub fn withdraw() {
    if wake_ups::anybody_sleeps() || !any_listener(Listener::has_other_holders) {
        // Other threads of this process accept, or nobody else does.
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
    if !any_listener(|listener| listener.pending.any()) {
        return;
    }
    for_each_listener(|listener| {
        listener.share();
        if listener.pending.any() && listener.has_other_holders() {
            for pending in listener.pending.take_all() {
                if !listener.hand_on(&pending, false) {
                    listener.push(pending);
                }
            }
        }
    });
}

/// Before an exec: what waits to be accepted is left for the next image. The links end with this
/// one, so nobody may announce anything on them any more.
pub fn hand_over() {
    announce_retired();
    // The next image has no part in them.
    leave_queues();
    // What waits for all is for the next image, too: it has no part in what relatives have together.
    end_links(true, Listener::empty_common);
}

/// Before the process becomes another user's, and leaves its links: what waits to be accepted is left for whoever accepts next.
pub fn hand_on_everything() {
    let waits =
        |listener: &&'static Listener| listener.pending.any() || listener.common().is_some();
    let any = REGISTRY.lock().is_some_and(|registry| {
        !registry.servers.is_empty() || registry.listeners.iter().any(waits)
    });
    if any {
        // To all who have the listener, this process too: with its relatives it has only the queue of clients from now on.
        end_links(true, Listener::empty_taken);
    }
}

/// The process ends in good order: what it has not accepted is for the others who have its listeners.
pub fn hand_on_at_exit() {
    if attach::current().is_none() || confinement::is_filtered() {
        return;
    }
    let any = REGISTRY.lock().is_some_and(|registry| {
        let come = !registry.servers.is_empty();
        let listeners = registry.listeners.iter().copied();
        let waits = |listener: &&Listener| listener.pending.any() || listener.has_queued();
        let mut waiting = listeners.filter(|listener| come || waits(listener));
        waiting.any(Listener::has_other_holders)
    });
    // A child that has its parent's memory, as between vfork and exec, touches nothing of it.
    if any && sys::process() == process::number() {
        end_links(false, Listener::leave_to_others);
    }
}

/// Hands on what waits in this process, after `take` has taken to its list what else is to go.
fn end_links(to_next_image: bool, take: impl Fn(&Listener)) {
    clear_links(
        |_| true,
        || {
            let listeners = REGISTRY.lock().map(|registry| registry.listeners.clone());
            for listener in listeners.into_iter().flatten() {
                take(listener);
                listener.hand_on_all(to_next_image);
            }
        },
    );
}

/// Lets nobody announce anything more on some links, and has `hand_on` see to what was announced.
fn clear_links(which: impl Fn(&LinkEnd) -> bool, hand_on: impl Fn()) {
    let mut links = server_links();
    links.retain(|link| link.is_alive() && !link.has_departed() && which(link));
    for link in &links {
        link.read_channel();
        link.hang_up();
    }
    poll_jobs();
    links.iter().for_each(|link| link.left());
    hand_on();
}
