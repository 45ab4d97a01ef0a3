//! Channels: in order within one, in any order between them, lost at any byte.

use std::collections::{BTreeMap, VecDeque};

use netchannel_vns::{ChannelId, Handle, Hold, Transmit};

use crate::random::Random;
use crate::scenario::{MICROSECOND, NOTICE, SECOND, Scenario};

/// What is on a channel.
#[derive(Debug)]
pub struct Frame {
    /// The receiver's socket; for Open none.
    pub to: Handle,
    /// The sender's socket, told by Open and Answer.
    pub from: Handle,
    /// Which pair of programs; told by Open.
    pub pair: usize,
    pub body: Body,
    pub payload: Vec<u8>,
    /// The bytes are still to be taken from the ring.
    pub hold: Option<Hold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Transmit(Transmit),
    /// The handle `to` of a frame named nothing; it comes back as `from`.
    NoSocket,
}

/// One direction of one life of a channel, named by channel, life and receiving host.
pub type PipeName = (usize, u64, usize);

#[derive(Debug, Default)]
pub struct Pipe {
    /// Committed, not yet gathered from the rings.
    pub outgoing: VecDeque<Frame>,
    /// On the way, with the time of arrival.
    pub arriving: VecDeque<(u64, Frame)>,
    last_departure: u64,
    last_arrival: u64,
    /// What arrives later than this is lost.
    pub cut: Option<u64>,
    /// The receiving worker is busy with a frame.
    pub busy: bool,
    /// The receiver knows that it is gone.
    pub receiver_noticed: bool,
}

#[derive(Debug)]
pub struct Channel {
    pub life: u64,
    pub up: bool,
    /// Whether each host takes it for alive.
    pub alive: [bool; 2],
    latency: u64,
    room: usize,
}

#[derive(Debug)]
pub struct Network {
    pub channels: Vec<Channel>,
    pub pipes: BTreeMap<PipeName, Pipe>,
    collide: bool,
    slow: u64,
}

impl Network {
    pub fn new(scenario: &Scenario, random: &mut Random) -> Self {
        let channels = (0..scenario.channels).map(|_| Channel {
            life: 0,
            up: false,
            alive: [false; 2],
            latency: random.between(MICROSECOND, scenario.latency),
            room: match scenario.crumbs {
                true => 3000,
                false => usize::try_from(random.between(2, 40)).unwrap(),
            },
        });
        Self {
            channels: channels.collect(),
            pipes: BTreeMap::new(),
            collide: scenario.numbers_collide,
            slow: scenario.slow_workers,
        }
    }

    /// The number sockets know it by; the same in each of its lives.
    pub fn id(&self, channel: usize) -> ChannelId {
        let number = u32::try_from(channel).unwrap();
        ChannelId(if self.collide { number * 64 } else { number })
    }

    /// A channel that `host` takes for alive and that has room.
    pub fn choose(&self, host: usize, random: &mut Random) -> Option<usize> {
        let count = self.channels.len();
        let first = random.index(count);
        (first..first + count)
            .map(|at| at % count)
            .find(|channel| self.has_room(host, *channel))
    }

    fn has_room(&self, host: usize, channel: usize) -> bool {
        let it = &self.channels[channel];
        let pipe = self.pipes.get(&(channel, it.life, 1 - host));
        let queued = pipe.map_or(0, |pipe| pipe.outgoing.len() + pipe.arriving.len());
        it.alive[host] && queued < it.room
    }

    /// Commits a frame; gives its pipe and when it departs.
    pub fn commit(
        &mut self,
        host: usize,
        channel: usize,
        frame: Frame,
        now: u64,
        random: &mut Random,
    ) -> (PipeName, u64) {
        let name = (channel, self.channels[channel].life, 1 - host);
        let pipe = self.pipes.get_mut(&name).unwrap();
        pipe.outgoing.push_back(frame);
        // Now and then a worker is late to take the bytes from the ring.
        let late = self.slow > 0 && random.once_in(50 * self.slow);
        let wait = if late { 5 * SECOND } else { 20 * MICROSECOND };
        let departure = now + random.upto(wait);
        pipe.last_departure = pipe.last_departure.max(departure);
        (name, pipe.last_departure)
    }

    /// A frame departs with its bytes; gives when it arrives.
    pub fn depart(&mut self, name: PipeName, frame: Frame, now: u64, random: &mut Random) -> u64 {
        let latency = self.channels[name.0].latency;
        let pipe = self.pipes.get_mut(&name).unwrap();
        let arrival = now + random.between(latency / 2, latency);
        pipe.last_arrival = pipe.last_arrival.max(arrival);
        pipe.arriving.push_back((pipe.last_arrival, frame));
        pipe.last_arrival
    }

    /// The channel breaks; gives when each host notices.
    pub fn cut(&mut self, channel: usize, now: u64, random: &mut Random) -> [u64; 2] {
        let it = &mut self.channels[channel];
        it.up = false;
        let life = it.life;
        let notice = [0, 1].map(|_| match random.upto(2) {
            0 => now + random.upto(100 * MICROSECOND),
            _ => now + random.upto(NOTICE),
        });
        for receiver in [0, 1] {
            let pipe = self.pipes.get_mut(&(channel, life, receiver)).unwrap();
            // Some had arrived already and are still read.
            pipe.cut = Some(random.between(now, notice[receiver]));
        }
        notice
    }

    /// Begins a new life.
    pub fn raise(&mut self, channel: usize) {
        let it = &mut self.channels[channel];
        it.life += 1;
        it.up = true;
        it.alive = [true; 2];
        for receiver in [0, 1] {
            let name = (channel, it.life, receiver);
            self.pipes.insert(name, Pipe::default());
        }
    }
}
