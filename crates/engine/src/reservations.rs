//! Ports and deposits.

use super::state::{Answer, CoreEngine, Refusal, narrow};
use crate::program::{Program, ProgramRegion};
use crate::quota::{Amounts, Kind};
use crate::region::{ConflictQuery, has_conflict};
use crate::{anchors, diagnosis};
use netchannel_abi::address::{Address, INET6};
use netchannel_abi::directory::place_word;
use netchannel_service::memory;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

/// The size of a block that is given even where few ports are left.
const LEAST_BLOCK: usize = 16;

/// The size of the block for a program that requests `wanted` ports, of a user who may have `room` more. Some are left
/// for his later programs.
fn fair_block(wanted: u16, room: usize) -> u16 {
    let most = (room / 16).max(LEAST_BLOCK).min(room.max(1));
    wanted.min(u16::try_from(most).unwrap_or(u16::MAX))
}

/// The number of regions that are searched for one port, youngest first: a program with more regions does not delay
/// others.
const MOST_REGIONS: usize = 16;

/// The limit of ports in one block.
const LARGEST_BLOCK: u64 = 1024;

impl CoreEngine {
    pub(super) fn reserve_ports(
        &mut self,
        number: u32,
        words: &[u64; 14],
        shown: Option<&OwnedFd>,
    ) -> Result<Answer, Refusal> {
        if words[0] == 0 {
            return self.claim_port(number, words, shown);
        }
        let user = self.program(number)?.user;
        let wanted = words[0].min(LARGEST_BLOCK);
        let wanted = u16::try_from(wanted).map_err(|_| Errno::INVAL)?;
        let region = Rc::clone(self.own_region(number)?);
        let mut held = region.ports.borrow_mut();
        let sum: usize = held.iter().map(|(block, _)| usize::from(block.count)).sum();
        if sum + usize::from(wanted) > self.limits.ports_per_program {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        let wanted = fair_block(wanted, self.quotas.room(user, Kind::Ports));
        let block = self.ports.take(wanted).ok_or(Errno::ADDRNOTAVAIL)?;
        let amounts = Amounts::of(Kind::Ports, usize::from(block.count));
        let charged = self.quotas.charge(user, amounts);
        let charged = charged.inspect_err(|_| self.ports.give(block))?;
        self.directory.set_ports(&self.owners.give(block, user));
        held.push((block, charged));
        let mut answer = Answer::default();
        answer.words[0] = u64::from(block.first);
        answer.words[1] = u64::from(block.count);
        Ok(answer)
    }

    /// A program shows a socket that it has bound. The port belongs to its user from now on, as the kernel has allowed
    /// the binding.
    fn claim_port(
        &mut self,
        number: u32,
        words: &[u64; 14],
        shown: Option<&OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let shown = shown.ok_or(Errno::INVAL)?;
        let bound = diagnosis::bound_address(shown, self.program(number)?.namespace)?;
        let v6_only = bound.family == INET6 && sockopt::ipv6_v6only(shown)?;
        let (port, place) = (bound.port, place_word(&bound, v6_only));
        let region = self.own_region(number)?.number;
        let user = self.program(number)?.user;
        let changes = self.owners.show(port, place, user, region)?;
        self.directory.set_ports(&changes);
        let to = Address::from_words([words[1], words[2], words[3]]);
        let others = ConflictQuery {
            from: bound,
            v6_only,
            to,
            process: narrow(words[5])?,
        };
        if to.family != 0 && self.has_conflict(number, &others) {
            return Err(Refusal::Errno(Errno::ADDRNOTAVAIL));
        }
        let mut answer = Answer::default();
        answer.words[..2].copy_from_slice(&[u64::from(port), 1]);
        Ok(answer)
    }

    /// Whether another program has a conflicting connection. That program has shown its port, too.
    fn has_conflict(&self, number: u32, wanted: &ConflictQuery) -> bool {
        fn used(program: &Program) -> impl Iterator<Item = &Rc<ProgramRegion>> {
            program.region.iter().chain(&program.inherited)
        }
        let regions: BTreeSet<u64> = self.owners.regions_of(wanted.from.port).collect();
        let has_shown = |region: &Rc<ProgramRegion>| regions.contains(&region.number);
        // A child shows ports in its own name, while its sockets are in a region of its parent.
        let others = self.programs.iter().filter(|(other, _)| **other != number);
        let others = others.map(|(_, program)| program);
        let by_number: BTreeMap<u64, &Rc<ProgramRegion>> = others
            .filter(|program| used(program).any(has_shown))
            .flat_map(used)
            .map(|region| (region.number, region))
            .collect();
        let mut regions = by_number.values().rev().take(MOST_REGIONS);
        regions.any(|region| has_conflict(region, wanted))
    }

    pub(super) fn deposit(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let link = descriptors.into_iter().next().ok_or(Errno::INVAL)?;
        if words[0] == 0 {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let size = u64::try_from(self.limits.layout().size()).unwrap_or(0);
        if !memory::is_sealed(&link, size) {
            return Err(Refusal::Fault("a Deposit without a link"));
        }
        let user = self.program(number)?.user;
        let region = self.used_region(number, words[5])?.into_region();
        if narrow(words[6])? >= region.entries {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        self.admit_descriptors(1)?;
        self.deposits
            .leave(words[0], *words, link, region, user, number)?;
        self.settle_released();
        Ok(Answer::default())
    }

    pub(super) fn look_up(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let user = self.program(number)?.user;
        let (cookie, again) = (words[0], words[1] != 0);
        // The deposit stays until the answer is sent, which may fail.
        let found = self.deposits.take(cookie, user, true);
        let found = found.ok_or(Errno::NOENT)?;
        // This check must not come earlier: an errno for too many descriptors reveals that there is a deposit.
        self.in_flight.admit(user)?;
        let region = found.region.memory.try_clone();
        let region = Rc::new(region.map_err(|_| Errno::NOBUFS)?);
        let layout = self.limits.layout();
        let mut answer = Answer {
            words: found.words,
            descriptors: vec![found.link, region],
            fetched: (!again).then_some(cookie),
            adopted: None,
        };
        answer.words[7] = u64::from(found.region.entries);
        answer.words[8] = layout.slots as u64;
        answer.words[9] = layout.arena as u64;
        // The program may pass the socket on, and then names the same region.
        let unused = self.program_mut(number)?.use_region(found.region);
        self.settle(unused);
        Ok(answer)
    }

    /// Drops deposits that can not be fetched any more. Returns the time of the next call.
    pub fn expire_deposits(&mut self, now: Instant) -> Option<Instant> {
        let drop_known = |cookies: &mut BTreeSet<u64>| anchors::drop_known(cookies).is_ok();
        let next = self.deposits.expire(now, drop_known);
        self.settle_released();
        next
    }

    pub(super) fn settle_released(&mut self) {
        let released = self.deposits.take_released();
        self.settle(released);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_smaller_where_few_ports_are_left() {
        assert_eq!(fair_block(256, 16384), 256);
        assert_eq!(fair_block(256, 1600), 100);
        assert_eq!(fair_block(256, 100), 16);
        assert_eq!(fair_block(256, 3), 3);
        assert_eq!(fair_block(256, 0), 1, "which is refused");
        assert_eq!(fair_block(4, 100), 4);
    }
}
