//! How long to spin before sleeping: adapted to what paid off, and almost not at all once it does not. Between looks
//! the thread yields: where others share the processor, the thread waits for their work, and no wake-up is needed.

/// Largest budget in microseconds: about the cost of a wake-up across processors.
const MOST_BUDGET: u64 = 50;
/// Smallest budget.
const LEAST_BUDGET: u64 = 1;
/// The budget of a new thread.
const FIRST_BUDGET: u64 = 20;
/// Beside a peer of the same host a thread yields after this time.
const YIELD_AFTER: u64 = 1;
/// Looks between two yields, beside such a peer.
const LOOKS: u32 = 8;
/// A yield that takes this long gave the processor to another thread.
const PREEMPTED: u64 = 8;
/// Longest time in which other threads are let run between looks, beside such a peer.
const MOST_AWAY: u64 = 100;
/// Longest time in which other threads are let run between looks.
const LONGEST_YIELDING: u64 = 300;
/// A shorter yield met no other thread that wanted the processor.
const UNCONTENDED: u64 = 1;
/// After a longer yield another thread keeps the processor without sleeping: a woken thread gets it sooner.
const HOGGED: u64 = 100;
/// Yields pause for so many times the time that was lost to such a thread, since each try delays everything.
const PAUSE_FACTOR: u64 = 256;
/// As long as such a thread stays, each pause is twice the one before; never longer than this.
const LONGEST_PAUSE: u64 = 4_000_000;

/// The spin budget of one thread, in ticks of a clock with `MICROSECOND` ticks in a microsecond. The clock may wrap.
#[derive(Clone, Copy, Debug)]
pub struct Patience<const MICROSECOND: u64> {
    /// Ticks of its own time that it may spend; the time of other threads does not count.
    budget: u64,
    /// When yields may begin again.
    yield_again_at: u64,
    /// The length of the last pause.
    pause: u64,
}

impl<const MICROSECOND: u64> Patience<MICROSECOND> {
    /// The budget of a thread that has not waited yet, which begins at `now`.
    #[must_use]
    pub const fn new(now: u64) -> Self {
        Self {
            budget: FIRST_BUDGET * MICROSECOND,
            yield_again_at: now,
            pause: 0,
        }
    }

    /// Learns from a sleep of `slept` ticks: spinning would have been better than a short sleep.
    pub fn learn(&mut self, slept: u64) {
        let next = if slept < 2 * MOST_BUDGET * MICROSECOND {
            self.budget * 2
        } else {
            self.budget / 2
        };
        self.budget = next.clamp(LEAST_BUDGET * MICROSECOND, MOST_BUDGET * MICROSECOND);
    }

