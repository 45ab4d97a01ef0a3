//! The send path: the control frames of sockets, and bytes in the order of the scheduler.

use super::connection::{Connection, State};
use super::outbox::{COPIED, Outbox};
use super::route::Route;
use super::shared::{Shared, WorkerMessage};
use super::traffic::Traffic;
use super::worker::ChannelWorker;
use netchannel_scheduler::SocketId;
use netchannel_scheduler::netscheduler::{Segment, Step};
use netchannel_service::lane::Lane;
use netchannel_service::timers::NEVER;
use netchannel_vns::{ChannelId, Handle, Hold, Reason, Transmit};
use netchannel_wire::{Frame, Urgent};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes for one peer that are sent before other peers have their turn.
const BUDGET: u64 = 1 << 20;
/// Bytes that are written with one call.
const BATCH: u64 = 256 << 10;
/// Pieces that are written with one call.
const MOST_PIECES: usize = 96;

impl ChannelWorker {
    /// Settles a socket: sends its control frames, notifies its program, and updates its schedule and timer.
    pub(super) fn settle(&mut self, connection: &Arc<Connection>) {
        let now = self.now;
        let mut state = connection.lock();
        let owned = connection.has_owner();
        let owner = owned && connection.owner() == self.index;
        state.check_read_position(now);
        connection.apply_changes(&mut state, now);
        state.check_held_bytes(now);
        let blocked = self.send_control(connection, &mut state);
        state.request_space_news(now);
        connection.apply_changes(&mut state, now);
        if state.has_deferred_wake_up() {
            self.wake_ups.push(connection, &mut state, now);
        }
        if std::mem::take(&mut state.lane_closed) {
            self.examine_link(connection.link());
        }
        let seeks = owner && state.begins_to_seek(|| !connection.link().check(), now);
        let found = owner && state.acceptance.is_found();
        let sendable = state.socket.sendable();
        let timer = state.next_timeout();
        let over = connection.is_over(&state, now);
        let rings = sendable != state.scheduled || timer < state.timer || over;
        if owner {
            if std::mem::take(&mut state.hints_changed) {
                connection.set_observed_class(state.class().0);
            }
            state.scheduled = sendable;
            state.timer = state.timer.min(timer);
            let set = state.timer == timer && timer != NEVER;
            if over {
                let (tombstone, entry) = (connection.tombstone(&state), connection.entry());
                // The socket may be scheduled again when another connection has the entry.
                connection.hand_over_to(self.index);
                drop(state);
                connection
                    .peer
                    .sockets()
                    .remove(connection.handle, tombstone, now);
                return self.give_up_ownership(entry);
            }
            drop(state);
            if rings {
                let entry = connection.entry();
                if set {
                    self.owned.timers.set(entry, timer);
                }
                if let Some(per_peer) = self.per_peer(&connection.peer) {
                    per_peer
                        .scheduler
                        .update(SocketId(entry), sendable, u64::MAX);
                }
            }
            self.move_if_due(connection);
            if seeks {
                self.seek_acceptor(connection);
            } else if found {
                self.move_to_next(connection);
            }
        } else {
            let unknown = sendable > 0 && state.scheduled == 0;
            drop(state);
            // The owner to come will examine the whole socket.
            if owned
                && (unknown || timer != NEVER && rings || over || connection.has_observed_class())
            {
                self.send_message(
                    connection.owner(),
                    WorkerMessage::Settle(Arc::clone(connection)),
                );
            }
        }
        if let Some(at) = blocked
            && let Some(Some(channel)) = self.channels.get_mut(at)
            && connection.mark_for_settling(self.index)
        {
            channel.parked.push(Arc::clone(connection));
        }
    }

    /// Sends the control frames that a socket owes. Returns a channel of this worker that takes nothing now, if there
    /// is one for which the socket must wait.
    fn send_control(&mut self, connection: &Arc<Connection>, state: &mut State) -> Option<usize> {
        let now = self.now;
        while let Some(transmit) = state.socket.next_transmit(0, now) {
            let per_peer = self
                .per_peers
                .get(index(connection.peer.number()))?
                .as_ref()?;
            // Bytes sent before a reset must arrive before it.
            let behind = match transmit {
                Transmit::Reset { .. } => state.last_data_channel,
                _ => None,
            };
            let behind = per_peer.routes.iter().find(|one| Some(one.key) == behind);
            let own = per_peer.own.iter().copied().find(|index| {
                let channel = self.channels.get(*index).and_then(Option::as_ref);
                channel.is_some_and(|channel| match behind {
                    Some(route) => Arc::ptr_eq(&channel.route, route),
                    None => !channel.blocked && channel.takes_segments(),
                })
            });
            if own.is_none() && behind.is_none() && !per_peer.own.is_empty() {
                return per_peer.own.first().copied();
            }
            let route = match own.and_then(|at| self.channels.get_mut(at)) {
                Some(Some(channel)) => {
                    if let Some(frame) = connection.frame(state, &transmit) {
                        channel.outbox.push_frame(&frame);
                    }
                    &channel.route
                }
                _ => {
                    let route = behind.or_else(|| per_peer.routes.first())?;
                    send_control_via(&self.shared, connection, state, &transmit, route);
                    route
                }
            };
            let key = route.key;
            Traffic::add(&route.traffic.control_sent, 1);
            state.last = Some(key);
            state.socket.sent(&transmit, key, now);
        }
        None
    }

