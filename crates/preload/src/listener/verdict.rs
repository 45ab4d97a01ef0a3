//! What is known of a client that `TCP_DEFER_ACCEPT` waits for, and when the time for it is over.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Side, side_flags};
use netchannel_ring::held;

use super::Pending;
use crate::clock;

/// The first time at which TCP asks a silent client again, and the longest between two, in seconds.
const FIRST: u64 = 1;
const LONGEST: u64 = 120;
const SECOND: u64 = 1_000_000_000;

/// What is known of a connection's client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It has said nothing.
    Waits,
    /// It has, or has ended in good order: the program may have it.
    Comes,
    /// It has taken the connection back: no program hears of it.
    Gone,
}

/// When the program may have a silent connection that came at `since`: TCP looks one second later, then after two, four and so on, and
/// first lets it through `after` some moment when as many seconds are over as the option says.
pub(super) fn deadline(since: u64, seconds: u32, after: u64) -> u64 {
    let (mut passed, mut step) = (FIRST, FIRST);
    while passed < u64::from(seconds) || since.saturating_add(passed * SECOND) <= after {
        step = (step * 2).min(LONGEST);
        passed += step;
    }
    since.saturating_add(passed * SECOND)
}

/// What the words of a client say, and for how many milliseconds it holds back the only bytes that it has sent.
fn judge(client: &Side) -> (Verdict, u64) {
    // Acquire, both: pair with the releases of who sends and who ends.
    let flags = client.flags.load(Ordering::Acquire);
    let tail = client.tail.load(Ordering::Acquire);
    let word = held::look(&client.held);
    let left = held::left(word, clock::nanoseconds() / 1_000_000);
    let said = if left == 0 {
        tail
    } else {
        held::before(word, 0, tail)
    };
    let verdict = if said > 0 {
        Verdict::Comes
    } else if flags & side_flags::RESET != 0 {
        Verdict::Gone
    } else if flags & (side_flags::FIN | side_flags::CLOSED) != 0 {
        Verdict::Comes
    } else {
        Verdict::Waits
    };
    (verdict, if tail > 0 { left } else { 0 })
}

/// What is known of the client of `pending`. Over a link that is not what it should be it is the accept's to say so.
pub(super) fn verdict(pending: &Pending) -> (Verdict, u64) {
    let slot = pending.link.slot(pending.loan.handle.index);
    slot.map_or((Verdict::Comes, 0), |slot| judge(&slot.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_over_when_tcp_looks() {
        let at = |seconds, after| deadline(10 * SECOND, seconds, after) / SECOND - 10;
        // As `getsockopt` says it is what TCP waits.
        for seconds in [1, 3, 7, 15, 31, 63, 127, 247, 367] {
            assert_eq!(at(seconds, 0), u64::from(seconds));
        }
        assert_eq!((at(2, 0), at(4, 0), at(128, 0)), (3, 7, 247));
        // Taken back or made shorter later, it ends when TCP looks next.
        assert_eq!(at(0, 10 * SECOND), 1);
        assert_eq!(at(0, 11 * SECOND), 3);
        assert_eq!(at(1, 12 * SECOND), 3);
    }

    #[test]
    fn a_client_is_judged_by_what_it_has_said() {
        let side = || {
            // SAFETY: a side is atomic words, for which zeros will do.
            unsafe { core::mem::zeroed::<Side>() }
        };
        let said = |tail: u64, flags: u32| {
            let client = side();
            client.tail.store(tail, Ordering::Relaxed);
            client.flags.store(flags, Ordering::Relaxed);
            judge(&client).0
        };
        assert_eq!(said(0, 0), Verdict::Waits);
        assert_eq!(said(0, side_flags::SHUT_READ), Verdict::Waits);
        assert_eq!(said(1, 0), Verdict::Comes);
        assert_eq!(said(0, side_flags::FIN), Verdict::Comes);
        assert_eq!(
            said(0, side_flags::RESET | side_flags::CLOSED),
            Verdict::Gone
        );
        assert_eq!(
            said(5, side_flags::RESET | side_flags::CLOSED),
            Verdict::Comes
        );
    }
}
