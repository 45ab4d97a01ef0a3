//! A tenant that a worker serves: its session with CoreEngine, and what is its own.

use crate::bottleneck::Share;
use crate::caps::Caps;
use crate::doors::{self, Door};
use netchannel_abi::address::Address;
use netchannel_configuration::Tenant;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::OwnListener;
use netchannel_service::targets::Targets;
use netchannel_stack_process::counters::{Counter, Counters};
use netchannel_stack_process::message::{Report, SessionLimits};
use netchannel_stack_process::stack_end::StackEnd;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The number of a tenant within a worker. It is used again.
pub type TenantNumber = u32;

/// What every connection of a tenant has in common.
#[derive(Debug)]
pub struct Served {
    pub(crate) end: StackEnd,
    /// CoreEngine has ended the session, or takes no messages.
    pub(crate) is_over: bool,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) limits: SessionLimits,
    pub(crate) caps: Caps,
    pub(crate) counters: Counters,
    pub(crate) targets: Targets,
    pub(crate) count: Arc<Count>,
    pub(crate) gateway: Option<u32>,
    pub(crate) listeners: BTreeMap<u32, OwnListener>,
    /// Names of its doors among the worker's own descriptors.
    pub(crate) doors: BTreeSet<u32>,
    pub(crate) doors_rest_until: Option<Instant>,
    pub(crate) connections: usize,
    /// Descriptors for those that ask name servers.
    pub(crate) of_askers: usize,
    pub(crate) drains: bool,
    pub(crate) share: Share,
    /// Bytes that it has sent from lane to lane, past the stack's own sockets.
    pub(crate) sent_past_sockets: u64,
    /// Bytes that it had sent to the network at the last measurement.
    pub(crate) measured: u64,
    /// Its sockets took less than it had, since the last measurement.
    pub(crate) wants_more: bool,
}

impl Served {
    /// A tenant whose session has begun; its table comes next.
    pub fn new(end: StackEnd, limits: SessionLimits, counters: Counters) -> Self {
        Self {
            end,
            is_over: false,
            tenant: Arc::new(Tenant::new("", Vec::new())),
            limits,
            caps: Caps::default(),
            counters,
            targets: Targets::default(),
            count: Arc::new(Count::new(limits.anchors)),
            gateway: None,
            listeners: BTreeMap::new(),
            doors: BTreeSet::new(),
            doors_rest_until: None,
            connections: 0,
            of_askers: 0,
            drains: false,
            share: Share::default(),
            sent_past_sockets: 0,
            measured: 0,
            wants_more: false,
        }
    }

    /// Tells CoreEngine something.
    pub fn report(&mut self, report: Report) {
        self.is_over |= self.end.send(report).is_err();
    }

    /// Tells CoreEngine where nothing is left of a tenant that has another stack.
    pub fn tell_drained(&mut self) {
        if self.drains && self.connections == 0 {
            self.report(Report::Drained);
        }
    }

    /// Whether the tenant has as many connections as it may.
    pub fn is_full(&self) -> bool {
        let most = usize::try_from(self.tenant.connections).unwrap_or(usize::MAX);
        self.connections >= most.min(self.limits.sockets)
    }

    /// Counts a connection that came or went.
    pub fn count_connections(&mut self, change: impl FnOnce(usize) -> usize) {
        self.connections = change(self.connections);
        let open = u64::try_from(self.connections).unwrap_or(u64::MAX);
        self.counters.set(Counter::Open, open);
        self.count_descriptors();
    }

    /// Tells how many descriptors are held for it.
    pub fn count_descriptors(&self) {
        let held = self.count.held() + self.connections + self.doors.len() + self.of_askers;
        self.counters.set(
            Counter::Descriptors,
            u64::try_from(held).unwrap_or(u64::MAX),
        );
    }

    /// The listener to which a client's connection leads.
    pub fn listener_at(&self, server: &Address, client: &Address) -> Option<u32> {
        let found = doors::listener(self.listeners.iter(), server, client);
        found.map(|(number, _)| number)
    }

    /// The listener to which it leads where `gone` is there no more.
    pub fn listener_beside(&self, gone: u32, server: &Address, client: &Address) -> Option<u32> {
        let left = self.listeners.iter().filter(|(number, _)| **number != gone);
        doors::listener(left, server, client).map(|(number, _)| number)
    }

    /// Bytes that it has sent to the network by the stack's own sockets.
    pub fn sent_to_network(&self) -> u64 {
        let sent = self.counters.now().bytes_out;
        sent.saturating_sub(self.sent_past_sockets)
    }

    /// Whether new connections of the tenant come over this session.
    pub const fn takes_new(&self) -> bool {
        !self.drains && !self.is_over
    }

    /// The listener to which a client's connection at a door leads.
    pub fn listener_of(&self, door: &Door, client: &Address) -> Option<(u32, &OwnListener)> {
        door.listener(self.listeners.iter(), client)
    }
}

/// The tenants of a worker, by number.
#[derive(Debug, Default)]
pub struct Tenants {
    all: Vec<Option<Served>>,
    unused: Vec<TenantNumber>,
}

impl Tenants {
    /// Adds one.
    pub fn add(&mut self, served: Served) -> TenantNumber {
        if let Some(number) = self.unused.pop() {
            if let Some(place) = self.all.get_mut(index(number)) {
                *place = Some(served);
            }
            return number;
        }
        self.all.push(Some(served));
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    /// One of them.
    #[inline]
    pub fn get(&self, number: TenantNumber) -> Option<&Served> {
        self.all.get(index(number))?.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: TenantNumber) -> Option<&mut Served> {
        self.all.get_mut(index(number))?.as_mut()
    }

    /// Both ends of a connection, to change them. `None` where a tenant of it has gone.
    pub fn ends_mut(
        &mut self,
        ends: [Option<TenantNumber>; 2],
    ) -> Option<[Option<&mut Served>; 2]> {
        match ends {
            [Some(one), Some(other)] => {
                let numbers = [one, other].map(index);
                let [first, second] = self.all.get_disjoint_mut(numbers).ok()?;
                Some([Some(first.as_mut()?), Some(second.as_mut()?)])
            }
            [Some(one), None] => Some([Some(self.get_mut(one)?), None]),
            [None, Some(other)] => Some([None, Some(self.get_mut(other)?)]),
            [None, None] => None,
        }
    }

    /// The number of the one that is meant.
    pub fn find(&self, is_meant: impl Fn(TenantNumber, &Served) -> bool) -> Option<TenantNumber> {
        let mut numbered = (0..).zip(&self.all);
        let found =
            numbered.find(|(number, one)| one.as_ref().is_some_and(|one| is_meant(*number, one)));
        found.map(|(number, _)| number)
    }

    /// Takes one out.
    pub fn remove(&mut self, number: TenantNumber) -> Option<Served> {
        let served = self.all.get_mut(index(number))?.take()?;
        self.unused.push(number);
        Some(served)
    }

    /// All numbers in use.
    pub fn numbers(&self) -> Vec<TenantNumber> {
        let numbered = (0..).zip(&self.all);
        numbered
            .filter_map(|(number, served)| served.as_ref().map(|_| number))
            .collect()
    }

    /// All tenants, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Served> {
        self.all.iter_mut().flatten()
    }
}

fn index(number: TenantNumber) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
