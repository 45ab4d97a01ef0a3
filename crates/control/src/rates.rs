//! The rates of counters, from two answers of a daemon.

use std::time::Duration;

use serde::Serialize;

use crate::hosts::{ChannelView, Hosts, Traffic, WorkerView};

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes of programs given to channels.
    pub sent_bytes: u64,
    /// Bytes of programs that came.
    pub received_bytes: u64,
    /// Segments given to channels.
    pub sent_segments: u64,
    /// Segments that came.
    pub received_segments: u64,
}

/// The increase per second of a counter that increased during `span`. A counter that decreased has started again.
#[must_use]
pub fn per_second(before: u64, after: u64, span: Duration) -> u64 {
    let grown = u128::from(after.checked_sub(before).unwrap_or(after));
    let rate = grown * 1_000_000_000 / span.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn of_traffic(before: Option<&Traffic>, after: &Traffic, span: Duration) -> Rates {
    // A missing first value gives no rate.
    let Some(before) = before else {
        return Rates::default();
    };
    let rate = |field: fn(&Traffic) -> u64| per_second(field(before), field(after), span);
    Rates {
        sent_bytes: rate(|traffic| traffic.sent_bytes),
        received_bytes: rate(|traffic| traffic.received_bytes),
        sent_segments: rate(|traffic| traffic.sent_segments),
        received_segments: rate(|traffic| traffic.received_segments),
    }
}

/// The time between two answers.
#[must_use]
pub const fn span(before: &Hosts, after: &Hosts) -> Duration {
    let nanoseconds = after
        .taken_nanoseconds
        .saturating_sub(before.taken_nanoseconds);
    Duration::from_nanos(nanoseconds)
}

/// The rates of a peer, by its name.
#[must_use]
pub fn of_peer(before: &Hosts, after: &Hosts, name: &str) -> Rates {
    let find = |hosts: &'_ Hosts| {
        let mut peers = hosts.peers.iter();
        peers
            .find(|peer| peer.name == name)
            .map(|peer| peer.traffic)
    };
    let Some(now) = find(after) else {
        return Rates::default();
    };
    of_traffic(find(before).as_ref(), &now, span(before, after))
}

/// The rates of a channel of `after`.
#[must_use]
pub fn of_channel(before: &Hosts, after: &Hosts, channel: &ChannelView) -> Rates {
    let same = |one: &&ChannelView| {
        (&one.peer, one.class, one.number) == (&channel.peer, channel.class, channel.number)
            // A channel that was made again in between has started at zero.
            && one.since_seconds <= channel.since_seconds
    };
    let old = before.channels.iter().find(same).map(|one| one.traffic);
    of_traffic(old.as_ref(), &channel.traffic, span(before, after))
}

/// Which share of the time a thread of `after` had a processor, 0 to 1000.
#[must_use]
pub fn utilisation(before: &Hosts, after: &Hosts, worker: &WorkerView) -> u64 {
    let mut workers = before.workers.iter();
    let Some(old) = workers.find(|one| one.thread == worker.thread) else {
        return 0;
    };
    let (old, new) = (old.processor_nanoseconds, worker.processor_nanoseconds);
    let share = per_second(old, new, span(before, after)) / 1_000_000;
    share.min(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::Class;

    fn at(seconds: u64, bytes: u64) -> Hosts {
        let mut hosts = Hosts {
            taken_nanoseconds: seconds * 1_000_000_000,
            ..Hosts::default()
        };
        hosts.peer_mut("beta").traffic.sent_bytes = bytes;
        let channel = hosts.channel_mut("beta", Class::Throughput, 0);
        channel.traffic.sent_bytes = bytes;
        channel.since_seconds = seconds;
        let worker = hosts.worker_mut("channels-T");
        worker.thread = 7;
        worker.processor_nanoseconds = seconds * 250_000_000;
        hosts
    }

    #[test]
    fn rates_are_growth_by_time() {
        let (before, after) = (at(10, 1000), at(12, 5000));
        assert_eq!(of_peer(&before, &after, "beta").sent_bytes, 2000);
        assert_eq!(of_peer(&before, &after, "gamma"), Rates::default());
        let channel = &after.channels[0];
        assert_eq!(of_channel(&before, &after, channel).sent_bytes, 2000);
        assert_eq!(utilisation(&before, &after, &after.workers[0]), 250);
    }

    #[test]
    fn what_is_new_or_began_anew_is_no_burst() {
        let (before, mut after) = (at(10, 1000), at(12, 400));
        assert_eq!(of_peer(&before, &after, "beta").sent_bytes, 200);
        after.channels[0].since_seconds = 1;
        let channel = after.channels[0].clone();
        assert_eq!(of_channel(&before, &after, &channel), Rates::default());
        assert_eq!(per_second(0, u64::MAX, Duration::ZERO), u64::MAX);
    }
}
