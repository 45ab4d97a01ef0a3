//! Pending connections that are not accepted here: handed to the other holders of the listener or to the next image, or
//! reset.

use core::sync::atomic::Ordering;

use netchannel_abi::message::Operation;

use super::departing::{any_expects, clear_links, expects, leave_expecting};
use super::links::{REGISTRY, Registry, any_listener, for_each_listener, leave_queues};
use super::renewal::announce_retired;
use super::resetting::reset;
use super::wake_ups;
use super::{Listener, Pending, poll_jobs, server_links};
use crate::descriptors::{attach, confinement, names};
use crate::ground::{clock, process, sys};

impl Listener {
    /// This process closes the listener; `last` when no relative holds it. Where no other process holds it, pending
    /// connections are reset, as TCP does; otherwise they are handed to the other holders.
    pub fn close(&'static self, last: bool) {
        let alone = last && !names::is_shared(&self.address, self.number());
        self.leave(alone, last);
    }

    /// The listener was shut down, for all of its holders: pending connections are reset.
    pub fn shut(&'static self) {
        // Other holders keep the channel open, which would stay in the sets of this process.
        self.unwatch_channel(self.channel());
        self.leave(true, true);
    }

    fn leave(&'static self, alone: bool, last: bool) {
        self.end_looking();
        self.open.store(false, Ordering::Release);
        if alone {
            // Offers on their way are reset now, not when their clients look for a server.
            while self.take_offers() {}
        } else {
            self.is_leaving.store(true, Ordering::Release);
            // Waits for a thread that is taking one.
            drop(self.taking.lock());
        }
        // Before any reset, which makes room in the backlog for waiting clients: they move to
        // another link and are notified.
        clear_links(|link| self.has_number(link.listener));
        if !alone {
            self.hand_on_all(false, !last);
        }
        if let Some(mut registry) = REGISTRY.lock() {
            registry
                .listeners
                .retain(|listener| !core::ptr::eq(*listener, self));
        }
        if alone {
            self.drain_shared();
            self.discard_shared();
            self.pending.take_all().iter().for_each(reset);
        } else {
            self.leave_to_others(!last);
            self.hand_on_all(false, !last);
        }
        // Links to a closed listener bring no more connections; open connections go on.
        let links = server_links();
        for link in links.iter().filter(|link| self.has_number(link.listener)) {
            link.fail();
        }
        if last {
            self.unlisten();
        } else {
            let mut words = self.request_words();
            words[2] = u64::from(self.is_only_inherited());
            attach::notify_daemon(Operation::Unlisten, words);
        }
        self.offers().inspect(|channel| channel.end());
        self.close_shared_queues();
        self.wake_ups.close();
        self.end_wait_set();
    }

    /// Tells the daemon that this process no longer holds the listener.
    fn unlisten(&self) {
        // A listener that was shut down listens for no process any more.
        let mut words = self.request_words();
        words[1] = 1;
        let _ = attach::request(Operation::Unlisten, words, &[], &mut [-1; sys::MOST]);
    }

    /// Lets other programs connect to the kernel's queue from now on. Connections on their way are taken off the
    /// channels and accepted as before, by any relative; where there are no numbers for them, the rest later.
    pub fn retire(&self) {
        self.leave_queue();
        self.is_retiring.store(true, Ordering::Relaxed);
        while self.take_offers() {}
        self.share_before_scarcity();
    }

    /// As [`Self::retire`], at the start of the program: connections on their way wait for the accept. The numbers are
    /// the program's.
    pub fn retire_at_start(&self) {
        self.unlisten();
        self.is_retiring.store(true, Ordering::Relaxed);
        if !self.has_offers() {
            self.end_retiring();
        }
    }

    /// Called when the last offer was taken.
    #[cold]
    pub(super) fn finish_retiring(&self) {
        self.unlisten();
        while self.take_next_offer() {}
        self.end_retiring();
    }

    fn end_retiring(&self) {
        self.end_channel();
        self.is_retiring.store(false, Ordering::Relaxed);
        clear_links(|link| self.has_number(link.listener));
    }

    /// `has_relatives`: others share the queues of this process, which may have let go of the listener already. They
    /// are left what no daemon takes.
    fn hand_on_all(&self, to_newcomers: bool, has_relatives: bool) {
        for pending in self.pending.take_all() {
            let kept =
                self.hand_on(&pending, to_newcomers) || has_relatives && self.put_shared(&pending);
            if !kept {
                reset(&pending);
            }
        }
    }

