//! Both sides over one file, with sinks that are kept by the test.
#![allow(dead_code, reason = "each test uses a part")]

use netchannel_abi::address::Address;
use netchannel_guest::{Event, Open, Sink, Taken, Tunnel, Welcome};
use netchannel_shm::run::transfer;
use netchannel_shm::{Region, Room, Run};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// What a sink has seen, and what it gives.
#[derive(Debug, Default)]
pub struct Seen {
    /// Bytes that it gives.
    pub gives: Vec<u8>,
    /// Behind them: an end, a close, a failure.
    pub then: Option<Taken>,
    /// Bytes that it got.
    pub got: Vec<u8>,
    /// How many more it takes.
    pub room: usize,
    pub ended: bool,
    pub accepted: bool,
    pub closed: Option<(Option<u32>, bool)>,
}

#[derive(Clone, Debug, Default)]
pub struct Played(pub Rc<RefCell<Seen>>);

impl Played {
    pub fn new(gives: &[u8]) -> Self {
        let seen = Seen {
            gives: gives.to_vec(),
            room: usize::MAX,
            ..Seen::default()
        };
        Self(Rc::new(RefCell::new(seen)))
    }
}

impl Sink for Played {
    fn take(&mut self, room: &[Room<'_>]) -> Taken {
        let mut seen = self.0.borrow_mut();
        let count = transfer(&[Run::from(seen.gives.as_slice())], room);
        if count > 0 {
            seen.gives.drain(..count);
            return Taken::Bytes(count);
        }
        match seen.then {
            Some(then) if seen.gives.is_empty() => then,
            _ => Taken::Nothing,
        }
    }

    fn put(&mut self, bytes: &[Run<'_>]) -> Result<usize, u32> {
        let mut seen = self.0.borrow_mut();
        let all: usize = bytes.iter().map(Run::length).sum();
        let count = all.min(seen.room);
        let mut buffer = vec![0; count];
        transfer(bytes, &[Room::from(buffer.as_mut_slice())]);
        seen.got.extend(buffer);
        seen.room -= count;
        Ok(count)
    }

    fn end(&mut self) {
        self.0.borrow_mut().ended = true;
    }

    fn accepted(&mut self) {
        self.0.borrow_mut().accepted = true;
    }

    fn close(self, error: Option<u32>, made: bool) {
        self.0.borrow_mut().closed = Some((error, made));
    }
}

fn own() -> Address {
    Address::v4([10, 88, 0, 2], 0)
}

pub fn welcome(most: u32) -> Welcome {
    Welcome {
        addresses: vec![own()],
        most,
    }
}

pub fn open() -> Open {
    Open {
        to: Address::v4([10, 7, 0, 2], 80),
        from: Address::v4([10, 88, 0, 2], 40_000),
        dscp: 0,
    }
}

/// A mapping of a new file.
pub fn region(size: usize) -> Arc<Region> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(size as u64).unwrap();
    Arc::new(Region::map_unsealed(file.as_raw_fd(), size).unwrap())
}

pub fn new_host(region: &Arc<Region>, most: u32) -> Tunnel<Played> {
    Tunnel::host(Arc::clone(region), welcome(most), Instant::now()).unwrap()
}

pub fn new_guest(region: &Arc<Region>) -> Tunnel<Played> {
    Tunnel::guest(Arc::clone(region), Instant::now()).unwrap()
}

/// Both sides.
pub struct Both {
    pub host: Tunnel<Played>,
    pub guest: Tunnel<Played>,
    pub now: Instant,
    pub host_events: Vec<Event>,
    pub guest_events: Vec<Event>,
}

impl Both {
    pub fn new(size: usize, most: u32) -> Self {
        Self::over(&region(size), most)
    }

    pub fn over(region: &Arc<Region>, most: u32) -> Self {
        Self {
            host: new_host(region, most),
            guest: new_guest(region),
            now: Instant::now(),
            host_events: Vec::new(),
            guest_events: Vec::new(),
        }
    }

    /// Passes until nothing happens any more.
    pub fn settle(&mut self) {
        for round in 0..10_000 {
            // What was just asked for is said in the first.
            let mut any = round == 0;
            for (side, events) in [
                (&mut self.host, &mut self.host_events),
                (&mut self.guest, &mut self.guest_events),
            ] {
                any |= pass(side, events, self.now);
            }
            if !any {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// A connection of the guest that the host has accepted.
    pub fn connect(&mut self, guest: &Played, host: &Played) -> (u64, u64) {
        let here = self.guest.open(open(), guest.clone()).unwrap();
        self.host_events.clear();
        self.settle();
        let there = opened(&self.host_events);
        self.host.attach(there, host.clone());
        self.host.accept(there);
        self.settle();
        (here, there)
    }
}

/// The connection that the last `Open` is about.
pub fn opened(events: &[Event]) -> u64 {
    let mut found = events.iter().rev();
    found
        .find_map(|event| match event {
            Event::Open(serial, _) => Some(*serial),
            _ => None,
        })
        .expect("no connection was opened")
}

fn pass(side: &mut Tunnel<Played>, events: &mut Vec<Event>, now: Instant) -> bool {
    let works = side.has_work();
    side.poll(now);
    side.work(now);
    events.extend(std::iter::from_fn(|| side.next_event()));
    side.flush() || works
}
