//! Programs come, fork and go.

use super::{Answer, CoreEngine, Refusal, narrow};
use crate::limits::Limits;
use crate::memory;
use crate::program::{Credentials, Estate, Program, shown_name};
use netchannel_abi::program::RELAY;
use netchannel_abi::{LAYOUT_HASH, VERSION};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

/// Listeners that the list of an `Adopt` can hold.
const LISTED: usize = 22;

impl CoreEngine {
    /// Somebody connected to the attach socket.
    ///
    /// # Errors
    /// Where no more programs, or no more of this user, are let in.
    pub fn on_connected(
        &mut self,
        socket: OwnedFd,
        credentials: Credentials,
    ) -> Result<u32, Refusal> {
        self.register(Program::new(Rc::new(socket), credentials))
    }

    fn register(&mut self, program: Program) -> Result<u32, Refusal> {
        let user = program.credentials.user;
        let programs = self.programs.values();
        let same = programs.filter(|one| one.credentials.user == user).count();
        if self.programs.len() >= self.limits.programs || same >= self.limits.programs_per_user {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        // Numbers go round after four thousand million programs: those in use are left out.
        loop {
            self.last_program = self.last_program.wrapping_add(1).max(1);
            if !self.programs.contains_key(&self.last_program) && self.last_program != RELAY {
                break;
            }
        }
        self.programs.insert(self.last_program, program);
        Ok(self.last_program)
    }

    pub(super) fn attach(
        &mut self,
        number: u32,
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
        self.admit_descriptors(0)?;
        let program = self.program(number)?;
        if !program.adopted && in_other_namespace(program.process) {
            if self.mismatches.insert((0, 0)) {
                tracing::warn!(
                    "a program of another network namespace tried to attach: its addresses are \
                     others, and it goes on over kernel TCP"
                );
            }
            return Err(Refusal::Errno(Errno::NONET));
        }
        let mut descriptors = descriptors.into_iter();
        let (estate, shared) = match descriptors.next() {
            Some(region) => self.brought(number, region, words[5])?,
            None => (self.new_estate(number)?, None),
        };
        let mut answer = Answer::default();
        if words[5] == 0 {
            let handed = estate.region.try_clone();
            let handed = handed.map_err(|error| from_io(&error))?;
            answer.descriptors.push(Rc::new(handed));
        }
        answer.descriptors.push(self.directory.descriptor());
        // The sockets of a shared one; what else it is given is its own.
        let shown = shared.as_ref().unwrap_or(&estate);
        answer.words[0] = u64::from(number);
        answer.words[1] = u64::from(shown.entries);
        answer.words[2] = u64::from(self.program(number)?.credentials.user);
        answer.words[3] = shown.number;
        let program = self.program_mut(number)?;
        program.name = shown_name([words[3], words[4]]);
        if program.adopted {
            program.process = u32::try_from(process).unwrap_or(0);
        }
        tracing::debug!(
            program = number,
            process = program.process,
            name = program.name,
            "attached"
        );
        // After an exec only what the new image asks for is used of before: it looks it up.
        let before = program.estate.replace(estate);
        let mut former = Vec::new();
        if before.is_some() {
            former = std::mem::take(&mut program.inherited);
            former.extend(before);
            program.doubtful = program.listeners.clone();
        }
        former.extend(shared.and_then(|shared| program.use_estate(shared)));
        self.settle(former);
        Ok(answer)
    }

    fn new_estate(&mut self, program: u32) -> Result<Rc<Estate>, Refusal> {
        let entries = self.limits.entries;
        let (region, _) = memory::program_region(entries)?;
        self.estate_of(program, region, entries)
    }

    /// A program brings its region, which is the program's to fill, whoever made it. Its own estate, and that of the region if
    /// another process has it too: a child its parent.
    fn brought(
        &mut self,
        number: u32,
        region: OwnedFd,
        entries: u64,
    ) -> Result<(Rc<Estate>, Option<Rc<Estate>>), Refusal> {
        let entries = narrow(entries)?;
        // What is shown walks over it: more than this daemon or the last one gives is not walked.
        let most = self.limits.entries.max(Limits::default().entries);
        let size = usize::try_from(entries).map_or(0, netchannel_abi::program::size);
        if entries > most || !memory::is_sealed(&region, size as u64) {
            return Err(Refusal::Fault("an Attach with what is no region"));
        }
        let programs = self.programs.values();
        let mut estates = programs.flat_map(|one| one.estate.iter().chain(&one.inherited));
        // Of a child that became another user too: who has the memory has all that is in it.
        let known = estates.find(|one| memory::is_same(&one.region, &region));
        match known.map(Rc::clone) {
            Some(known) => Ok((self.new_estate(number)?, Some(known))),
            None => Ok((self.estate_of(number, region, entries)?, None)),
        }
    }

    fn estate_of(
        &mut self,
        program: u32,
        region: OwnedFd,
        entries: u32,
    ) -> Result<Rc<Estate>, Refusal> {
        let user = self.program(program)?.credentials.user;
        let size = usize::try_from(entries).map_or(0, netchannel_abi::program::size);
        self.last_region += 1;
        Ok(Rc::new(Estate {
            program,
            user,
            number: self.last_region,
            region,
            size,
            entries,
            ports: RefCell::new(Vec::new()),
            links: Cell::new(0),
        }))
    }

    pub(super) fn adopt(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let socket = descriptors.into_iter().next().ok_or(Errno::INVAL)?;
        let kind = rustix::net::sockopt::socket_type(&socket);
        let family = rustix::net::sockopt::socket_domain(&socket);
        if kind != Ok(SocketType::SEQPACKET) || family != Ok(AddressFamily::UNIX) {
            return Err(Refusal::Fault("an Adopt without a packet socket"));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        let parent = self.program(number)?;
        let count = usize::try_from(words[0]).unwrap_or(usize::MAX);
        // A list that does not fit stands for everything the parent holds: fork passes all on.
        let listeners: BTreeSet<u32> = if count > LISTED {
            parent.listeners.clone()
        } else {
            let halves = words[1..12].iter().flat_map(|word| halves(*word));
            let listed = halves.take(count);
            listed
                .filter(|one| parent.listeners.contains(one))
                .collect()
        };
        let child = parent.child(Rc::new(socket), listeners.clone());
        let adopted = self.register(child)?;
        for listener in listeners {
            self.add_holder(listener, adopted);
        }
        Ok(Answer {
            adopted: Some(adopted),
            ..Answer::default()
        })
    }

    /// The attach socket of a program hung up, or the program is detached for a fault.
    pub fn on_gone(&mut self, number: u32, now: Instant) {
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
        self.deposits.on_gone(number, now);
        let estates = program.inherited.into_iter().chain(program.estate);
        self.settle(estates);
    }

    /// What goes with the last that used an estate.
    pub(super) fn settle(&mut self, estates: impl IntoIterator<Item = Rc<Estate>>) {
        for estate in estates {
            if let Ok(estate) = Rc::try_unwrap(estate) {
                self.departed.keep(&estate);
                for block in estate.ports.into_inner() {
                    self.ports.give(block);
                }
                // After an exec the program has others under the same number.
                if !self.programs.contains_key(&estate.program) {
                    self.links.retain(|_, link| link.client != estate.program);
                }
            }
        }
    }

    pub(super) fn estate(&self, number: u32) -> Result<&Rc<Estate>, Refusal> {
        let missing = Refusal::Fault("a request before Attach");
        self.program(number)?.estate.as_ref().ok_or(missing)
    }

    pub(super) fn listener_word(&self, word: u64) -> Result<u32, Refusal> {
        let listener = narrow(word)?;
        if self.listeners.contains_key(&listener) {
            Ok(listener)
        } else {
            Err(Refusal::Errno(Errno::NOENT))
        }
    }
}

/// Whether a process is known to have other addresses than this one. Of a process that may not be
/// looked at nothing is known.
fn in_other_namespace(process: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &str| std::fs::metadata(path).map(|metadata| metadata.ino());
    match (
        inode(&format!("/proc/{process}/ns/net")),
        inode("/proc/self/ns/net"),
    ) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        _ => false,
    }
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}

pub(super) fn from_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
