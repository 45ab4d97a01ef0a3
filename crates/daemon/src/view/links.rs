//! Views of links: their users, their queues and slots, and their memory.

use super::regions::numbers;
use netchannel_abi::link::{QUEUE_CAPACITY, QueueIndices, Slot};
use netchannel_engine::program::ProgramRegion;
use netchannel_engine::turn::Turn;
use netchannel_engine::{CoreEngine, Link};
use netchannel_service::memory;
use netchannel_shm::{Outside, Snapshot};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Acquire;

/// Whether a listener belongs to this user.
pub fn is_listener_of(core: &CoreEngine, listener: u32, user: u32) -> bool {
    let of_user = |number: &u32| {
        let program = core.programs().get(number);
        program.is_some_and(|program| program.user == user)
    };
    let known = core.listeners().get(&listener);
    known.is_some_and(|known| known.user == user || known.holders.iter().any(of_user))
}

/// Whether one of the ends of a link belongs to this user.
pub fn is_of(core: &CoreEngine, link: &Link, user: u32) -> bool {
    let client = core.programs().get(&link.client);
    link.user == user
        || client.is_some_and(|client| client.user == user)
        || is_listener_of(core, link.listener, user)
}

fn memory_of(core: &CoreEngine, link: &Link) -> Option<Outside> {
    Outside::admit(link.memory.as_raw_fd(), core.limits().layout().size()).ok()
}

/// The slots of links, for one turn. Between two turns a link may end, with its descriptor.
pub struct Slots<'a> {
    core: &'a CoreEngine,
    last: Option<(u64, Option<Outside>)>,
}

impl<'a> Slots<'a> {
    pub const fn new(core: &'a CoreEngine) -> Self {
        Self { core, last: None }
    }

    /// The slot that an entry of a region names, if the link belongs to a program that has the region. It is copied
    /// into `copy`.
    pub fn get<'b>(
        &mut self,
        region: &ProgramRegion,
        number: u64,
        index: u32,
        copy: &'b mut Snapshot,
    ) -> Option<&'b Slot> {
        let layout = self.core.limits().layout();
        let index = usize::try_from(index).ok()?;
        if index >= layout.slots {
            return None;
        }
        let known = self.last.filter(|(last, _)| *last == number);
        let (_, outside) = known.unwrap_or_else(|| (number, self.look(region, number)));
        self.last = Some((number, outside));
        let place = layout.slot(index);
        copy.fill(&outside?, place, size_of::<Slot>()).ok()?;
        copy.at(place)
    }

    fn look(&self, region: &ProgramRegion, number: u64) -> Option<Outside> {
        let link = self.core.links().get(&number)?;
        let theirs = link.client == region.program || is_of(self.core, link, region.user);
        theirs.then(|| memory_of(self.core, link)).flatten()
    }
}

/// The number of announced connections on the links to each listener that were not taken yet, counted step by step.
#[derive(Debug, Default)]
pub struct Announced {
    last: u64,
    by_listener: HashMap<u32, u64>,
}

impl Announced {
    /// Continues for a turn. Returns whether it is complete.
    pub fn run_turn(
        &mut self,
        core: &CoreEngine,
        only: Option<u32>,
        copy: &mut Snapshot,
        turn: &Turn,
    ) -> bool {
        for (number, link) in core.links().range((Excluded(self.last), Unbounded)) {
            self.last = *number;
            if only.is_none_or(|user| is_listener_of(core, link.listener, user)) {
                let sum = self.by_listener.entry(link.listener).or_default();
                *sum += announced(core, link, copy);
            }
            if turn.is_over() {
                return false;
            }
        }
        true
    }

    /// The number on all links to a listener.
    pub fn of(&self, listener: u32) -> u64 {
        self.by_listener.get(&listener).copied().unwrap_or(0)
    }
}

/// The number of connections in the job queue of a link.
fn announced(core: &CoreEngine, link: &Link, copy: &mut Snapshot) -> u64 {
    let place = core.limits().layout().job_queue();
    let filled = memory_of(core, link)
        .and_then(|outside| copy.fill(&outside, place, size_of::<QueueIndices>()).ok());
    let indices = filled.and_then(|()| copy.at::<QueueIndices>(place));
    let count = indices.map_or(0, |indices| {
        let head = indices.head.load(Acquire);
        indices.tail.load(Acquire).saturating_sub(head)
    });
    count.min(QUEUE_CAPACITY as u64)
}

/// The memory that regions and links occupy.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The sum.
    pub bytes: u64,
    /// By the user to whom the memory is charged.
    pub by_user: BTreeMap<u32, u64>,
}

impl Memory {
    fn add(&mut self, user: u32, memory: &OwnedFd) {
        let bytes = memory::occupied(memory);
        self.bytes += bytes;
        *self.by_user.entry(user).or_default() += bytes;
    }
}

/// The memory that all regions and links occupy, and how many links each program made; found out step by step.
#[derive(Debug)]
pub struct Occupied {
    programs: Vec<u32>,
    next: usize,
    last_link: u64,
    memory: Memory,
    links: HashMap<u32, u64>,
}

impl Occupied {
    /// Nothing was measured yet.
    pub fn new(core: &CoreEngine) -> Self {
        Self {
            programs: numbers(core),
            next: 0,
            last_link: 0,
            memory: Memory::default(),
            links: HashMap::new(),
        }
    }

    /// Continues for a turn. Returns whether it is complete.
    pub fn run_turn(&mut self, core: &CoreEngine, turn: &Turn) -> bool {
        while let Some(number) = self.programs.get(self.next) {
            self.next += 1;
            let program = core.programs().get(number);
            let region = program.and_then(|program| program.region.as_ref());
            if let Some(region) = region {
                self.memory.add(region.user, &region.memory);
            }
            if turn.is_over() {
                return false;
            }
        }
        for (number, link) in core.links().range((Excluded(self.last_link), Unbounded)) {
            self.last_link = *number;
            self.memory.add(link.user, &link.memory);
            *self.links.entry(link.client).or_default() += 1;
            if turn.is_over() {
                return false;
            }
        }
        true
    }

    /// The occupied memory.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The number of links that a program made.
    pub fn links_of(&self, program: u32) -> u64 {
        self.links.get(&program).copied().unwrap_or(0)
    }
}
