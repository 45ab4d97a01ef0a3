//! Programs come, fork and go.

use super::{Answer, CoreEngine, Refusal, narrow};
use crate::memory;
use crate::program::{Credentials, Estate, Program, shown_name};
use netchannel_abi::{LAYOUT_HASH, VERSION};
use rustix::io::Errno;
use rustix::net::SocketType;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

/// Listeners that the list of an `Adopt` can hold.
const LISTED: usize = 22;

impl CoreEngine {
    /// Somebody connected to the attach socket. `None` where no more are let in.
    pub fn on_connected(&mut self, socket: OwnedFd, credentials: Credentials) -> Option<u32> {
        let waiting = self.half_open().count();
        if waiting >= self.limits.half_open {
            return None;
        }
        self.register(Program::new(Rc::new(socket), credentials))
            .ok()
    }

    /// Connections that have not attached.
    pub fn half_open(&self) -> impl Iterator<Item = u32> {
        let open = |(_, program): &(&u32, &Program)| !program.is_attached();
        self.programs.iter().filter(open).map(|(number, _)| *number)
    }

    fn register(&mut self, program: Program) -> Result<u32, Refusal> {
        if self.programs.len() >= self.limits.programs + self.limits.half_open {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        // Numbers go round after four thousand million programs: those in use are left out.
        loop {
            self.last_program = self.last_program.wrapping_add(1).max(1);
            if !self.programs.contains_key(&self.last_program) {
                break;
            }
        }
        self.programs.insert(self.last_program, program);
        Ok(self.last_program)
    }

    pub(super) fn attach(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
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
        let attached = self.programs.values().filter(|one| one.estate.is_some());
        if attached.count() >= self.limits.programs {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        let entries = self.limits.entries;
        let (region, size) = memory::program_region(entries)?;
        let handed = Rc::new(region.try_clone().map_err(|error| from_io(&error))?);
        let estate = Rc::new(Estate {
            program: number,
            region,
            size,
            entries,
            ports: RefCell::new(Vec::new()),
            links: Cell::new(0),
        });
        let program = self.program_mut(number)?;
        program.name = shown_name([words[3], words[4]]);
        if program.adopted {
            program.process = u32::try_from(process).unwrap_or(0);
        }
        let tenant = program.credentials.user;
        tracing::debug!(
            program = number,
            process = program.process,
            name = program.name,
            "attached"
        );
        program.estate = Some(estate);
        let mut answer = Answer::default();
        answer.words[0] = u64::from(number);
        answer.words[1] = u64::from(entries);
        answer.words[2] = u64::from(tenant);
        answer.descriptors = vec![handed, self.directory.descriptor()];
        Ok(answer)
    }

    pub(super) fn adopt(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let socket = descriptors.into_iter().next().ok_or(Errno::INVAL)?;
        let kind = rustix::net::sockopt::socket_type(&socket);
        if kind != Ok(SocketType::SEQPACKET) {
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
        for estate in estates {
            if let Ok(estate) = Rc::try_unwrap(estate) {
                for block in estate.ports.into_inner() {
                    self.ports.give(block);
                }
                self.links.retain(|_, link| link.client != estate.program);
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
