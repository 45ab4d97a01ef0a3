//! The handlers of all frames other than DATA.

use super::commands::{Command, Report};
use super::connection::{Connection, Peer, Wanted, frame_to};
use super::open_channel::OpenChannel;
use super::peer::Counters;
use super::reset_reasons;
use super::shared::{FIRST_WORKER, WorkerMessage};
use super::sockets::Found;
use super::tombstone::Tombstone;
use super::worker::ChannelWorker;
use crate::announcement::Announcement;
use netchannel_service::addresses;
use netchannel_service::stack::OF_TENANT;
use netchannel_service::urgent::Row;
use netchannel_vns::{Arrived, FinalState, Handle, Reason, State as Phase, Transmit, Window};
use netchannel_wire::{Frame, GoAwayReason, MOST_FIXED_FRAME, NcSynAck, NoSocket};
use std::sync::Arc;
use std::time::Instant;

impl ChannelWorker {
    pub(super) fn on_frame(&mut self, channel: &mut OpenChannel, frame: &Frame<'_>) {
        let now = self.now;
        match *frame {
            Frame::Window(received) => {
                let window = Window {
                    filled: received.filled,
                    limit: received.limit,
                    fin: received.fin,
                    ask: received.ask,
                    again: received.again,
                };
                self.on_window(channel, received.handle, window);
            }
            Frame::Fin(fin) => self.with_socket(channel, fin.handle, Arrived::Fin, |connection| {
                let mut state = connection.lock();
                state.defer_wake_ups();
                // An error is a violation, which has reset the socket.
                let _ = state.socket.on_fin(fin.sequence, now);
            }),
            // For an ended socket nothing is answered here: the DATA that follows is answered.
            Frame::Urgent(received) => {
                self.with_socket(channel, received.handle, Arrived::Reset, |connection| {
                    let mut state = connection.lock();
                    if received.sequence > state.urgent.end {
                        state.urgent = Row {
                            first: received.first,
                            end: received.sequence,
                        };
                    }
                })
            }
            Frame::NcSynAck(answer) => self.on_answer(channel, &answer),
            Frame::NcSyn(syn) => {
                let peer = Arc::clone(&channel.peer);
                match self.index {
                    FIRST_WORKER => self.requested.push((peer, syn)),
                    _ => {
                        self.send_message(FIRST_WORKER, WorkerMessage::ConnectionRequest(peer, syn))
                    }
                }
            }
            Frame::NcRst(refused) => {
                let mut unpermitted = None;
                self.with_socket(channel, refused.handle, Arrived::Reset, |connection| {
                    let mut state = connection.lock();
                    if state.socket.state() == Phase::Opening {
                        Counters::add(&connection.peer.counters.refused, 1);
                        let reason = reset_reasons::of_refusal(refused.reason);
                        state.socket.on_reset(reason, now);
                        let is_tenants = connection.link().user() == Some(OF_TENANT);
                        unpermitted = (is_tenants && reason == Reason::NotAllowed)
                            .then_some(connection.wanted);
                    }
                });
                if let Some(wanted) = unpermitted {
                    self.note_unpermitted(&wanted);
                }
            }
            Frame::Rst(reset) => {
                self.with_socket(channel, reset.handle, Arrived::Reset, |connection| {
                    let reason = reset_reasons::of_reset(reset.reason);
                    connection.lock().socket.on_reset(reason, now);
                })
            }
            Frame::NoSocket(none) => {
                let found = channel.peer.sockets().find_by_peer_handle(none.handle);
                if let Some(connection) = found {
                    connection.lock().socket.on_reset(Reason::NoSocket, now);
                    self.settle_later(&connection);
                }
            }
            Frame::Ping(number) => channel.outbox.push_frame(&Frame::Pong(number)),
            Frame::GoAway(reason) => self.on_goaway(channel, reason),
            Frame::Addresses(received) => {
                let list = received.list.iter().collect();
                self.report_announcement(channel, Announcement::Addresses(received.serial, list));
            }
            Frame::Listen(received) => {
                self.report_announcement(channel, Announcement::Listen(received))
            }
            Frame::Unlisten(received) => {
                self.report_announcement(channel, Announcement::Unlisten(received))
            }
            Frame::ListenEnd(received) => {
                self.report_announcement(channel, Announcement::ListenEnd(received))
            }
            // PONG only counts as a sign of life. The parser lets no frame of the handshake pass.
            Frame::Pong(_) | Frame::Hello(_) | Frame::HelloAnswer(_) | Frame::HelloProof(_) => {}
        }
    }

    /// A peer does not take connections from the address of a tenant: its operator may not have named it.
    fn note_unpermitted(&mut self, wanted: &Wanted) {
        if let Some(suppressed) = self.unpermitted.count(Instant::now()) {
            let [client, server] = [&wanted.client, &wanted.server].map(|one| {
                let at = addresses::to_socket_address(&one.unmapped());
                at.map_or_else(String::new, |at| at.ip().to_string())
            });
            tracing::warn!(
                suppressed,
                "the host of {server} does not permit the address {client} of a tenant, whose connections go over kernel TCP: add {client} to the prefixes that its configuration has of this host"
            );
        }
    }

