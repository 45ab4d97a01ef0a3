//! Both ends of a link in one process: the daemon's end, and an end that plays the program. For the tests of this
//! library and of stack modules.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can not go on fails"
)]

use crate::anchor::Count;
use crate::jobs::Opened;
use crate::lane::Lane;
use crate::link::{LinkEnd, Parts};
use crate::urgent::Row;
use crate::{memory, packet};
use netchannel_abi::address::Address;
use netchannel_abi::link::{Layout, QUEUE_CAPACITY, Role, side_flags};
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run};
use rustix::net::SocketType;
use std::sync::Arc;

/// Sizes of a small link.
pub const LAYOUT: Layout = Layout {
    slots: 64,
    arena: 1 << 24,
};

/// The parts of the client's and the server's end of a new link, whose client is a program of `user`.
pub fn parts(user: Option<u32>, layout: Layout) -> (Parts, Parts) {
    let memory = memory::link(layout, 7).unwrap();
    let (one, other) = packet::owned_pair(SocketType::SEQPACKET).unwrap();
    let end = |role, channel| Parts {
        number: 7,
        role,
        layout,
        memory: memory.try_clone().unwrap(),
        channel,
        anchors: Vec::new(),
        user,
    };
    (end(Role::Client, one), end(Role::Server, other))
}

/// The client's and the server's end of a new link.
pub fn link() -> (Arc<LinkEnd>, Arc<LinkEnd>) {
    laid_out(LAYOUT)
}

/// A new link with this many slots.
pub fn many(slots: usize) -> (Arc<LinkEnd>, Arc<LinkEnd>) {
    laid_out(Layout { slots, ..LAYOUT })
}

/// The ends of a new link with these sizes.
pub fn laid_out(layout: Layout) -> (Arc<LinkEnd>, Arc<LinkEnd>) {
    let (client, server) = parts(None, layout);
    let count = Arc::new(Count::new(10_000));
    let client = LinkEnd::new(client, &count).unwrap();
    let server = LinkEnd::new(server, &count).unwrap();
    (Arc::new(client), Arc::new(server))
}

/// The address of the client.
pub const HERE: Address = Address::v4([127, 0, 0, 1], 40000);
/// The address to which the client connects.
pub const THERE: Address = Address::v4([127, 0, 0, 1], 80);

/// Announces a connection that is not taken yet.
pub fn dial(client: &Arc<LinkEnd>) -> Lane {
    let loan = client.lend().unwrap();
    let lane = Lane::lent(client, loan).unwrap();
    assert!(client.announce(lane.handle(), 3, (&HERE, &THERE), false));
    lane
}

/// Takes the announced connections.
pub fn take(server: &Arc<LinkEnd>) -> Vec<Opened> {
    let mut opened = Vec::new();
    server
        .take_jobs(QUEUE_CAPACITY, |one| opened.push(one))
        .unwrap();
    opened
}

/// Both lanes of a new connection.
pub fn connect(client: &Arc<LinkEnd>, server: &Arc<LinkEnd>) -> (Lane, Lane) {
    let lane = dial(client);
    let opened = take(server).pop().unwrap();
    assert_eq!(
        (opened.listener, opened.client, opened.server),
        (3, HERE, THERE)
    );
    (lane, Lane::accepted(server, opened.loan))
}

/// Places bytes at a sequence, as far as there is room. Returns how many were placed.
pub fn place(lane: &mut Lane, at: u64, bytes: &[u8]) -> u64 {
    lane.limit().unwrap();
    let room = lane.room(at, bytes.len() as u64).unwrap();
    let done = transfer(&[Run::from(bytes)], &lane.rooms(room)) as u64;
    lane.note_placed(at + done);
    done
}

/// Writes all bytes that fit. The ring grows where that is allowed.
pub fn write(lane: &mut Lane, bytes: &[u8]) -> usize {
    let mut done = 0;
    loop {
        let rest = &bytes[done..];
        let at = lane.published();
        let mut put = place(lane, at, rest);
        if put == 0 && lane.grow(rest.len() as u64).unwrap() {
            put = place(lane, at, rest);
        }
        if put == 0 {
            return done;
        }
        lane.publish_with_mark(at + put, Row::default()).unwrap();
        done += usize::try_from(put).unwrap();
    }
}

/// Copies bytes from a sequence on, without consuming them.
pub fn peek(lane: &Lane, from: u64, most: usize) -> Vec<u8> {
    let spans = lane.readable(from, most as u64).unwrap();
    let mut bytes = vec![0; spans[0].length + spans[1].length];
    let got = transfer(&lane.runs(spans), &[Room::from(&mut bytes[..])]);
    assert_eq!(got, bytes.len());
    bytes
}

/// Reads all available bytes.
pub fn read(lane: &mut Lane) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let got = peek(lane, lane.consumed(), usize::MAX >> 1);
        if got.is_empty() {
            return all;
        }
        lane.consume(lane.consumed() + got.len() as u64).unwrap();
        all.extend(got);
    }
}

/// The sequence at which the stream of the program ends, once FIN is set.
pub fn ends_at(lane: &Lane) -> Option<u64> {
    // The flag is loaded first: a program that has set FIN writes no more.
    let ends = lane.peer_flags() & side_flags::FIN != 0;
    ends.then(|| lane.frontier().unwrap())
}

/// Bytes that differ by place and seed.
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|index| u8::try_from((index * 31 + seed * 7) % 251).unwrap())
        .collect()
}

/// A small deterministic generator (xorshift).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a bound.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
