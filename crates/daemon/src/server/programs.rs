//! The connections of programs: requests and hang-ups.

use super::turns::Turns;
use super::{Daemon, accept, peer_credentials};
use crate::watch::Subject;
use netchannel_abi::message::{Message, Operation};
use netchannel_engine::{Answer, Refusal};
use netchannel_service::packet::{self, Received};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

/// Connections accepted before others have their turn.
const MOST_ACCEPTED: usize = 64;

impl Daemon {
    pub(super) fn accept_programs(&mut self) {
        for _ in 0..MOST_ACCEPTED {
            let Some(socket) = accept(&self.bound.attach, &mut self.spare) else {
                return;
            };
            let Some((user, process)) = peer_credentials(&socket) else {
                continue;
            };
            let number = self.core.on_connected(socket, user, process);
            self.add_half_open(number, user);
            self.watch_program(number);
        }
    }

    /// Adds a half-open connection. A user who holds many open must not lock the others out.
    fn add_half_open(&mut self, number: u32, user: u32) {
        let goes = self.half_open.add(number, user, Instant::now());
        if let Some(goes) = goes {
            self.detach(goes, Some("too many connections that did not attach"));
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

    pub(super) fn on_program(&mut self, number: u32, turns: &mut Turns) {
        loop {
            let Some(program) = self.core.programs().get(&number) else {
                return;
            };
            let user = program.user;
            if !turns.has(user) {
                return;
            }
            let socket = Rc::clone(&program.socket);
            match packet::receive(&*socket) {
                Received::Nothing => return,
                Received::Ended => return self.detach(number, None),
                Received::Garbage => return self.detach(number, Some("garbage")),
                Received::Message {
                    message,
                    descriptors,
                    lost,
                    sender,
                } => {
                    let start = Instant::now();
                    // Where there is no notification of changes, the addresses are read when they may matter.
                    if self.addresses.is_none() && message.operation == Operation::Listen as u32 {
                        self.refresh_addresses();
                    }
                    let result =
                        self.core
                            .handle_request(number, &message, descriptors, lost, sender);
                    // What a program has set holds for all connections that come after its call.
                    self.tell_of_listeners();
                    let replied = self.reply(number, &socket, &message, result);
                    turns.take(user, start, Instant::now());
                    if let Err(fault) = replied {
                        return self.detach(number, fault);
                    }
                }
            }
        }
    }

    /// Sends the answer to a request. An error means that the program must be detached: for a fault, or because it has
    /// ended.
    fn reply(
        &mut self,
        number: u32,
        socket: &Rc<OwnedFd>,
        request: &Message,
        result: Result<Answer, Refusal>,
    ) -> Result<(), Option<&'static str>> {
        let mut answer = Message {
            status: 0,
            words: [0; 14],
            ..*request
        };
        let mut given = Answer::default();
        if request.operation == Operation::Attach as u32 {
            self.on_attach(number);
        }
        match result {
            Ok(done) => {
                if let Some(adopted) = done.adopted {
                    self.watch_program(adopted);
                }
                answer.words = done.words;
                given = done;
            }
            Err(Refusal::Errno(errno)) => answer.status = errno.raw_os_error().unsigned_abs(),
            Err(Refusal::Fault(fault)) => return Err(Some(fault)),
        }
        match self.core.send_answer(number, socket, &answer, &given) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN) => Err(Some("it does not read its answers")),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(None),
            Err(errno) if !given.descriptors.is_empty() => {
                self.answer_without_descriptors(number, socket, &answer, errno)
            }
            Err(_) => Err(None),
        }
    }

    /// A program has attached, or another user was refused to attach over its socket.
    fn on_attach(&mut self, number: u32) {
        let Some(program) = self.core.programs().get(&number) else {
            return;
        };
        let user = program.user;
        if program.is_attached() {
            self.half_open.remove(number);
        } else if !self.half_open.has(number) {
            self.add_half_open(number, user);
        }
    }

    /// The kernel bounds the descriptors in flight, and others have used them up. The program gets an errno, and keeps
    /// nothing that it does not know of.
    fn answer_without_descriptors(
        &mut self,
        number: u32,
        socket: &OwnedFd,
        answer: &Message,
        errno: Errno,
    ) -> Result<(), Option<&'static str>> {
        tracing::warn!("an answer could not be sent with its descriptors ({errno})");
        if answer.operation == Operation::Attach as u32 {
            return Err(None);
        }
        if answer.operation == Operation::Listen as u32 {
            self.core.on_lost_listen_answer(number, answer.words[0]);
        }
        let refusal = Message {
            status: Errno::NOBUFS.raw_os_error().unsigned_abs(),
            words: [0; 14],
            ..*answer
        };
        packet::send(socket, &refusal, &[]).map_err(|_| None)
    }

    /// Detaches a program, for a fault or because it has hung up.
    pub(super) fn detach(&mut self, number: u32, fault: Option<&'static str>) {
        if let Some(fault) = fault {
            let program = self.core.programs().get(&number);
            let (process, name) =
                program.map_or((0, String::new()), |one| (one.process, one.name.clone()));
            self.fault_of(fault, process, &name);
        }
        if let Some(program) = self.core.programs().get(&number) {
            // Its socket may stay open in a forked child of the program: it must be removed from epoll explicitly.
            self.watch.remove(&*program.socket);
            let _ = rustix::net::shutdown(&*program.socket, rustix::net::Shutdown::Both);
        }
        self.half_open.remove(number);
        self.core.on_program_ended(number, Instant::now());
    }

    fn fault_of(&mut self, fault: &'static str, process: u32, name: &str) {
        if let Some(suppressed) = self.faults.count(Instant::now()) {
            tracing::warn!(process, name, suppressed, "a program was detached: {fault}");
        }
    }
}
