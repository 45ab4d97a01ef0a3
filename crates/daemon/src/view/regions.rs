//! Every region once, with the program for which it is shown: its own program, or else one that uses it, such as a
//! forked child that goes on.

use netchannel_engine::CoreEngine;
use netchannel_engine::program::{Program, ProgramRegion};
use netchannel_engine::turn::Turn;
use netchannel_service::memory;
use std::collections::{BTreeMap, HashSet};
use std::rc::{Rc, Weak};

/// The order of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the number of the program for which they are shown.
    Program,
    /// Regions that occupy the least come first: where an answer is cut, no user hides the sockets of others behind
    /// many of his own.
    Memory,
}

/// One region.
#[derive(Clone, Debug)]
pub struct ListedRegion {
    /// The number of the program for which it is shown.
    pub program: u32,
    /// The region.
    pub region: Weak<ProgramRegion>,
}

/// A list of regions, found step by step.
#[derive(Debug)]
pub struct Regions {
    only: Option<u32>,
    order: Order,
    programs: Vec<u32>,
    next: usize,
    /// Own regions were found; now come those that are used too.
    includes_inherited: bool,
    seen: HashSet<*const ProgramRegion>,
    found: BTreeMap<(u64, usize), ListedRegion>,
}

impl Regions {
    /// The regions of programs of a user, or of all.
    pub fn new(core: &CoreEngine, only: Option<u32>, order: Order) -> Self {
        Self {
            only,
            order,
            programs: numbers(core),
            next: 0,
            includes_inherited: false,
            seen: HashSet::new(),
            found: BTreeMap::new(),
        }
    }

    /// Continues for a turn. Returns whether the list is complete.
    pub fn run_turn(&mut self, core: &CoreEngine, turn: &Turn) -> bool {
        while let Some(number) = self.programs.get(self.next).copied() {
            self.next += 1;
            if let Some(program) = visible(core, number, self.only) {
                match &program.region {
                    Some(region) if !self.includes_inherited => self.note(number, region),
                    _ if !self.includes_inherited => {}
                    _ => program
                        .inherited
                        .iter()
                        .for_each(|region| self.note(number, region)),
                }
            }
            if self.next == self.programs.len() && !self.includes_inherited {
                (self.includes_inherited, self.next) = (true, 0);
            }
            if turn.is_over() {
                return false;
            }
        }
        true
    }

    fn note(&mut self, program: u32, region: &Rc<ProgramRegion>) {
        // The address is unique as long as a weak reference to the region exists.
        if self.seen.insert(Rc::as_ptr(region)) {
            let place = match self.order {
                Order::Program => program.into(),
                Order::Memory => memory::occupied(&region.memory),
            };
            let region = Rc::downgrade(region);
            let key = (place, self.seen.len());
            self.found.insert(key, ListedRegion { program, region });
        }
    }

    /// Takes the next region.
    pub fn pop(&mut self) -> Option<ListedRegion> {
        self.found.pop_first().map(|(_, found)| found)
    }

    /// Whether all regions were taken.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The regions that are shown for a program, where the list is in the order of programs.
    pub fn of(&self, program: u32) -> impl Iterator<Item = &ListedRegion> {
        let place = u64::from(program);
        let range = self.found.range((place, 0)..=(place, usize::MAX));
        range.map(|(_, found)| found)
    }
}

/// The numbers of all programs, in order.
pub fn numbers(core: &CoreEngine) -> Vec<u32> {
    let mut numbers: Vec<u32> = core.programs().keys().copied().collect();
    numbers.sort_unstable();
    numbers
}

/// A program that still exists and may be shown.
pub fn visible(core: &CoreEngine, number: u32, only: Option<u32>) -> Option<&Program> {
    let program = core.programs().get(&number)?;
    only.is_none_or(|user| program.user == user)
        .then_some(program)
}
