//! What a process held that has ended is let go of by those that go on, see [`crate::sockets::owner_table`].

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::program::{SocketEntry, State};

use crate::descriptors::attach::header;
use crate::ground::{lock, process, sys};
use crate::sockets::{foreign, listener, socket};

/// One reference less. False when that is for another process to say.
pub fn let_go(index: usize, process: u32) -> bool {
    let (Some(header), Some(entry)) = (header(), socket::own_entry(index)) else {
        return false;
    };
    // Zero where the last one was killed while it ended the connection, or before it had one.
    let counted = entry.references.load(Ordering::Acquire) > 0;
    if counted && entry.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return true;
    }
    if !say_end(entry, process) {
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

/// Nobody has the socket any more: its end stands in its slot, for the process that keeps the ledger. False when that is another one.
fn say_end(entry: &SocketEntry, ended: u32) -> bool {
    if entry.state.load(Ordering::Acquire) != State::Virtual as u32 {
        return true;
    }
    let role = Role::from_word(entry.role.load(Ordering::Relaxed).into());
    let number = entry.link.load(Ordering::Relaxed);
    let own = listener::own_link(role, |link| link.number == number);
    // Of a server's end that came through a queue nobody here keeps the ledger, and any process may say the end.
    let Some(link) = own.or_else(|| foreign::known_queued(role, number)) else {
        // Who made the socket keeps the ledger; without him there is none.
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
