use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn worker(id: u16, queued: u64) -> CopyWorkerView {
    CopyWorkerView {
        id: WorkerId(id),
        core: Some(CoreId(id)),
        queued,
        near: true,
    }
}

fn call(length: u64) -> CopyRequest {
    CopyRequest {
        direction: Direction::Send,
        class: Class::Throughput,
        length,
        assigned: 0,
        in_flight: 0,
        core: Some(CoreId(0)),
    }
}

fn policy(pick: Pick) -> Split {
    Split::new(CopyParameters {
        pick,
        ..CopyParameters::default()
    })
}

/// Copies a whole call; says how much each worker got, and the caller.
fn run(
    policy: &mut Split,
    request: CopyRequest,
    workers: &mut [CopyWorkerView],
) -> (Vec<u64>, u64) {
    let mut request = request;
    let mut shares = vec![0; workers.len()];
    let mut local = 0;
    while request.assigned < request.length {
        let bytes = match policy.choose(&request, workers, 0) {
            CopyChoice::Local(bytes) => {
                local += bytes;
                bytes
            }
            CopyChoice::Worker(index, bytes) => {
                shares[index] += bytes;
                workers[index].queued += bytes;
                request.in_flight += bytes;
                bytes
            }
        };
        assert!(bytes > 0);
        request.assigned += bytes;
    }
    (shares, local)
}

#[test]
fn small_calls_and_latency_sockets_are_never_split() {
    let mut policy = policy(Pick::LeastLoaded);
    let workers = [worker(1, 0), worker(2, 0)];
    for length in [0, 1, 4096, 62_621, (256 << 10) - 1] {
        let choice = policy.choose(&call(length), &workers, 0);
        assert_eq!(choice, CopyChoice::Local(length));
    }
    let latency = CopyRequest {
        class: Class::Latency,
        ..call(1 << 30)
    };
    assert_eq!(
        policy.choose(&latency, &workers, 0),
        CopyChoice::Local(1 << 30)
    );
}

#[test]
fn the_first_part_is_the_callers_and_the_rest_is_shared() {
    for pick in [Pick::LeastLoaded, Pick::RoundRobin] {
        let mut workers = [worker(1, 0), worker(2, 0)];
        let length = 62_620 * 9;
        let (shares, local) = run(&mut policy(pick), call(length), &mut workers);
        assert_eq!(local, 62_620);
        assert_eq!(shares, [62_620 * 4; 2]);
    }
}

#[test]
fn the_callers_own_core_and_other_nodes_are_left_out() {
    let mut policy = policy(Pick::LeastLoaded);
    let far = CopyWorkerView {
        near: false,
        ..worker(1, 0)
    };
    let request = CopyRequest {
        assigned: 62_620,
        ..call(1 << 20)
    };
    let choice = policy.choose(&request, &[worker(0, 0), far, worker(2, 9)], 0);
    assert_eq!(choice, CopyChoice::Worker(2, 62_620));
    let choice = policy.choose(&request, &[worker(0, 0), far], 0);
    assert_eq!(choice, CopyChoice::Local(62_620));
    assert_eq!(policy.choose(&request, &[], 0), CopyChoice::Local(62_620));
}

#[test]
fn busy_workers_and_busy_sockets_leave_it_to_the_caller() {
    let mut policy = policy(Pick::LeastLoaded);
    let request = CopyRequest {
        assigned: 62_620,
        ..call(1 << 20)
    };
    let full = [worker(1, 640 << 10), worker(2, 640 << 10)];
    assert_eq!(policy.choose(&request, &full, 0), CopyChoice::Local(62_620));
    let free = [worker(1, 0)];
    for (direction, most) in [(Direction::Send, 751_440), (Direction::Receive, 250_480)] {
        let mut request = CopyRequest {
            direction,
            in_flight: most - 1,
            ..request
        };
        assert_eq!(
            policy.choose(&request, &free, 0),
            CopyChoice::Worker(0, 62_620)
        );
        request.in_flight = most;
        assert_eq!(policy.choose(&request, &free, 0), CopyChoice::Local(62_620));
    }
}

#[test]
fn the_least_loaded_is_picked() {
    let mut policy = policy(Pick::LeastLoaded);
    let request = CopyRequest {
        assigned: 62_620,
        ..call(1 << 20)
    };
    let workers = [worker(1, 500), worker(2, 100), worker(3, 300)];
    assert_eq!(
        policy.choose(&request, &workers, 0),
        CopyChoice::Worker(1, 62_620)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every byte once, and no worker beyond the threshold and a part.
    #[test]
    fn calls_are_covered_and_workers_bounded(
        lengths in vec(1..4_000_000u64, 1..10),
        queued in vec(0..800_000u64, 0..5),
        round_robin in any::<bool>(),
    ) {
        let mut policy = policy(if round_robin { Pick::RoundRobin } else { Pick::LeastLoaded });
        let mut workers: Vec<_> = (0..).zip(&queued).map(|(id, queued)| worker(id, *queued)).collect();
        for length in lengths {
            let (shares, local) = run(&mut policy, call(length), &mut workers);
            prop_assert_eq!(shares.iter().sum::<u64>() + local, length);
            prop_assert_eq!(shares.first().copied().unwrap_or(0), 0, "the caller's own core");
        }
        for (worker, before) in workers.iter().zip(&queued) {
            prop_assert!(worker.queued < (*before).max(640 << 10) + 62_620);
        }
    }
}
