//! Whose turn it is: the processor time of the worker is shared between its tenants by weight, and within a tenant between its
//! connections. The policy is `weighted-tenants` of NetScheduler, whose bytes are nanoseconds here.

use netchannel_scheduler::{
    Class, Fair, FairParameters, Grant, Next, OrderPolicy, Room, Shares, SocketId, TenantId,
    TenantView,
};

/// Nanoseconds of one turn of a tenant of weight 1, and of a connection within it.
const QUANTUM: u32 = 200_000;
/// More than any turn takes.
const ENOUGH: u64 = 1 << 40;

/// The order of connections that have something to do.
#[derive(Debug)]
pub struct Schedule {
    order: Fair,
    waiting: usize,
}

impl Schedule {
    /// An empty one.
    pub fn new() -> Self {
        let parameters = FairParameters {
            shares: Shares::Weighted,
            quantum: QUANTUM,
            class_priority: false,
            throughput_share: 0,
        };
        Self {
            order: Fair::new(parameters),
            waiting: 0,
        }
    }

    /// A tenant has that weight from now on.
    pub fn set_tenant(&mut self, tenant: u32, weight: u16) {
        let view = TenantView {
            weight,
            ..TenantView::unlimited(TenantId(tenant))
        };
        // Tenants are fewer than the policy takes: each has descriptors.
        let _ = self.order.set_tenant(view, 0);
    }

    /// A tenant without connections goes.
    pub fn remove_tenant(&mut self, tenant: u32) {
        let _ = self.order.remove_tenant(TenantId(tenant));
    }

    /// A connection comes. False where there are too many.
    pub fn add(&mut self, number: usize, tenant: u32) -> bool {
        let added = socket(number).map(|socket| {
            self.order
                .attach(socket, TenantId(tenant), Class::Throughput)
        });
        matches!(added, Some(Ok(())))
    }

    /// A connection goes; `queued` says whether it waited for its turn.
    pub fn remove(&mut self, number: usize, queued: bool) {
        if let Some(socket) = socket(number) {
            self.order.detach(socket);
        }
        self.waiting -= usize::from(queued);
    }

    /// A connection that did not wait gets its turn.
    pub fn queue(&mut self, number: usize) {
        if let Some(socket) = socket(number) {
            self.order.update(socket, ENOUGH);
        }
        self.waiting += 1;
    }

    /// Whether no connection waits for its turn.
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The next turn.
    pub fn next(&mut self) -> Option<Grant> {
        match self.order.next(Room::both(QUANTUM), 0) {
            Next::Grant(grant) => Some(grant),
            Next::Until(_) | Next::Idle => None,
        }
    }

    /// A turn has taken so long. The connection waits no more.
    pub fn on_turn(&mut self, grant: &Grant, nanoseconds: u64) {
        let spent = u32::try_from(nanoseconds).unwrap_or(u32::MAX).max(1);
        self.order.on_sent(grant, spent, 0);
    }

    /// The turn of [`Self::next`] begins.
    pub const fn take(&mut self) {
        self.waiting -= 1;
    }

    /// A connection that had its turn has nothing to do.
    pub fn rest(&mut self, grant: &Grant) {
        self.order.update(grant.socket, 0);
    }
}

fn socket(number: usize) -> Option<SocketId> {
    u32::try_from(number).ok().map(SocketId)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many turns, each of that time, each tenant gets whose connections always have something to do.
    fn turns(weights: &[u16], connections: &[usize], count: usize) -> Vec<usize> {
        let mut schedule = Schedule::new();
        let mut number = 0;
        for (tenant, (weight, connections)) in (0..).zip(weights.iter().zip(connections)) {
            schedule.set_tenant(tenant, *weight);
            for _ in 0..*connections {
                assert!(schedule.add(number, tenant));
                schedule.queue(number);
                number += 1;
            }
        }
        let mut had = vec![0; weights.len()];
        for _ in 0..count {
            let grant = schedule.next().unwrap();
            had[grant.tenant.0 as usize] += 1;
            schedule.on_turn(&grant, 50_000);
        }
        had
    }

    #[test]
    fn tenants_share_by_weight_whatever_their_connections() {
        assert_eq!(turns(&[1, 1], &[1, 32], 800), [400, 400]);
        assert_eq!(turns(&[3, 1], &[1, 8], 800), [600, 200]);
        assert_eq!(turns(&[1], &[5], 10), [10]);
    }

    #[test]
    fn who_has_nothing_to_do_gets_no_turn() {
        let mut schedule = Schedule::new();
        schedule.set_tenant(0, 1);
        assert!(schedule.add(3, 0) && schedule.is_empty() && schedule.next().is_none());
        schedule.queue(3);
        let grant = schedule.next().unwrap();
        schedule.take();
        schedule.on_turn(&grant, 10);
        schedule.rest(&grant);
        assert!(schedule.is_empty() && schedule.next().is_none());
        schedule.remove(3, false);
        schedule.remove_tenant(0);
    }
}
