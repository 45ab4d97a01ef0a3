//! Ports and deposits.

use super::{Answer, CoreEngine, Refusal};
use crate::memory;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

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
        let user = self.program(number)?.credentials.user;
        self.admit_descriptors(1)?;
        self.deposits.leave(words[0], *words, link, user, number)?;
        Ok(Answer::default())
    }

    pub(super) fn look_up(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let user = self.program(number)?.credentials.user;
        let found = self.deposits.take(words[0], user).ok_or(Errno::NOENT)?;
        Ok(Answer {
            words: found.words,
            descriptors: vec![found.link],
            adopted: None,
        })
    }
}
