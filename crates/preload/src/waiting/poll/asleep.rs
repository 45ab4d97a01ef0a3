//! What a call announces before it sleeps, takes back after it, and takes of what came meanwhile.

use core::sync::atomic::Ordering;

use libc::{POLLIN, pollfd};
use netchannel_abi::link::waiter as bits;

use super::watches::Watch;
use crate::descriptors::attach;
use crate::sockets::listener::{self, sleeping, wake_ups};
use crate::sockets::placeholder;
use crate::sockets::socket::{self, Socket};
use crate::waiting::epoll::SleepingSets;
use crate::waiting::holds::{hold, release};
use crate::waiting::replacement;

/// The descriptors on which virtual connections are announced, for entries that ask for them: to other entries a
/// waiting connection would be reported again and again.
pub(super) fn wake_descriptors(set: &[pollfd], watches: &[Watch]) -> Vec<i32> {
    let mut list = Vec::new();
    let asks = |entry: &pollfd| entry.events & (POLLIN | libc::POLLRDNORM) != 0;
    for (_, watch) in set.iter().zip(watches).filter(|(entry, _)| asks(entry)) {
        if let Watch::Listener(socket, _) = watch
            && let Some(listener) = socket.listener()
        {
            list.extend(listener.wake_descriptors());
            list.push(listener.wake_ups.fd());
        }
    }
    for watch in watches {
        if let Watch::Set(set) = watch {
            list.extend(set.detached_inner());
        }
    }
    list.retain(|fd| *fd >= 0);
    list.sort_unstable();
    list.dedup();
    list
}

/// What is taken back after a sleep.
#[derive(Default)]
pub(super) struct Asleep {
    sets: Vec<SleepingSets>,
    /// Duplicates of deferred connections. Who announces one puts another file under its number: the sleep would end at
    /// neither file's news, since the kernel looks by number when it is woken.
    pub deferred: Vec<i32>,
}

pub(super) fn arm(set: &[pollfd], watches: &[Watch]) -> Asleep {
    let (mut listeners, mut lanes) = (false, false);
    let mut asleep = Asleep::default();
    for (entry, watch) in set.iter().zip(watches) {
        match watch {
            Watch::Lane(lane) => {
                lanes = true;
                hold(&lane.socket);
                let out = entry.events & (libc::POLLOUT | libc::POLLWRNORM) != 0;
                lane.begin_poll_sleep(if out {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
            Watch::Listener(socket, _) => {
                listeners = true;
                hold(socket);
                if let Some(listener) = socket.listener() {
                    listener.wake_ups.begin_sleep();
                }
            }
            Watch::Set(set) => asleep.sets.push(set.announce_sleep()),
            Watch::Deferred => {
                let deferred = socket::of(entry.fd);
                deferred.inspect(placeholder::end_with_connection);
                asleep.deferred.extend(attach::duplicate(entry.fd));
            }
            Watch::Kernel => {}
        }
    }
    if listeners {
        if lanes {
            wake_ups::note_serving();
        }
        sleeping::begin_sleep();
    }
    asleep
}

pub(super) fn disarm(watches: &[Watch], asleep: &mut Asleep, loops: bool, kept: &mut Vec<Socket>) {
    let mut listeners = false;
    let replaced = replacement::is_under_way();
    for watch in watches {
        match watch {
            Watch::Lane(lane) => {
                if replaced {
                    // Before the count is changed that the replacement waits for.
                    kept.push(lane.socket);
                }
                lane.end_poll_sleep(bits::DATA | bits::SPACE);
                if !replaced {
                    release(&lane.socket);
                }
            }
            Watch::Listener(socket, _) => {
                listeners = true;
                if let Some(listener) = socket.listener() {
                    listener.wake_ups.end_sleep();
                }
                if socket.local.orphan.load(Ordering::Acquire) > 0 {
                    // Until the call returns: it may have been woken by a message of the daemon, without a connection
                    // yet.
                    kept.push(*socket);
                } else {
                    release(socket);
                }
            }
            Watch::Set(_) | Watch::Deferred | Watch::Kernel => {}
        }
    }
    let Asleep { sets, deferred } = core::mem::take(asleep);
    sets.into_iter().for_each(SleepingSets::wake);
    deferred.into_iter().for_each(attach::close_internal);
    if listeners {
        sleeping::end_sleep(loops);
    }
}

/// Takes tokens, doorbells and offers after a sleep.
pub(super) fn serve(watches: &[Watch], kernel: &[pollfd]) {
    for (watch, seen) in watches.iter().zip(kernel) {
        if let Watch::Lane(lane) = watch
            && seen.revents != 0
            && lane.socket.is(lane.fd)
        {
            lane.take_tokens(None);
        }
    }
    let is_ready = |entry: &&pollfd| entry.revents != 0;
    let ready = kernel.iter().skip(watches.len()).filter(is_ready);
    let mut links = ready.clone().count();
    for watch in watches {
        if let Watch::Listener(socket, _) = watch
            && let Some(listener) = socket.listener()
        {
            let told = |fd: i32| ready.clone().filter(|entry| entry.fd == fd).count();
            let (wake_ups, offers) = (told(listener.wake_ups.fd()), told(listener.channel()));
            let queued: usize = listener.queues().into_iter().map(told).sum();
            if wake_ups > 0 {
                listener.wake_ups.take_one();
            }
            if offers > 0 {
                listener.take_offers();
            }
            links = links.saturating_sub(wake_ups + offers + queued);
        }
    }
    if links > 0 {
        listener::read_channels();
    }
}
