//! A listener whose daemon has ended. In a tenant, where no connection comes then, its channel wakes who waits when another daemon comes.

use core::sync::atomic::Ordering;

use super::{Listener, daemon_renewal};
use crate::descriptors::attach::{self, daemon_is_gone};
use crate::descriptors::gateway;
use crate::ground::sys;

impl Listener {
    /// The other end of the accept channel is closed: the channel must be closed, as it stays readable forever.
    pub(super) fn lose_channel(&self) {
        self.end_channel();
        // The daemon itself closes that of a listener that is being closed, or retires.
        if self.open.load(Ordering::Acquire) && !self.is_retiring.load(Ordering::Relaxed) {
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
        }
    }
}
