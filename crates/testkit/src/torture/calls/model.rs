//! The generator's model of the program that it writes: which sockets there are and which calls fit them. A wrong model
//! makes an odd call, and odd calls are wanted too.

use netchannel_testkit::support::Random;

use super::program::literal;

/// The state of a socket, as far as the generator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Fresh,
    Listening,
    Connecting,
    Connected,
    Closed,
}

/// A socket that a step makes.
#[derive(Clone, Debug)]
pub struct Socket {
    pub variable: i64,
    pub stage: Stage,
    pub family: i64,
    pub nonblocking: bool,
    /// A bit for each process that has the socket.
    pub owners: u32,
    /// The index of the other end of the connection.
    pub peer: Option<usize>,
    /// Number of bytes, or connections, that wait to be received or accepted.
    pub waiting: usize,
}

/// A process or thread.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    pub process: usize,
    pub is_thread: bool,
    pub alive: bool,
}

/// The model.
pub struct Model {
    pub random: Random,
    pub sockets: Vec<Socket>,
    pub actors: Vec<Actor>,
    /// epoll sets: variable and a bit for each owner.
    pub sets: Vec<(i64, u32)>,
    /// Other descriptors, such as pipes and files.
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

    /// True in `times` of a hundred draws.
    pub fn percent(&mut self, times: usize) -> bool {
        self.random.below(100) < times
    }

    /// One of the values.
    pub fn one<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.below(values.len())]
    }

    pub fn bit(&self, actor: usize) -> u32 {
        1 << self.actors[actor].process
    }

    /// A living actor.
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

    /// A socket of an actor, most likely one for which `wanted` is true.
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

    /// Any descriptor of an actor, or a literal number.
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

    /// The index of a variable's socket.
    pub fn place(&self, variable: i64) -> Option<usize> {
        self.sockets
            .iter()
            .rposition(|socket| socket.variable == variable)
    }

    /// Adds sent bytes to the waiting bytes of the peer.
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
