//! What frames other than DATA do.

use super::commands::{Command, Report};
use super::connection::{Connection, Peer, frame_to};
use super::line::Line;
use super::peer::Counters;
use super::reset_reasons;
use super::shared::{FIRST_WORKER, Letter};
use super::sockets::Found;
use super::tombstone::Tombstone;
use super::worker::ChannelWorker;
use crate::announcement::Announcement;
use netchannel_service::urgent::Row;
use netchannel_vns::{Arrived, FinalState, Handle, Reason, State as Phase, Transmit, Window};
use netchannel_wire::{Frame, GoAwayReason, MOST_FIXED_FRAME, NcSynAck, NoSocket};
use std::sync::Arc;

impl ChannelWorker {
    pub(super) fn on_frame(&mut self, line: &mut Line, frame: &Frame<'_>) {
        let now = self.now;
        match *frame {
            Frame::Window(told) => {
                let window = Window {
                    filled: told.filled,
                    limit: told.limit,
                    fin: told.fin,
                    ask: told.ask,
                    again: told.again,
                };
                self.on_window(line, told.handle, window);
            }
            Frame::Fin(fin) => self.with(line, fin.handle, Arrived::Fin, |connection| {
                let mut state = connection.lock();
                state.defer_wake_ups();
                // A violation has reset the socket.
                let _ = state.socket.on_fin(fin.sequence, now);
            }),
            // Of a socket that is gone nothing is said: its DATA follows.
            Frame::Urgent(told) => self.with(line, told.handle, Arrived::Reset, |connection| {
                let mut state = connection.lock();
                if told.sequence > state.urgent.end {
                    state.urgent = Row {
                        first: told.first,
                        end: told.sequence,
                    };
                }
            }),
            Frame::NcSynAck(answer) => self.on_answer(line, &answer),
            Frame::NcSyn(syn) => {
                let peer = Arc::clone(&line.peer);
                match self.index {
                    FIRST_WORKER => self.asked.push((peer, syn)),
                    _ => self.tell(FIRST_WORKER, Letter::Asked(peer, syn)),
                }
            }
            Frame::NcRst(refused) => {
                self.with(line, refused.handle, Arrived::Reset, |connection| {
                    let mut state = connection.lock();
                    if state.socket.state() == Phase::Opening {
                        Counters::add(&connection.peer.counters.refused, 1);
                        let reason = reset_reasons::of_refusal(refused.reason);
                        state.socket.on_reset(reason, now);
                    }
                })
            }
            Frame::Rst(reset) => self.with(line, reset.handle, Arrived::Reset, |connection| {
                let reason = reset_reasons::of_reset(reset.reason);
                connection.lock().socket.on_reset(reason, now);
            }),
            Frame::NoSocket(none) => {
                let found = line.peer.sockets().of_theirs(none.handle);
                if let Some(connection) = found {
                    connection.lock().socket.on_reset(Reason::NoSocket, now);
                    self.touch(&connection);
                }
            }
            Frame::Ping(number) => line.outbox.push_frame(&Frame::Pong(number)),
            Frame::GoAway(reason) => self.on_goodbye(line, reason),
            Frame::Addresses(told) => {
                let list = told.list.iter().collect();
                self.heard(line, Announcement::Addresses(told.serial, list));
            }
            Frame::Listen(told) => self.heard(line, Announcement::Listen(told)),
            Frame::Unlisten(told) => self.heard(line, Announcement::Unlisten(told)),
            Frame::ListenEnd(told) => self.heard(line, Announcement::ListenEnd(told)),
            // Nothing waits for it but the sign of life. The parser lets no handshake pass.
            Frame::Pong(_) | Frame::Hello(_) | Frame::HelloAnswer(_) | Frame::HelloProof(_) => {}
        }
    }

    /// Does something with the socket that a frame names, or answers that there is none.
    fn with(
        &mut self,
        line: &mut Line,
        handle: Handle,
        arrived: Arrived,
        change: impl FnOnce(&Arc<Connection>),
    ) {
        let found = line.peer.sockets().find(handle);
        match found {
            Found::Live(connection) => {
                change(&connection);
                self.touch(&connection);
            }
            Found::Ended(tombstone) => self.answer(line, handle, Some(&tombstone), arrived),
            Found::Unknown => self.answer(line, handle, None, arrived),
        }
    }

