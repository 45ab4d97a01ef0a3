//! Programs attach, fork and end.

use super::state::{Answer, CoreEngine, Refusal, narrow};
use crate::limits::{LINKS_PER_SEARCH, Limits};
use crate::namespace;
use crate::program::{Program, ProgramRegion, shown_name};
use crate::quota::{Amounts, Kind, Ticket};
use netchannel_abi::program::{Header, MAGIC, RELAY};
use netchannel_abi::{LAYOUT_HASH, VERSION};
use netchannel_service::memory;
use netchannel_service::packet::{self, Sender};
use netchannel_shm::Outside;
use rustix::io::Errno;
use rustix::net::SocketType;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

/// The number of listeners in the list of an `Adopt`.
const LISTED: usize = 22;

impl CoreEngine {
    /// A process of `user` has connected to the attach socket. It counts as a program once it attaches.
    pub fn on_connected(&mut self, socket: OwnedFd, user: u32, process: u32) -> u32 {
        let namespace = self.tenant.then(|| namespace::cookie(&socket).unwrap_or(0));
        self.register(Program {
            namespace,
            ..Program::new(Rc::new(socket), user, process)
        })
    }

    fn register(&mut self, program: Program) -> u32 {
        // Numbers wrap around after four thousand million programs: those in use are skipped.
        loop {
            self.last_program = self.last_program.wrapping_add(1).max(1);
            if !self.programs.contains_key(&self.last_program) && self.last_program != RELAY {
                break;
            }
        }
        self.programs.insert(self.last_program, program);
        self.last_program
    }

    /// Another user sends over the socket of program `number`. The program is treated as newly connected, and loses all
    /// that the former user was given.
    pub(super) fn reset_for_user(&mut self, number: u32, sender: Sender) -> Result<(), Refusal> {
        let program = self.program_mut(number)?;
        let new = Program {
            namespace: program.namespace,
            ..Program::new(Rc::clone(&program.socket), sender.user(), sender.process())
        };
        let former = std::mem::replace(program, new);
        for listener in &former.listeners {
            self.remove_holder(*listener, number);
        }
        self.forget_links(|link| link.client == number);
        self.settle(former.inherited.into_iter().chain(former.region));
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        number: u32,
        sender: Sender,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let [version, layout, process, ..] = *words;
        if version != u64::from(VERSION) || layout != LAYOUT_HASH {
            if self.mismatches.len() < 64 && self.mismatches.insert((version, layout)) {
                tracing::warn!(
                    "a library of version {version} with layout {layout:#x} tried to attach; this \
                     daemon serves version {VERSION} with layout {LAYOUT_HASH:#x}: use the \
                     library and the daemon of one installation"
                );
            }
            return Err(Refusal::Errno(Errno::PROTONOSUPPORT));
        }
        let program = self.program(number)?;
        if !self.tenant
            && !program.adopted
            && namespace::may_be_foreign(&program.socket, sender.process())
        {
            if self.mismatches.insert((0, 0)) {
                tracing::warn!(
                    "a program of another network namespace tried to attach: its addresses are \
                     others, and it goes on over kernel TCP"
                );
            }
            return Err(Refusal::Errno(Errno::NONET));
        }
        let ticket = match &self.program(number)?.ticket {
            Some(_) => None,
            None => Some(self.admit_program(sender.user())?),
        };
        let mut descriptors = descriptors.into_iter();
        let (region, shared) = match descriptors.next() {
            Some(region) => self.admit_brought_region(number, region, words[5])?,
            None => (self.new_region(number)?, None),
        };
        let mut answer = Answer::default();
        if words[5] == 0 {
            let handed = region.memory.try_clone();
            let handed = handed.map_err(|error| packet::errno(&error))?;
            answer.descriptors.push(Rc::new(handed));
        }
        answer.descriptors.push(self.directory.descriptor());
        // The sockets are those of the shared region; all else belongs to the new one.
        let shown = shared.as_ref().unwrap_or(&region);
        answer.words[0] = u64::from(number);
        answer.words[1] = u64::from(shown.entries);
        answer.words[2] = u64::from(sender.user());
        answer.words[3] = shown.number;
        let program = self.program_mut(number)?;
        program.name = shown_name([words[3], words[4]]);
        program.process = match sender.process() {
            // The PID in the program's own namespace, where the kernel gives none.
            0 => u32::try_from(process).unwrap_or(0),
            number => number,
        };
        if ticket.is_some() {
            program.ticket = ticket;
        }
        tracing::debug!(
            program = number,
            process = program.process,
            name = program.name,
            "attached"
        );
        // After an exec the new image uses only the former regions that it looks up.
        let before = program.region.replace(region);
        let mut former = Vec::new();
        if before.is_some() {
            former = std::mem::take(&mut program.inherited);
            former.extend(before);
            program.unconfirmed = program.listeners.clone();
        }
        former.extend(shared.and_then(|shared| program.use_region(shared)));
        let unconfirmed = program.unconfirmed.clone();
        self.leave_queues(number, &unconfirmed);
        self.settle(former);
        Ok(answer)
    }

    fn new_region(&mut self, program: u32) -> Result<Rc<ProgramRegion>, Refusal> {
        let entries = self.limits.entries;
        let (region, _) = memory::program_region(entries)?;
        self.make_region(program, region, entries)
    }

    fn admit_program(&self, user: u32) -> Result<Ticket, Refusal> {
        self.admit_memory(user)?;
        self.admit_descriptors(2)?;
        let amounts = Amounts::of(Kind::Programs, 1).and(Kind::Descriptors, 2);
        Ok(self.quotas.charge(user, amounts)?)
    }

