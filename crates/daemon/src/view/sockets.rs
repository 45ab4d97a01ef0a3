//! The answer to `netchannel ss`: every socket that may be shown, written as it is found. Where there are too many, the
//! answer says so, and sockets of the user with the most are left out.

use super::Host;
use super::entry::{EntryContext, RemoteByPlace, socket};
use super::links::{Announced, Slots, is_of};
use super::regions::{ListedRegion, Order, Regions, visible};
use netchannel_engine::region::{Copies, RegionScan};
use netchannel_engine::turn::Turn;
use netchannel_service::stack::Cursor;
use std::collections::HashMap;

/// The limit of sockets in one answer.
const MOST: u64 = 1_000_000;
/// The limit of one user.
const MOST_OF_USER: u64 = 250_000;
/// Output that is written before the client has read some.
pub const FULL: usize = 64 << 10;
/// Connections with other hosts that are listed in one step.
const REMOTE_AT_ONCE: usize = 128;

/// An answer in progress.
#[derive(Debug)]
pub struct Sockets {
    only: Option<u32>,
    regions: Regions,
    announced: Announced,
    /// The stack module that is listed next, and from where on.
    stack: usize,
    cursor: Cursor,
    remote: RemoteByPlace,
    stage: Stage,
    current: Option<(ListedRegion, Option<RegionScan>)>,
    shown: u64,
    by_user: HashMap<u32, u64>,
    cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    ListRegions,
    Announced,
    Remote,
    Sockets,
    Done,
}

impl Sockets {
    /// Begins an answer, for one user or for all.
    pub fn new(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"list":["#);
        Self {
            only,
            regions: Regions::new(host.core, only, Order::Memory),
            announced: Announced::default(),
            stack: 0,
            cursor: Cursor::default(),
            remote: RemoteByPlace::new(),
            stage: Stage::ListRegions,
            current: None,
            shown: 0,
            by_user: HashMap::new(),
            cut: false,
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
        loop {
            let (done, next) = match self.stage {
                Stage::ListRegions => (self.regions.run_turn(host.core, turn), Stage::Announced),
                Stage::Announced => {
                    let announced = &mut self.announced;
                    let done = announced.run_turn(host.core, self.only, &mut copies.other, turn);
                    (done, Stage::Remote)
                }
                Stage::Remote => (self.collect_remote(host, turn), Stage::Sockets),
                Stage::Sockets => (self.write(host, copies, turn, out), Stage::Done),
                Stage::Done => return true,
            };
            if !done {
                return false;
            }
            self.stage = next;
            if next == Stage::Done {
                let end = format!(r#"],"cut":{}}}"#, self.cut);
                out.extend_from_slice(end.as_bytes());
            }
        }
    }

    fn collect_remote(&mut self, host: &Host<'_>, turn: &Turn) -> bool {
        while let Some(stack) = host.stacks.get(self.stack) {
            let (some, next) = stack.remote_connections(self.cursor, REMOTE_AT_ONCE);
            for one in some {
                let link = host.core.links().get(&one.link);
                let mine = |user| link.is_some_and(|link| is_of(host.core, link, user));
                if self.only.is_none_or(mine) {
                    self.remote.insert((one.link, one.slot), one);
                }
            }
            self.cursor = next.unwrap_or_default();
            self.stack += usize::from(next.is_none());
            if turn.is_over() {
                return false;
            }
        }
        true
    }

    fn write(
        &mut self,
        host: &Host<'_>,
        copies: &mut Copies,
        turn: &Turn,
        out: &mut Vec<u8>,
    ) -> bool {
        loop {
            if turn.is_over() || out.len() >= FULL {
                return false;
            }
            let current = self.current.take();
            let Some((found, scan)) = current.or_else(|| self.open_next(copies)) else {
                return true;
            };
            // A region that has ended or can not be read shows nothing.
            if let Some(mut scan) = scan
                && !self.write_some(host, &found, &mut scan, copies, turn, out)
            {
                self.current = Some((found, Some(scan)));
            }
        }
    }

    fn open_next(&mut self, copies: &mut Copies) -> Option<(ListedRegion, Option<RegionScan>)> {
        let found = self.regions.pop()?;
        let region = found.region.upgrade();
        let scan = region.and_then(|region| RegionScan::new(&region, &mut copies.other));
        Some((found, scan))
    }

    /// Writes sockets of one region. Returns whether the region is complete.
    fn write_some(
        &mut self,
        host: &Host<'_>,
        found: &ListedRegion,
        scan: &mut RegionScan,
        copies: &mut Copies,
        turn: &Turn,
        out: &mut Vec<u8>,
    ) -> bool {
        let program = visible(host.core, found.program, self.only);
        let (Some(program), Some(region)) = (program, found.region.upgrade()) else {
            return true;
        };
        let context = EntryContext {
            core: host.core,
            region: &region,
            number: found.program,
            program,
            announced: &self.announced,
            remote: &self.remote,
            stacks: host.stacks,
        };
        let of_user = self.by_user.entry(region.user).or_default();
        if *of_user >= MOST_OF_USER || self.shown >= MOST {
            self.cut |= !scan.is_empty();
            return true;
        }
        let mut slots = Slots::new(host.core);
        let shown = &mut self.shown;
        scan.run_turn(&region, copies, turn, |entry, state, copy| {
            if *shown > 0 {
                out.push(b',');
            }
            let socket = socket(&context, entry, state, &mut slots, copy);
            // Writing into memory does not fail.
            let _ = serde_json::to_writer(&mut *out, &socket);
            *shown += 1;
            *of_user += 1;
            out.len() < FULL && *shown < MOST && *of_user < MOST_OF_USER
        })
    }
}
