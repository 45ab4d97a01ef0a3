//! What a daemon does around its sockets: this is how they are meant to be driven.

use netchannel_vns::{
    Arrived, Changes, End, FinalState, Handle, Lookup, Placement, Reason, State, Transmit,
    VirtualSocket, Window,
};

use crate::host::{Memory, NO_HANDLE};
use crate::network::{Body, Frame, PipeName};
use crate::scenario::{MILLISECOND, SECOND};
use crate::world::{Event, Who, World, Write};

impl World {
    /// After anything has happened to a socket.
    pub fn after(&mut self, who: Who) {
        self.pump(who);
        self.check(who);
        let now = self.now;
        let without_probes = self.scenario.without_probes;
        let Some(connection) = self.connection(who) else {
            return;
        };
        let changes = connection.socket.take_changes();
        connection.saw_end |= changes.contains(Changes::AT_END);
        if !changes.is_empty() && !connection.will_look {
            connection.will_look = true;
            let mut random = self.random.clone();
            let connection = self.connection(who).unwrap();
            let at = now + connection.program.next_look(&mut random);
            self.random = random;
            self.at(at, Event::Look(who));
        }
        let connection = self.connection(who).unwrap();
        if connection.socket.is_finished(now) {
            // Without probes a socket stays until it must have heard of every loss.
            let since = connection.over_since.replace(now);
            connection.over_since = since.or(Some(now));
            if !without_probes || since.is_some_and(|since| since + 10 * SECOND <= now) {
                self.remove(who);
            } else if since.is_none() {
                self.at(now + 10 * SECOND, Event::Remove(who));
            }
            return;
        }
        connection.over_since = None;
        // A timer that is set too early runs out early, and is set again.
        if let Some(at) = connection.socket.next_timeout()
            && connection.timer.is_none_or(|timer| at < timer)
        {
            connection.timer = Some(at);
            self.at(at.max(now), Event::Timer(who));
        }
    }

    /// Sends what a socket has to send, as far as channels have room.
    fn pump(&mut self, who: Who) {
        let now = self.now;
        loop {
            let Some(connection) = self.connection(who) else {
                return;
            };
            if connection.socket.next_transmit(1, now).is_none() {
                return;
            }
            let Some(channel) = self.network.choose(who.host, &mut self.random) else {
                self.hosts[who.host].waits_for_room = true;
                return;
            };
            let budget = u32::try_from(self.random.length(self.scenario.segment)).unwrap();
            let id = self.network.id(channel);
            let Some(connection) = self.connection(who) else {
                return;
            };
            let Some(transmit) = connection.socket.next_transmit(budget, now) else {
                return;
            };
            connection.socket.sent(&transmit, id, now);
            let (mut hold, mut payload) = (None, Vec::new());
            if let Transmit::Data { sequence, length } = transmit {
                hold = connection.socket.hold(sequence);
                if hold.is_none() {
                    payload = connection.bytes(sequence, length);
                }
            }
            let (pair, peer) = (connection.pair, connection.peer);
            let to = match transmit {
                Transmit::Open { .. } => NO_HANDLE,
                _ => peer.expect("only Open goes to nobody"),
            };
            let frame = Frame {
                to,
                from: who.handle,
                pair,
                body: Body::Transmit(transmit),
                payload,
                hold,
            };
            self.say(|| format!("{} {:?} on {channel}: {transmit:?}", who.host, who.handle));
            self.commit(who.host, channel, frame);
        }
    }

    fn commit(&mut self, host: usize, channel: usize, mut frame: Frame) {
        let lying = self.pairs.get(frame.pair).is_some_and(|pair| pair.lying);
        if lying && host == 1 && self.random.once_in(8) {
            self.take_bytes(host, &mut frame);
            match self.falsified(frame) {
                Some(false_one) => frame = false_one,
                None => return,
            }
        }
        self.sums.frames += 1;
        let (pipe, departure) =
            self.network
                .commit(host, channel, frame, self.now, &mut self.random);
        self.at(departure, Event::Depart(pipe));
    }

    /// Sends what belongs to no living socket, at once or when a channel has room.
    fn send_plain(&mut self, host: usize, ended: Option<Handle>, frame: Frame) {
        let Some(channel) = self.network.choose(host, &mut self.random) else {
            self.hosts[host].waits_for_room = true;
            return self.hosts[host].outbox.push((ended, frame));
        };
        self.say(|| format!("{host} on {channel}, of none: {frame:?}"));
        let id = self.network.id(channel);
        if let Some(handle) = ended
            && let Lookup::Ended(memory) = self.hosts[host].table.get_mut(handle)
        {
            memory.last_on = Some(id);
        }
        self.commit(host, channel, frame);
    }

