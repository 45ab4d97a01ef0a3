//! A listener whose daemon has ended. In a tenant, where no connection comes then, its channel wakes who waits when another daemon comes.

use core::sync::atomic::Ordering;

use super::{Listener, daemon_renewal, renewal};
use crate::descriptors::attach::{self, daemon_is_gone};
use crate::descriptors::channel::Channel;
use crate::descriptors::{confinement, gateway, limits};
use crate::ground::sys;

/// Seconds after which a listener that was refused is announced again; each next pause is twice as long.
const FIRST_PAUSE: libc::time_t = 1;
const LAST_PAUSE: libc::time_t = 30;

impl Listener {
    /// The other end of the accept channel is closed: the channel must be closed, as it stays readable forever. Another
    /// thread may have found that before, and the listener have the next daemon's channel.
    pub(super) fn lose_channel(&self, lost: &'static Channel) {
        let is_present = self.offers().is_some_and(|now| core::ptr::eq(now, lost));
        self.end_one(lost);
        // The daemon itself closes that of a listener that is being closed, or retires.
        if is_present
            && self.open.load(Ordering::Acquire)
            && !self.is_retiring.load(Ordering::Relaxed)
        {
            daemon_is_gone();
            if gateway::is_used() {
                self.look_for_daemon();
            }
        }
    }

    /// Looks for another daemon. While there is none, the channel wakes who waits when one may have come.
    pub(super) fn look_for_daemon(&self) {
        // First, so that none comes unnoticed.
        let arrival = attach::arrival::descriptor();
        daemon_renewal::catch_up();
        let Some(arrival) = arrival else { return };
        let awaits = daemon_renewal::while_gone(|| {
            let is_open = self.open.load(Ordering::Acquire);
            if is_open {
                self.end_channel();
                self.awaits_daemon.store(true, Ordering::Relaxed);
                self.set_channel(arrival);
            }
            is_open
        });
        if !awaits {
            sys::close(arrival);
            self.try_again();
        }
    }

    /// Whether the daemon that serves has refused it.
    fn is_refused(&self) -> bool {
        let is_unknown = self.awaits_daemon.load(Ordering::Relaxed) || self.channel() < 0;
        is_unknown && self.open.load(Ordering::Acquire) && !self.is_retiring.load(Ordering::Relaxed)
    }

    /// Announces it again where a daemon serves that has refused it, and as long as that does, now and then: its channel wakes who waits.
    fn try_again(&self) {
        if !self.is_refused() || confinement::is_filtered() {
            return;
        }
        daemon_renewal::while_serving(|| renewal::announce_one(self));
        if !self.is_refused() {
            return self.refusals.store(0, Ordering::Relaxed);
        }
        let refusals = self.refusals.fetch_add(1, Ordering::Relaxed);
        let pause = FIRST_PAUSE
            .saturating_mul(1 << refusals.min(16))
            .min(LAST_PAUSE);
        let Ok(timer) = limits::for_library(|| sys::watching::seconds(pause)) else {
            return;
        };
        let kept = attach::duplicate(timer);
        sys::close(timer);
        if let Ok(kept) = kept {
            self.end_channel();
            self.awaits_daemon.store(true, Ordering::Relaxed);
            self.set_channel(kept);
        }
    }
}
