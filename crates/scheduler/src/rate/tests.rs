use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let mut bucket = TokenBucket::full(Rate::new(1000, 10), 0);
    assert_eq!(bucket.permit(4, 0), Ok(4));
    bucket.take(4);
    assert_eq!(bucket.permit(100, 0), Err(4_000_000));
    assert_eq!(bucket.permit(100, 4_000_000), Ok(10));
    bucket.take(10);
    assert_eq!(bucket.available(4_999_999), 0);
    assert_eq!(bucket.available(5_000_000), 1);
    assert_eq!(bucket.available(60 * SECOND), 10);
}

#[test]
fn time_that_runs_backwards_stands_still() {
    let mut bucket = TokenBucket::empty(Rate::new(1000, 10), SECOND);
    assert_eq!(bucket.available(0), 0);
    assert_eq!(bucket.available(SECOND + 1_000_000), 1);
    assert_eq!(bucket.available(SECOND), 1);
    assert_eq!(bucket.available(u64::MAX), 10);
}

#[test]
fn the_largest_rate_does_not_overflow() {
    let mut bucket = TokenBucket::empty(Rate::new(u64::MAX, u64::MAX), 0);
    assert_eq!(bucket.rate(), Rate::new(MOST_PER_SECOND, MOST));
    assert_eq!(bucket.available(SECOND / 1000), 125_000_000);
    assert_eq!(bucket.available(u64::MAX), MOST);
}

#[test]
fn another_rate_keeps_what_is_in_hand() {
    let mut bucket = TokenBucket::full(Rate::new(1000, 10), 0);
    bucket.take(7);
    bucket.set_rate(Rate::new(10, 100), 0);
    assert_eq!(bucket.available(0), 3);
    bucket.set_rate(Rate::new(10, 2), 0);
    assert_eq!(bucket.available(0), 2);
}

#[test]
fn a_cap_is_divided_by_demand() {
    let cap = Rate::new(900, 90);
    let mut parts = [Rate::new(1, 1); 3];
    let mut divided = |demands: [u64; 3]| {
        cap.divide(&demands, &mut parts);
        parts.map(Rate::per_second)
    };
    assert_eq!(divided([0, 0, 0]), [300, 300, 300]);
    assert_eq!(divided([10_000, 10_000, 10_000]), [300, 300, 300]);
    // Who asks for little gets it, and the rest goes to who asks for more.
    assert_eq!(divided([0, 100, 10_000]), [1, 100, 800]);
    assert_eq!(divided([0, 0, 600]), [100, 100, 700]);
    assert!(parts.iter().map(|part| part.burst()).sum::<u64>() <= 90);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Over every span: at most the burst and what the rate gives.
    #[test]
    fn a_cap_is_never_exceeded(
        per_second in 1..MOST_PER_SECOND,
        burst in 1..MOST,
        steps in vec((0..3 * SECOND, 0..20u32, 1..u64::MAX), 1..50),
    ) {
        let rate = Rate::new(per_second, burst);
        let mut bucket = TokenBucket::full(rate, 0);
        let mut now = 0;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (wait, shift, wanted) in steps {
            now += wait >> shift;
            if let Ok(tokens) = bucket.permit(wanted, now) {
                prop_assert!(tokens <= wanted);
                bucket.take(tokens);
                taken.push((now, tokens));
            }
        }
        for from in 0..taken.len() {
            let mut sum = 0u128;
            for (at, tokens) in &taken[from..] {
                sum += u128::from(*tokens);
                let span = u128::from(at - taken[from].0);
                let most = u128::from(burst) * u128::from(SECOND) + u128::from(per_second) * span;
                prop_assert!(sum * u128::from(SECOND) <= most);
            }
        }
    }

    /// Who waits as long as told gets it, not earlier; and gets the whole rate.
    #[test]
    fn the_time_to_wait_is_exact(
        per_second in 1..MOST_PER_SECOND,
        burst in 1..MOST,
        wanted in 1..MOST,
        rounds in 1..20u64,
    ) {
        let rate = Rate::new(per_second, burst);
        let mut bucket = TokenBucket::empty(rate, 0);
        let mut sum = 0u128;
        let mut now = 0;
        for _ in 0..rounds {
            if let Err(until) = bucket.permit(wanted, now) {
                prop_assert!(until > now);
                let mut early = bucket;
                prop_assert!(early.permit(wanted, until - 1).is_err());
                now = until;
            }
            let tokens = bucket.permit(wanted, now);
            prop_assert!(tokens.is_ok());
            sum += u128::from(tokens.unwrap());
            bucket.take(tokens.unwrap());
        }
        let given = u128::from(per_second) * u128::from(now) / u128::from(SECOND);
        prop_assert!(sum + u128::from(burst) >= given, "{sum} of {given}");
    }

    #[test]
    fn parts_of_a_cap_never_exceed_it(
        per_second in 100..MOST_PER_SECOND,
        demands in vec(0..MOST_PER_SECOND, 1..20),
    ) {
        let rate = Rate::bytes(per_second);
        let mut parts = vec![Rate::new(1, 1); demands.len()];
        rate.divide(&demands, &mut parts);
        let sum: u64 = parts.iter().map(|part| part.per_second()).sum();
        prop_assert!(sum <= per_second + demands.len() as u64);
        let equal = per_second / demands.len() as u64;
        for (part, demand) in parts.iter().zip(&demands) {
            prop_assert!(part.per_second() >= equal.min(*demand));
        }
    }
}