    /// There may be room again.
    pub fn pump_all(&mut self, host: usize) {
        if !std::mem::take(&mut self.hosts[host].waits_for_room) {
            return;
        }
        for (ended, frame) in std::mem::take(&mut self.hosts[host].outbox) {
            self.send_plain(host, ended, frame);
        }
        for who in self.all(host) {
            self.after(who);
        }
    }

    fn all(&self, host: usize) -> Vec<Who> {
        let handles = self.hosts[host].table.iter();
        handles.map(|(handle, _)| self.who(host, handle)).collect()
    }

    /// Takes a finished socket out and remembers what is still to be said for it.
    fn remove(&mut self, who: Who) {
        let now = self.now;
        let connection = self.connection(who).unwrap();
        let final_state = connection.socket.final_state();
        let memory = Memory {
            final_state,
            peer: connection.peer,
            // Not known here; taken for any.
            last_on: None,
        };
        let table = &mut self.hosts[who.host].table;
        let mut connection = table.remove(who.handle, memory, now).unwrap();
        let (socket, program) = (&connection.socket, &mut connection.program);
        let State::Closed(end) = socket.state() else {
            panic!("finished, not closed");
        };
        self.say(|| format!("{} {:?} is over: {end:?}", who.host, who.handle));
        let frontier = socket.frontier().wrapping_sub(connection.receive_start);
        if end == End::Finished && program.manner != crate::program::Manner::WritesOnly {
            while program.read < frontier {
                program.read(frontier, &mut self.random);
            }
        }
        let counters = socket.counters();
        self.sums.bytes += program.read;
        self.sums.repeated += counters.bytes_repeated;
        self.sums.duplicate += counters.bytes_duplicate;
        self.sums.dropped += counters.bytes_dropped;
        self.sums.probes += counters.probes;
        if connection.saw_end && !program.deceived {
            assert_eq!(frontier, self.pairs[connection.pair].totals[1 - who.host]);
        }
        let outcome = &mut self.outcomes[connection.pair][who.host];
        outcome.end = Some(end);
        outcome.read = program.read;
        outcome.saw_end = connection.saw_end;
        outcome.written = program.written;
        outcome.acknowledged = socket
            .acknowledged()
            .wrapping_sub(connection.transmit_start);
        outcome.disturbed |= end == End::Aborted(Reason::Restarted)
            || program.manner != self.pairs[connection.pair].manners[who.host];
    }

    /// A frame leaves with the bytes that lie in the ring now.
    pub fn depart(&mut self, name: PipeName) {
        let pipe = self.network.pipes.get_mut(&name).unwrap();
        let Some(mut frame) = pipe.outgoing.pop_front() else {
            return;
        };
        let now = self.now;
        self.take_bytes(1 - name.2, &mut frame);
        let arrival = self.network.depart(name, frame, now, &mut self.random);
        self.at(arrival, Event::Arrive(name));
    }

    fn take_bytes(&mut self, host: usize, frame: &mut Frame) {
        let now = self.now;
        let who = self.who(host, frame.from);
        if let Some(hold) = frame.hold.take()
            && let Body::Transmit(Transmit::Data { sequence, length }) = frame.body
        {
            let connection = self.connection(who).expect("removed with a hold");
            frame.payload = connection.bytes(sequence, length);
            self.with(who, |socket| socket.release(hold, now));
        }
    }

    /// The sender of a channel takes no bytes any more.
    pub fn stop_sending(&mut self, name: PipeName) {
        let now = self.now;
        let pipe = self.network.pipes.get_mut(&name).unwrap();
        for frame in std::mem::take(&mut pipe.outgoing) {
            let who = self.who(1 - name.2, frame.from);
            if let Some(hold) = frame.hold {
                self.with(who, |socket| socket.release(hold, now));
            }
        }
    }

    /// A worker takes what has arrived, in order.
    pub fn arrive(&mut self, name: PipeName) {
        let (host, now) = (name.2, self.now);
        loop {
            let pipe = self.network.pipes.get_mut(&name).unwrap();
            if pipe.receiver_noticed {
                pipe.arriving.clear();
                break;
            }
            if pipe.busy || pipe.arriving.front().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((at, frame)) = pipe.arriving.pop_front() else {
                break;
            };
            let mut whole = true;
            if pipe.cut.is_some_and(|cut| at > cut) {
                // The first that is lost may have come in part, cut at any byte.
                pipe.arriving.clear();
                whole = false;
            }
            let length = frame.payload.len();
            if whole {
                self.receive(name, frame, length);
            } else if length > 1 && self.random.once_in(2) {
                let part = self.random.index(length);
                self.receive(name, frame, part);
            }
        }
        self.pump_all(1 - host);
    }

