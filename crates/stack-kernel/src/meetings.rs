//! Connections between two tenants that meet: from lane to lane, within the caps of both. The operator's tables decide who meets whom,
//! by the tenants of the sessions: no word of a program names a tenant. Nothing else of the other is seen.
//!
//! ```text
//!  program of A ==lane== Pair ==lane== program of B       turns are A's, who connected
//!      A rate-out, B rate-in  -->   <--  B rate-out, A rate-in
//! ```

use crate::caps::Between;
use crate::meeting::{Meeting, Place};
use crate::served::{Served, TenantNumber};
use crate::worker::KernelWorker;
use netchannel_abi::address::Address;
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::pair::{Moved, Turn};
use netchannel_service::relayed::Relayed;
use netchannel_service::routing::{Destination, Router};
use netchannel_service::timers::{NEVER, nanoseconds};
use netchannel_stack_process::counters::Counter;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// The first port that anybody may have.
const PRIVILEGED: u16 = 1024;

impl Served {
    /// Whether a program connects to a tenant that its own may meet.
    pub fn meets_at(&self, opened: &Opened) -> bool {
        Some(opened.listener) == self.gateway
            && destination(&opened.server).is_some_and(|to| self.tenant.met_at(to.ip()).is_some())
    }

    /// Where a program connects to a listener of its own tenant: one that had no room, so that the connect waits here.
    ///
    /// # Errors
    /// Why it may not.
    pub fn own_listener(
        &self,
        opened: &Opened,
        user: Option<u32>,
    ) -> Option<Result<Destination, Errno>> {
        let to = destination(&opened.server).filter(|_| Some(opened.listener) == self.gateway)?;
        let own = match to.ip() {
            loopback if loopback.is_loopback() => Some(loopback),
            other => self.tenant.address_like(other).filter(|own| *own == other),
        }?;
        let server = addresses::from_socket_address(to);
        let client = addresses::from_socket_address(SocketAddr::new(own, opened.client.port));
        let listener = self.listener_at(&server, &client)?;
        // Programs of a tenant may be of several users: a port that tells of a privilege is root's.
        let is_own_port = match opened.client.port {
            0 => false,
            1..PRIVILEGED => user == Some(0),
            _ => true,
        };
        let wanted = Destination {
            listener,
            client,
            server,
            since: Instant::now(),
        };
        Some(if is_own_port {
            self.within_limit(wanted)
        } else {
            Err(Errno::ADDRNOTAVAIL)
        })
    }

    /// Whether it is the tenant of a name and an address, and may meet `other`.
    fn is_met(&self, name: &str, address: IpAddr, other: &str) -> bool {
        self.tenant.addresses.contains(&address)
            && self.tenant.name == name
            && self.tenant.may_meet(other)
    }
}

fn destination(server: &Address) -> Option<SocketAddr> {
    addresses::to_socket_address(&server.unmapped())
}

impl KernelWorker {
    /// A program of a tenant connects to a listener of its own tenant.
    pub(crate) fn meet_own(
        &mut self,
        (tenant, key): (TenantNumber, Key),
        lane: Lane,
        wanted: Destination,
    ) {
        let ticket = self.table.add_meeting([Some(tenant); 2]);
        if self.schedule().add(ticket.number, tenant) {
            return self.begin_meeting(ticket, key, lane, wanted);
        }
        self.table.remove_meeting(ticket.number);
        lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
    }

    /// A program of a tenant connects to one that its own may meet.
    pub(crate) fn meet(
        &mut self,
        (client, key): (TenantNumber, Key),
        end: &Arc<LinkEnd>,
        opened: Opened,
    ) {
        let wanted = self.listener_of_met(client, &opened);
        let lane = Lane::accepted(end, opened.loan).of_daemon();
        let begun = wanted.and_then(|(server, wanted)| {
            let shortage = Errno::NOBUFS;
            let ticket = self.table.add_meeting([Some(client), Some(server)]);
            if self.schedule().add(ticket.number, client) {
                return Ok((ticket, wanted));
            }
            self.table.remove_meeting(ticket.number);
            Err(shortage)
        });
        match begun {
            Ok((ticket, wanted)) => self.begin_meeting(ticket, key, lane, wanted),
            Err(errno) => lane.refuse(errno.raw_os_error().unsigned_abs()),
        }
    }