    fn on_window(&mut self, line: &mut Line, handle: Handle, window: Window) {
        let now = self.now;
        let ask = window.ask;
        self.with(line, handle, Arrived::Window { ask }, |connection| {
            let mut state = connection.lock();
            state.defer_wake_ups();
            // A violation has reset the socket.
            let _ = state.socket.on_window(window, now);
            connection.follow(&mut state, now);
        });
    }

    fn on_answer(&mut self, line: &mut Line, answer: &NcSynAck) {
        let now = self.now;
        let peer = Arc::clone(&line.peer);
        self.with(line, answer.handle, Arrived::Answer, |connection| {
            let theirs = connection.lock().theirs;
            let known = theirs.is_some_and(|theirs| theirs == answer.responder);
            let fits = known
                || theirs.is_none()
                    && peer
                        .sockets()
                        .set_theirs(answer.responder, connection.handle);
            let mut state = connection.lock();
            if !fits {
                return state.socket.abort(Reason::Violation, now);
            }
            state.theirs = Some(answer.responder);
            state.defer_wake_ups();
            // A violation has reset the socket.
            let _ = state.socket.on_answer(answer.limit, now);
            connection.follow(&mut state, now);
        });
    }

    fn on_goodbye(&mut self, line: &mut Line, reason: GoAwayReason) {
        line.leaving.heard = true;
        // Sent on this channel: what was begun comes before it.
        line.say_goodbye(GoAwayReason::Retired);
        let peer = Arc::clone(&line.peer);
        peer.remove_route(&line.route);
        self.tell_others(|| Letter::Routes(Arc::clone(&peer)));
        self.report(Report::GoAway {
            line: line.route.line,
            reason,
        });
    }

    fn heard(&self, line: &Line, announcement: Announcement) {
        self.report(Report::Announced {
            line: line.route.line,
            announcement,
        });
    }

    /// Answers a frame for a socket that is not there, or not any more.
    pub(super) fn answer(
        &mut self,
        line: &mut Line,
        handle: Handle,
        tombstone: Option<&Tombstone>,
        arrived: Arrived,
    ) {
        let said = match tombstone {
            Some(tombstone) => tombstone.final_state.answer_to(arrived),
            None => FinalState::answer_for_unknown(arrived),
        };
        let Some(said) = said else { return };
        let nobody = Frame::NoSocket(NoSocket { handle });
        let frame = match (said, tombstone.and_then(|tombstone| tombstone.theirs)) {
            (
                Transmit::Reset {
                    reason: Reason::NoSocket,
                },
                _,
            )
            | (_, None) => nobody,
            (said, Some(theirs)) => frame_to(theirs, None, &said).unwrap_or(nobody),
        };
        line.outbox.push_frame(&frame);
    }

    /// Says the last word of a socket again.
    pub(super) fn send_final_state(&mut self, peer: &Arc<Peer>, tombstone: &Tombstone) {
        let said = tombstone.final_state.answer_to(Arrived::Data);
        let frame = said.zip(tombstone.theirs);
        let frame = frame.and_then(|(said, theirs)| frame_to(theirs, None, &said));
        frame.iter().for_each(|frame| self.say_to(peer, frame));
    }

    /// Says something for which no socket answers, on any channel.
    pub(super) fn say_to(&mut self, peer: &Arc<Peer>, frame: &Frame<'_>) {
        let own = self
            .per_peer(peer)
            .and_then(|per_peer| per_peer.own.first().copied());
        let own = own.and_then(|index| self.lines.get_mut(index));
        if let Some(Some(line)) = own {
            return line.outbox.push_frame(frame);
        }
        let mut bytes = [0; MOST_FIXED_FRAME];
        let length = frame.encode(&mut bytes).unwrap_or(0);
        let route = self
            .per_peer(peer)
            .and_then(|per_peer| per_peer.routes.first().cloned());
        if let Some(route) = route {
            let bytes = bytes.get(..length).unwrap_or_default().to_vec();
            let command = Command::Frames {
                line: route.line,
                bytes,
            };
            self.tell(route.worker, Letter::Command(command));
        }
    }
}