    /// Another worker has assigned a control frame to a channel of this worker.
    pub(super) fn send_control_for_other(
        &mut self,
        connection: &Arc<Connection>,
        frame: &Frame<'_>,
        key: ChannelId,
    ) {
        let peer = connection.peer.number();
        let channel = self.channels.iter_mut().flatten().find(|channel| {
            channel.route.key == key && channel.peer.number() == peer && channel.takes_segments()
        });
        if let Some(channel) = channel {
            return channel.outbox.push_frame(frame);
        }
        // The frame was assigned after the loss was reported.
        connection.lock().on_channel_lost(key, self.now);
        self.settle_later(connection);
    }

    /// Sends the bytes of all sockets, as far as channels take them.
    pub(super) fn send_all(&mut self) {
        for number in 0..self.per_peers.len() {
            self.send_to(number);
        }
    }

    fn send_to(&mut self, number: usize) {
        let now = self.now;
        let mut left = BUDGET;
        loop {
            let Some(Some(per_peer)) = self.per_peers.get_mut(number) else {
                return;
            };
            per_peer.until = None;
            let most = per_peer.peer.terms().payload;
            for (view, route) in per_peer.views.iter_mut().zip(&per_peer.routes) {
                *view = route.view();
            }
            let segment = match per_peer.scheduler.next(&per_peer.views, most, now) {
                Step::Send(segment) => segment,
                Step::Full(until) => {
                    per_peer.until = until;
                    let mut seen = per_peer.routes.iter().zip(&per_peer.views);
                    if seen.any(|(route, view)| route.wait(self.index, view.queued)) {
                        continue;
                    }
                    return;
                }
                Step::Until(until) => {
                    per_peer.until = Some(until);
                    return;
                }
                Step::NoChannel | Step::Idle => return,
            };
            let sent = self.send_segment(number, &segment);
            left = left.saturating_sub(sent.max(1));
            if left == 0 {
                self.busy = true;
                return;
            }
        }
    }

    /// Assigns a segment to its channel. Returns its bytes.
    fn send_segment(&mut self, number: usize, segment: &Segment) -> u64 {
        let now = self.now;
        self.note_latency_activity();
        let grant = segment.grant;
        let Some(Some(per_peer)) = self.per_peers.get_mut(number) else {
            return 0;
        };
        let Some(route) = per_peer.routes.get(segment.channel).map(Arc::clone) else {
            return 0;
        };
        let Some(connection) = self.owned.get(grant.socket.0).map(Arc::clone) else {
            per_peer.scheduler.update(grant.socket, 0, 0);
            return 0;
        };
        let most = per_peer.peer.terms().payload;
        let own = per_peer.own.iter().copied().find(|index| {
            let channel = self.channels.get(*index).and_then(Option::as_ref);
            channel.is_some_and(|channel| Arc::ptr_eq(&channel.route, &route))
        });
        let mut state = connection.lock();
        let transmit = loop {
            match state.socket.next_transmit(grant.bytes, now) {
                Some(data @ Transmit::Data { .. }) => break Some(data),
                Some(control) => {
                    match own.and_then(|index| self.channels.get_mut(index)) {
                        Some(Some(channel)) => {
                            if let Some(frame) = connection.frame(&state, &control) {
                                channel.outbox.push_frame(&frame);
                            }
                        }
                        _ => send_control_via(&self.shared, &connection, &state, &control, &route),
                    }
                    Traffic::add(&route.traffic.control_sent, 1);
                    state.socket.sent(&control, route.key, now);
                }
                None => break None,
            }
        };
        let Some(Transmit::Data { sequence, length }) = transmit else {
            state.scheduled = 0;
            drop(state);
            per_peer.scheduler.update(grant.socket, 0, 0);
            self.settle_later(&connection);
            return 0;
        };
        let spans = state
            .lane
            .as_ref()
            .map(|lane| lane.readable(sequence, u64::from(length)));
        let bytes = match &spans {
            Some(Ok([first, second])) => u32::try_from(first.length + second.length).unwrap_or(0),
            _ => 0,
        };
        let (Some(Ok(spans)), Some(theirs), true) = (spans, state.peer_handle, bytes > 0) else {
            // The program has withdrawn bytes that it had written.
            state.socket.abort(Reason::ProgramFault, now);
            connection.apply_changes(&mut state, now);
            drop(state);
            self.settle_later(&connection);
            return 0;
        };
        let hold = if own.is_some() && bytes <= COPIED {
            None
        } else {
            state.socket.hold(sequence)
        };
        if own.is_none() && hold.is_none() {
            // The other worker must first take some of the held segments.
            state.scheduled = 0;
            drop(state);
            per_peer.scheduler.update(grant.socket, 0, 0);
            self.settle_later(&connection);
            self.busy = true;
            return 0;
        }
        let data = Transmit::Data {
            sequence,
            length: bytes,
        };
        state.socket.sent(&data, route.key, now);
        if bytes > COPIED {
            let class = state.class().0;
            self.wake_ups.note_large(&mut state.large_sent, class);
        }
        let shown = state.observer.on_sent(bytes, now);
        if let Some(class) = state.observed(shown) {
            connection.set_observed_class(class);
        }
        let sendable = state.socket.sendable();
        state.scheduled = sendable;
        let timer = state.next_timeout();
        if timer < state.timer {
            state.timer = timer;
            self.owned.timers.set(grant.socket.0, timer);
        }
        per_peer.scheduler.on_sent(&grant, bytes, route.id, now);
        per_peer.scheduler.update(grant.socket, sendable, u64::MAX);
        Traffic::add(&route.traffic.bytes_sent, u64::from(bytes));
        Traffic::add(&route.traffic.segments_sent, 1);
        state.used.note(route.id, now);
        let repeated = state.note_sent(sequence, bytes);
        state.request_acknowledgement(now);
        if route.seen.is_far() {
            state.request_larger_ring(route.seen.unsent.load(Ordering::Relaxed));
        }
        let control_due = state.socket.next_transmit(0, now).is_some();
        if repeated > 0 {
            Traffic::add(&route.traffic.bytes_repeated, repeated);
        }
        let mut full = None;
        match own.map(|at| (at, self.channels.get_mut(at))) {
            Some((at, Some(Some(channel)))) => {
                let outbox = &mut channel.outbox;
                state.push_urgent(outbox, (theirs, sequence), u64::from(bytes));
                outbox.push_data(&connection, (theirs, sequence), spans, hold, most);
                channel.publish_queue_length();
                if channel.outbox.length() >= BATCH || channel.outbox.pieces() >= MOST_PIECES {
                    full = Some(at);
                }
            }
            _ => self.send_message(
                route.worker,
                WorkerMessage::Segment {
                    connection: Arc::clone(&connection),
                    sequence,
                    length: bytes,
                    hold,
                    key: route.key,
                },
            ),
        }
        drop(state);
        if let Some(at) = full {
            self.flush_channel(at);
        }
        if control_due || connection.has_observed_class() {
            self.settle_later(&connection);
        }
        u64::from(bytes)
    }

