//! Serials of announcements: they tell new announcements from late ones.
//!
//! ADDRESSES, LISTEN, UNLISTEN and LISTEN_END of a host share one count, which increases by one with each announcement
//! and starts again with the epoch. They use one channel at a time. When that channel is lost or retired, the whole
//! list is sent again on another. So a receiver needs no memory of closed listeners: an announcement whose serial is
//! not greater than all before is late, from a former channel.

use crate::frame::ListenEnd;

/// The serials of a host's announcements to one peer.
#[derive(Clone, Debug, Default)]
pub struct Announcer {
    last: u64,
    first_of_list: u64,
}

impl Announcer {
    /// For a peer without announcements in this epoch.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: 0,
            first_of_list: 0,
        }
    }

    /// The serial of the next announcement; the first is 1.
    pub const fn next_serial(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// Begins a list of everything, which ends with [`Announcer::end_list`].
    pub const fn begin_list(&mut self) {
        self.first_of_list = self.last.wrapping_add(1);
    }

    /// The end of the list, to be sent after it.
    pub const fn end_list(&mut self) -> ListenEnd {
        ListenEnd {
            serial: self.next_serial(),
            first: self.first_of_list,
        }
    }
}

/// The announcements of one peer so far in its epoch.
#[derive(Clone, Debug, Default)]
pub struct ReceivedSerials {
    last: u64,
}

impl ReceivedSerials {
    /// For a peer from which nothing was received in this epoch.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// Whether an announcement is new. Otherwise it is late or repeated, and ignored. After a new LISTEN_END, every
    /// listener whose own serial is less than its `first` is closed.
    #[must_use]
    pub const fn is_news(&mut self, serial: u64) -> bool {
        if serial <= self.last {
            return false;
        }
        self.last = serial;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Two channels: the announcements on the first arrive only after the list was sent on the second.
    #[test]
    fn what_comes_late_changes_nothing() {
        let mut announcer = Announcer::new();
        let listen = announcer.next_serial();
        let unlisten = announcer.next_serial();
        announcer.begin_list();
        let other = announcer.next_serial();
        let end = announcer.end_list();
        assert_eq!((end.first, end.serial), (other, other + 1));

        let mut received = ReceivedSerials::new();
        let mut listeners = BTreeMap::from([(7, listen)]);
        assert!(received.is_news(listen));
        assert!(received.is_news(other));
        listeners.insert(8, other);
        assert!(received.is_news(end.serial));
        listeners.retain(|_, serial| *serial >= end.first);
        assert_eq!(listeners.into_keys().collect::<Vec<_>>(), [8]);
        for late in [listen, unlisten, other, end.serial] {
            assert!(!received.is_news(late));
        }
    }
}