    pub(super) fn hand_on(&self, pending: &Pending, to_newcomers: bool) -> bool {
        let mut words = [0; 14];
        words[0] = pending.link.number;
        words[1] = u64::from(self.number());
        words[2] = u64::from(pending.loan.handle.index);
        words[3] = u64::from(to_newcomers);
        // The user that the daemon named which made the link; another daemon does not know it.
        words[4] = pending.link.user().map_or(u64::MAX, u64::from);
        words[5] = pending.ring_for_other();
        // A connection without its link's channel is sent with a spare one.
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
            pending.link.remove_user();
        } else {
            pending.link.free_reserved(pending.loan.handle);
        }
        done
    }
}

/// [Retires](Listener::retire) all listeners: the process will have no numbers for more virtual connections.
pub fn retire_all() {
    let listeners = REGISTRY.lock().map(|registry| registry.listeners.clone());
    listeners.into_iter().flatten().for_each(Listener::retire);
}

/// Whether all listeners have [retired](Listener::retire): no more virtual connections come.
pub fn have_retired() -> bool {
    let retired = |registry: &Registry| registry.listeners.iter().all(|one| one.channel() < 0);
    REGISTRY.lock().is_some_and(|registry| retired(&registry))
}

/// Called when this process has accepted a connection and may be busy for long: the pending connections of all its
/// listeners are handed to their other holders.
pub fn withdraw() {
    if wake_ups::anybody_sleeps() || !any_listener(Listener::has_other_holders) {
        // Other threads of this process accept, or no other process does.
        return;
    }
    let links = server_links();
    for link in &links {
        link.set_awake(false);
    }
    core::sync::atomic::fence(Ordering::SeqCst);
    // A connection for which a link was made, or this process was claimed, is on its way.
    let until = clock::now().wrapping_add(300 * clock::MICROSECOND);
    for link in &links {
        while expects(link) && !link.has_jobs() && clock::now() < until {
            core::hint::spin_loop();
        }
    }
    poll_jobs();
    leave_expecting();
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

/// Called when this process has accepted a connection from a listener that does not block, and may be busy for long.
pub fn expect_no_more() {
    if any_expects() && !wake_ups::anybody_sleeps() && any_listener(Listener::has_other_holders) {
        clear_links(expects);
    }
}

/// Before an exec: leaves pending connections to the next image. The links end with the present one, so no client may
/// announce on them any more.
pub fn hand_over() {
    announce_retired();
    for_each_listener(Listener::end_looking);
    // The next image does not share the clients' queues.
    leave_queues();
    // Connections in the common queues are for the next image, too, which does not share them.
    end_links(true, Listener::drain_shared);
}

/// Before the process becomes another user's and leaves its links: hands pending connections to the next acceptor.
pub fn hand_on_to_next() {
    let has_pending =
        |listener: &&'static Listener| listener.pending.any() || listener.shared_queues().is_some();
    let any = REGISTRY.lock().is_some_and(|registry| {
        !registry.servers.is_empty() || registry.listeners.iter().any(has_pending)
    });
    if any {
        // To all holders of the listener, this process included: afterwards it shares only the clients' queue with its
        // relatives.
        end_links(true, Listener::drain_taken);
    }
}

/// Called when the process exits: pending connections go to the other holders of its listeners.
pub fn hand_on_at_exit() {
    if attach::current().is_none() || confinement::is_filtered() {
        return;
    }
    if sys::process() == process::number() {
        for_each_listener(Listener::end_looking);
    }
    let any = REGISTRY.lock().is_some_and(|registry| {
        let come = !registry.servers.is_empty();
        let listeners = registry.listeners.iter().copied();
        let has_pending = |listener: &&Listener| {
            listener.pending.any() || listener.has_queued() || listener.has_orphaned_offers()
        };
        let mut waiting = listeners.filter(|listener| come || has_pending(listener));
        waiting.any(Listener::has_other_holders)
    });
    // A child that runs in its parent's memory, as between vfork and exec, must not touch it.
    if any && sys::process() == process::number() {
        for_each_listener(Listener::take_orphaned_offers);
        end_links(false, |listener| {
            listener.leave_to_others(listener.has_relatives());
        });
    }
}

/// Hands pending connections on, after `take` has taken further ones to the lists of this process.
fn end_links(to_newcomers: bool, take: impl Fn(&Listener)) {
    clear_links(|_| true);
    for_each_listener(|listener| {
        take(listener);
        listener.hand_on_all(to_newcomers, !listener.is_only_acceptor());
    });
}
