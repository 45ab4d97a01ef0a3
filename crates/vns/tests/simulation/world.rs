//! The run: events in order of virtual time, channels that come and go, programs that look.

use std::collections::BTreeMap;

use netchannel_vns::{
    Claim, End, Handle, Linger, Lookup, MOST_CLAIMS, MOST_IN_FLIGHT_RANGES, MOST_RANGES, Reason,
    Start, State, VirtualSocket,
};

use crate::host::{Connection, Host, NO_HANDLE, Outcome};
use crate::network::{Frame, Network, PipeName};
use crate::program::{Manner, Pace, Program, Ring};
use crate::random::Random;
use crate::scenario::{MILLISECOND, SECOND, Scenario};

/// What happens at a time.
#[derive(Debug)]
pub enum Event {
    /// A program asks for its connection.
    Open {
        pair: usize,
    },
    /// The passive side makes up its mind.
    Decide(Who),
    /// The program looks at its socket.
    Look(Who),
    Timer(Who),
    /// A finished socket is taken out at last.
    Remove(Who),
    /// A frame is gathered from the rings.
    Depart(PipeName),
    /// A worker looks at what has arrived.
    Arrive(PipeName),
    /// A worker goes on writing.
    Write(Who, Write),
    Cut {
        channel: usize,
    },
    Notice {
        host: usize,
        channel: usize,
        life: u64,
    },
    Up {
        channel: usize,
        life: u64,
    },
    Restart {
        host: usize,
    },
}

/// A socket, as far as its host has not begun anew.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub host: usize,
    pub epoch: u64,
    pub handle: Handle,
}

/// A worker in the middle of a segment.
#[derive(Debug)]
pub struct Write {
    pub pipe: PipeName,
    pub claim: Claim,
    pub sequence: u64,
    pub bytes: Vec<u8>,
}

/// Two programs that will talk.
#[derive(Clone, Debug)]
pub struct Pair {
    pub initiator: usize,
    pub starts: [u64; 2],
    pub totals: [u64; 2],
    /// Sizes of the rings each transmits from and receives into.
    pub rings: [(u64, u64); 2],
    pub manners: [Manner; 2],
    pub refused: bool,
    pub lying: bool,
}

/// What happened in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub events: u64,
    pub frames: u64,
    pub bytes: u64,
    pub repeated: u64,
    pub duplicate: u64,
    pub dropped: u64,
    pub probes: u64,
    pub finished: u64,
    pub violations: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.repeated += other.repeated;
        self.duplicate += other.duplicate;
        self.dropped += other.dropped;
        self.probes += other.probes;
        self.finished += other.finished;
        self.violations += other.violations;
    }
}

pub struct World {
    pub scenario: Scenario,
    pub random: Random,
    pub now: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub network: Network,
    pub hosts: [Host; 2],
    pub pairs: Vec<Pair>,
    pub outcomes: Vec<[Outcome; 2]>,
    unopened: usize,
    tell: bool,
    pub sums: Sums,
}

