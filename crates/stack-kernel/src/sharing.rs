//! Measures what each tenant's sockets take, and shares a bottleneck between tenants.

use crate::bottleneck::{Demand, rates};
use crate::served::Served;
use crate::worker::{KernelWorker, UNSENT};
use netchannel_service::worker::Worker;
use netchannel_shm::kernel_socket::set_unsent_limit;
use netchannel_stack_process::process::Fairness;
use std::time::{Duration, Instant};

/// How often it is measured while tenants send.
const INTERVAL: Duration = Duration::from_millis(50);

impl KernelWorker {
    /// What tenants share by weight from now on.
    pub(crate) fn set_fairness(&mut self, fairness: Fairness) {
        self.fairness = fairness;
        let unsent = match fairness {
            Fairness::Processor => 0,
            Fairness::Network => UNSENT,
        };
        self.table
            .sockets()
            .for_each(|socket| set_unsent_limit(socket, unsent));
        if fairness == Fairness::Processor {
            let now = self.now();
            self.tenants
                .iter_mut()
                .for_each(|one| one.caps.outgoing.set_share(None, now));
            self.next_measurement = None;
        }
    }

    /// Shares the bottleneck anew where it is time. Costs nothing where nobody sends, or the processor alone is shared.
    pub(crate) fn measure(&mut self) {
        if self.fairness == Fairness::Processor {
            return;
        }
        let now = Instant::now();
        match self.next_measurement {
            None if self.tenants.iter_mut().any(|one| one.wants_more) => {
                self.measured_at = now;
                self.next_measurement = Some(now + INTERVAL);
                for served in self.tenants.iter_mut() {
                    served.measured = served.sent_to_network();
                }
            }
            Some(due) if due <= now => self.share_out(now),
            _ => {}
        }
    }

    fn share_out(&mut self, now: Instant) {
        let span = now.duration_since(self.measured_at).as_micros().max(1);
        let time = self.now();
        let all: Vec<&mut Served> = self.tenants.iter_mut().collect();
        let mut demands = Vec::new();
        let mut any = false;
        for served in all {
            let sent = served.sent_to_network();
            let bytes = sent.wrapping_sub(served.measured);
            served.measured = sent;
            let rate = u64::try_from(u128::from(bytes) * 1_000_000 / span).unwrap_or(u64::MAX);
            // What its share holds back, it wants as well.
            let held = served.caps.outgoing.has_share() && bytes > 0;
            demands.push(Demand {
                weight: u64::from(served.tenant.weight),
                rate: served.share.measure(rate),
                wants_more: std::mem::take(&mut served.wants_more) || held,
            });
            any |= bytes > 0;
        }
        let found = rates(&demands);
        for (served, rate) in self.tenants.iter_mut().zip(found) {
            served.caps.outgoing.set_share(rate, time);
        }
        self.measured_at = now;
        self.next_measurement = any.then(|| now + INTERVAL);
    }
}