    /// A frame, with the first `available` bytes of its payload.
    fn receive(&mut self, name: PipeName, frame: Frame, available: usize) {
        let (host, now) = (name.2, self.now);
        let transmit = match frame.body {
            Body::Transmit(transmit) => transmit,
            Body::NoSocket => {
                let named = self.hosts[host].table.iter();
                let found = named
                    .filter(|(_, connection)| connection.peer == Some(frame.from))
                    .map(|(handle, _)| self.who(host, handle))
                    .collect::<Vec<_>>();
                for who in found {
                    self.with(who, |socket| socket.on_reset(Reason::NoSocket, now));
                }
                return;
            }
        };
        if let Transmit::Open { limit } = transmit {
            return self.on_open(host, &frame, limit);
        }
        let who = self.who(host, frame.to);
        let memory = match self.hosts[host].table.get_mut(frame.to) {
            Lookup::Live(connection) => {
                if matches!(transmit, Transmit::Answer { .. }) {
                    connection.peer.get_or_insert(frame.from);
                }
                return self.on_frame(who, name, transmit, &frame.payload[..available]);
            }
            Lookup::Ended(memory) => Some(memory.clone()),
            Lookup::Unknown => None,
        };
        let arrived = match transmit {
            Transmit::Open { .. } => return,
            Transmit::Answer { .. } => Arrived::Answer,
            Transmit::Data { .. } => Arrived::Data,
            Transmit::Window(window) => Arrived::Window { ask: window.ask },
            Transmit::Fin { .. } => Arrived::Fin,
            Transmit::Reset { .. } => Arrived::Reset,
        };
        let peer = match transmit {
            Transmit::Answer { .. } => Some(frame.from),
            _ => memory.as_ref().and_then(|memory| memory.peer),
        };
        let answer = match &memory {
            Some(memory) => memory.final_state.answer_to(arrived),
            None => FinalState::answer_for_unknown(arrived),
        };
        if let Some(answer) = answer {
            let reply = match peer {
                Some(peer) => self.frame_of_none(peer, NO_HANDLE, Body::Transmit(answer)),
                None => self.frame_of_none(NO_HANDLE, frame.to, Body::NoSocket),
            };
            self.send_plain(host, memory.map(|_| frame.to), reply);
        }
    }

    fn on_open(&mut self, host: usize, frame: &Frame, limit: u64) {
        let now = self.now;
        if let Some(known) = self.hosts[host].opened.get(&frame.from).copied() {
            match self.hosts[host].table.get(known) {
                Lookup::Live(_) => {
                    let who = self.who(host, known);
                    self.with(who, |socket| {
                        let _ = socket.on_open_again(limit, now);
                    });
                }
                Lookup::Ended(memory) => {
                    if let FinalState::Reset(reason) = memory.final_state {
                        let body = Body::Transmit(Transmit::Reset { reason });
                        let reply = self.frame_of_none(frame.from, NO_HANDLE, body);
                        self.send_plain(host, Some(known), reply);
                    }
                }
                Lookup::Unknown => {}
            }
            return;
        }
        let pair = frame.pair;
        let (start, program) = self.start(pair, host);
        match VirtualSocket::passive(self.scenario.settings, start, limit, now) {
            Ok(socket) => {
                let who = self.insert(host, pair, socket, start, program);
                self.connection(who).unwrap().peer = Some(frame.from);
                self.hosts[host].opened.insert(frame.from, who.handle);
                let at = now + self.random.upto(2 * MILLISECOND);
                self.at(at, Event::Decide(who));
            }
            Err(_) => {
                let reason = Reason::Violation;
                let body = Body::Transmit(Transmit::Reset { reason });
                let reply = self.frame_of_none(frame.from, NO_HANDLE, body);
                self.send_plain(host, None, reply);
            }
        }
    }

