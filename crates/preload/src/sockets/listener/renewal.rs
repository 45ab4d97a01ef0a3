//! Listeners and daemons that follow one another.

use core::sync::atomic::Ordering;

use super::{Listener, leaked};
use crate::descriptors::attach::daemon_is_gone;
use crate::descriptors::limits;
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;
use crate::sockets::socket;

impl Listener {
    /// The other end of the accept channel is closed: the channel must be closed, as it stays readable forever.
    pub(super) fn lose_channel(&self) {
        self.end_channel();
        // The daemon itself closes that of a listener that is being closed, or retires.
        if self.open.load(Ordering::Acquire) && !self.is_retiring.load(Ordering::Relaxed) {
            daemon_is_gone();
        }
    }

    pub(super) fn end_channel(&self) {
        let Some(channel) = self.offers() else { return };
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
        let Some((number, offers)) = Self::announce(fd, &self.address, self.cookie, backlog, true)
        else {
            return false;
        };
        let former = self.number();
        if number == former && self.channel() >= 0 {
            // Only the daemon knew it, and this process may belong to another user.
            sys::close(offers);
            self.announce_queue();
            return false;
        }
        if let Some(mut numbers) = self.former.lock() {
            numbers.push(former);
        }
        self.number.store(number, Ordering::Relaxed);
        self.end_channel();
        let Some(mut channel) = self.channel.lock() else {
            return false;
        };
        *channel = leaked(offers);
        let offers = channel.number();
        drop(channel);
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.add_channel(offers, 0));
        }
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