    /// Another worker has assigned a segment to a channel of this worker.
    pub(super) fn send_for_other(
        &mut self,
        connection: &Arc<Connection>,
        (sequence, length): (u64, u32),
        mut hold: Option<Hold>,
        key: ChannelId,
    ) {
        let peer = connection.peer.number();
        let channel = self.channels.iter_mut().flatten().find(|channel| {
            channel.route.key == key && channel.peer.number() == peer && channel.takes_segments()
        });
        let mut state = connection.lock();
        let (mut at, mut left) = (sequence, u64::from(length));
        if let (Some(channel), Some(theirs)) = (channel, state.peer_handle) {
            let most = channel.peer.terms().payload;
            while left > 0 {
                let spans = state.lane.as_ref().map(|lane| lane.readable(at, left));
                let Some(Ok(spans)) = spans else { break };
                let bytes = (spans[0].length + spans[1].length) as u64;
                // A second piece occurs only where the program moved to another ring within the segment.
                let hold = hold.take().or_else(|| state.socket.hold(at));
                if bytes == 0 {
                    hold.into_iter()
                        .for_each(|hold| state.socket.release(hold, self.now));
                    break;
                }
                let outbox = &mut channel.outbox;
                state.push_urgent(outbox, (theirs, at), bytes);
                outbox.push_data(connection, (theirs, at), spans, hold, most);
                (at, left) = (at + bytes, left - bytes);
            }
            channel.publish_queue_length();
        } else {
            // The segment was assigned after the loss was reported.
            state.on_channel_lost(key, self.now);
        }
        if let Some(hold) = hold {
            state.socket.release(hold, self.now);
        }
        drop(state);
        self.settle_later(connection);
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl State {
    /// Queues the program's last urgent bytes before the DATA that contains them.
    fn push_urgent(&self, outbox: &mut Outbox, (handle, from): (Handle, u64), bytes: u64) {
        let row = self.lane.as_ref().map(Lane::urgent).unwrap_or_default();
        if let Some(row) = row.before(from + bytes).filter(|row| row.end > from) {
            outbox.push_frame(&Frame::Urgent(Urgent {
                handle,
                sequence: row.end,
                first: row.first,
            }));
        }
    }
}

/// Assigns a control frame to a channel of another worker.
fn send_control_via(
    shared: &Shared,
    connection: &Arc<Connection>,
    state: &State,
    transmit: &Transmit,
    route: &Route,
) {
    let frame = connection.frame(state, transmit);
    if let (Some(frame), Some(inbox)) = (frame, shared.inboxes.get(route.worker)) {
        inbox.send(WorkerMessage::Control {
            connection: Arc::clone(connection),
            frame,
            key: route.key,
        });
    }
}
