//! The counts of programs for the metrics: sockets by path, counters by user, and occupied memory.

use super::Host;
use super::entry::path_of;
use super::links::{Memory, Occupied};
use super::regions::{ListedRegion, Order, Regions};
use netchannel_control::types::Path;
use netchannel_engine::program::ProgramRegion;
use netchannel_engine::region::{Copies, RegionScan};
use netchannel_engine::totals::{Totals, Users};
use netchannel_engine::turn::Turn;
use std::rc::Weak;

/// A complete count.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Programs that are shown.
    pub programs: u64,
    /// The number of sockets by path.
    pub paths: Vec<(Path, u64)>,
    /// The counters of programs by user, including programs that have ended.
    pub users: Users,
    /// The memory that all regions and links occupy.
    pub memory: Memory,
}

/// A count in progress.
#[derive(Debug)]
pub struct Counts {
    occupied: Occupied,
    regions: Regions,
    stage: Stage,
    current: Option<(ListedRegion, RegionScan)>,
    /// The counters of regions. Some of these regions may end meanwhile, and are then counted among those that have
    /// ended.
    totals: Vec<(Weak<ProgramRegion>, u32, Totals)>,
    counted: Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Occupied,
    ListRegions,
    ScanRegions,
    Totals,
}

impl Counts {
    /// Begins a count.
    pub fn new(host: &Host<'_>) -> Self {
        let all = [Path::Virtual, Path::Kernel, Path::Listener, Path::Fresh];
        Self {
            occupied: Occupied::new(host.core),
            regions: Regions::new(host.core, None, Order::Program),
            stage: Stage::Occupied,
            current: None,
            totals: Vec::new(),
            counted: Counted {
                paths: all.map(|path| (path, 0)).to_vec(),
                ..Counted::default()
            },
        }
    }

    /// Continues for a turn. Returns the count when it is complete.
    pub fn run_turn(
        &mut self,
        host: &Host<'_>,
        copies: &mut Copies,
        turn: &Turn,
    ) -> Option<Counted> {
        loop {
            let done = match self.stage {
                Stage::Occupied => self.occupied.run_turn(host.core, turn),
                Stage::ListRegions => self.regions.run_turn(host.core, turn),
                Stage::ScanRegions => self.count(copies, turn),
                Stage::Totals => self.sum_up(turn),
            };
            if !done {
                return None;
            }
            self.stage = match self.stage {
                Stage::Occupied => Stage::ListRegions,
                Stage::ListRegions => Stage::ScanRegions,
                Stage::ScanRegions => {
                    // Regions that have ended by now are in that copy, and only those.
                    self.totals.retain(|(region, ..)| region.strong_count() > 0);
                    self.counted.users = host.core.departed().clone();
                    Stage::Totals
                }
                Stage::Totals => {
                    let programs = host.core.programs().values();
                    let shown = programs.filter(|program| program.is_shown());
                    self.counted.programs = shown.count() as u64;
                    self.counted.memory = self.occupied.memory().clone();
                    return Some(std::mem::take(&mut self.counted));
                }
            };
        }
    }

    fn count(&mut self, copies: &mut Copies, turn: &Turn) -> bool {
        loop {
            if turn.is_over() {
                return false;
            }
            let current = self.current.take();
            let next =
                current.or_else(|| self.regions.pop().and_then(|one| self.open(one, copies)));
            let Some((found, mut scan)) = next else {
                // A region that can not be read is left out.
                if self.regions.is_empty() {
                    return true;
                }
                continue;
            };
            let Some(region) = found.region.upgrade() else {
                continue;
            };
            let paths = &mut self.counted.paths;
            let done = scan.run_turn(&region, copies, turn, |_, state, _| {
                let (path, _) = path_of(state);
                let of_path = paths.iter_mut().find(|(one, _)| *one == path);
                of_path.into_iter().for_each(|(_, count)| *count += 1);
                true
            });
            if !done {
                self.current = Some((found, scan));
            }
        }
    }

    fn open(
        &mut self,
        found: ListedRegion,
        copies: &mut Copies,
    ) -> Option<(ListedRegion, RegionScan)> {
        let region = found.region.upgrade()?;
        let totals = Totals::of(&region, &mut copies.other);
        let weak = found.region.clone();
        self.totals.push((weak, region.user, totals));
        let scan = RegionScan::new(&region, &mut copies.other)?;
        Some((found, scan))
    }

    fn sum_up(&mut self, turn: &Turn) -> bool {
        while let Some((_, user, totals)) = self.totals.pop() {
            self.counted.users.add(user, &totals);
            if turn.is_over() {
                return self.totals.is_empty();
            }
        }
        true
    }
}