    /// A program brings a region, which it may fill, whoever made it. Returns its own region, and the brought one if
    /// another process of the same user has it too, as a parent of this one.
    fn admit_brought_region(
        &mut self,
        number: u32,
        region: OwnedFd,
        entries: u64,
    ) -> Result<(Rc<ProgramRegion>, Option<Rc<ProgramRegion>>), Refusal> {
        let user = self.program(number)?.user;
        let entries = narrow(entries)?;
        // The views visit every entry: more entries than this daemon or the former one gives are refused.
        let most = self.limits.entries.max(Limits::default().entries);
        if entries > most {
            return Err(Refusal::Fault("an Attach with what is no region"));
        }
        admit_region(&region, entries, user)?;
        let programs = self.programs.values();
        let mut regions = programs.flat_map(|one| one.region.iter().chain(&one.inherited));
        let known = regions.find(|one| memory::is_same(&one.memory, &region));
        match known.map(Rc::clone) {
            // Another user could write the locks and everything else in the region.
            Some(known) if known.user != user => Err(Refusal::Errno(Errno::PERM)),
            Some(known) => Ok((self.new_region(number)?, Some(known))),
            None => Ok((self.make_region(number, region, entries)?, None)),
        }
    }

    fn make_region(
        &mut self,
        program: u32,
        region: OwnedFd,
        entries: u32,
    ) -> Result<Rc<ProgramRegion>, Refusal> {
        let user = self.program(program)?.user;
        let size = usize::try_from(entries).map_or(0, netchannel_abi::program::size);
        self.last_region += 1;
        Ok(Rc::new(ProgramRegion {
            program,
            user,
            number: self.last_region,
            memory: region,
            size,
            entries,
            ports: RefCell::new(Vec::new()),
            links: Cell::new(0),
            requested_since_search: Cell::new(LINKS_PER_SEARCH),
        }))
    }

    pub(super) fn adopt(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let parent = self.program(number)?;
        let ticket = self.admit_program(parent.user)?;
        // The daemon makes both ends. A socket that a program made could lead back to the daemon, which would answer
        // itself.
        let (daemons, childs) = packet::owned_pair(SocketType::SEQPACKET)?;
        packet::pass_credentials(&daemons)?;
        rustix::io::ioctl_fionbio(&childs, false)?;
        let count = usize::try_from(words[0]).unwrap_or(usize::MAX);
        // A list that does not fit stands for all listeners of the parent, since fork passes all of them on.
        let listeners: BTreeSet<u32> = if count > LISTED {
            parent.listeners.clone()
        } else {
            let halves = words[1..12].iter().flat_map(|word| halves(*word));
            let listed = halves.take(count);
            listed
                .filter(|one| parent.listeners.contains(one))
                .collect()
        };
        let child = parent.child(Rc::new(daemons), listeners.clone(), ticket);
        let adopted = self.register(child);
        for listener in listeners {
            self.add_child(listener, number, adopted);
        }
        Ok(Answer {
            adopted: Some(adopted),
            descriptors: vec![Rc::new(childs)],
            ..Answer::default()
        })
    }

    /// The attach socket of a program has hung up, or the program is detached for a fault.
    pub fn on_program_ended(&mut self, number: u32, now: Instant) {
        let Some(program) = self.programs.remove(&number) else {
            return;
        };
        tracing::debug!(
            program = number,
            process = program.process,
            name = program.name,
            "gone"
        );
        for listener in &program.listeners {
            self.remove_holder(*listener, number);
        }
        self.deposits.on_depositor_ended(number, now);
        let regions = program.inherited.into_iter().chain(program.region);
        self.settle(regions);
    }

    /// Releases the resources of regions that are not used any more.
    pub(super) fn settle(&mut self, regions: impl IntoIterator<Item = Rc<ProgramRegion>>) {
        for region in regions {
            if let Ok(region) = Rc::try_unwrap(region) {
                self.departed.keep(&region);
                self.owners.forget_region(region.number);
                for (block, _charged) in region.ports.into_inner() {
                    self.owners.take_back(block);
                    self.ports.give(block);
                }
                // After an exec the program has other links under the same number.
                if !self.programs.contains_key(&region.program) {
                    self.forget_links_of(region.program);
                }
            }
        }
    }

    pub(super) fn own_region(&self, number: u32) -> Result<&Rc<ProgramRegion>, Refusal> {
        let missing = Refusal::Fault("a request before Attach");
        self.program(number)?.region.as_ref().ok_or(missing)
    }
}

/// Whether memory that a program of `user` brings is the region of a program, made by the user, by root or by this
/// daemon.
fn admit_region(region: &OwnedFd, entries: u32, user: u32) -> Result<(), Refusal> {
    let none = Refusal::Fault("an Attach with what is no region");
    let size = usize::try_from(entries).map_or(0, netchannel_abi::program::size);
    let Ok(outside) = Outside::admit(region.as_raw_fd(), size) else {
        return Err(none);
    };
    let makers = [0, rustix::process::geteuid().as_raw(), user];
    if !makers.contains(&outside.owner()) {
        return Err(Refusal::Errno(Errno::PERM));
    }
    let mut head = [0; 24];
    let word = |head: &[u8], at: usize| {
        let bytes = head.get(at..at + 8).and_then(|eight| eight.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let read = outside.read(0, &mut head) == Ok(head.len());
    let says = word(&head, offset_of!(Header, entries)) & u64::from(u32::MAX);
    if !read
        || word(&head, offset_of!(Header, magic)) != MAGIC
        || word(&head, offset_of!(Header, layout_hash)) != LAYOUT_HASH
        || says != u64::from(entries)
    {
        return Err(none);
    }
    Ok(())
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}
