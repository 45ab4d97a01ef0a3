//! Releases the references of a process that has ended, on behalf of its relatives; see
//! [`crate::sockets::owner_table`].

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::program::{SocketEntry, State};

use crate::descriptors::attach::header;
use crate::ground::{lock, process, sys};
use crate::sockets::{foreign, listener, socket};

/// Releases one reference to an entry. False when another process must do it.
pub fn release_reference(index: usize, process: u32) -> bool {
    let (Some(header), Some(entry)) = (header(), socket::own_entry(index)) else {
        return false;
    };
    // Zero where the last holder was killed while it ended the connection, or before it had one.
    let counted = entry.references.load(Ordering::Acquire) > 0;
    if counted && entry.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return true;
    }
    if !publish_end(entry, process) {
        entry
            .references
            .fetch_add(u32::from(counted), Ordering::AcqRel);
        return false;
    }
    lock::release(&entry.transmit.lock);
    lock::release(&entry.receive.lock);
    socket::free_entry(header, index, entry);
    true
}

/// Publishes the end of a socket without holders in its slot, for the process that keeps the ledger. False when another
/// process must do it.
fn publish_end(entry: &SocketEntry, ended: u32) -> bool {
    if entry.state.load(Ordering::Acquire) != State::Virtual as u32 {
        return true;
    }
    let role = Role::from_word(entry.role.load(Ordering::Relaxed).into());
    let number = entry.link.load(Ordering::Relaxed);
    let own = listener::own_link(role, |link| link.number == number);
    // For a server's end that came through a queue no process here keeps the ledger, and any process may publish the
    // end.
    let Some(link) = own.or_else(|| foreign::known_queued(role, number)) else {
        // The process that made the socket keeps the ledger; without that process there is none.
        let maker = entry.process.load(Ordering::Relaxed);
        return maker == ended || maker == process::number() || !sys::exists(maker);
    };
    if let Some(slot) = link.slot(entry.slot.load(Ordering::Relaxed)) {
        let (own, _) = link.sides(slot);
        if own.generation.load(Ordering::Relaxed) == entry.generation.load(Ordering::Relaxed) {
            let end = side_flags::FIN | side_flags::CLOSED | side_flags::ANCHOR_GONE;
            own.waiter.store(0, Ordering::Release);
            // Release: as in `finish`.
            own.flags.fetch_or(end, Ordering::Release);
        }
    }
    true
}
