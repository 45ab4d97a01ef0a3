//! Connections whose acceptor was killed before its program had them. Over TCP such a connection belongs to the listener
//! still, and another process accepts it; here it lay on a link of the killed process. The client connects anew through
//! the kernel, and sends again what nobody has read.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{MOST_RING_LOG2, Role, side_flags};
use netchannel_abi::program::RELAY;
use netchannel_shm::split::{Direction, Transfer};

use super::{CARRY_ON, Lane, Progress};
use crate::descriptors::{confinement, gateway};
use crate::ground::sys;
use crate::sockets::socket::status;

/// What must not have happened to this side. Bytes that are held back are not sent again.
const ODD_STATUS: u32 = status::PENDING
    | status::REFUSED
    | status::DISSOLVED
    | status::FAULT
    | status::RESET
    | status::PEER_GONE
    | status::PUMPED
    | status::ANCHOR_SHUT
    | status::HOLDS;

impl Lane {
    /// Whether the other end, where its anchor is closed, has ended without accepting the connection or saying anything, and
    /// nobody but this process has this end. A program that ends in good order, or closes its listener, says so in its
    /// flags.
    #[cold]
    pub fn is_left_unaccepted(&self) -> bool {
        let socket = self.socket;
        self.link.role == Role::Client
            && self.link.listener != RELAY
            && self.peer_flags() & side_flags::SAID_BY_ACCEPTOR == 0
            && !socket.has(ODD_STATUS)
            && socket.entry.receive.own.load(Ordering::Relaxed) == 0
            && socket.is_unshared()
            && !socket.is_foreign()
            // In a tenant the kernel connects nothing, and after a filter the process must not ask it to.
            && !gateway::is_used()
            && !confinement::is_filtered()
    }

    /// All bytes that this side has sent, where the peer has read none of them. The caller holds the transmit lock.
    pub fn sent_bytes(&self) -> Option<Vec<u8>> {
        /// More than both rings hold that bytes nobody has read can lie in.
        const MOST: u64 = 1 << (MOST_RING_LOG2 + 1);
        let tail = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        // The peer's words may lie.
        if self.peer_head() != 0 || tail > MOST {
            return None;
        }
        let mut view = self.first_ring(self.link.role);
        let mut bytes = vec![0; usize::try_from(tail).ok()?];
        let mut head = 0;
        while head < tail {
            let in_ring @ 1.. = self.advance_in(self.link.role, &mut view, head, 0)? else {
                return None;
            };
            let length = in_ring.min(tail - head);
            let transfer = Transfer {
                region: &self.link.region,
                ring: view.ring.offset,
                size: view.ring.size(),
                sequence: head,
                buffer: bytes.as_mut_ptr().wrapping_add(usize::try_from(head).ok()?),
                length,
                direction: Direction::Out,
            };
            // SAFETY: the buffer has room for the bytes up to the tail.
            if unsafe { transfer.copy() } > 0 {
                return None;
            }
            head += length;
        }
        Some(bytes)
    }

    /// For a call that can not go on in the kernel: a connection that is left unaccepted is over.
    #[cold]
    pub fn give_up_unaccepted(&self) {
        if self.is_left_unaccepted() && sys::has_hung_up(self.fd) {
            self.note_end();
        }
    }

    /// Notes that the peer has ended, whatever it had sent.
    pub fn note_end(&self) {
        self.drop_held_of_dead();
        self.socket.mark(status::PEER_GONE);
    }

    /// Notes that the connection is to be made anew, if it can be. Until then it shows a peer that says nothing.
    #[cold]
    pub(super) fn may_connect_anew(&self) -> bool {
        self.is_left_unaccepted()
            && CARRY_ON
                .get()
                .is_some_and(|carry_on| carry_on(self) == Progress::Pending)
    }
}
