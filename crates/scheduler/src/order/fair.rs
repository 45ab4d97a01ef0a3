//! Latency before throughput; within a class deficit round robin among tenants, and within a tenant among sockets.
//!
//! ```text
//!   class L: tenants in turn, each quantum x weight --> its sockets in turn, each a quantum
//!   class T: the same, when L has nothing to send
//!   tenants whose caps are used up wait aside, the earliest first
//! ```
//!
//! Segments stay whole: a turn goes on while any of its quantum is left, so the last segment may overdraw it, and the
//! next turn begins with that debt. A segment is never larger than the quantum. So every turn sends something, and a
//! decision does not depend on the number of sockets. Two sockets that always have bytes never differ by two quanta or
//! more.

mod parts;

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{
    Grant, MOST_SOCKETS, MOST_TENANTS, Next, OrderError, OrderPolicy, Room, Snapshot, SocketState,
};
use crate::list::List;
use crate::rate::Allowance;
use crate::view::{Class, SocketId, TenantId, TenantView};
use parts::{Floor, Group, Socket, Tenant, spend, take_turn};

/// How tenants share within a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// By weight, however many sockets each has.
    Weighted,
    /// By the number of sockets that have bytes: tenants do not matter, but for their caps.
    PerSocket,
}

/// Parameters of [`Fair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairParameters {
    /// How tenants share.
    pub shares: Shares,
    /// Bytes of one turn of a socket, and the largest segment: 1 to 1 GiB.
    pub quantum: u32,
    /// Whether L precedes T. If not, every socket counts as T.
    pub class_priority: bool,
    /// Percent of the bytes that T gets while L has bytes, 0 to 50. 0 is strict priority.
    pub throughput_share: u8,
}

impl Default for FairParameters {
    fn default() -> Self {
        Self {
            shares: Shares::Weighted,
            quantum: 64 << 10,
            class_priority: true,
            throughput_share: 0,
        }
    }
}

/// Hierarchical deficit round robin under strict priority, with caps.
#[derive(Debug)]
pub struct Fair {
    parameters: FairParameters,
    sockets: Vec<Socket>,
    tenants: Vec<Tenant>,
    /// Two per tenant, one for each class.
    groups: Vec<Group>,
    /// Groups with bytes, per class.
    ready: [List; 2],
    /// Groups whose tenant has used up its caps, by when to look again.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    floor: Floor,
}

impl Fair {
    /// An order without tenants. Parameters beyond their bounds become the nearest within.
    #[must_use]
    pub fn new(parameters: FairParameters) -> Self {
        let parameters = FairParameters {
            quantum: parameters.quantum.clamp(1, 1 << 30),
            throughput_share: parameters.throughput_share.min(50),
            ..parameters
        };
        Self {
            parameters,
            sockets: Vec::new(),
            tenants: Vec::new(),
            groups: Vec::new(),
            ready: Default::default(),
            waiting: BinaryHeap::new(),
            floor: Floor::new(parameters.throughput_share, parameters.quantum),
        }
    }

    /// The class a socket is ordered in.
    fn effective(&self, class: Class) -> Class {
        if self.parameters.class_priority {
            class
        } else {
            Class::Throughput
        }
    }

    fn tenant(&mut self, tenant: TenantId) -> Option<&mut Tenant> {
        self.tenants
            .get_mut(tenant.0 as usize)
            .filter(|tenant| tenant.known)
    }

    fn socket(&self, socket: SocketId) -> Option<Socket> {
        self.sockets
            .get(socket.0 as usize)
            .filter(|socket| socket.attached)
            .copied()
    }

    /// Puts a group among those that are ready, if it has bytes and its tenant may send.
    fn list_group(&mut self, group: u32) {
        let entry = &self.groups[group as usize];
        if entry.active > 0 && entry.waits_until.is_none() {
            self.ready[Group::class(group).index()].push(&mut self.groups, group);
        }
    }

    fn unlist_group(&mut self, group: u32) {
        self.ready[Group::class(group).index()].remove(&mut self.groups, group);
        self.groups[group as usize].turn.end();
    }

    fn activate(&mut self, index: u32) {
        let group = self.sockets[index as usize].group;
        if !List::holds(&self.sockets, index) {
            let entry = &mut self.groups[group as usize];
            entry.active += 1;
            entry.sockets.push(&mut self.sockets, index);
            self.list_group(group);
        }
    }

