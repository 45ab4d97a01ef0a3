//! What the generator believes of the program it writes: which sockets there are and what may be done with them.
//! A wrong belief makes an odd call, and odd calls are wanted too.

use netchannel_testkit::support::Random;

use super::program::literal;

/// What a socket is, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Fresh,
    Listening,
    Connecting,
    Connected,
    Closed,
}

/// A socket that some step makes.
#[derive(Clone, Debug)]
pub struct Socket {
    pub variable: i64,
    pub stage: Stage,
    pub family: i64,
    pub nonblocking: bool,
    /// Processes that have it, a bit each.
    pub owners: u32,
    /// The other end of its connection, by place.
    pub peer: Option<usize>,
    /// Bytes, or connections, that wait to be read.
    pub waiting: usize,
}

/// A process or thread.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    pub process: usize,
    pub is_thread: bool,
    pub alive: bool,
}

/// All of it.
pub struct Model {
    pub random: Random,
    pub sockets: Vec<Socket>,
    pub actors: Vec<Actor>,
    /// Sets of epoll: variable and owner's bits.
    pub sets: Vec<(i64, u32)>,
    /// Other descriptors: pipes, files.
    pub others: Vec<(i64, u32)>,
}

impl Model {
    pub fn new(random: Random) -> Self {
        let first = Actor {
            process: 0,
            is_thread: false,
            alive: true,
        };
        Self {
            random,
            sockets: Vec::new(),
            actors: vec![first],
            sets: Vec::new(),
            others: Vec::new(),
        }
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, times: usize) -> bool {
        self.random.below(100) < times
    }

    /// One of some values.
    pub fn one<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.below(values.len())]
    }

    pub fn bit(&self, actor: usize) -> u32 {
        1 << self.actors[actor].process
    }

    /// An actor that lives.
    pub fn actor(&mut self) -> usize {
        let alive: Vec<usize> = (0..self.actors.len())
            .filter(|actor| self.actors[*actor].alive)
            .collect();
        if alive.is_empty() {
            0
        } else {
            self.one(&alive)
        }
    }

    /// A socket of an actor, most likely at a stage that fits.
    pub fn socket(&mut self, actor: usize, wanted: impl Fn(&Socket) -> bool) -> Option<usize> {
        let bit = self.bit(actor);
        let own: Vec<usize> = (0..self.sockets.len())
            .filter(|place| self.sockets[*place].owners & bit != 0)
            .collect();
        let fit: Vec<usize> = own
            .iter()
            .copied()
            .filter(|place| wanted(&self.sockets[*place]))
            .collect();
        let careless = self.percent(7);
        let list = if fit.is_empty() || careless { own } else { fit };
        (!list.is_empty()).then(|| self.one(&list))
    }

    /// Any descriptor of an actor, or a number.
    pub fn anything(&mut self, actor: usize) -> i64 {
        let bit = self.bit(actor);
        let mut all: Vec<i64> = Vec::new();
        for _ in 0..3 {
            all.extend(
                self.sockets
                    .iter()
                    .filter(|socket| socket.owners & bit != 0)
                    .map(|socket| socket.variable),
            );
        }
        all.extend(
            self.sets
                .iter()
                .chain(&self.others)
                .filter(|(_, owners)| owners & bit != 0)
                .map(|(variable, _)| *variable),
        );
        all.extend([
            literal(-1),
            literal(self.random.below(16).cast_signed() as i64),
        ]);
        self.one(&all)
    }

    /// Which socket a variable is.
    pub fn place(&self, variable: i64) -> Option<usize> {
        self.sockets
            .iter()
            .rposition(|socket| socket.variable == variable)
    }

    /// Takes down that bytes went off.
    pub fn sent(&mut self, place: usize, size: usize) {
        if let Some(peer) = self.sockets[place].peer {
            self.sockets[peer].waiting += size;
        }
    }

    pub fn received(&mut self, place: usize, size: usize) {
        let socket = &mut self.sockets[place];
        socket.waiting = socket.waiting.saturating_sub(size);
    }
}
