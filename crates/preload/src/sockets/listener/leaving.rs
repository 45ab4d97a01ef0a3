//! Who else holds a listener, and whether the connections in its queues are left to them when this process leaves it.

use core::sync::atomic::Ordering;

use super::Listener;
use super::queue::Queue;
use super::shared_queues::SharedQueues;
use crate::descriptors::{attach, names};

impl Listener {
    /// Whether no other process accepts from the queues of this process.
    pub(super) fn is_only_acceptor(&self) -> bool {
        let Some(shared) = self.shared_queues() else {
            return true;
        };
        let is_shared = || names::is_shared(&self.address, self.number());
        let with_others =
            shared.number() < 0 && shared.queue().is_some_and(Queue::is_open) && is_shared();
        !with_others && (shared.number() < 0 || shared.holders() <= 1)
    }

    /// Whether a process holds the listener that does not share the queues of this process, such as the new program of
    /// an upgrade.
    pub(super) fn has_unrelated_holders(&self) -> bool {
        let name = self
            .shared_queues()
            .and_then(SharedQueues::queue)
            .map_or(0, Queue::name);
        let (address, number) = (&self.address, self.number());
        names::is_shared(address, number) && (name == 0 || names::queue_of(address, number) != name)
    }

    /// Whether this process was forked with the listener and has neither waited for its connections nor accepted any: no
    /// connection was its to accept. The queue is its parent's, who shared it with the same user's programs: it needs no
    /// question of whether others continue with it. So a child for each connection closes the listener at little cost.
    pub(super) fn is_only_inherited(&self) -> bool {
        let is_unwatched = || self.watchers.lock().is_some_and(|all| all.is_empty());
        attach::is_silent_child()
            && !self.accepts.load(Ordering::Relaxed)
            && self.wake_ups.fd() < 0
            && is_unwatched()
    }

    /// Leaves the queues to the remaining relatives when this process leaves them. Where no relative shares the
    /// clients' queue, or they may never accept, such as the old master of an upgrade, the connections are taken to
    /// this process's list, to be handed on. Relatives are believed to share it where there is no daemon, and those
    /// from which this process has the queue also where one has just come, which may not know of them yet.
    /// `has_relatives`: others hold the listener.
    pub(super) fn leave_to_others(&self, has_relatives: bool) {
        let queue = self.shared_queues().and_then(SharedQueues::queue);
        let stays = !self.has_unrelated_holders()
            && match queue.filter(|queue| queue.is_open()) {
                Some(queue) => {
                    self.is_only_inherited()
                        || self.is_continued_by_others()
                        || has_relatives && (queue.is_inherited() || attach::is_daemon_gone())
                }
                None => has_relatives,
            };
        if !stays {
            self.drain_shared();
        }
    }

    /// Whether relatives hold the listener, too, which this process still holds.
    pub(super) fn has_relatives(&self) -> bool {
        self.shared_queues()
            .is_some_and(|shared| shared.holders() > 1)
    }

    /// Whether another process may accept from the listener: a relative, or another program.
    pub fn has_other_holders(&self) -> bool {
        !self.is_only_acceptor() || names::is_shared(&self.address, self.number())
    }
}