    /// The tenant to which a connection goes, and its listener.
    ///
    /// # Errors
    /// Why it goes nowhere.
    fn listener_of_met(
        &self,
        client: TenantNumber,
        opened: &Opened,
    ) -> Result<(TenantNumber, Destination), Errno> {
        let own = self.tenants.get(client).ok_or(Errno::NETUNREACH)?;
        let to = destination(&opened.server).ok_or(Errno::AFNOSUPPORT)?;
        let from = own.tenant.address_like(to.ip()).ok_or(Errno::NETUNREACH)?;
        if opened.client.port == 0 {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let met = own.tenant.met_at(to.ip()).ok_or(Errno::ACCESS)?;
        let is_met = |number: TenantNumber, one: &Served| {
            one.is_met(&met.name, to.ip(), &own.tenant.name)
                && one.takes_new()
                && !self.leaving.contains_key(&number)
        };
        // A host that is down: its tenant is not served, or has left this stack.
        let number = self.tenants.find(is_met).ok_or(Errno::HOSTUNREACH)?;
        let server = addresses::from_socket_address(to);
        let port = SocketAddr::new(from, opened.client.port);
        let client = addresses::from_socket_address(port);
        let other = self.tenants.get(number).ok_or(Errno::HOSTUNREACH)?;
        let listener = other.listener_at(&server, &client);
        let destination = Destination {
            listener: listener.ok_or(Errno::CONNREFUSED)?,
            client,
            server,
            since: Instant::now(),
        };
        own.within_limit((number, destination))
    }

    pub(crate) fn begin_meeting(
        &mut self,
        ticket: Ticket,
        key: Key,
        mut lane: Lane,
        wanted: Destination,
    ) {
        let slot = lane.handle().index;
        let is_watched = self.watch_lane(ticket.number, key, &mut lane);
        let Some(meeting) = self.table.meeting_mut(ticket) else {
            return;
        };
        let [client, server] = meeting.tenants;
        meeting.places[0] = Some((key, slot));
        meeting.state = Relayed::Pending(lane, wanted);
        if let Some(served) = client.and_then(|client| self.tenants.get_mut(client)) {
            served.count_connections(|count| count + 1);
        }
        if !is_watched {
            return self.end_meeting(ticket.number, |state| {
                if let Relayed::Pending(lane, _) = state {
                    lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
                }
            });
        }
        if let Some(served) = client.and_then(|client| self.tenants.get(client)) {
            served.counters.add(Counter::Dialed, 1);
        }
        // The links to channels are of who connects.
        self.current = server.or(client).unwrap_or_default();
        self.route(ticket);
        self.note_retries();
    }

    /// A lane towards the listener is about to be used. A tenant that has as many connections as it may takes no more: the client waits,
    /// as for room at a listener.
    pub(crate) fn watch_server(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        let Some(meeting) = self.table.meeting(ticket) else {
            return false;
        };
        let (server, crosses, enters) = (meeting.other(), meeting.crosses(), meeting.enters());
        let is_full =
            server.is_some_and(|server| self.tenants.get(server).is_none_or(Served::is_full));
        if let (true, Relayed::Pending(incoming, _)) = (crosses, &meeting.state) {
            lane.set_hints_word(incoming.hints_word());
            lane.lead_to_module();
        }
        let slot = lane.handle().index;
        if is_full || !self.watch_lane(ticket.number, key, lane) {
            return false;
        }
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            meeting.places[1] = Some((key, slot));
        }
        if let Some(served) = server.and_then(|server| self.tenants.get_mut(server)) {
            served.count_connections(|count| count + 1);
            if enters {
                served.count_over_channels(|open| open + 1);
            }
        }
        true
    }

    /// That lane is not used after all.
    pub(crate) fn unwatch_server(&mut self, place: Place) {
        let number = self.places.get(place.0, place.1);
        let meeting = number.and_then(|number| self.table.meeting_at_mut(number));
        if let Some(meeting) = meeting
            && meeting.places[1].take_if(|one| *one == place).is_some()
            && let (enters, Some(server)) = (meeting.enters(), meeting.other())
        {
            self.count_server_end(server, enters);
        }
    }

