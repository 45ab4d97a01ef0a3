//! Descriptors that the daemon has sent and no process has received yet.
//!
//! The kernel lets a user have as many descriptors in flight as one of its processes may open, and charges all that
//! this daemon sends to the daemon's user. A program that does not read its answers would use up the limit for all
//! programs. So unread descriptors are charged to the user of the receiver.

use crate::limits::FIRST_ANCHORS;
use crate::quota::{Amounts, Kind, Quotas, Ticket};
use netchannel_abi::message::Message;
use netchannel_service::packet;
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The most descriptors of one answer: the memory, channel and anchors of a new link.
const LARGEST_ANSWER: usize = 2 + FIRST_ANCHORS;
/// Channels of a user that are examined for each new message: more than one, so that the list of read messages shrinks.
const EXAMINED: usize = 2;
/// Channels that are examined where the user has reached the bound.
const EXAMINED_AT_THE_BOUND: usize = 64;

/// Channels of each user that are examined in every [`PERIOD`].
const EXAMINED_IN_A_PERIOD: usize = 256;
const PERIOD: Duration = Duration::from_secs(1);

/// The messages on one socket that may be unread. The socket is kept open until they were read, since a closed socket
/// does not show that.
#[derive(Debug)]
struct Channel {
    socket: Rc<OwnedFd>,
    /// Oldest first, which is also the order in which they are read: the bytes of each in the socket, and its charge.
    sent: VecDeque<(usize, Ticket)>,
}

impl Channel {
    /// Forgets the messages that were read: as many of the oldest as leave the bytes that are unread.
    fn forget_read(&mut self) {
        let unread = packet::unread(&self.socket);
        let mut bytes: usize = self.sent.iter().map(|(bytes, _)| bytes).sum();
        while let Some((of_oldest, _)) = self.sent.front() {
            bytes -= of_oldest;
            if bytes < unread {
                return;
            }
            self.sent.pop_front();
        }
    }
}

/// The channels of one user.
#[derive(Debug, Default)]
struct Receiver {
    channels: BTreeMap<RawFd, Channel>,
    /// Where the next examination begins.
    next: RawFd,
}

impl Receiver {
    /// Forgets what was read on up to `most` channels, on each in turn.
    fn forget_read(&mut self, most: usize) {
        for _ in 0..most.min(self.channels.len()) {
            let after = self.channels.range(self.next..).next();
            let Some((&at, _)) = after.or_else(|| self.channels.iter().next()) else {
                return;
            };
            self.next = at.saturating_add(1);
            if let Entry::Occupied(mut channel) = self.channels.entry(at) {
                channel.get_mut().forget_read();
                if channel.get().sent.is_empty() {
                    channel.remove();
                }
            }
        }
    }
}

/// The unread messages by the user of the receiver.
#[derive(Debug)]
pub struct InFlight {
    quotas: Quotas,
    by_user: BTreeMap<u32, Receiver>,
    /// When the channels of users are examined to whom no more is sent.
    due: Option<Instant>,
}

