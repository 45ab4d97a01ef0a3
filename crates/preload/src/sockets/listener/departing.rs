//! Links at which this process looks no more, or which it leaves: what is announced on them, or still on its way, is not
//! to wait there.

use core::sync::atomic::{Ordering, fence};

use super::links::{LEAVING, REGISTRY, mark_awake, poll_jobs, server_links};
use super::wake_ups;
use crate::sockets::link::LinkEnd;

/// Publishes that no loop of this process looks at the links, and takes what was announced before. Links over which a
/// connection is on its way are left.
pub fn stop_looking() {
    mark_awake();
    // Pairs with the fence in `announce`: a client sees that nobody looks, or its connection is seen here.
    fence(Ordering::SeqCst);
    poll_jobs();
    if !wake_ups::anybody_sleeps() {
        leave_expecting();
    }
}

/// Whether a connection is on its way over the link.
pub(super) fn expects(link: &LinkEnd) -> bool {
    link.expecting.load(Ordering::Relaxed) && link.is_alive()
}

/// Leaves the links over which a connection is on its way, whose client is slow: it goes elsewhere. Here it might wait
/// for ever, as where this process waits for a lock that another acceptor has.
pub(super) fn leave_expecting() {
    if any_expects() {
        clear_links(expects);
    }
}

/// Whether a connection is on its way over a link of this process.
pub(super) fn any_expects() -> bool {
    let registry = REGISTRY.lock();
    registry.is_some_and(|registry| registry.servers.iter().any(|link| expects(link)))
}

/// How many times a client makes this process look again before it leaves: hostile ones ask without end.
const MOST_LOOKS: u32 = 64;

/// Ends the announcements on some links. Connections that were announced are those of their listeners.
pub(super) fn clear_links(which: impl Fn(&LinkEnd) -> bool) {
    let _leaving = LEAVING.lock();
    let mut links = server_links();
    links.retain(|link| link.is_alive() && !link.has_left() && which(link));
    for link in &links {
        link.read_channel();
        link.begin_leaving();
    }
    for look in 1..=MOST_LOOKS {
        poll_jobs();
        links.retain(|link| !link.finish_leaving(look == MOST_LOOKS));
        if links.is_empty() {
            break;
        }
    }
}