impl World {
    pub fn new(seed: u64, tell: bool) -> Self {
        let mut random = Random::new(seed);
        let scenario = Scenario::of(seed, &mut random);
        if tell {
            println!("{scenario:#?}");
        }
        let network = Network::new(&scenario, &mut random);
        let mut world = Self {
            network,
            // Any origin of time.
            now: 0,
            order: 0,
            events: BTreeMap::new(),
            hosts: [Host::new(1), Host::new(100)],
            pairs: Vec::new(),
            outcomes: Vec::new(),
            unopened: scenario.pairs,
            tell,
            sums: Sums::default(),
            scenario,
            random,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        let scenario = self.scenario.clone();
        for number in 0..scenario.pairs {
            let pair = self.pair(scenario.lies && number == 0);
            self.pairs.push(pair);
            self.outcomes.push(Default::default());
            let at = self.random.upto(10 * SECOND);
            self.at(at, Event::Open { pair: number });
        }
        for channel in 0..scenario.channels {
            let at = self.random.upto(SECOND);
            self.at(at, Event::Up { channel, life: 0 });
        }
        for _ in 0..scenario.cuts {
            let channel = self.random.index(scenario.channels);
            let at = self.random.upto(15 * SECOND);
            self.at(at, Event::Cut { channel });
        }
        for _ in 0..scenario.restarts {
            let host = self.random.index(2);
            let at = self.random.upto(15 * SECOND);
            self.at(at, Event::Restart { host });
        }
    }

    fn pair(&mut self, lying: bool) -> Pair {
        let bytes = self.scenario.bytes;
        let random = &mut self.random;
        // Without probes nothing may be dropped, so there must not be room for too many gaps.
        let crumbs = self.scenario.crumbs;
        let (least, most) = match (crumbs, self.scenario.without_probes) {
            (true, true) => (9, 9),
            (true, false) => (12, 12),
            (false, true) => (0, 8),
            (false, false) => (0, 12),
        };
        let mut ring = || 1 << random.between(least, most);
        let rings: [(u64, u64); 2] = [(ring(), ring()), (ring(), ring())];
        // Through small rings not much goes in a time.
        let mut total = |host: usize| {
            let least = rings[host].0.min(rings[1 - host].1);
            random.between(if crumbs { bytes } else { 0 }, bytes.min(50 * least))
        };
        let totals = [total(0), total(1)];
        let mut pair = Pair {
            initiator: random.index(2),
            starts: [0, 0].map(|_: u64| match random.upto(3) {
                0 => 0,
                1 => random.upto(bytes).wrapping_neg(),
                _ => random.word(),
            }),
            totals,
            rings,
            manners: [Manner::Proper; 2],
            refused: self.scenario.rude && random.once_in(10),
            lying,
        };
        let host = random.index(2);
        if random.once_in(4) {
            pair.manners[host] = Manner::WritesOnly;
            pair.totals[1 - host] = 0;
        } else if self.scenario.rude && random.once_in(2) {
            pair.manners[host] = match random.upto(1) {
                0 => Manner::ClosesEarly,
                _ => Manner::Resets {
                    after: random.upto(2 * bytes),
                },
            };
        }
        pair
    }

    pub fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.insert((time, self.order), event);
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.tell {
            println!(
                "{:>12}.{:06} {}",
                self.now / 1_000_000,
                self.now % 1_000_000,
                text()
            );
        }
    }

    fn is_done(&self) -> bool {
        self.unopened == 0 && self.hosts.iter().all(|host| host.table.is_empty())
    }

    pub fn run(&mut self) {
        while !self.is_done() {
            let Some(((time, _), event)) = self.events.pop_first() else {
                panic!("nothing will happen any more:\n{}", self.left());
            };
            assert!(
                time < self.scenario.end(),
                "not over in time:\n{}",
                self.left()
            );
            assert!(self.order < 2_000_000, "too much happens:\n{}", self.left());
            self.now = time;
            self.sums.events += 1;
            self.happen(event);
        }
    }

