//! The doors of all tenants: when they open, and who comes in.

use crate::connection::{self, State};
use crate::dialing;
use crate::doors::{Change, Door};
use crate::own_names::door_name;
use crate::served::TenantNumber;
use crate::worker::KernelWorker;
use netchannel_abi::address::Address;
use netchannel_configuration::Publish;
use netchannel_service::cells::Cells;
use netchannel_service::routing::{Destination, Router};
use netchannel_stack_process::counters::Counter;
use netchannel_stack_process::message::Report;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Doors that a worker may ever have had; a number is not used again.
const MOST_DOORS: u32 = 1 << 29;
/// Clients taken at a door before others have their turn.
const MOST_ACCEPTED: usize = 64;
/// Without a descriptor, or with as many connections as the tenant may have, a door is looked at again after so long.
const DOOR_PAUSE: Duration = Duration::from_millis(50);

impl KernelWorker {
    /// Whether a port of a tenant is published.
    pub(crate) fn has_door(&self, tenant: TenantNumber, port: &Publish) -> bool {
        let doors = self.tenants.get(tenant).map(|served| &served.doors);
        let mut doors = doors
            .into_iter()
            .flatten()
            .filter_map(|name| self.doors.get(name));
        doors.any(|(_, door)| door.publish() == *port)
    }

    pub(crate) fn add_door(&mut self, tenant: TenantNumber, door: Door) {
        let Some(served) = self.tenants.get_mut(tenant) else {
            return;
        };
        if self.next_door >= MOST_DOORS {
            return;
        }
        let number = self.next_door;
        self.next_door += 1;
        served.doors.insert(number);
        served.count_descriptors();
        if door.is_open() && !served.rests() {
            watch_door(&self.cells, number, &door);
        }
        self.doors.insert(number, (tenant, door));
    }

    /// Gives up the doors of a tenant that do not stay.
    pub(crate) fn close_doors(&mut self, tenant: TenantNumber, stays: impl Fn(&Publish) -> bool) {
        let Some(served) = self.tenants.get_mut(tenant) else {
            return;
        };
        served.doors.retain(|number| {
            let stays = self
                .doors
                .get(number)
                .is_some_and(|(_, door)| stays(&door.publish()));
            if !stays && let Some((_, door)) = self.doors.remove(number) {
                // CoreEngine has the socket, too: closing this descriptor does not take it out of the set.
                self.cells.forget_own(door.socket());
            }
            stays
        });
        served.count_descriptors();
    }

    /// Clients come in at a door.
    pub(crate) fn accept(&mut self, number: u32) {
        for _ in 0..MOST_ACCEPTED {
            let Some((tenant, door)) = self.doors.get(&number).filter(|(_, door)| door.is_open())
            else {
                return;
            };
            let tenant = *tenant;
            let Some(served) = self.tenants.get(tenant) else {
                return;
            };
            if served.is_full() {
                return self.rest_doors(tenant);
            }
            let (socket, client) = match door.accept() {
                Ok(accepted) => accepted,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.rest_doors(tenant);
                }
                Err(_) => return,
            };
            let server = door.server();
            let Some((listener, _)) = served.listener_of(door, &client) else {
                connection::make_reset(&socket);
                continue;
            };
            dialing::prepare(&socket, &served.tenant, &self.kernels_congestion_control);
            served.counters.add(Counter::Accepted, 1);
            let destination = Destination {
                listener,
                client,
                server,
                since: Instant::now(),
            };
            if let Some(ticket) = self.add(tenant, State::Arriving(destination), socket) {
                self.current = tenant;
                self.route(ticket);
                self.note_retries();
            }
        }
    }

    /// No client of the tenant can be taken now: those that come wait with the kernel.
    fn rest_doors(&mut self, tenant: TenantNumber) {
        let Some(served) = self.tenants.get_mut(tenant) else {
            return;
        };
        if served.doors_rest_until.is_none() {
            for (_, door) in served
                .doors
                .iter()
                .filter_map(|number| self.doors.get(number))
            {
                self.cells.forget_own(door.socket());
            }
            served.doors_rest_until = Some(Instant::now() + DOOR_PAUSE);
            self.resting.insert(tenant);
        }
    }

    /// When the first of the doors that rest is looked at again.
    pub(crate) fn doors_rest_until(&self) -> Option<Instant> {
        let resting = self.resting.iter().filter_map(|one| self.tenants.get(*one));
        resting.filter_map(|served| served.doors_rest_until).min()
    }

    /// Doors that have rested for long enough are watched again.
    pub(crate) fn end_of_rest(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        let now = Instant::now();
        self.resting.retain(|tenant| {
            let Some(served) = self.tenants.get_mut(*tenant) else {
                return false;
            };
            let is_due = served.doors_rest_until.is_none_or(|until| until <= now);
            if is_due {
                served.doors_rest_until = None;
                for number in &served.doors {
                    if let Some((_, door)) =
                        self.doors.get(number).filter(|(_, door)| door.is_open())
                    {
                        watch_door(&self.cells, *number, door);
                    }
                }
            }
            !is_due
        });
    }

    /// Doors are open where somebody listens.
    pub(crate) fn look_at_doors(&mut self, tenant: TenantNumber) {
        let mut news = Vec::new();
        let Some(served) = self.tenants.get(tenant) else {
            return;
        };
        for number in &served.doors {
            let Some((_, door)) = self.doors.get_mut(number) else {
                continue;
            };
            let listener = served.listener_of(door, &Address::default());
            let defers = listener.map(|(_, one)| one.defers);
            door.set_defers(defers.unwrap_or(0));
            match door.set_open(defers.is_some()) {
                Ok(Change::Opened) if !served.rests() => watch_door(&self.cells, *number, door),
                Ok(Change::Shut) => self.cells.forget_own(door.socket()),
                Ok(_) => {}
                Err(errno) => tracing::warn!(
                    "tenant {}: no client can come in at {} ({errno})",
                    served.tenant.name,
                    door.publish().host
                ),
            }
            news.extend(door.news().map(|is_open| (door.publish(), is_open)));
        }
        for (port, is_open) in news {
            self.report(tenant, Report::Door(port, is_open));
        }
    }
}

fn watch_door(cells: &Cells, number: u32, door: &Door) {
    if let Err(errno) = cells.watch_own(door.socket(), door_name(number)) {
        tracing::warn!(
            "clients at {} are not heard of ({errno})",
            door.publish().host
        );
    }
}