    fn on_frame(&mut self, who: Who, pipe: PipeName, transmit: Transmit, payload: &[u8]) {
        let now = self.now;
        let lying = self.scenario.lies;
        let connection = self.connection(who).unwrap();
        let honest = !connection.program.deceived;
        let socket = &mut connection.socket;
        let result = match transmit {
            Transmit::Open { .. } => Ok(()),
            Transmit::Answer { limit } => socket.on_answer(limit, now),
            Transmit::Window(window) => socket.on_window(window, now),
            Transmit::Fin { sequence } => socket.on_fin(sequence, now),
            Transmit::Reset { reason } => {
                socket.on_reset(reason, now);
                Ok(())
            }
            Transmit::Data { sequence, length } => match socket.on_data(sequence, length, now) {
                Ok(Placement::Write {
                    skip,
                    sequence,
                    length,
                    claim,
                }) => {
                    let (skip, length) = (skip as usize, length as usize);
                    let end = payload.len().min(skip + length);
                    let bytes = payload.get(skip..end).unwrap_or_default().to_vec();
                    let write = Write {
                        pipe,
                        claim,
                        sequence,
                        bytes,
                    };
                    return self.begin_write(who, write);
                }
                Ok(Placement::Discard) => Ok(()),
                Err(violation) => Err(violation),
            },
        };
        if let Err(violation) = result {
            self.sums.violations += 1;
            assert!(
                lying && !honest,
                "{violation:?} of an honest peer: {transmit:?}"
            );
        }
        self.after(who);
    }

    fn begin_write(&mut self, who: Who, write: Write) {
        let slow = self.scenario.slow_workers;
        if slow > 0 && self.random.once_in(slow) {
            self.network.pipes.get_mut(&write.pipe).unwrap().busy = true;
            let wait = match self.random.upto(9) {
                0 => 4 * SECOND,
                1..4 => 20 * MILLISECOND,
                _ => MILLISECOND,
            };
            let at = self.now + self.random.upto(wait);
            self.after(who);
            return self.at(at, Event::Write(who, write));
        }
        let (bytes, sequence) = (write.bytes, write.sequence);
        self.place(who, &write.claim, sequence, &bytes);
        let now = self.now;
        self.with(who, |socket| socket.finish(write.claim, now));
    }

    /// A slow worker writes a part, or all that is left.
    pub fn write(&mut self, who: Who, mut write: Write) {
        if self.hosts[who.host].epoch != who.epoch {
            return;
        }
        assert!(
            self.connection(who).is_some(),
            "removed while a worker writes to its ring"
        );
        let all = write.bytes.len();
        let part = if all > 1 && self.random.once_in(2) {
            1 + self.random.index(all - 1)
        } else {
            all
        };
        let rest = write.bytes.split_off(part);
        self.place(who, &write.claim, write.sequence, &write.bytes);
        if !rest.is_empty() {
            write.sequence = write.sequence.wrapping_add(part as u64);
            write.bytes = rest;
            let at = self.now + self.random.upto(5 * MILLISECOND);
            return self.at(at, Event::Write(who, write));
        }
        let now = self.now;
        self.network.pipes.get_mut(&write.pipe).unwrap().busy = false;
        self.with(who, |socket| socket.finish(write.claim, now));
        self.at(now, Event::Arrive(write.pipe));
    }

    fn place(&mut self, who: Who, claim: &netchannel_vns::Claim, sequence: u64, bytes: &[u8]) {
        let now = self.now;
        let connection = self.connection(who).unwrap();
        let offset = sequence.wrapping_sub(connection.receive_start);
        let end = offset + bytes.len() as u64;
        let program = &mut connection.program;
        assert!(
            end <= program.read + program.receive.size(),
            "over unread bytes"
        );
        program.receive.put(offset, bytes);
        if !bytes.is_empty() {
            let length = u32::try_from(bytes.len()).unwrap();
            self.with(who, |socket| socket.placed(claim, sequence, length, now));
        }
    }

    /// A host knows that a channel is gone.
    pub fn channel_lost(&mut self, host: usize, channel: usize) {
        let (id, now) = (self.network.id(channel), self.now);
        for who in self.all(host) {
            self.with(who, |socket| socket.on_channel_lost(id, now));
        }
        let mut again = Vec::new();
        for (handle, memory) in self.hosts[host].table.ended_mut() {
            // The last word of a socket may have gone by any channel.
            if memory.last_on.is_none_or(|last| last == id)
                && let Some(peer) = memory.peer
            {
                let body = match memory.final_state {
                    FinalState::Finished { filled, limit } => Transmit::Window(Window {
                        filled,
                        limit,
                        fin: true,
                        ask: false,
                        again: false,
                    }),
                    FinalState::Reset(reason) => Transmit::Reset { reason },
                };
                again.push((handle, peer, body));
            }
        }
        for (handle, peer, body) in again {
            let frame = self.frame_of_none(peer, NO_HANDLE, Body::Transmit(body));
            self.send_plain(host, Some(handle), frame);
        }
    }

