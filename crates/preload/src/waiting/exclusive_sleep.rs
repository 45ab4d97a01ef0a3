//! The sleep of a blocking accept whose listener several processes have: a connection wakes one of them
//! ([`crate::sockets::listener::WaitSet`]). A process that ends between its wake-up and its accept takes the wake-up with
//! it: the daemon, which notices the end, wakes another one.

use crate::descriptors::confinement;
use crate::ground::{cancel, clock, process};
use crate::sockets::listener::{self, Listener, place, sleeping};
use crate::waiting::signals::{self, BlockedSignals};
use crate::waiting::{housekeeping, wait};

/// Whether a blocking accept may sleep so: several processes accept from one queue, and nothing but the listener's own
/// descriptors brings connections. A signal that ends the call is led to the one thread there is.
pub fn is_possible(listener: &Listener) -> bool {
    let is_simple = || {
        !confinement::is_filtered()
            && !listener::has_server_links()
            && !housekeeping::any_deferred()
    };
    let signals = || !signals::any_interrupts() || process::is_single_threaded();
    listener.has_clients_queue() && is_simple() && signals()
}

/// Sleeps until a connection may be there, at least for this process; `held` blocks the signals that end the call. True
/// where the kernel's queue must be looked at. `None` where the caller has to sleep in another way.
///
/// # Errors
/// `EINTR` where such a signal is pending.
pub fn sleep(
    fd: i32,
    listener: &Listener,
    held: Option<&BlockedSignals>,
) -> Option<Result<bool, i32>> {
    let ending = held.map_or(0, BlockedSignals::ending);
    listener.wake_ups.begin_sleep();
    let set = listener.wait_set(fd, ending, || signals::descriptor_of(ending));
    let Some(set) = set else {
        listener.wake_ups.end_sleep();
        return None;
    };
    sleeping::begin_sleep();
    let end = || {
        sleeping::end_sleep(false);
        listener.wake_ups.end_sleep();
    };
    // The kernel tells at once of what is in the queues.
    let came = listener.has_announced() || housekeeping::are_due();
    let slept = if came {
        Ok(0)
    } else {
        let undo = || {
            set.abandon();
            end();
        };
        let began = clock::now();
        let slept = cancel::guarded(undo, || set.sleep());
        wait::learn(began);
        slept
    };
    end();
    Some(match slept {
        // A handler that restarts the call has run, or the process was stopped.
        Err(libc::EINTR) => Ok(false),
        // The listener was closed: the caller looks at what the number names.
        Err(libc::EBADF) => Ok(true),
        Err(error) => Err(error),
        Ok(places) => serve(listener, places),
    })
}

/// Takes what a sleep has reported, but the connections themselves.
fn serve(listener: &Listener, places: u32) -> Result<bool, i32> {
    let has = |place: usize| places & 1 << place != 0;
    if has(place::WAKE_UPS) {
        listener.wake_ups.take_one();
    }
    if has(place::CHANNEL) {
        listener.take_offers();
    }
    if has(place::KERNEL) {
        listener.note_kernel_report();
    }
    if has(place::SIGNALS) && BlockedSignals::is_any_pending() {
        return Err(libc::EINTR);
    }
    Ok(has(place::KERNEL))
}
