//! Listeners and daemons that follow one another.

use core::sync::atomic::Ordering;

use netchannel_abi::message::queue_flags;

use super::{Listener, Received, leaked};
use crate::descriptors::channel::Channel;
use crate::descriptors::limits;
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;
use crate::sockets::socket;

impl Listener {
    /// Gives it another channel, which all loops watch.
    pub(super) fn set_channel(&self, descriptor: i32) {
        let Some(mut channel) = self.channel.lock() else {
            return sys::close(descriptor);
        };
        *channel = leaked(descriptor);
        let number = channel.number();
        drop(channel);
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.add_channel(number, 0));
        }
    }

    pub(super) fn end_channel(&self) {
        self.offers().inspect(|channel| self.end_one(channel));
    }

    /// Ends the present channel, or a former one.
    pub(super) fn end_one(&self, channel: &Channel) {
        self.unwatch_channel(channel.number());
        channel.end();
    }

    /// Ends the watch of a descriptor in all sets.
    pub(super) fn unwatch_channel(&self, number: i32) {
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.remove_channel(number));
        }
    }

    /// Announces the listener at `fd` to another daemon. True when that was done.
    fn announce_again(&self, fd: i32) -> bool {
        let backlog = self.backlog.load(Ordering::Relaxed);
        // The queue comes with it: without, clients would take this process for the only holder.
        let shared = self.shared_queues().and_then(|shared| shared.queue());
        shared.inspect(|queue| queue.forget_refusal());
        let relatives = if self.has_relatives() {
            queue_flags::RELATIVES
        } else {
            0
        };
        let queue = self.queue_words();
        let (name, flags) = queue.map_or((0, 0), |(name, flags)| (name, flags | relatives));
        let queue = Some((name, flags | self.flag_of_strangers()));
        let announced = Self::announce(fd, &self.address, self.cookie, backlog, true, queue);
        let Some((number, offers)) = announced else {
            return false;
        };
        let former = self.number();
        let awaited = self.awaits_daemon.swap(false, Ordering::Relaxed);
        if number == former && self.channel() >= 0 && !awaited {
            // Only the daemon knew it, and this process may belong to another user.
            sys::close(offers);
            self.announce_queue();
            return false;
        }
        if let Some(mut numbers) = self.former.lock() {
            numbers.push(former);
        }
        // What the former daemon has offered is in the channel still.
        while !awaited && matches!(self.receive_offer(), Received::Offer(_)) {}
        self.number.store(number, Ordering::Relaxed);
        self.end_channel();
        self.set_channel(offers);
        self.announce_queue();
        self.wake_ups.wake_all();
        true
    }
}

/// Announces all listeners of this process to another daemon.
pub fn announce_again() {
    if !limits::are_scarce() {
        announce(|_| true);
    }
}

/// Announces one that the daemon has refused.
pub(super) fn announce_one(wanted: &Listener) {
    if !limits::are_scarce() {
        announce(|listener| core::ptr::eq(listener, wanted));
    }
}

/// Before an exec: announces listeners again that have retired, so that their pending connections can be left to the
/// next image.
pub(super) fn announce_retired() {
    announce(|listener| listener.channel() < 0 && listener.pending.any());
}

fn announce(which: impl Fn(&Listener) -> bool) {
    table::for_each(|fd, word| {
        if word.kind() == Kind::Listener
            && let Some(socket) = socket::of_word(word)
            && let Some(listener) = socket.listener()
            && which(listener)
            && listener.announce_again(fd)
        {
            let number = listener.number();
            socket.entry.listener.store(number, Ordering::Relaxed);
        }
    });
}
