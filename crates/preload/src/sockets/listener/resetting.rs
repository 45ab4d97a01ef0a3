//! A connection that no process will accept ends with a reset.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Role, side_flags};

use super::Pending;
use crate::descriptors::attach;

/// Resets a connection that no process will accept.
pub fn reset(pending: &Pending) {
    let Some(slot) = pending.link.slot(pending.loan.handle.index) else {
        return;
    };
    let flags = side_flags::FIN | side_flags::CLOSED | side_flags::RESET;
    let ring = pending
        .link
        .layout
        .small_ring(Role::Server, pending.loan.handle.index as usize);
    // The peer is notified before the slot is given up: afterwards the slot may carry the next connection.
    slot.server.flags.fetch_or(flags, Ordering::AcqRel);
    if let Some(wake) = netchannel_ring::waiter::announce_data(&slot.client.waiter)
        && let Some(index) = wake.cell
        && let Some(cell) = pending.link.cell(Role::Client, index)
    {
        let slot = pending.loan.handle.index as usize;
        netchannel_ring::cell::mark(&cell.asleep, &cell.summary, &cell.ready, slot);
    }
    pending
        .link
        .finish(slot, pending.loan.handle, flags, None, [ring; 2]);
    // The closing of the anchor wakes sleepers.
    attach::close_internal(pending.loan.anchor);
    pending.link.remove_user();
}
