//! The draw of a round: what its server, its clients and its connections are like.

use netchannel_testkit::support::{Family, Random};

use crate::readiness::Kind;
use crate::script::Role;

/// How a server accepts, and who serves what was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Threads that accept from one listener.
    Threads,
    /// Children that accept from one listener.
    Prefork,
    /// Children that accept while they hold a lock.
    PreforkLocked,
    /// Children that wait in `poll` on a non-blocking listener.
    PreforkPoll,
    /// Children with an epoll set each, whose listener is a member with `EPOLLEXCLUSIVE`, or edge-triggered.
    PreforkSets { exclusive: bool },
    /// Children that share an epoll set from before their fork.
    SharedSet,
    /// A child for each connection. `restarts`: its end interrupts no `accept`.
    ForkEach { restarts: bool },
    /// A child for each connection, which executes a program on it.
    ExecuteEach,
    /// One accepts and passes connections to children.
    Pass,
    /// One accepts and hands connections to threads, through a pipe.
    HandToThreads,
    /// Threads that wait on one epoll set, with `EPOLLONESHOT`.
    ThreadsOneShot,
    /// Children that accept a few connections each and are replaced.
    Rotating,
    /// The listener goes from process to process, and who has it serves some connections.
    HandedOn,
    /// As `Prefork`, whose children are killed at any moment and replaced: each takes one connection with it at most.
    PreforkKilled,
}

const SHAPES: [Shape; 16] = [
    Shape::Threads,
    Shape::Prefork,
    Shape::PreforkLocked,
    Shape::PreforkPoll,
    Shape::PreforkSets { exclusive: true },
    Shape::PreforkSets { exclusive: false },
    Shape::SharedSet,
    Shape::ForkEach { restarts: true },
    Shape::ForkEach { restarts: false },
    Shape::ExecuteEach,
    Shape::Pass,
    Shape::HandToThreads,
    Shape::ThreadsOneShot,
    Shape::Rotating,
    Shape::HandedOn,
    Shape::PreforkKilled,
];

/// What a client process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One connection after the other.
    OneByOne,
    /// Threads, each with one connection after the other.
    Threads,
    /// A loop with several connections.
    Loop(Kind),
    /// A child for each connection, which its parent made.
    ForkEach,
}

const WAYS: [Way; 6] = [
    Way::OneByOne,
    Way::Threads,
    Way::Loop(Kind::Poll),
    Way::Loop(Kind::Level),
    Way::Loop(Kind::Edge),
    Way::ForkEach,
];

/// What a round is like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub family: Family,
    pub shape: Shape,
    /// Processes or threads that serve.
    pub workers: usize,
    /// What each client process does.
    pub clients: Vec<Way>,
    /// Connections of a client at the same time.
    pub together: usize,
    /// Connections in all.
    pub connections: u64,
    /// Whether signals interrupt and stop.
    pub pest: bool,
}

impl Plan {
    /// The plan of a seed, of a shape whose name is `wanted`.
    pub fn draw(seed: u64, family: Option<Family>, wanted: impl Fn(&str) -> bool) -> Self {
        let mut random = Random::new(seed ^ 0x5e17_e125);
        let shapes: Vec<_> = SHAPES
            .into_iter()
            .filter(|shape| wanted(&format!("{shape:?}")))
            .collect();
        assert!(!shapes.is_empty(), "no shape has such a name");
        let drawn = if random.once_in(2) {
            Family::V4
        } else {
            Family::V6
        };
        let shape = shapes[random.below(shapes.len())];
        let is_possible = |way: &Way| shape != Shape::PreforkKilled || !matches!(way, Way::Loop(_));
        let ways: Vec<_> = WAYS.into_iter().filter(is_possible).collect();
        let workers = random.between(1, 5);
        Self {
            seed,
            family: family.unwrap_or(drawn),
            shape,
            workers,
            clients: (0..random.between(1, 3))
                .map(|_| ways[random.below(ways.len())])
                .collect(),
            together: random.between(1, 6),
            // A worker that alone accepts becomes known as such after many connections only.
            connections: random.between(20, if workers == 1 { 400 } else { 120 }) as u64,
            pest: !random.once_in(4),
        }
    }

    /// Whether a connection may break at this end.
    pub fn may_break(&self, role: Role) -> bool {
        self.shape == Shape::PreforkKilled && role == Role::Client
    }
}
