//! The way of a peer's connection to a listener of this host.

use super::acceptor::Pending;
use super::commands::Report;
use super::connection::{Peer, Wanted};
use super::opening::{insert, settings, start};
use super::peer::Counters;
use super::shared::{FIRST_WORKER, WorkerMessage};
use super::sockets::OpenRequest;
use super::worker::ChannelWorker;
use netchannel_abi::link::Role;
use netchannel_scheduler::Class;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::stack::OF_TENANT;
use netchannel_service::targets::Targets;
use netchannel_service::worker::Worker;
use netchannel_vns::{Reason, VirtualSocket};
use netchannel_wire::{Frame, Handle, NcRst, NcSyn, Refusal};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections of one peer that may wait for a listener: as many as the longest backlog that Linux allows by default.
/// Beyond this number a listener counts as full at once.
const MOST_WAITING: usize = 4096;

impl Router for ChannelWorker {
    fn cells(&self) -> &Cells {
        &self.cells
    }

    fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    fn targets(&mut self) -> &mut Targets {
        &mut self.targets
    }

    fn count(&self) -> &Arc<Count> {
        &self.shared.count
    }

    fn request(&mut self, request: StackRequest) {
        self.report(Report::Request(request));
    }

    fn destination(&self, ticket: Ticket) -> Option<Destination> {
        let pending = self.acceptor.get(ticket)?;
        let syn = &pending.syn;
        Some(Destination {
            listener: syn.listener,
            client: syn.client,
            server: syn.server,
            since: pending.since,
        })
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        match self.acceptor.get_mut(ticket) {
            Some(pending) if pending.anew.is_some() => self.refuse(ticket, Refused::NoListener),
            Some(pending) => pending.syn.listener = listener,
            None => {}
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        let entry = u32::try_from(ticket.number).unwrap_or(u32::MAX);
        let connection = self.owned.get(entry);
        connection.is_some_and(|one| one.stamp == ticket.stamp && !one.is_accepted())
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        self.establish(ticket, lane, key)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        if let Some(pending) = self.acceptor.get_mut(ticket) {
            pending.offered = Some((lane, key));
        }
        None
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        // The start of the peer may have ended meanwhile.
        let (lane, key) = self.take_back(ticket)?;
        self.establish(ticket, lane, key)
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        self.acceptor.get_mut(ticket)?.offered.take()
    }

    fn refuse(&mut self, ticket: Ticket, why: Refused) {
        let refusal = match why {
            Refused::NoListener | Refused::WrongAddress => Refusal::NoListener,
            Refused::BacklogFull => Refusal::BacklogFull,
            // The connection goes over kernel TCP: a descriptor may never become free.
            Refused::Shortage(errno) => {
                self.note_shortage(errno);
                Refusal::Quota
            }
        };
        let Some(pending) = self.acceptor.take(ticket) else {
            return;
        };
        if let Some(connection) = pending.anew {
            self.end_unaccepted(&connection);
        } else {
            self.send_refusal(&pending.peer, pending.syn.handle, refusal);
        }
    }

    fn retire(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        end.retire();
        if end.role() == Role::Client {
            // What its program had not accepted may seek another one now.
            let all: Vec<_> = self.owned.of_link(key).map(Arc::clone).collect();
            all.iter().for_each(|one| self.settle_later(one));
        }
        if self.index == FIRST_WORKER {
            self.cells.unwatch_channel(key);
            self.send_to_others(|| WorkerMessage::LinkEnded(end.number()));
        }
        self.release_link_if_unused(key);
    }

    fn added(&mut self, number: u64, key: Key) {
        self.keys.insert(number, key);
    }

    fn on_anchors_closed(&mut self, _: Key, end: &Arc<LinkEnd>) {
        self.examine_link(end);
    }

    fn rouse(&mut self, key: Key, _: &LinkEnd, claimed: bool) {
        // The program is woken once, after all connections of this pass were announced.
        self.announced_links.push((key, claimed));
    }
}

impl ChannelWorker {
    /// Routes the connections that peers have requested. The kernel is polled first, so that links whose programs have closed them are known.
    pub(super) fn route_requested(&mut self) {
        if self.requested.is_empty() {
            return;
        }
        let mut news = Vec::new();
        self.cells.poll_kernel(&mut news);
        for one in news {
            self.on_news(one);
        }
        for (peer, syn) in std::mem::take(&mut self.requested) {
            self.on_connection_request(&peer, &syn);
        }
    }