impl InFlight {
    /// No messages.
    #[must_use]
    pub const fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            by_user: BTreeMap::new(),
            due: None,
        }
    }

    /// Whether an answer with descriptors may be sent to `user`. This is checked before a request is executed.
    ///
    /// # Errors
    /// `NOBUFS` where the user has too many unread.
    pub fn admit(&mut self, user: u32) -> Result<(), Errno> {
        self.charge(user, LARGEST_ANSWER).map(drop)
    }

    /// Sends a message to a program of `user`.
    ///
    /// # Errors
    /// `NOBUFS` where the user has too many unread, and the errors of [`packet::send`].
    pub fn send(
        &mut self,
        socket: &Rc<OwnedFd>,
        user: u32,
        message: &Message,
        descriptors: &[Rc<OwnedFd>],
    ) -> Result<(), Errno> {
        if descriptors.is_empty() {
            return packet::send(socket, message, descriptors);
        }
        self.forget_read(user, EXAMINED);
        let ticket = self.charge(user, descriptors.len())?;
        let before = packet::unread(socket);
        packet::send(socket, message, descriptors)?;
        // Less where the receiver reads just now. Then the message counts until all was read.
        let bytes = packet::unread(socket).saturating_sub(before);
        let receiver = self.by_user.entry(user).or_default();
        let channel = receiver
            .channels
            .entry(socket.as_raw_fd())
            .or_insert_with(|| Channel {
                socket: Rc::clone(socket),
                sent: VecDeque::new(),
            });
        channel.sent.push_back((bytes, ticket));
        Ok(())
    }

    /// Forgets messages that were read, once per [`PERIOD`]. Returns the time of the next call.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        if self.by_user.is_empty() {
            self.due = None;
            return None;
        }
        let due = *self.due.get_or_insert(now + PERIOD);
        if due <= now {
            let users: Vec<u32> = self.by_user.keys().copied().collect();
            for user in users {
                self.forget_read(user, EXAMINED_IN_A_PERIOD);
            }
            self.due = (!self.by_user.is_empty()).then(|| now + PERIOD);
        }
        self.due
    }

    /// Charges descriptors in flight, and one descriptor for the socket that may have to be kept.
    fn charge(&mut self, user: u32, descriptors: usize) -> Result<Ticket, Errno> {
        let amounts = Amounts::of(Kind::InFlight, descriptors).and(Kind::Descriptors, 1);
        self.quotas.charge(user, amounts).or_else(|_| {
            self.forget_read(user, EXAMINED_AT_THE_BOUND);
            self.quotas.charge(user, amounts)
        })
    }

    /// Examines channels of a user, and forgets the messages that were read.
    fn forget_read(&mut self, user: u32, most: usize) {
        let Some(receiver) = self.by_user.get_mut(&user) else {
            return;
        };
        receiver.forget_read(most);
        if receiver.channels.is_empty() {
            self.by_user.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Bounds;
    use netchannel_abi::message::Operation;
    use rustix::net::SocketType;

    const USER: u32 = 1000;

    fn in_flight(each: usize) -> (InFlight, Quotas) {
        let amounts =
            |in_flight| Amounts::of(Kind::InFlight, in_flight).and(Kind::Descriptors, 1000);
        let quotas = Quotas::new(Bounds {
            each: amounts(each),
            all: amounts(10 * each),
            shared: true,
        });
        (InFlight::new(quotas.clone()), quotas)
    }

    fn pair() -> (Rc<OwnedFd>, OwnedFd) {
        let (ours, theirs) = packet::owned_pair(SocketType::SEQPACKET).unwrap();
        (Rc::new(ours), theirs)
    }

    fn sent(in_flight: &mut InFlight, socket: &Rc<OwnedFd>, count: usize) -> Result<(), Errno> {
        let message = Message::new(Operation::Connect, 1, [0; 14]);
        in_flight.send(socket, USER, &message, &vec![Rc::clone(socket); count])
    }

    fn read(socket: &OwnedFd) {
        assert!(matches!(
            packet::receive(socket),
            packet::Received::Message { .. }
        ));
    }

    #[test]
    fn who_reads_is_sent_more_for_ever() {
        let (mut in_flight, quotas) = in_flight(LARGEST_ANSWER);
        let (ours, theirs) = pair();
        for _ in 0..1000 {
            in_flight.admit(USER).unwrap();
            sent(&mut in_flight, &ours, LARGEST_ANSWER).unwrap();
            read(&theirs);
        }
        assert!(quotas.use_of(USER, Kind::InFlight) <= LARGEST_ANSWER);
    }

    #[test]
    fn who_does_not_read_is_sent_no_more_until_he_does() {
        let (mut in_flight, _) = in_flight(2 * LARGEST_ANSWER);
        let ((ours, theirs), (other, others)) = (pair(), pair());
        sent(&mut in_flight, &ours, LARGEST_ANSWER).unwrap();
        sent(&mut in_flight, &other, LARGEST_ANSWER).unwrap();
        assert_eq!(in_flight.admit(USER), Err(Errno::NOBUFS));
        assert_eq!(sent(&mut in_flight, &ours, 1), Err(Errno::NOBUFS));
        assert_eq!(
            sent(&mut in_flight, &ours, 0),
            Ok(()),
            "without descriptors"
        );
        assert_eq!(in_flight.admit(USER + 1), Ok(()), "another user");
        read(&others);
        assert_eq!(in_flight.admit(USER), Ok(()));
        drop(theirs);
        sent(&mut in_flight, &other, LARGEST_ANSWER).unwrap();
        assert_eq!(in_flight.admit(USER), Ok(()), "whose end is closed");
    }

    #[test]
    fn what_was_read_of_a_channel_that_is_never_empty_counts_no_more() {
        let (mut in_flight, quotas) = in_flight(4 * LARGEST_ANSWER);
        let (ours, theirs) = pair();
        sent(&mut in_flight, &ours, LARGEST_ANSWER).unwrap();
        for _ in 0..1000 {
            sent(&mut in_flight, &ours, LARGEST_ANSWER).unwrap();
            read(&theirs);
        }
        let counted = quotas.use_of(USER, Kind::InFlight);
        assert!((1..=2).contains(&(counted / LARGEST_ANSWER)), "{counted}");
        read(&theirs);
        in_flight.admit(USER).unwrap();
        in_flight.forget_read(USER, EXAMINED);
        assert_eq!(quotas.use_of(USER, Kind::InFlight), 0);
    }

    #[test]
    fn what_a_detached_program_has_not_read_counts_until_it_does() {
        let (mut in_flight, quotas) = in_flight(LARGEST_ANSWER);
        let (ours, theirs) = pair();
        sent(&mut in_flight, &ours, LARGEST_ANSWER).unwrap();
        rustix::net::shutdown(&*ours, rustix::net::Shutdown::Both).unwrap();
        drop(ours);
        assert_eq!(in_flight.admit(USER), Err(Errno::NOBUFS));
        drop(theirs);
        let now = Instant::now();
        let due = in_flight.expire(now).unwrap();
        assert_eq!(quotas.use_of(USER, Kind::InFlight), LARGEST_ANSWER);
        assert_eq!(in_flight.expire(due), None);
        assert!(quotas.users().is_empty());
    }
}