    /// A host learns that the other daemon is another one than before.
    pub fn peer_began_anew(&mut self, host: usize) {
        let now = self.now;
        self.say(|| format!("host {host} learns that its peer began anew"));
        // First of all its sockets: the handles they send to mean others now.
        self.hosts[host].outbox.clear();
        self.hosts[host].opened.clear();
        for who in self.all(host) {
            if let Some(connection) = self.connection(who) {
                connection.peer = None;
            }
            self.with(who, |socket| socket.fail(Reason::Restarted, now));
        }
        // Nothing of the former daemon is heard, and nothing is on its way to it any more.
        let names: Vec<PipeName> = self.network.pipes.keys().copied().collect();
        for name in names {
            let channel = &self.network.channels[name.0];
            if channel.life == name.1 && channel.up {
                continue;
            }
            if name.2 == host {
                let pipe = self.network.pipes.get_mut(&name).unwrap();
                pipe.receiver_noticed = true;
            } else {
                self.stop_sending(name);
            }
        }
        for (_, memory) in self.hosts[host].table.ended_mut() {
            memory.peer = None;
        }
    }

    /// Another frame in place of this one, or none at all.
    fn falsified(&mut self, mut frame: Frame) -> Option<Frame> {
        let random = &mut self.random;
        let by = |random: &mut crate::random::Random, value: u64| match random.upto(4) {
            0 => random.word(),
            1 => value.wrapping_add(1 << random.upto(63)),
            2 => value.wrapping_sub(random.upto(10)),
            _ => value.wrapping_add(random.upto(10)),
        };
        let Body::Transmit(transmit) = &mut frame.body else {
            return None;
        };
        match transmit {
            _ if random.once_in(3) => return None,
            Transmit::Open { limit } | Transmit::Answer { limit } => *limit = by(random, *limit),
            Transmit::Data { sequence, length } => {
                *sequence = by(random, *sequence);
                if random.once_in(2) {
                    *length = u32::try_from(by(random, (*length).into()) & 0xffff_ffff).unwrap();
                }
            }
            Transmit::Window(window) => {
                if random.once_in(2) {
                    window.filled = by(random, window.filled);
                }
                if random.once_in(2) {
                    window.limit = by(random, window.limit);
                }
                window.fin ^= random.once_in(4);
                window.ask ^= random.once_in(4);
                window.again ^= random.once_in(4);
            }
            Transmit::Fin { sequence } => *sequence = by(random, *sequence),
            Transmit::Reset { .. } => {}
        }
        Some(frame)
    }

    /// A frame that nothing has asked for.
    pub fn lie(&mut self, who: Who) {
        let random = &mut self.random;
        let numbers = [random.word(), random.upto(100), random.upto(10_000)];
        let [number, other, length] = [0, 1, 2].map(|_| numbers[random.index(3)]);
        let Some(connection) = self.connection(who) else {
            return;
        };
        let (start, pair) = (connection.transmit_start, connection.pair);
        let heard = connection.receive_start;
        let Some(peer) = connection.peer else {
            return;
        };
        let length = u32::try_from(length & 0xffff_ffff).unwrap();
        let transmit = match self.random.upto(6) {
            0 => Transmit::Open { limit: number },
            1 => Transmit::Answer {
                limit: heard.wrapping_add(number),
            },
            2 => Transmit::Fin {
                sequence: start.wrapping_add(number),
            },
            3 if self.random.once_in(4) => Transmit::Reset {
                reason: Reason::NoSocket,
            },
            4 => Transmit::Window(Window {
                filled: heard.wrapping_add(number),
                limit: heard.wrapping_add(other),
                fin: self.random.once_in(4),
                ask: self.random.once_in(2),
                again: self.random.once_in(2),
            }),
            _ => Transmit::Data {
                sequence: start.wrapping_add(number),
                length,
            },
        };
        let Some(channel) = self.network.choose(who.host, &mut self.random) else {
            return;
        };
        let frame = Frame {
            to: peer,
            from: who.handle,
            pair,
            body: Body::Transmit(transmit),
            payload: Vec::new(),
            hold: None,
        };
        self.say(|| format!("lie: {frame:?}"));
        self.commit(who.host, channel, frame);
    }
}