    /// Handles a connection request of a peer.
    fn on_connection_request(&mut self, peer: &Arc<Peer>, syn: &NcSyn) {
        if peer.has_ended() {
            return;
        }
        let asked = peer.sockets().classify_open(syn.handle);
        match asked {
            OpenRequest::New => {}
            OpenRequest::Again(connection) => {
                // An error is a violation, which has reset the socket.
                let _ = connection.lock().socket.on_open_again(syn.limit, self.now);
                return self.settle_later(&connection);
            }
            OpenRequest::Refused(refusal) => return self.send_refusal(peer, syn.handle, refusal),
            OpenRequest::Ignored => return,
            OpenRequest::TooMany => return self.send_refusal(peer, syn.handle, Refusal::Quota),
        }
        if !peer.rules().admits(syn) {
            return self.send_refusal(peer, syn.handle, Refusal::NotAllowed);
        }
        if self.shared.defers(syn.listener) {
            return self.send_refusal(peer, syn.handle, Refusal::KernelOnly);
        }
        if peer.waiting.load(Ordering::Relaxed) >= MOST_WAITING {
            return self.send_refusal(peer, syn.handle, Refusal::BacklogFull);
        }
        let since = self.shared.epoch + Duration::from_nanos(self.now);
        let ticket = self.acceptor.add(peer, syn, since);
        self.route(ticket);
    }

    /// The connection was announced to the listener: accepts it towards the peer.
    fn establish(&mut self, ticket: Ticket, mut lane: Lane, key: Key) -> Option<Ticket> {
        let pending = self.acceptor.take(ticket);
        let end = self.cells.link(key).map(Arc::clone);
        let (Some(pending), Some(end)) = (pending, end) else {
            lane.close(true);
            return None;
        };
        if end.user() == Some(OF_TENANT) {
            lane.lead_to_module();
        }
        let Pending {
            peer, syn, anew, ..
        } = pending;
        if peer.has_ended() {
            lane.close(true);
            return None;
        }
        if let Some(connection) = anew {
            return self.accept_anew(&connection, lane, (end, key));
        }
        let socket = VirtualSocket::passive(settings(), start(&lane), syn.limit, self.now);
        let Ok(socket) = socket else {
            lane.close(true);
            self.send_refusal(&peer, syn.handle, Refusal::NotAllowed);
            return None;
        };
        let wanted = Wanted {
            client: syn.client,
            server: syn.server,
            listener: syn.listener,
            class: syn.class.map(|class| match class {
                netchannel_wire::Class::Latency => Class::Latency,
                netchannel_wire::Class::Throughput => Class::Throughput,
            }),
        };
        let names = (ticket.stamp, Some(syn.handle));
        let made = insert(&peer, &end, wanted, (socket, lane), names, self.now);
        let Some(connection) = made else {
            self.send_refusal(&peer, syn.handle, Refusal::Quota);
            return None;
        };
        let known = peer
            .sockets()
            .set_peer_handle(syn.handle, connection.handle);
        let mut state = connection.lock();
        state.socket.accept(self.now);
        if !known {
            state.socket.abort(Reason::Violation, self.now);
        }
        drop(state);
        self.take_ownership(&connection, key, wanted.class.unwrap_or(Class::Latency));
        Some(connection.ticket())
    }

    fn note_shortage(&mut self, errno: Errno) {
        if let Some(suppressed) = self.acceptor.shortage.count(Instant::now()) {
            let why = std::io::Error::from(errno);
            let what = "connections of other hosts are left to kernel TCP";
            tracing::warn!(suppressed, "{what}: this daemon cannot have them ({why})");
        }
    }

    fn send_refusal(&mut self, peer: &Arc<Peer>, handle: Handle, reason: Refusal) {
        peer.sockets().refuse(handle, reason);
        Counters::add(&peer.counters.refused, 1);
        self.send_frame(peer, &Frame::NcRst(NcRst { handle, reason }));
    }
}
