//! Connections of other hosts that come in at published ports over channels: from lane to lane, from the module `channels`, within the
//! tenant's caps. The link is of two modules of the host, and what it says of the client is what the channels have permitted.
//!
//! ```text
//!  another host's program ==lane== its daemon === channels === stack-channels ==lane== Pair ==lane== program of the tenant
//! ```

use crate::doors::Door;
use crate::served::{Served, TenantNumber};
use crate::worker::KernelWorker;
use netchannel_abi::link::side_flags;
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::relayed::Relayed;
use netchannel_service::routing::Destination;
use netchannel_stack_process::counters::Counter;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

impl KernelWorker {
    /// A connection has come over a link of the channels.
    pub(crate) fn enter(
        &mut self,
        (tenant, key): (TenantNumber, Key),
        end: &Arc<LinkEnd>,
        opened: Opened,
    ) {
        let wanted = self.published(tenant, &opened);
        let mut lane = Lane::accepted(end, opened.loan).of_daemon();
        lane.lead_to_module();
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let Some(wanted) = wanted else {
            return refuse(lane, Errno::CONNREFUSED);
        };
        let ticket = self.table.add_meeting([None, Some(tenant)]);
        if !self.schedule().add(ticket.number, tenant) {
            self.table.remove_meeting(ticket.number);
            return refuse(lane, Errno::NOBUFS);
        }
        self.begin_meeting(ticket, key, lane, wanted);
    }

    /// The listener of the tenant behind the door at which it comes in.
    fn published(&self, tenant: TenantNumber, opened: &Opened) -> Option<Destination> {
        let served = self.tenants.get(tenant)?;
        let at = addresses::to_socket_address(&opened.server.unmapped())?;
        let doors = served.doors.iter();
        let doors = doors.filter_map(|number| Some(&self.doors.get(number)?.1));
        let mut doors: Vec<&Door> = doors.filter(|door| door.is_at(at)).collect();
        // One at the very address before one at any.
        doors.sort_by_key(|door| door.publish().host.ip().is_unspecified());
        let door = doors.first()?;
        let (listener, _) = served.listener_of(door, &opened.client)?;
        Some(Destination {
            listener,
            client: opened.client,
            server: door.server(),
            since: Instant::now(),
        })
    }

    /// It has reached its listener.
    pub(crate) fn note_entered(&mut self, ticket: Ticket) {
        if let Some(meeting) = self.table.meeting(ticket)
            && meeting.enters()
            && let Relayed::Open(pair, _) = &meeting.state
            && let Some(served) = meeting.other().and_then(|tenant| self.tenants.get(tenant))
        {
            pair.outgoing().set_flags(side_flags::OVER_CHANNELS);
            served.counters.add(Counter::AcceptedOverChannels, 1);
        }
    }
}

impl Served {
    /// Counts a connection over channels that came or went.
    pub(crate) fn count_over_channels(&self, change: impl FnOnce(u64) -> u64) {
        let open = change(self.counters.now().open_over_channels);
        self.counters.set(Counter::OpenOverChannels, open);
    }
}
