//! Connections of a tenant that go over channels to another host: from lane to lane, to the module `channels`, within the tenant's caps. By
//! the link the channels know whose they are; the other host sees the tenant's own address, and the port that its program has there.
//!
//! ```text
//!  program ==lane== Pair ==lane== stack-channels === channels === the other host's daemon ==lane== program
//!                    | refused: no such listener, no peer, not permitted, no room
//!                    +--> connect: kernel TCP, with the same lane of the program
//! ```

use crate::connection::{State, payload_of};
use crate::meeting::Otherwise;
use crate::own_names::{CONNECTION, MOST_NAMES, name_of};
use crate::served::TenantNumber;
use crate::worker::{KernelWorker, UNSENT};
use netchannel_abi::link::side_flags;
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::relayed::Relayed;
use netchannel_service::routing::{Destination, Refused};
use netchannel_shm::kernel_socket::set_unsent_limit;
use netchannel_stack_process::counters::Counter;
use netchannel_stack_process::message::CHANNELS;
use netchannel_stack_process::process::Fairness;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Instant;

/// Whether a connect that the channels refuse with an errno goes over kernel TCP, as that of a program of the host.
const fn is_for_kernel(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::ADDRNOTAVAIL
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
    )
}

impl KernelWorker {
    /// A program connects to a destination to which channels lead, from a port of its own.
    pub(crate) fn cross(
        &mut self,
        (tenant, key): (TenantNumber, Key),
        mut lane: Lane,
        port: u16,
        otherwise: Otherwise,
    ) {
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let own = self.tenants.get(tenant);
        let own = own.and_then(|served| served.tenant.address_like(otherwise.to.ip()));
        let Some(own) = own.filter(|_| port != 0) else {
            return refuse(lane, Errno::ADDRNOTAVAIL);
        };
        let ticket = self.table.add_meeting([Some(tenant), None]);
        if !self.schedule().add(ticket.number, tenant) {
            self.table.remove_meeting(ticket.number);
            return refuse(lane, Errno::NOBUFS);
        }
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            meeting.otherwise = Some(otherwise);
        }
        let wanted = Destination {
            listener: CHANNELS,
            client: addresses::from_socket_address(SocketAddr::new(own, port)),
            server: addresses::from_socket_address(otherwise.to),
            since: Instant::now(),
        };
        lane.set_packet_size(payload_of(otherwise.to.is_ipv6()));
        self.count_over_channels(tenant, |open| open + 1);
        self.begin_meeting(ticket, key, lane, wanted);
    }

    /// Counts a connection over channels that came or went.
    pub(crate) fn count_over_channels(
        &mut self,
        tenant: TenantNumber,
        change: impl FnOnce(u64) -> u64,
    ) {
        if let Some(served) = self.tenants.get(tenant) {
            served.count_over_channels(change);
        }
    }

    /// The channels have answered: the other host has accepted it, or it is refused.
    pub(crate) fn on_answer(&mut self, number: usize, is_accepted: bool) {
        let Some(meeting) = self.table.meeting_at_mut(number) else {
            return;
        };
        match &meeting.state {
            Relayed::Open(pair, _) if is_accepted => {
                meeting.otherwise = None;
                let flags = side_flags::ESTABLISHED | side_flags::ACCEPTED;
                pair.incoming().set_flags(flags | side_flags::OVER_CHANNELS);
                if let [Some(tenant), _] = meeting.tenants
                    && let Some(served) = self.tenants.get(tenant)
                {
                    served.counters.add(Counter::DialedOverChannels, 1);
                }
                self.queue(number);
            }
            Relayed::Asked(pair, _) => {
                let error = pair.outgoing().peer_error().cast_signed();
                // Channels that have ended say nothing.
                let errno = match error {
                    1..=133 => Errno::from_raw_os_error(error),
                    _ => Errno::CONNREFUSED,
                };
                if is_for_kernel(errno) {
                    return self.fall_back(number);
                }
                self.end_meeting(number, |state| {
                    if let Some(lane) = state.turn_back() {
                        lane.refuse(errno.raw_os_error().unsigned_abs());
                    }
                });
            }
            _ => {}
        }
    }

    /// No link leads to the channels, or it takes no more.
    pub(crate) fn refuse_meeting(&mut self, number: usize, why: Refused) {
        let crosses = self.table.meeting_at_mut(number);
        if crosses.is_some_and(|meeting| meeting.crosses()) {
            return self.fall_back(number);
        }
        self.end_meeting(number, |state| state.refuse(why));
    }

    /// Channels do not lead there now: kernel TCP makes the connection.
    fn fall_back(&mut self, number: usize) {
        let Some(meeting) = self.table.meeting_at_mut(number) else {
            return;
        };
        let ([Some(tenant), _], Some(otherwise)) = (meeting.tenants, meeting.otherwise.take())
        else {
            return self.end_meeting(number, Relayed::reset);
        };
        let far = meeting.places[1].take();
        let state = std::mem::replace(&mut meeting.state, Relayed::Changing);
        if let Some(place) = far {
            self.forget_place(place);
        }
        let lane = state.turn_back();
        if let Some((key, _)) = far {
            self.let_go(key);
        }
        let Some(lane) = lane else {
            return self.end_meeting(number, Relayed::reset);
        };
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let socket = match self.begin_connect(tenant, otherwise) {
            Ok(socket) => socket,
            Err(errno) => {
                refuse(lane, errno);
                return self.end_meeting(number, |_| {});
            }
        };
        if self.fairness == Fairness::Network {
            set_unsent_limit(&socket, UNSENT);
        }
        let name = u32::try_from(number).ok().filter(|one| *one < MOST_NAMES);
        let watched = name.map(|name| self.cells.watch_edges(&socket, name_of(CONNECTION, name)));
        if !matches!(watched, Some(Ok(()))) {
            refuse(lane, Errno::NOBUFS);
            return self.end_meeting(number, |_| {});
        }
        self.count_over_channels(tenant, |open| open.saturating_sub(1));
        self.table
            .give_socket(number, State::Connecting(lane), socket);
        if let Some(served) = self.tenants.get(tenant) {
            served.counters.add(Counter::FellBack, 1);
        }
        // It may be connected by now.
        self.queue(number);
    }
}
