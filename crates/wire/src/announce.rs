//! Serials of announcements: which are news, and which come too late.
//!
//! ADDRESSES, LISTEN, UNLISTEN and LISTEN_END of a host share one count, which goes up by one with
//! each that it says and begins again with its epoch. They travel on one channel at a time; when that is lost
//! or retired, the whole list is said again on another. So a receiver needs no memory of what is
//! gone: whatever has a serial that is not greater than all before came late, on a former channel.

use crate::frame::ListenEnd;

/// The serials that a host gives to what it announces to one peer.
#[derive(Clone, Debug, Default)]
pub struct Announcer {
    last: u64,
    first_of_list: u64,
}

impl Announcer {
    /// For a peer that has heard nothing in this epoch.
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

    /// All that is announced from here to [`Announcer::end_list`] is a list of everything.
    pub const fn begin_list(&mut self) {
        self.first_of_list = self.last.wrapping_add(1);
    }

    /// The end of the list, to be sent behind it.
    pub const fn end_list(&mut self) -> ListenEnd {
        ListenEnd {
            serial: self.next_serial(),
            first: self.first_of_list,
        }
    }
}

/// What one peer has announced so far in its epoch.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    last: u64,
}

impl Heard {
    /// For a peer of which nothing was heard in this epoch.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// Whether an announcement is to be taken; otherwise it is late or doubled, and is ignored.
    /// After a LISTEN_END that is taken, every listener whose own serial is less than its `first`
    /// is gone.
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

    /// Two channels: what was on the first arrives only after the list was said on the second.
    #[test]
    fn what_comes_late_changes_nothing() {
        let mut announcer = Announcer::new();
        let listen = announcer.next_serial();
        let unlisten = announcer.next_serial();
        announcer.begin_list();
        let other = announcer.next_serial();
        let end = announcer.end_list();
        assert_eq!((end.first, end.serial), (other, other + 1));

        let mut heard = Heard::new();
        let mut listeners = BTreeMap::from([(7, listen)]);
        assert!(heard.is_news(listen));
        assert!(heard.is_news(other));
        listeners.insert(8, other);
        assert!(heard.is_news(end.serial));
        listeners.retain(|_, serial| *serial >= end.first);
        assert_eq!(listeners.into_keys().collect::<Vec<_>>(), [8]);
        for late in [listen, unlisten, other, end.serial] {
            assert!(!heard.is_news(late));
        }
    }
}