    /// The program to which one was announced over a lane was killed before it accepted it: another one may.
    fn meet_anew(&mut self, ticket: Ticket, lane: Lane) {
        lane.close(true);
        let Some(meeting) = self.table.meeting(ticket) else {
            return;
        };
        let ([_, server], [_, place]) = (meeting.tenants, meeting.places);
        if let Some((key, slot)) = place {
            self.unwatch(key, slot);
            self.let_go(key);
        }
        self.current = server.unwrap_or_default();
        self.route(ticket);
        self.note_retries();
    }

    /// It was announced to its listener.
    pub(crate) fn establish_meeting(&mut self, ticket: Ticket, lane: Lane) {
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            if meeting.crosses() {
                meeting.state.ask(lane);
            } else {
                meeting.state.establish(lane);
            }
        }
        self.note_established(ticket);
    }

    /// CoreEngine has offered it.
    pub(crate) fn meeting_taken(&mut self, ticket: Ticket) {
        let taken = self
            .table
            .meeting_mut(ticket)
            .is_some_and(|one| one.state.taken());
        if taken {
            self.note_established(ticket);
        }
    }

    fn note_established(&mut self, ticket: Ticket) {
        if let Some(meeting) = self.table.meeting(ticket)
            && let Some(server) = meeting.other()
            && let Some(served) = self.tenants.get(server)
        {
            served.counters.add(Counter::Accepted, 1);
        }
        self.note_entered(ticket);
        self.queue(ticket.number);
    }

    fn count_server_end(&mut self, server: TenantNumber, enters: bool) {
        if enters {
            self.count_over_channels(server, |open| open.saturating_sub(1));
        }
        self.count_end(server);
    }

    /// A token came on the anchor of one of its lanes, or its `end`.
    pub(crate) fn on_meeting_token(&mut self, number: usize, place: Place, end: bool) {
        if let Some(meeting) = self.table.meeting_at_mut(number) {
            let which = usize::from(meeting.places[1] == Some(place));
            meeting.state.on_token(which, end);
        }
    }

    /// One has its turn.
    pub(crate) fn turn_meeting(&mut self, number: usize, now: u64) {
        let Some(meeting) = self.table.meeting_at_mut(number) else {
            return;
        };
        meeting.queued = false;
        // What channels have is theirs.
        if !meeting.crosses()
            && let Some(outgoing) = meeting.state.wait_anew()
        {
            let stamp = meeting.stamp;
            return self.meet_anew(Ticket { number, stamp }, outgoing);
        }
        if meeting.state.is_given_up() {
            return self.end_meeting(number, |state| {
                if let Some(lane) = state.turn_back() {
                    lane.close(false);
                }
            });
        }
        if let Some(answer) = meeting.state.answer() {
            return self.on_answer(number, answer);
        }
        // What stays within a tenant is not capped, as it is not where no stack leads it.
        let ends = if meeting.is_within() {
            Some([None, None])
        } else {
            self.tenants.ends_mut(meeting.tenants)
        };
        let Relayed::Open(pair, _) = &mut meeting.state else {
            return;
        };
        let Some([mut client, mut server]) = ends else {
            return;
        };
        let mut limits = Limits::default();
        let waits = |lane: &Lane| lane.frontier().map_or(1, |to| to - lane.consumed());
        let forth = between(client.as_deref_mut(), server.as_deref_mut());
        limits.ask(0, forth, || waits(pair.incoming()), now);
        let back = between(server.as_deref_mut(), client.as_deref_mut());
        limits.ask(1, back, || waits(pair.outgoing()), now);
        let (turn, moved) = pair.turn_within(limits.bytes);
        let [forth, back] = moved;
        note(client.as_deref_mut(), server.as_deref_mut(), forth.bytes);
        note(server.as_deref_mut(), client.as_deref_mut(), back.bytes);
        if let Turn::Over(ending) = turn {
            if ending.is_fault()
                && let Some(suppressed) = self.faults.count(Instant::now())
            {
                let name = |end: &Option<&mut Served>| {
                    let name = end
                        .as_ref()
                        .map(|end| format!("tenant {}", end.tenant.name));
                    name.unwrap_or_else(|| "another host".to_owned())
                };
                tracing::warn!(
                    suppressed,
                    "a connection between {} and {} was reset: a program wrote what it may not",
                    name(&client),
                    name(&server)
                );
            }
            return self.end_meeting(number, |state| {
                if let Relayed::Open(pair, _) = state {
                    pair.close(ending);
                }
            });
        }
        let held = match turn {
            Turn::Waits(Some(left)) => Some(now.saturating_add(nanoseconds(left))),
            _ => None,
        };
        let goes_on = turn == Turn::Busy && limits.may_go_on(moved);
        let capped = limits.until.into_iter().zip(moved);
        let capped = capped.filter_map(|(until, moved)| until.filter(|_| moved.more));
        let next = held.into_iter().chain(capped).min();
        if goes_on {
            self.queue(number);
        } else if let Ok(number) = u32::try_from(number) {
            self.timers.set(number, next.unwrap_or(NEVER));
        }
    }

    /// Takes one out, lets `close` end its lanes, and then its links go if they are used no more.
    pub(crate) fn end_meeting(&mut self, number: usize, close: impl FnOnce(Relayed)) {
        let Some(meeting) = self.table.remove_meeting(number) else {
            return;
        };
        let (server, crosses, enters) = (meeting.other(), meeting.crosses(), meeting.enters());
        let Meeting {
            tenants: [client, _],
            places,
            queued,
            state,
            ..
        } = *meeting;
        self.schedule().remove(number, queued);
        if let Ok(number) = u32::try_from(number) {
            self.timers.set(number, NEVER);
        }
        let is_counted = places[1].is_some();
        let places = places.into_iter().flatten();
        places.clone().for_each(|place| self.forget_place(place));
        close(state);
        places.for_each(|(key, _)| self.let_go(key));
        if let Some(client) = client {
            if crosses {
                self.count_over_channels(client, |open| open.saturating_sub(1));
            }
            self.count_end(client);
        }
        if let Some(server) = server.filter(|_| is_counted) {
            self.count_server_end(server, enters);
        }
    }

    /// A tenant's session has ended: so have its connections with others.
    pub(crate) fn reset_meetings(&mut self, tenant: TenantNumber) {
        for number in self.table.meetings_of(tenant) {
            self.end_meeting(number, Relayed::reset);
        }
    }
}

