//! What CoreEngine tells the worker about a tenant.

use crate::dialing;
use crate::doors::{self, Door};
use crate::served::{Served, TenantNumber};
use crate::worker::KernelWorker;
use netchannel_abi::link::Role;
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::core_engine::ListenerChange;
use netchannel_service::routing::Router;
use netchannel_service::worker::Worker;
use netchannel_stack_process::counters::Counters;
use netchannel_stack_process::message::{Instruction, Report, SessionLimits};
use netchannel_stack_process::stack_end::{Heard, StackEnd};
use rustix::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a program may take from its last look at a link to its announcement.
const GRACE: Duration = Duration::from_millis(500);

impl KernelWorker {
    /// Something came over a session, or there is room for what it is told.
    pub(crate) fn hear(&mut self, name: u32) {
        if let Some(mut end) = self.unbegun.remove(&name) {
            match end.hear() {
                Heard::Instruction(Instruction::Begin(limits, memory)) => {
                    self.begin(name, end, limits, memory);
                }
                Heard::Nothing => drop(self.unbegun.insert(name, end)),
                _ => return,
            }
        }
        let Some(tenant) = self.sessions.get(&name).copied() else {
            return;
        };
        loop {
            let Some(served) = self.tenants.get_mut(tenant) else {
                return;
            };
            if served.is_over || served.end.flush().is_err() {
                break;
            }
            match served.end.hear() {
                Heard::Instruction(instruction) => self.on_instruction(tenant, instruction),
                Heard::Nothing => return,
                Heard::Ended => break,
            }
        }
        self.sessions.remove(&name);
        self.remove_tenant(tenant);
    }

    fn begin(&mut self, name: u32, end: StackEnd, limits: SessionLimits, memory: OwnedFd) {
        match Counters::of(&memory) {
            Ok(counters) => {
                let tenant = self.tenants.add(Served::new(end, limits, counters));
                self.schedule().set_tenant(tenant, 1);
                self.sessions.insert(name, tenant);
            }
            Err(errno) => tracing::error!("a tenant is not served: {errno}"),
        }
    }

    fn on_instruction(&mut self, tenant: TenantNumber, instruction: Instruction) {
        self.current = tenant;
        match instruction {
            Instruction::Begin(..) => {}
            Instruction::Tenant(table) => self.on_table(tenant, *table),
            Instruction::Keep(ports) => self.close_doors(tenant, |port| ports.contains(port)),
            Instruction::Publish(ports) => self.on_publish(tenant, ports),
            Instruction::Gateway(number) => {
                if let Some(served) = self.tenants.get_mut(tenant) {
                    served.gateway = Some(number);
                }
            }
            Instruction::Listener(change) => {
                if let Some(served) = self.tenants.get_mut(tenant) {
                    match change {
                        ListenerChange::Added(number, listener) => {
                            served.listeners.insert(number, listener);
                        }
                        ListenerChange::Removed(number) => {
                            served.listeners.remove(&number);
                        }
                    }
                }
                self.look_at_doors(tenant);
            }
            Instruction::Core(command) => {
                self.on_command(command);
                self.note_retries();
            }
            Instruction::Drain => self.drain(tenant),
        }
    }

    /// Another table of a tenant: caps, weight and congestion control hold at once, the rest for what is made from now on.
    fn on_table(&mut self, number: TenantNumber, tenant: Tenant) {
        let now = self.now();
        let Some(served) = self.tenants.get_mut(number) else {
            return;
        };
        served.caps.set(&tenant, now);
        let former = std::mem::replace(&mut served.tenant, Arc::new(tenant));
        let tenant = Arc::clone(&served.tenant);
        self.schedule().set_tenant(number, tenant.weight);
        if former.congestion_control != tenant.congestion_control {
            let kernels = self.kernels_congestion_control.clone();
            let wanted = tenant.congestion_control.as_deref().unwrap_or(&kernels);
            for one in self.table.of_tenant(number) {
                if let Some(connection) = self.table.at_mut(one) {
                    dialing::choose_congestion_control(&connection.socket, &tenant, wanted);
                }
            }
        }
        // A connection that a cap held back may go on.
        let own = self.table.of_tenant(number).into_iter();
        for one in own
            .chain(self.table.meetings_of(number))
            .collect::<Vec<_>>()
        {
            self.queue(one);
        }
    }

    /// These ports are published, too.
    fn on_publish(&mut self, number: TenantNumber, ports: Vec<(Publish, Option<OwnedFd>)>) {
        let Some(served) = self.tenants.get(number) else {
            return;
        };
        let tenant = Arc::clone(&served.tenant);
        for (port, socket) in ports {
            if self.has_door(number, &port) {
                continue;
            }
            let bound = match socket {
                Some(socket) => Ok(socket),
                None => doors::bind(&port).and_then(|socket| {
                    let kept = socket.try_clone();
                    let kept = kept.map_err(|error| netchannel_service::packet::errno(&error))?;
                    self.report(number, Report::Published(port, Ok(kept)));
                    Ok(socket)
                }),
            };
            match bound.and_then(|socket| Door::new(port, socket, &tenant)) {
                Ok(door) => self.add_door(number, door),
                Err(errno) => self.report(number, Report::Published(port, Err(errno))),
            }
        }
        self.look_at_doors(number);
    }

    pub(crate) fn report(&mut self, tenant: TenantNumber, report: Report) {
        if let Some(served) = self.tenants.get_mut(tenant) {
            served.report(report);
        }
    }

    /// No new connection of the tenant is taken. Programs ask for a link to its new stack, and what they have announced by then is taken yet.
    fn drain(&mut self, tenant: TenantNumber) {
        for key in self.links_of(tenant) {
            if let Some(end) = self
                .cells
                .link(key)
                .filter(|end| end.role() == Role::Server)
            {
                self.cells.unwatch_channel(key);
                // The program sees it before it makes the next connection.
                let _ = rustix::net::shutdown(end.channel(), Shutdown::Both);
            }
        }
        self.leaving.insert(tenant, Instant::now() + GRACE);
    }

    /// When links are left the next time.
    pub(crate) fn next_leave(&self) -> Option<Instant> {
        self.leaving.values().min().copied()
    }

    /// Links of tenants that have another stack are left: they go with their last connections.
    pub(crate) fn leave(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = Instant::now();
        let due = self.leaving.iter().filter(|(_, at)| **at <= now);
        for tenant in due.map(|(tenant, _)| *tenant).collect::<Vec<_>>() {
            self.leaving.remove(&tenant);
            self.current = tenant;
            for key in self.links_of(tenant) {
                self.retire(key);
            }
            if let Some(served) = self.tenants.get_mut(tenant) {
                served.drains = true;
                served.tell_drained();
            }
        }
    }
}