    /// Calls `change` with the socket that a frame names, or answers that there is none.
    fn with_socket(
        &mut self,
        channel: &mut OpenChannel,
        handle: Handle,
        arrived: Arrived,
        change: impl FnOnce(&Arc<Connection>),
    ) {
        let found = channel.peer.sockets().find(handle);
        match found {
            Found::Live(connection) => {
                change(&connection);
                self.settle_later(&connection);
            }
            Found::Ended(tombstone) => self.answer(channel, handle, Some(&tombstone), arrived),
            Found::Unknown => self.answer(channel, handle, None, arrived),
        }
    }

    fn on_window(&mut self, channel: &mut OpenChannel, handle: Handle, window: Window) {
        let now = self.now;
        let ask = window.ask;
        self.with_socket(channel, handle, Arrived::Window { ask }, |connection| {
            let mut state = connection.lock();
            state.defer_wake_ups();
            // An error is a violation, which has reset the socket.
            let _ = state.socket.on_window(window, now);
            connection.apply_changes(&mut state, now);
        });
    }

    fn on_answer(&mut self, channel: &mut OpenChannel, answer: &NcSynAck) {
        let now = self.now;
        let peer = Arc::clone(&channel.peer);
        self.with_socket(channel, answer.handle, Arrived::Answer, |connection| {
            let theirs = connection.lock().peer_handle;
            let known = theirs.is_some_and(|theirs| theirs == answer.responder);
            let fits = known
                || theirs.is_none()
                    && peer
                        .sockets()
                        .set_peer_handle(answer.responder, connection.handle);
            let mut state = connection.lock();
            if !fits {
                return state.socket.abort(Reason::Violation, now);
            }
            state.peer_handle = Some(answer.responder);
            state.defer_wake_ups();
            // An error is a violation, which has reset the socket.
            let _ = state.socket.on_answer(answer.limit, now);
            connection.apply_changes(&mut state, now);
        });
    }

    fn on_goaway(&mut self, channel: &mut OpenChannel, reason: GoAwayReason) {
        channel.goaway.received = true;
        // The answer goes on this channel, so that frames queued before arrive before it.
        channel.send_goaway(GoAwayReason::Retired);
        let peer = Arc::clone(&channel.peer);
        peer.remove_route(&channel.route);
        self.send_to_others(|| WorkerMessage::RoutesChanged(Arc::clone(&peer)));
        self.report(Report::GoAway {
            instance: channel.route.instance,
            reason,
        });
    }

    fn report_announcement(&self, channel: &OpenChannel, announcement: Announcement) {
        self.report(Report::Announced {
            instance: channel.route.instance,
            announcement,
        });
    }

    /// Answers a frame for a socket that is unknown or has ended.
    pub(super) fn answer(
        &mut self,
        channel: &mut OpenChannel,
        handle: Handle,
        tombstone: Option<&Tombstone>,
        arrived: Arrived,
    ) {
        let reply = match tombstone {
            Some(tombstone) => tombstone.final_state.answer_to(arrived),
            None => FinalState::answer_for_unknown(arrived),
        };
        let Some(reply) = reply else { return };
        let nobody = Frame::NoSocket(NoSocket { handle });
        let frame = match (reply, tombstone.and_then(|tombstone| tombstone.peer_handle)) {
            (
                Transmit::Reset {
                    reason: Reason::NoSocket,
                },
                _,
            )
            | (_, None) => nobody,
            (reply, Some(theirs)) => frame_to(theirs, None, &reply).unwrap_or(nobody),
        };
        channel.outbox.push_frame(&frame);
    }

    /// Sends the final state of a socket again.
    pub(super) fn send_final_state(&mut self, peer: &Arc<Peer>, tombstone: &Tombstone) {
        let reply = tombstone.final_state.answer_to(Arrived::Data);
        let frame = reply.zip(tombstone.peer_handle);
        let frame = frame.and_then(|(reply, theirs)| frame_to(theirs, None, &reply));
        frame.iter().for_each(|frame| self.send_frame(peer, frame));
    }

    /// Sends a frame that belongs to no living socket, on any channel.
    pub(super) fn send_frame(&mut self, peer: &Arc<Peer>, frame: &Frame<'_>) {
        let own = self
            .per_peer(peer)
            .and_then(|per_peer| per_peer.own.first().copied());
        let own = own.and_then(|index| self.channels.get_mut(index));
        if let Some(Some(channel)) = own {
            return channel.outbox.push_frame(frame);
        }
        let mut bytes = [0; MOST_FIXED_FRAME];
        let length = frame.encode(&mut bytes).unwrap_or(0);
        let route = self
            .per_peer(peer)
            .and_then(|per_peer| per_peer.routes.first().cloned());
        if let Some(route) = route {
            let bytes = bytes.get(..length).unwrap_or_default().to_vec();
            let command = Command::Frames {
                instance: route.instance,
                bytes,
            };
            self.send_message(route.worker, WorkerMessage::Command(command));
        }
    }
}