    fn deactivate(&mut self, index: u32) {
        let group = self.sockets[index as usize].group;
        if List::holds(&self.sockets, index) {
            let entry = &mut self.groups[group as usize];
            entry.active -= 1;
            entry.sockets.remove(&mut self.sockets, index);
            self.sockets[index as usize].turn.end();
            if entry.active == 0 {
                self.unlist_group(group);
            }
        }
    }

    /// Sets a group aside until the tenant's caps allow what it wants. Its other class wants less, perhaps.
    fn hold(&mut self, group: u32, until: u64) {
        self.groups[group as usize].waits_until = Some(until);
        self.waiting.push(Reverse((until, group)));
        self.unlist_group(group);
    }

    fn release_due(&mut self, now: u64) {
        while let Some(Reverse((until, group))) = self.waiting.peek().copied() {
            if until > now {
                break;
            }
            self.waiting.pop();
            self.groups[group as usize].waits_until = None;
            self.list_group(group);
        }
    }

    /// Forgets that a tenant's groups wait.
    fn release_early(&mut self, tenant: u32) {
        self.waiting
            .retain(|Reverse((_, group))| Group::tenant(*group) != tenant);
        for class in Class::ALL {
            let group = Group::of(tenant, class);
            self.groups[group as usize].waits_until = None;
            self.list_group(group);
        }
    }

    fn next_of(&mut self, class: Class, room: u32, now: u64) -> Option<Grant> {
        let most = room.min(self.parameters.quantum);
        if most == 0 {
            return None;
        }
        // Every round either answers or sets a group aside.
        while let Some(group) = self.ready[class.index()].first() {
            let entry = &mut self.groups[group as usize];
            let Some(first) = entry.sockets.first() else {
                // Cannot be: a listed group has an active socket.
                self.unlist_group(group);
                continue;
            };
            let tenant = Group::tenant(group);
            let socket = &mut self.sockets[first as usize];
            let wanted = u32::try_from(socket.sendable).unwrap_or(u32::MAX).min(most);
            match self.tenants[tenant as usize].allowance.permit(wanted, now) {
                Ok(bytes) => {
                    let quantum = i64::from(self.parameters.quantum);
                    let factor = match self.parameters.shares {
                        Shares::Weighted => i64::from(self.tenants[tenant as usize].weight),
                        Shares::PerSocket => i64::from(entry.active),
                    };
                    take_turn(&mut entry.turn, quantum * factor);
                    take_turn(&mut socket.turn, quantum);
                    return Some(Grant {
                        socket: SocketId(first),
                        tenant: TenantId(tenant),
                        class,
                        bytes,
                    });
                }
                Err(until) => self.hold(group, until),
            }
        }
        None
    }
}

impl OrderPolicy for Fair {
    fn set_tenant(&mut self, view: TenantView, now: u64) -> Result<(), OrderError> {
        let index = view.id.0;
        if index >= MOST_TENANTS {
            return Err(OrderError::TooMany);
        }
        let length = index as usize + 1;
        if self.tenants.len() < length {
            self.tenants.resize_with(length, Tenant::default);
            self.groups.resize_with(length * 2, Group::default);
            // Room for all, so that setting one aside does not allocate.
            self.waiting.reserve(length * 2 - self.waiting.len());
        }
        let tenant = &mut self.tenants[index as usize];
        if tenant.known {
            tenant.allowance.set(view.bytes, view.operations, now);
        } else {
            tenant.allowance = Allowance::full(view.bytes, view.operations, now);
        }
        tenant.known = true;
        tenant.weight = view.weight.max(1);
        tenant.caps = (view.bytes, view.operations);
        self.release_early(index);
        Ok(())
    }

    fn remove_tenant(&mut self, tenant: TenantId) -> Result<(), OrderError> {
        let entry = self.tenant(tenant).ok_or(OrderError::UnknownTenant)?;
        if entry.sockets > 0 {
            return Err(OrderError::HasSockets);
        }
        self.release_early(tenant.0);
        self.tenants[tenant.0 as usize] = Tenant::default();
        for class in Class::ALL {
            self.groups[Group::of(tenant.0, class) as usize] = Group::default();
        }
        Ok(())
    }