    fn left(&self) -> String {
        let mut text = format!("{:#?}\n", self.pairs);
        for host in &self.hosts {
            for (handle, connection) in host.table.iter() {
                text += &format!("{handle:?} {connection:#?}\n");
            }
        }
        text
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Open { pair } => self.open(pair),
            Event::Decide(who) => {
                if let Some(connection) = self.connection(who) {
                    let pair = connection.pair;
                    let refused = self.pairs[pair].refused;
                    self.with(who, |socket| match refused {
                        true => socket.refuse(Reason::NoListener, now),
                        false => socket.accept(now),
                    });
                }
            }
            Event::Look(who) => self.look(who),
            Event::Timer(who) => {
                if let Some(connection) = self.connection(who)
                    && connection.timer.is_some_and(|at| at.max(now) == now)
                {
                    connection.timer = None;
                    self.with(who, |socket| {
                        socket.on_timeout(now);
                        let next = socket.next_timeout();
                        assert!(next.is_none_or(|at| at > now), "the time stands still");
                    });
                }
            }
            Event::Remove(who) => self.after(who),
            Event::Depart(pipe) => self.depart(pipe),
            Event::Arrive(pipe) => self.arrive(pipe),
            Event::Write(who, write) => self.write(who, write),
            Event::Cut { channel } => {
                if self.network.channels[channel].up {
                    self.cut(channel);
                }
            }
            Event::Notice {
                host,
                channel,
                life,
            } => self.notice(host, channel, life),
            Event::Up { channel, life } => {
                if self.network.channels[channel].life == life {
                    self.up(channel);
                }
            }
            Event::Restart { host } => self.restart(host),
        }
    }

    pub fn connection(&mut self, who: Who) -> Option<&mut Connection> {
        let host = &mut self.hosts[who.host];
        if host.epoch != who.epoch {
            return None;
        }
        match host.table.get_mut(who.handle) {
            Lookup::Live(connection) => Some(connection),
            _ => None,
        }
    }

    pub fn who(&self, host: usize, handle: Handle) -> Who {
        Who {
            host,
            epoch: self.hosts[host].epoch,
            handle,
        }
    }

    /// Something happens to a socket, and then all that follows from it.
    pub fn with(&mut self, who: Who, act: impl FnOnce(&mut VirtualSocket)) {
        if let Some(connection) = self.connection(who) {
            act(&mut connection.socket);
            self.after(who);
        }
    }

    pub fn start(&mut self, pair: usize, host: usize) -> (Start, Program) {
        let plan = &self.pairs[pair];
        let random = &mut self.random;
        let (transmit, receive) = plan.rings[host];
        let (transmit, receive) = (Ring::new(transmit), Ring::new(receive));
        let start = Start {
            transmit: plan.starts[host],
            receive: plan.starts[1 - host],
            capacity: receive.size(),
        };
        let stream = |host: usize| (2 * pair + host) as u64 + 1;
        let program = Program {
            writes: stream(host),
            reads: stream(1 - host),
            manner: plan.manners[host],
            pace: match random.index(3) {
                _ if self.scenario.crumbs => Pace::Eager,
                0 => Pace::Eager,
                1 => Pace::Slow,
                _ => Pace::Pauses,
            },
            linger: match random.upto(1) {
                0 => Linger::Background,
                _ => Linger::Wait(random.upto(SECOND)),
            },
            total: plan.totals[host],
            written: 0,
            read: 0,
            transmit,
            receive,
            shut: false,
            closed: false,
            deceived: plan.lying,
        };
        (start, program)
    }

    /// Takes a connection into a host's table and lets its program look.
    pub fn insert(
        &mut self,
        host: usize,
        pair: usize,
        socket: VirtualSocket,
        start: Start,
        program: Program,
    ) -> Who {
        let connection = Connection {
            socket,
            program,
            pair,
            peer: None,
            transmit_start: start.transmit,
            receive_start: start.receive,
            timer: None,
            will_look: true,
            over_since: None,
            saw_end: false,
        };
        let handle = self.hosts[host].table.insert(connection, self.now);
        let who = self.who(host, handle.expect("room for all"));
        self.at(self.now + MILLISECOND, Event::Look(who));
        // Who is deceived gives up at last.
        self.at(self.scenario.calm() + 101 * SECOND, Event::Look(who));
        who
    }

    fn open(&mut self, pair: usize) {
        self.unopened -= 1;
        let host = self.pairs[pair].initiator;
        let (start, program) = self.start(pair, host);
        let socket = VirtualSocket::active(self.scenario.settings, start, self.now);
        let who = self.insert(host, pair, socket, start, program);
        self.say(|| format!("host {host} opens pair {pair} as {:?}", who.handle));
        self.after(who);
    }

    fn cut(&mut self, channel: usize) {
        self.say(|| format!("channel {channel} is cut"));
        let life = self.network.channels[channel].life;
        let notice = self.network.cut(channel, self.now, &mut self.random);
        for (host, at) in notice.into_iter().enumerate() {
            self.at(
                at,
                Event::Notice {
                    host,
                    channel,
                    life,
                },
            );
        }
    }

    fn notice(&mut self, host: usize, channel: usize, life: u64) {
        let it = &mut self.network.channels[channel];
        if it.life != life || !it.alive[host] {
            return;
        }
        let busy = self.network.pipes[&(channel, life, host)].busy;
        if busy && self.random.once_in(2) {
            // This time the worker finishes what it does first.
            let at = self.now + MILLISECOND;
            return self.at(
                at,
                Event::Notice {
                    host,
                    channel,
                    life,
                },
            );
        }
        self.say(|| format!("host {host} notices that channel {channel} is gone"));
        let it = &mut self.network.channels[channel];
        it.alive[host] = false;
        if it.alive == [false; 2] {
            let wait = if self.now > self.scenario.calm() {
                10 * MILLISECOND
            } else {
                3 * SECOND
            };
            let at = self.now + self.random.upto(wait);
            self.at(at, Event::Up { channel, life });
        }
        self.stop_sending((channel, life, 1 - host));
        let incoming = self.network.pipes.get_mut(&(channel, life, host)).unwrap();
        incoming.receiver_noticed = true;
        self.channel_lost(host, channel);
    }

    fn up(&mut self, channel: usize) {
        self.network.raise(channel);
        self.say(|| format!("channel {channel} is up"));
        for host in [0, 1] {
            let epoch = self.hosts[1 - host].epoch;
            let known = self.hosts[host].peer_epoch.replace(epoch);
            if known.is_some_and(|known| known != epoch) {
                self.peer_began_anew(host);
            }
        }
        for host in [0, 1] {
            self.pump_all(host);
        }
    }

    fn restart(&mut self, host: usize) {
        self.say(|| format!("host {host} begins anew"));
        let pairs: Vec<usize> = self.hosts[host]
            .table
            .iter()
            .map(|(_, connection)| connection.pair)
            .collect();
        for pair in pairs {
            self.outcomes[pair]
                .iter_mut()
                .for_each(|outcome| outcome.disturbed = true);
        }
        self.hosts[host] = Host::new(self.hosts[host].epoch + 1);
        for channel in 0..self.network.channels.len() {
            if self.network.channels[channel].up {
                self.cut(channel);
            }
            let life = self.network.channels[channel].life;
            // Its workers died in the middle of whatever they did.
            if let Some(pipe) = self.network.pipes.get_mut(&(channel, life, host)) {
                pipe.busy = false;
                self.notice(host, channel, life);
            }
        }
    }

    fn look(&mut self, who: Who) {
        let now = self.now;
        let give_up = now > self.scenario.calm() + 100 * SECOND;
        let rude = self.scenario.rude;
        // As in `pair`.
        let most = if self.scenario.without_probes {
            256
        } else {
            1024
        };
        let mut random = self.random.clone();
        let Some(connection) = self.connection(who) else {
            return;
        };
        connection.will_look = false;
        let (socket, program) = (&mut connection.socket, &mut connection.program);
        let before = (program.written, program.read, program.shut);
        let offset = |sequence: u64, start: u64| sequence.wrapping_sub(start);
        match socket.state() {
            State::Closed(_) => return,
            State::Opening if rude && random.once_in(40) => {
                program.manner = Manner::ClosesEarly;
                socket.close(program.linger, now);
            }
            State::Opening | State::Deciding => {}
            State::Established => {
                if !program.shut {
                    let acknowledged = offset(socket.acknowledged(), connection.transmit_start);
                    program.write(acknowledged, &mut random);
                    let written = connection.transmit_start.wrapping_add(program.written);
                    socket.on_written(written, now).unwrap();
                }
                if !program.closed && program.manner != Manner::WritesOnly {
                    let frontier = offset(socket.frontier(), connection.receive_start);
                    program.read(frontier, &mut random);
                    let read = connection.receive_start.wrapping_add(program.read);
                    socket.on_read(read, now).unwrap();
                }
                let size = program.receive.size();
                if size < most && socket.gaps() == 0 && socket.claims() == 0 && random.once_in(20) {
                    let frontier = offset(socket.frontier(), connection.receive_start);
                    program.receive.grow(2 * size, program.read, frontier);
                    socket.on_capacity(2 * size, now);
                }
                let all_written = program.written == program.total;
                let done = match program.manner {
                    Manner::Resets { after } if program.written + program.read >= after => {
                        socket.close(Linger::Abort, now);
                        true
                    }
                    Manner::WritesOnly | Manner::ClosesEarly if all_written => {
                        socket.close(program.linger, now);
                        true
                    }
                    _ => {
                        if all_written && !program.shut {
                            program.shut = true;
                            socket.shutdown_write(now);
                        }
                        let frontier = offset(socket.frontier(), connection.receive_start);
                        let all_read = socket.at_end() && program.read == frontier;
                        if program.shut && all_read && !program.closed {
                            socket.close(Linger::Background, now);
                        }
                        program.closed
                    }
                };
                program.shut |= done;
                program.closed |= done;
                if program.deceived && give_up {
                    socket.abort(Reason::Aborted, now);
                }
            }
        }
        let lying = program.deceived && who.host == 1;
        // Who has done nothing waits for a change.
        if before != (program.written, program.read, program.shut) || lying {
            connection.will_look = true;
            let next = now + connection.program.next_look(&mut random);
            self.at(next, Event::Look(who));
        }
        self.random = random;
        self.after(who);
        if lying && self.random.once_in(3) {
            self.lie(who);
        }
    }

    /// Bounds that hold at any time.
    pub fn check(&mut self, who: Who) {
        if let Some(connection) = self.connection(who) {
            let socket = &connection.socket;
            assert!(socket.gaps() <= MOST_RANGES);
            assert!(socket.claims() <= MOST_CLAIMS && socket.holds() <= MOST_CLAIMS);
            assert!(socket.in_flight_ranges() <= MOST_IN_FLIGHT_RANGES);
        }
    }

    /// What must have come of it.
    pub fn judge(&mut self) {
        let quiet = self.scenario.cuts + self.scenario.restarts == 0;
        let forgotten = self.sums.dropped > 0;
        if quiet && !self.scenario.lies && self.scenario.slow_workers == 0 && !forgotten {
            assert_eq!(self.sums.repeated, 0, "nothing was lost");
        }
        if self.scenario.without_probes {
            assert_eq!(self.sums.dropped, 0, "the rings are small enough");
        }
        for (pair, outcomes) in self.pairs.iter().zip(&self.outcomes) {
            let disturbed = outcomes.iter().any(|outcome| outcome.disturbed);
            let proper = |manner: Manner| matches!(manner, Manner::Proper | Manner::WritesOnly);
            if pair.lying || disturbed || !pair.manners.into_iter().all(proper) {
                continue;
            }
            if pair.refused {
                let end = outcomes[pair.initiator].end;
                assert_eq!(end, Some(End::Reset(Reason::NoListener)));
                continue;
            }
            for host in [0, 1] {
                let outcome = &outcomes[host];
                assert_eq!(outcome.end, Some(End::Finished), "{pair:#?}{outcomes:#?}");
                assert!(outcome.saw_end);
                assert_eq!(outcome.read, pair.totals[1 - host]);
                assert_eq!(outcome.written, pair.totals[host]);
                assert_eq!(outcome.acknowledged, pair.totals[host]);
                self.sums.finished += 1;
            }
        }
    }

    /// Sends a frame that belongs to no living socket.
    pub fn frame_of_none(&self, to: Handle, from: Handle, body: crate::network::Body) -> Frame {
        Frame {
            to,
            from: if from == NO_HANDLE { to } else { from },
            pair: usize::MAX,
            body,
            payload: Vec::new(),
            hold: None,
        }
    }
}
