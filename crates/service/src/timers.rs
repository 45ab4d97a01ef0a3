//! The timers of sockets: at most one time for each, so that connections that come and go leave nothing behind.

use std::collections::BTreeSet;
use std::time::Duration;

/// No timer is set.
pub const NEVER: u64 = u64::MAX;

/// A time in nanoseconds, as timers are set; one that is too long is [`NEVER`].
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

/// The timers of a worker's sockets, by socket number.
#[derive(Debug, Default)]
pub struct Timers {
    queue: BTreeSet<(u64, u32)>,
    /// The time of each number, or [`NEVER`].
    times: Vec<u64>,
}

impl Timers {
    /// Sets the time of socket `number`, in the place of its former one.
    pub fn set(&mut self, number: u32, at: u64) {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if at != NEVER && self.times.len() <= index {
            self.times.resize(index + 1, NEVER);
        }
        let Some(time) = self.times.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(time, at);
        if before == at {
            return;
        }
        if before != NEVER {
            self.queue.remove(&(before, number));
        }
        if at != NEVER {
            self.queue.insert((at, number));
        }
    }

    /// The time of the next timer.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A socket whose time has come.
    pub fn take(&mut self, now: u64) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        let (_, number) = *self.queue.first()?;
        self.set(number, NEVER);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_come_in_the_order_of_their_times() {
        let mut timers = Timers::default();
        timers.set(7, 30);
        timers.set(1, 10);
        timers.set(4, 20);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.take(9), None);
        assert_eq!((timers.take(20), timers.take(20)), (Some(1), Some(4)));
        assert_eq!((timers.take(20), timers.next()), (None, Some(30)));
    }

    #[test]
    fn the_last_word_of_a_socket_counts() {
        let mut timers = Timers::default();
        timers.set(3, 100);
        timers.set(3, 50);
        assert_eq!((timers.take(60), timers.take(200)), (Some(3), None));
        timers.set(3, 70);
        timers.set(3, NEVER);
        assert_eq!(timers.take(200), None);
    }

    #[test]
    fn sockets_that_come_and_go_leave_nothing() {
        let mut timers = Timers::default();
        for at in 0..100_000 {
            // The connect would time out much later; a Window frame is due soon; then the connection is over.
            timers.set(5, 1_000_000 + at);
            timers.set(5, at);
            timers.set(5, at);
            timers.set(5, NEVER);
        }
        assert_eq!((timers.queue.len(), timers.times.len()), (0, 6));
    }
}
