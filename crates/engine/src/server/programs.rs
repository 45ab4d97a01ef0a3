//! Programs connect, ask, and hang up.

use super::{BATCH, Daemon, accept, credentials};
use crate::core::{Answer, Refusal};
use crate::packet::{self, Received};
use crate::watch::Subject;
use netchannel_abi::message::{Message, Operation};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

impl Daemon {
    pub(super) fn accept_programs(&mut self) {
        while let Some(socket) = accept(&self.bound.attach, &mut self.spare) {
            let Some(credentials) = credentials(&socket) else {
                continue;
            };
            // Whoever holds connections open without attaching must not lock the others out.
            if self.half_open.len() >= self.options.limits.half_open {
                let oldest = self.half_open.iter().min_by_key(|(_, since)| **since);
                let oldest = oldest.map(|(number, _)| *number);
                if let Some(oldest) = oldest {
                    self.detach(oldest, Some("too many connections that did not attach"));
                }
            }
            let Ok(number) = self.core.on_connected(socket, credentials) else {
                self.fault("too many programs of one user");
                continue;
            };
            self.half_open.insert(number, Instant::now());
            self.watch_program(number);
        }
    }

    fn watch_program(&mut self, number: u32) {
        let socket = self.core.programs().get(&number).map(|one| &one.socket);
        let socket = socket.map(Rc::clone);
        let watched = socket.map(|socket| self.watch.add(&*socket, Subject::Program(number)));
        if let Some(Err(errno)) = watched {
            tracing::warn!("cannot watch a program ({errno})");
            self.detach(number, None);
        }
    }

    pub(super) fn on_program(&mut self, number: u32) {
        for _ in 0..BATCH {
            let Some(program) = self.core.programs().get(&number) else {
                return;
            };
            let socket = Rc::clone(&program.socket);
            match packet::receive(&*socket) {
                Received::Nothing => return,
                Received::Ended => return self.detach(number, None),
                Received::Garbage => return self.detach(number, Some("garbage")),
                Received::Message {
                    message,
                    descriptors,
                    lost,
                } => {
                    // Without word of changes the addresses are looked at when they may matter.
                    if self.addresses.is_none() && message.operation == Operation::Listen as u32 {
                        self.refresh_addresses();
                    }
                    let result = self
                        .core
                        .handle_request(number, &message, descriptors, lost);
                    if let Some(fault) = self.reply(number, &socket, &message, result) {
                        return self.detach(number, Some(fault));
                    }
                }
            }
        }
    }

    /// Sends the answer to a request. Returns the fault for which the program is to be detached.
    fn reply(
        &mut self,
        number: u32,
        socket: &OwnedFd,
        request: &Message,
        result: Result<Answer, Refusal>,
    ) -> Option<&'static str> {
        let mut answer = Message {
            status: 0,
            words: [0; 14],
            ..*request
        };
        let mut descriptors = Vec::new();
        match result {
            Ok(done) => {
                if let Some(adopted) = done.adopted {
                    self.watch_program(adopted);
                }
                if request.operation == Operation::Attach as u32 {
                    self.half_open.remove(&number);
                }
                answer.words = done.words;
                descriptors = done.descriptors;
            }
            Err(Refusal::Errno(errno)) => answer.status = errno.raw_os_error().unsigned_abs(),
            Err(Refusal::Fault(fault)) => return Some(fault),
        }
        match packet::send(socket, &answer, &descriptors) {
            Ok(()) => None,
            Err(Errno::AGAIN) => Some("it does not read its answers"),
            // It is gone, or descriptors in flight are used up: either way it can not go on.
            Err(Errno::PIPE | Errno::CONNRESET) => Some("gone before its answer"),
            Err(_) => Some("its answer could not be sent"),
        }
    }

    /// Lets go of a program, for a fault of its own or because it hung up.
    pub(super) fn detach(&mut self, number: u32, fault: Option<&'static str>) {
        if let Some(fault) = fault {
            let program = self.core.programs().get(&number);
            let (process, name) =
                program.map_or((0, String::new()), |one| (one.process, one.name.clone()));
            self.fault_of(fault, process, &name);
        }
        if let Some(program) = self.core.programs().get(&number) {
            // Its socket may live on in a forked child of the daemon's peer: epoll must not.
            self.watch.remove(&*program.socket);
            let _ = rustix::net::shutdown(&*program.socket, rustix::net::Shutdown::Both);
        }
        self.half_open.remove(&number);
        self.core.on_gone(number, Instant::now());
    }

    fn fault(&mut self, fault: &'static str) {
        self.fault_of(fault, 0, "");
    }

    fn fault_of(&mut self, fault: &'static str, process: u32, name: &str) {
        if let Some(unsaid) = self.faults.count(Instant::now()) {
            tracing::warn!(process, name, unsaid, "a program was detached: {fault}");
        }
    }
}
