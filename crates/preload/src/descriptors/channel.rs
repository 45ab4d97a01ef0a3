//! A descriptor of the library that one thread may close while another is about to use it. It is closed after the last
//! use: afterwards the number may name another file.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::descriptors::attach;

/// A channel to another process, until [`Self::end`].
pub struct Channel {
    descriptor: AtomicI32,
    /// Uses under way, [`Self::end`] included.
    uses: AtomicUsize,
    ended: AtomicBool,
}

impl Channel {
    /// Takes ownership of `descriptor`; -1 for none.
    pub fn new(descriptor: i32) -> Self {
        Self {
            descriptor: AtomicI32::new(attach::make_internal(descriptor)),
            uses: AtomicUsize::new(0),
            ended: AtomicBool::new(descriptor < 0),
        }
    }

    /// The number, for comparison only; -1 after the end.
    pub fn number(&self) -> i32 {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// Calls `with` with the descriptor, which stays open meanwhile. `None` after the end.
    pub fn with<R>(&self, with: impl FnOnce(i32) -> R) -> Option<R> {
        // AcqRel, both: in the order of the changes of `uses`, this use comes either before the last decrement of
        // `end`, which then leaves the closing to this use, or after it, and then this use sees `ended`.
        self.uses.fetch_add(1, Ordering::AcqRel);
        let result = (!self.ended.load(Ordering::Acquire)).then(|| with(self.number()));
        self.leave();
        result
    }

    /// Ends the channel: closes the descriptor, now or after the last use that is under way.
    pub fn end(&self) {
        self.uses.fetch_add(1, Ordering::AcqRel);
        self.ended.store(true, Ordering::Release);
        self.leave();
    }

    /// Ends a use whose thread was cancelled in it, or one of this module's own.
    pub fn leave(&self) {
        if self.uses.fetch_sub(1, Ordering::AcqRel) == 1 && self.ended.load(Ordering::Acquire) {
            attach::close_internal(self.descriptor.swap(-1, Ordering::AcqRel));
        }
    }

    /// In a forked child, where the uses of other threads do not exist: closes the child's copy, which the parent goes
    /// on using.
    pub fn end_in_child(&self) {
        self.uses.store(0, Ordering::Release);
        self.end();
    }

    /// In a forked child that goes on using the channel.
    pub fn reset_in_child(&self) {
        self.uses.store(0, Ordering::Release);
    }

    /// Notes that a descriptor of the library has a new number.
    pub fn relocate(&self, from: i32, to: i32) {
        let (order, word) = (Ordering::Relaxed, &self.descriptor);
        let _ = word.compare_exchange(from, to, order, order);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::Channel;
    use crate::ground::sys;

    /// Which numbers are free concerns all of these tests.
    static NUMBERS: Mutex<()> = Mutex::new(());

    fn pair() -> (Channel, i32) {
        let (one, other) = sys::socket_pair(libc::SOCK_SEQPACKET).unwrap();
        (Channel::new(one), other)
    }

    fn is_open(fd: i32) -> bool {
        sys::fcntl(fd, libc::F_GETFD, 0).is_ok()
    }

    #[test]
    fn an_end_waits_for_who_uses_it() {
        let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (channel, other) = pair();
        let number = channel.number();
        let sent = channel.with(|fd| {
            channel.end();
            assert!(is_open(fd), "the use is not over");
            sys::send(fd, &[7], 0)
        });
        assert_eq!(sent, Some(Ok(1)));
        assert!(!is_open(number));
        assert_eq!(channel.number(), -1);
        sys::close(other);
    }

    #[test]
    fn what_has_the_number_next_is_left_alone() {
        let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, other) = pair();
        let number = first.number();
        first.end();
        first.end();
        sys::close(other);
        let (second, other) = pair();
        assert_eq!(second.number(), number, "the lowest number is given again");
        first.end();
        assert_eq!(first.with(|fd| fd), None);
        assert_eq!(second.with(|fd| fd), Some(number));
        second.end();
        sys::close(other);
    }

    #[test]
    fn a_number_is_closed_once_whoever_ends_and_uses_it() {
        let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..200 {
            let (channel, other) = pair();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Some(sent) =
                            channel.with(|fd| sys::send(fd, &[1], libc::MSG_DONTWAIT))
                        {
                            assert!(matches!(sent, Ok(1) | Err(libc::EAGAIN)), "{sent:?}");
                        }
                    });
                }
                scope.spawn(|| channel.end());
            });
            assert_eq!(channel.number(), -1);
            sys::close(other);
        }
    }
}