/// What the caps permit for one turn, each way.
#[derive(Default)]
struct Limits {
    bytes: [u64; 2],
    /// Where they permit nothing: from when on it is worth asking again.
    until: [Option<u64>; 2],
}

impl Limits {
    fn ask(&mut self, which: usize, mut caps: Between<'_>, waits: impl FnOnce() -> u64, now: u64) {
        let permitted = if caps.is_free() {
            Ok(u64::MAX)
        } else {
            caps.permit(waits(), now)
        };
        if let (Some(bytes), Some(until)) = (self.bytes.get_mut(which), self.until.get_mut(which)) {
            *bytes = permitted.unwrap_or(0);
            *until = permitted.err();
        }
    }

    /// Whether a pair that is busy may move more now: one whose bytes all wait for a cap may not.
    fn may_go_on(&self, moved: [Moved; 2]) -> bool {
        let ways = self.until.iter().zip(moved);
        let mut waiting = ways.filter(|(_, moved)| moved.more);
        let any = waiting.clone().next().is_some();
        !any || waiting.any(|(until, _)| until.is_none())
    }
}

/// The caps of what goes from one end to the other.
fn between<'a>(from: Option<&'a mut Served>, to: Option<&'a mut Served>) -> Between<'a> {
    Between(
        from.map(|from| &mut from.caps.outgoing),
        to.map(|to| &mut to.caps.incoming),
    )
}

/// Bytes went from one end to the other, of which one is perhaps on another host.
fn note(mut from: Option<&mut Served>, mut to: Option<&mut Served>, bytes: u64) {
    if bytes == 0 {
        return;
    }
    between(from.as_deref_mut(), to.as_deref_mut()).take(bytes);
    let crosses = from.is_none() || to.is_none();
    if let Some(from) = from {
        from.counters.add(Counter::BytesOut, bytes);
        from.sent_past_sockets += bytes;
        if crosses {
            from.counters.add(Counter::BytesOutOverChannels, bytes);
        }
    }
    if let Some(to) = to {
        to.counters.add(Counter::BytesIn, bytes);
        if crosses {
            to.counters.add(Counter::BytesInOverChannels, bytes);
        }
    }
}