    /// Spins beside a peer that may have a processor of its own: looks without a pause for a moment, and then yields with
    /// `yield_now` after every few looks. The time in which others have the processor does not count against the budget,
    /// up to a limit. True when ready.
    pub fn spin_beside(
        self,
        mut clock: impl FnMut() -> u64,
        mut yield_now: impl FnMut(),
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let (start, mut away) = (clock(), 0);
        loop {
            for _ in 0..LOOKS {
                core::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            let now = clock();
            let own = now.wrapping_sub(start).wrapping_sub(away);
            if own > self.budget {
                return false;
            }
            if own > YIELD_AFTER * MICROSECOND {
                yield_now();
                let lost = clock().wrapping_sub(now);
                if lost > PREEMPTED * MICROSECOND {
                    away += lost;
                    let found = ready();
                    if found || away > MOST_AWAY * MICROSECOND {
                        return found;
                    }
                }
            }
        }
    }

    /// Spins until `ready`, or until the budget is used up, and yields with `yield_now` between looks. True when ready.
    pub fn spin_yielding(
        &mut self,
        mut clock: impl FnMut() -> u64,
        mut yield_now: impl FnMut(),
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        if ready() {
            return true;
        }
        let start = clock();
        if is_before(start, self.yield_again_at) {
            return false;
        }
        let (mut own, mut looked) = (0, start);
        loop {
            yield_now();
            let back = clock();
            let away = back.wrapping_sub(looked);
            let found = ready();
            if away > HOGGED * MICROSECOND {
                self.pause_yielding(back, away);
                return found;
            }
            looked = clock();
            own += looked.wrapping_sub(back);
            if away < UNCONTENDED * MICROSECOND {
                own += away;
            }
            let over = looked.wrapping_sub(start) > LONGEST_YIELDING * MICROSECOND;
            if found || own > self.budget || over {
                return found;
            }
        }
    }

    /// Begins a pause of yields, since another thread kept the processor for `away`. If that happened soon after the
    /// last pause, this one is longer.
    fn pause_yielding(&mut self, now: u64, away: u64) {
        let soon = is_before(now, self.yield_again_at.wrapping_add(self.pause));
        let last = if soon { self.pause * 2 } else { 0 };
        let pause = last.max(away.saturating_mul(PAUSE_FACTOR));
        self.pause = pause.min(LONGEST_PAUSE * MICROSECOND);
        self.yield_again_at = now.wrapping_add(self.pause);
    }
}

const fn is_before(one: u64, other: u64) -> bool {
    other.wrapping_sub(one).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::Patience;
    use std::cell::Cell;

    const MICROSECOND: u64 = 1000;
    type Waiter = Patience<MICROSECOND>;

    /// Waits, where each yield takes `away` microseconds and each reading of the clock a tenth; returns the number of
    /// yields.
    fn wait(waiter: &mut Waiter, clock: &Cell<u64>, away: u64, ready_after: u32) -> (bool, u32) {
        let yields = Cell::new(0);
        let tick = |ticks| clock.set(clock.get().wrapping_add(ticks));
        let read = || {
            tick(MICROSECOND / 10);
            clock.get()
        };
        let yield_now = || {
            yields.set(yields.get() + 1);
            tick(away * MICROSECOND);
        };
        let found = waiter.spin_yielding(read, yield_now, || yields.get() >= ready_after);
        (found, yields.get())
    }

    #[test]
    fn what_is_ready_is_not_waited_for() {
        let clock = Cell::new(5);
        assert_eq!(wait(&mut Waiter::new(5), &clock, 1, 0), (true, 0));
        assert_eq!(clock.get(), 5);
    }

    #[test]
    fn the_time_of_others_does_not_count_against_the_budget() {
        let clock = Cell::new(0);
        // 20 microseconds of its own, a tenth for each look, would be 200 looks: the longest time for yields ends
        // before.
        assert_eq!(wait(&mut Waiter::new(0), &clock, 10, 1000), (false, 30));
        // Where no other thread wants the processor, the time is its own.
        let (found, yields) = wait(&mut Waiter::new(0), &clock, 0, 1000);
        assert!(!found);
        assert!((50..=210).contains(&yields), "{yields}");
    }

    #[test]
    fn short_sleeps_lengthen_the_budget_and_long_ones_shorten_it() {
        let mut waiter = Waiter::new(0);
        for (slept, budget) in [(50, 40), (99, 50), (10, 50), (100, 25), (5000, 12)] {
            waiter.learn(slept * MICROSECOND);
            assert_eq!(waiter.budget / MICROSECOND, budget, "after {slept}");
        }
        (0..9).for_each(|_| waiter.learn(1_000_000));
        assert_eq!(waiter.budget, MICROSECOND);
    }

    /// As [`wait`], beside a peer of the same host. Each look takes a hundredth.
    fn wait_beside(away: u64, ready_after: u32) -> (bool, u32) {
        let (clock, yields) = (Cell::new(0), Cell::new(0));
        let tick = |ticks| clock.set(clock.get() + ticks);
        let yield_now = || {
            yields.set(yields.get() + 1);
            tick(away * MICROSECOND);
        };
        let ready = || {
            tick(MICROSECOND / 100);
            yields.get() >= ready_after
        };
        let found = Waiter::new(0).spin_beside(|| clock.get(), yield_now, ready);
        (found, yields.get())
    }

    #[test]
    fn beside_a_peer_the_processor_is_left_to_others_for_a_while_only() {
        // What is ready at once needs no yield.
        assert_eq!(wait_beside(0, 0), (true, 0));
        // Others that work for 10 microseconds each bring what is waited for.
        assert_eq!(wait_beside(10, 5), (true, 5));
        assert_eq!(wait_beside(10, 1000), (false, 11));
        assert_eq!(wait_beside(1000, 1000), (false, 1));
        // Where no other thread wants the processor, the time is its own.
        let (found, yields) = wait_beside(0, 10_000);
        assert!(!found);
        assert!((200..=300).contains(&yields), "{yields}");
    }

    #[test]
    fn who_keeps_the_processor_is_not_given_it_again_soon() {
        // The clock wraps meanwhile.
        let clock = Cell::new(u64::MAX - 10_000 * MICROSECOND);
        let mut waiter = Waiter::new(clock.get());
        let mut rests = Vec::new();
        for _ in 0..9 {
            assert_eq!(wait(&mut waiter, &clock, 1000, 9), (false, 1));
            let mut rest = 0;
            while wait(&mut waiter, &clock, 0, 9).1 == 0 {
                clock.set(clock.get().wrapping_add(1000 * MICROSECOND));
                rest += 1;
            }
            rests.push(rest);
        }
        // Milliseconds: 256 times the lost time, doubled while the other thread stays, up to four seconds.
        let doubled = rests.windows(2).all(|pair| pair[1] >= pair[0]);
        assert!(doubled && (250..=260).contains(&rests[0]), "{rests:?}");
        assert!((3990..=4001).contains(&rests[8]), "{rests:?}");
        // Long after, it begins anew.
        clock.set(clock.get().wrapping_add(60_000_000 * MICROSECOND));
        assert_eq!(wait(&mut waiter, &clock, 200, 9), (false, 1));
        clock.set(clock.get().wrapping_add(52_000 * MICROSECOND));
        assert_eq!(wait(&mut waiter, &clock, 10, 1), (true, 1));
    }
}
