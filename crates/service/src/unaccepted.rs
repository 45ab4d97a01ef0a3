//! Connections whose acceptor was killed before its program had them. With TCP such a connection belongs to the listener
//! still, and another process accepts it. Here its bytes lie in a ring of the killed process: they are taken out of it, and
//! are sent again over the lane to the next acceptor, before all others.

use crate::lane::Lane;
use crate::returned::Returned;
use crate::spans::{Checked, length, spans};
use crate::urgent::Row;
use netchannel_abi::link::{Role, side_flags};
use netchannel_ring::urgent::PublishedMarks;
use netchannel_shm::Run;
use netchannel_shm::run::transfer;

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
        self.peer_flags() & side_flags::SAID_BY_ACCEPTOR == 0
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
        let (former, rest) = all.bytes_mut().split_at_mut(sent);
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

    /// Sends bytes again. True once all are sent; until then the program tells when there is more room.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn send_again(&mut self, bytes: &mut Returned) -> Checked<bool> {
        if bytes.rest().is_empty() {
            return Ok(true);
        }
        self.send_some_again(bytes, usize::MAX)
    }

    /// The same, with at most so many bytes at once. True once these are sent.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[cold]
    pub fn send_some_again(&mut self, bytes: &mut Returned, most: usize) -> Checked<bool> {
        let mut left = most.min(bytes.rest().len());
        while left > 0 {
            let rest = bytes.rest().get(..left).unwrap_or_default();
            let wanted = u64::try_from(left).unwrap_or(u64::MAX);
            let room = self.room_or_news(wanted)?;
            if length(&room) == 0 {
                return Ok(false);
            }
            let moved = transfer(&[Run::from(rest)], &self.rooms(room));
            bytes.note_sent(moved);
            left = left.saturating_sub(moved);
            let moved = u64::try_from(moved).unwrap_or(0);
            let tail = self.published().wrapping_add(moved);
            self.publish_with_mark(tail, Row::default())?;
        }
        Ok(true)
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
