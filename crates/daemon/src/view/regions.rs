//! Every region once, with the program to show for it: its own, or else one that uses it, as a forked child that goes on.

use netchannel_engine::CoreEngine;
use netchannel_engine::program::{Program, ProgramRegion};
use netchannel_engine::turn::Turn;
use netchannel_service::memory;
use std::collections::{BTreeMap, HashSet};
use std::rc::{Rc, Weak};

/// In which order regions are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the number of the program that is shown for them.
    Program,
    /// Those that occupy least come first: where an answer is cut, nobody hides the sockets of others behind lots of his own.
    Memory,
}

/// One region.
#[derive(Clone, Debug)]
pub struct ListedRegion {
    /// Number of the program that is shown for it.
    pub program: u32,
    /// The region.
    pub region: Weak<ProgramRegion>,
}

/// Finds them, step by step.
#[derive(Debug)]
pub struct Regions {
    only: Option<u32>,
    order: Order,
    programs: Vec<u32>,
    next: usize,
    /// Own regions were found, and now come those that are used too.
    includes_inherited: bool,
    seen: HashSet<*const ProgramRegion>,
    found: BTreeMap<(u64, usize), ListedRegion>,
}

impl Regions {
    /// Those of programs of a user, or of all.
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

    /// Goes on for a turn. Returns whether it is done.
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
        // No other has the address as long as somebody knows this one, weakly too.
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

    /// Takes the next one out.
    pub fn pop(&mut self) -> Option<ListedRegion> {
        self.found.pop_first().map(|(_, found)| found)
    }

    /// Whether all were taken out.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Those that are shown for a program, where they are ordered by it.
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

/// A program that is still there, and that may be shown.
pub fn visible(core: &CoreEngine, number: u32, only: Option<u32>) -> Option<&Program> {
    let program = core.programs().get(&number)?;
    only.is_none_or(|user| program.user == user)
        .then_some(program)
}
