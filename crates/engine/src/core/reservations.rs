//! Ports and deposits.

use super::registry::from_io;
use super::{Answer, CoreEngine, Refusal, narrow};
use crate::memory;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

/// Most ports in one block.
const LARGEST_BLOCK: u64 = 1024;

impl CoreEngine {
    pub(super) fn reserve_ports(
        &mut self,
        number: u32,
        words: &[u64; 14],
    ) -> Result<Answer, Refusal> {
        let wanted = match words[0] {
            0 => return Err(Refusal::Errno(Errno::INVAL)),
            many => u16::try_from(many.min(LARGEST_BLOCK)).map_err(|_| Errno::INVAL)?,
        };
        let estate = std::rc::Rc::clone(self.estate(number)?);
        let mut held = estate.ports.borrow_mut();
        let sum: usize = held.iter().map(|block| usize::from(block.count)).sum();
        if sum + usize::from(wanted) > self.limits.ports_per_program {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        let block = self.ports.take(wanted).ok_or(Errno::ADDRNOTAVAIL)?;
        held.push(block);
        let mut answer = Answer::default();
        answer.words[0] = u64::from(block.first);
        answer.words[1] = u64::from(block.count);
        Ok(answer)
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
        let program = self.program(number)?;
        let user = program.credentials.user;
        let estates = program.estate.iter().chain(&program.inherited);
        let estate = estates.into_iter().find(|one| one.number == words[5]);
        let estate = Rc::clone(estate.ok_or(Errno::NOENT)?);
        if narrow(words[6])? >= estate.entries {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        self.admit_descriptors(1)?;
        self.deposits
            .leave(words[0], *words, link, estate, user, number)?;
        self.settle_released();
        Ok(Answer::default())
    }

    pub(super) fn look_up(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let user = self.program(number)?.credentials.user;
        let found = self.deposits.take(words[0], user, words[1] != 0);
        let found = found.ok_or(Errno::NOENT)?;
        let region = Rc::new(found.estate.region.try_clone().map_err(|e| from_io(&e))?);
        let layout = self.limits.layout();
        let mut answer = Answer {
            words: found.words,
            descriptors: vec![found.link, region],
            adopted: None,
        };
        answer.words[7] = u64::from(found.estate.entries);
        answer.words[8] = layout.slots as u64;
        answer.words[9] = layout.arena as u64;
        // It may hand the socket on, and then names the same region.
        let unused = self.program_mut(number)?.use_estate(found.estate);
        self.settle(unused);
        self.settle_released();
        Ok(answer)
    }

    /// Drops deposits that are overdue. Returns when to come again.
    pub fn expire_deposits(&mut self, now: Instant) -> Option<Instant> {
        let next = self.deposits.expire(now);
        self.settle_released();
        next
    }

    fn settle_released(&mut self) {
        let released = self.deposits.take_released();
        self.settle(released);
    }
}
