//! Connections whose acceptor was killed before its program had them. With TCP such a connection belongs to the listener
//! still, and another process accepts it. Here its bytes lie in a ring of the killed process: they are taken out of it, and
//! are sent again over the lane to the next acceptor, before all others.

use crate::lane::Lane;
use crate::spans::{Checked, length, spans};
use crate::urgent::Row;
use netchannel_abi::link::{Role, side_flags};
use netchannel_ring::urgent::PublishedMarks;
use netchannel_shm::Run;
use netchannel_shm::run::transfer;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all connections of this process that wait to be sent again. A connection beyond it is reset.
const MOST: usize = 64 * 1024 * 1024;

/// The bytes that wait now.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// What an acceptor that was killed before its accept has not done.
const DONE_BY_ACCEPTOR: u32 = side_flags::ACCEPTED
    | side_flags::FIN
    | side_flags::RESET
    | side_flags::CLOSED
    | side_flags::ANCHOR_SHUT;

/// Bytes that come again before those of a ring.
#[derive(Debug, Default)]
pub struct Returned {
    bytes: Vec<u8>,
    /// So many of them were sent.
    sent: usize,
}

impl Returned {
    /// `None` where so many bytes wait already that there is no memory for these.
    fn with_room(length: usize) -> Option<Self> {
        // Relaxed: the number guards nothing.
        let before = HELD.fetch_add(length, Ordering::Relaxed);
        let returned = Self {
            bytes: vec![
                0;
                if before.saturating_add(length) <= MOST {
                    length
                } else {
                    0
                }
            ],
            sent: 0,
        };
        if returned.bytes.len() == length {
            return Some(returned);
        }
        HELD.fetch_sub(length, Ordering::Relaxed);
        None
    }

    /// Those that were not sent yet.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Sends them. True once all are sent; until then the program tells when there is more room.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn send_to(&mut self, lane: &mut Lane) -> Checked<bool> {
        if self.bytes.is_empty() {
            return Ok(true);
        }
        self.send_up_to(usize::MAX, lane)
    }

    /// Sends at most so many of them. True once all are sent.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[cold]
    pub fn send_up_to(&mut self, most: usize, lane: &mut Lane) -> Checked<bool> {
        let to = self.sent.saturating_add(most).min(self.bytes.len());
        while let Some(rest @ [_, ..]) = self.bytes.get(self.sent..to) {
            let wanted = u64::try_from(rest.len()).unwrap_or(u64::MAX);
            let room = lane.room_or_news(wanted)?;
            if length(&room) == 0 {
                return Ok(false);
            }
            let moved = transfer(&[Run::from(rest)], &lane.rooms(room));
            self.sent = self.sent.saturating_add(moved);
            let moved = u64::try_from(moved).unwrap_or(0);
            let tail = lane.published().wrapping_add(moved);
            lane.publish_with_mark(tail, Row::default())?;
        }
        let all = to == self.bytes.len();
        if all {
            *self = Self::default();
        }
        Ok(all)
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Lane {
    /// (client) Whether the program ended without accepting the connection or saying anything. One that ends in good
    /// order says so in its flags.
    #[must_use]
    #[inline]
    pub fn is_left_unaccepted(&self) -> bool {
        self.has_hung_up()
            && self.link.role() == Role::Client
            && !self.to_module
            && self.nothing_was_done()
    }

    #[cold]
    fn nothing_was_done(&self) -> bool {
        self.peer_flags() & DONE_BY_ACCEPTOR == 0
            && self.peer_head() == Some(0)
            && self.frontier() == Ok(0)
            // The mark of an urgent byte is not announced again.
            && self.announced == PublishedMarks::default()
    }

    /// All bytes that were sent over a lane that [is left](Self::is_left_unaccepted), with those that came `again` and
    /// were not sent over it. `None` where they are too many, or lie where they can not be read.
    #[must_use]
    pub fn sent_bytes(&self, again: &Returned) -> Option<Returned> {
        let tail = self.published();
        let sent = usize::try_from(tail).ok()?;
        let mut all = Returned::with_room(sent.checked_add(again.rest().len())?)?;
        let (former, rest) = all.bytes.split_at_mut(sent);
        rest.copy_from_slice(again.rest());

        let mut from = 0;
        for (ring, to) in self.sent_in()? {
            let runs = self.runs(spans(ring, from, to - from).ok()?);
            let place = former.get_mut(usize::try_from(from).ok()?..usize::try_from(to).ok()?)?;
            let wanted = place.len();
            if transfer(&runs, &[place.into()]) != wanted {
                return None;
            }
            from = to;
        }
        Some(all)
    }

    /// These bytes come before those of the program's ring.
    pub fn give_back(&mut self, bytes: Returned) {
        self.returned = bytes;
    }

    /// Bytes that come before those of the program's ring.
    #[must_use]
    #[inline]
    pub const fn returned(&self) -> &Returned {
        &self.returned
    }

    /// The same, to be sent.
    pub const fn returned_mut(&mut self) -> &mut Returned {
        &mut self.returned
    }

    /// Whether the program was told that it is connected.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.own_flags() & side_flags::ESTABLISHED != 0
    }
}
