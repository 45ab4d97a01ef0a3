//! The list of programs for `netchannel status`, written as it is found.

use super::Host;
use super::links::{Memory, Occupied};
use super::regions::{Order, Regions, numbers, visible};
use super::sockets::FULL;
use netchannel_abi::reason::Reason;
use netchannel_control::types::{self, Fallback};
use netchannel_engine::program::Program;
use netchannel_engine::region::Copies;
use netchannel_engine::totals::Totals;
use netchannel_engine::turn::Turn;
use netchannel_service::memory;

/// A list in progress.
#[derive(Debug)]
pub struct Programs {
    only: Option<u32>,
    occupied: Occupied,
    has_occupied: bool,
    regions: Regions,
    has_regions: bool,
    numbers: Vec<u32>,
    next: usize,
    is_first: bool,
}

impl Programs {
    /// Begins a list, for one user or for all.
    pub fn new(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.push(b'[');
        Self {
            only,
            occupied: Occupied::new(host.core),
            has_occupied: false,
            regions: Regions::new(host.core, only, Order::Program),
            has_regions: false,
            numbers: numbers(host.core),
            next: 0,
            is_first: true,
        }
    }

    /// Continues for a turn, or until enough output is written. Returns whether it is complete.
    pub fn run_turn(
        &mut self,
        host: &Host<'_>,
        copies: &mut Copies,
        turn: &Turn,
        out: &mut Vec<u8>,
    ) -> bool {
        self.has_occupied = self.has_occupied || self.occupied.run_turn(host.core, turn);
        if !self.has_occupied {
            return false;
        }
        self.has_regions = self.has_regions || self.regions.run_turn(host.core, turn);
        if !self.has_regions {
            return false;
        }
        while let Some(number) = self.numbers.get(self.next).copied() {
            self.next += 1;
            let program = visible(host.core, number, self.only);
            if let Some(program) = program.filter(|program| program.is_shown()) {
                let before: &[u8] = if self.is_first { b"" } else { b"," };
                out.extend_from_slice(before);
                self.is_first = false;
                // Writing into memory does not fail.
                let _ = serde_json::to_writer(&mut *out, &self.program(number, program, copies));
            }
            if turn.is_over() || out.len() >= FULL {
                return false;
            }
        }
        out.push(b']');
        true
    }

    /// The memory that all regions and links occupy, known at the end.
    pub fn memory(&self) -> Memory {
        self.occupied.memory().clone()
    }

    /// The view of one program, with the counters of the regions that are shown for it.
    fn program(&self, number: u32, program: &Program, copies: &mut Copies) -> types::Program {
        let mut shown = types::Program {
            program: number,
            process: program.process,
            name: program.name.clone(),
            user: program.user,
            listeners: program.listeners.len() as u64,
            links: self.occupied.links_of(number),
            ..types::Program::default()
        };
        let mut totals = Totals::default();
        for region in self
            .regions
            .of(number)
            .filter_map(|one| one.region.upgrade())
        {
            shown.memory_bytes += memory::occupied(&region.memory);
            totals.add(&Totals::of(&region, &mut copies.other));
        }
        shown.connects = totals.connects;
        shown.accepts = totals.accepts;
        shown.tokens = totals.tokens;
        shown.sleeps = totals.sleeps;
        shown.faults = totals.faults;
        let counted = Reason::ALL.iter().zip(totals.fallbacks);
        let counted = counted.map(|(reason, count)| Fallback {
            reason: reason.name().to_owned(),
            count,
        });
        shown.fallbacks = counted.filter(|fallback| fallback.count > 0).collect();
        shown
    }
}