    fn attach(
        &mut self,
        socket: SocketId,
        tenant: TenantId,
        class: Class,
    ) -> Result<(), OrderError> {
        if socket.0 >= MOST_SOCKETS {
            return Err(OrderError::TooMany);
        }
        if self.socket(socket).is_some() {
            return Err(OrderError::Taken);
        }
        self.tenant(tenant)
            .ok_or(OrderError::UnknownTenant)?
            .sockets += 1;
        let index = socket.0 as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Socket::absent);
        }
        self.sockets[index] = Socket::new(class, Group::of(tenant.0, self.effective(class)));
        Ok(())
    }

    fn detach(&mut self, socket: SocketId) {
        if let Some(entry) = self.socket(socket) {
            self.deactivate(socket.0);
            self.sockets[socket.0 as usize] = Socket::absent();
            self.tenants[Group::tenant(entry.group) as usize].sockets -= 1;
        }
    }

    fn set_class(&mut self, socket: SocketId, class: Class) {
        if let Some(entry) = self.socket(socket) {
            self.sockets[socket.0 as usize].class = class;
            let group = Group::of(Group::tenant(entry.group), self.effective(class));
            if group != entry.group {
                self.deactivate(socket.0);
                self.sockets[socket.0 as usize].group = group;
                if entry.sendable > 0 {
                    self.activate(socket.0);
                }
            }
        }
    }

    fn update(&mut self, socket: SocketId, sendable: u64) {
        if self.socket(socket).is_some() {
            self.sockets[socket.0 as usize].sendable = sendable;
            if sendable > 0 {
                self.activate(socket.0);
            } else {
                self.deactivate(socket.0);
            }
        }
    }

    fn next(&mut self, room: Room, now: u64) -> Next {
        if !self.waiting.is_empty() {
            self.release_due(now);
        }
        let first = if self.floor.is_due() {
            Class::Throughput
        } else {
            Class::Latency
        };
        for class in [first, first.other()] {
            if let Some(grant) = self.next_of(class, room.of(class), now) {
                return Next::Grant(grant);
            }
        }
        match self.waiting.peek() {
            Some(Reverse((until, _))) => Next::Until(*until),
            None => Next::Idle,
        }
    }

    fn on_sent(&mut self, grant: &Grant, bytes: u32, _now: u64) {
        let index = grant.socket.0;
        let Some(socket) = self.socket(grant.socket) else {
            return;
        };
        let bytes = bytes.min(grant.bytes);
        if bytes == 0 {
            return;
        }
        let group = socket.group;
        let tenant = &mut self.tenants[Group::tenant(group) as usize];
        tenant.allowance.take(u64::from(bytes));
        self.floor.on_sent(
            grant.class,
            bytes,
            self.ready[Class::Throughput.index()].first().is_some(),
        );

        let entry = &mut self.groups[group as usize];
        let socket = &mut self.sockets[index as usize];
        socket.sendable = socket.sendable.saturating_sub(u64::from(bytes));
        let turn_ends = spend(&mut socket.turn, bytes);
        let group_turn_ends = spend(&mut entry.turn, bytes);
        if socket.sendable == 0 {
            self.deactivate(index);
        } else if turn_ends && List::holds(&self.sockets, index) {
            entry.sockets.rotate(&mut self.sockets, index);
        }
        if group_turn_ends && List::holds(&self.groups, group) {
            self.ready[Group::class(group).index()].rotate(&mut self.groups, group);
        }
    }

    fn admit(&mut self, tenant: TenantId, now: u64) -> Result<(), u64> {
        match self.tenant(tenant) {
            Some(tenant) => tenant.allowance.admit(now),
            None => Ok(()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let tenants = (0u32..).zip(&self.tenants);
        let sockets = (0u32..).zip(&self.sockets);
        Snapshot {
            tenants: tenants
                .filter(|(_, tenant)| tenant.known)
                .map(|(index, tenant)| (tenant.view(TenantId(index)), tenant.allowance))
                .collect(),
            sockets: sockets
                .filter(|(_, socket)| socket.attached)
                .map(|(index, socket)| SocketState {
                    id: SocketId(index),
                    tenant: TenantId(Group::tenant(socket.group)),
                    class: socket.class,
                    sendable: socket.sendable,
                })
                .collect(),
        }
    }

    fn restore(&mut self, snapshot: &Snapshot, now: u64) {
        for (view, allowance) in &snapshot.tenants {
            if self.set_tenant(*view, now).is_ok() {
                self.tenants[view.id.0 as usize].allowance = *allowance;
            }
        }
        for socket in &snapshot.sockets {
            if self.attach(socket.id, socket.tenant, socket.class).is_ok() {
                self.update(socket.id, socket.sendable);
            }
        }
    }
}
