//! How one end of a connection is conducted once it is there.

use netchannel_testkit::support::{Random, fork_child, set_blocking, uninterrupted};
use netchannel_testkit::sys::{self, Descriptor};

use crate::blocking;
use crate::flow::Flow;
use crate::readiness::{Kind, Loop};
use crate::receiver::Receiver;
use crate::script::{Role, Script};
use crate::sender::Sender;
use crate::step::Step;

use super::board::Board;
use super::shape::{Plan, Shape};

/// How one end is conducted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Two threads, one that sends and one that receives.
    Threads,
    /// A loop over the one connection.
    Loop(Kind),
    /// All bytes one way, then all bytes the other way: a client sends first.
    InTurns,
    /// A child sends, and its parent receives.
    Relatives,
    /// As `InTurns`, under a copy of the descriptor.
    Copied,
}

impl Manner {
    /// How one end of a connection is conducted. A process that has other threads does not fork.
    fn of(plan: &Plan, number: u64, role: Role, has_threads: bool) -> Self {
        if plan.shape == Shape::PreforkKilled {
            return Self::InTurns;
        }
        let mut random = Random::new(plan.seed ^ number << 8 ^ u64::from(role == Role::Server));
        match random.below(8) {
            0 => Self::Threads,
            1 => Self::Loop(Kind::Poll),
            2 => Self::Loop(Kind::Level),
            3 => Self::Loop(Kind::Edge),
            4 => Self::Copied,
            5 if !has_threads => Self::Relatives,
            _ => Self::InTurns,
        }
    }
}

/// Conducts one end of a connection until it is closed. The descriptor may be non-blocking. A client whose server is
/// killed notes that on the board.
pub fn conduct(
    socket: Descriptor,
    plan: &Plan,
    board: &Board,
    number: u64,
    role: Role,
    has_threads: bool,
) {
    let script = Script::brief(plan.seed, number);
    let manner = Manner::of(plan, number, role, has_threads);
    if !matches!(manner, Manner::Loop(_)) {
        set_blocking(socket);
    }
    match manner {
        Manner::Threads => blocking::run(socket, script, role),
        Manner::Loop(kind) => {
            let mut flows = Loop::new(kind);
            flows.add(Flow::new(socket, script, role));
            while flows.len() > 0 {
                flows.turn(-1);
            }
            flows.close();
        }
        Manner::InTurns => {
            match in_turns(socket, &script, role) {
                Err(_) if plan.may_break(role) => board.note_broken(),
                done => expect(done, &script, role),
            }
            sys::close(socket).expect("close");
        }
        Manner::Copied => {
            let copy = sys::dup(socket).expect("dup");
            sys::close(socket).expect("close");
            expect(in_turns(copy, &script, role), &script, role);
            sys::close(copy).expect("close");
        }
        Manner::Relatives => {
            let child = fork_child(|| expect(send(socket, &script, role), &script, role));
            expect(receive(socket, &script, role), &script, role);
            child.join();
            sys::close(socket).expect("close");
        }
    }
}

fn expect(done: Result<(), String>, script: &Script, role: Role) {
    if let Err(error) = done {
        panic!("{script:?} as {role:?}: {error}");
    }
}

fn in_turns(socket: Descriptor, script: &Script, role: Role) -> Result<(), String> {
    if role == Role::Client {
        send(socket, script, role)?;
        receive(socket, script, role)
    } else {
        receive(socket, script, role)?;
        send(socket, script, role)
    }
}

fn send(socket: Descriptor, script: &Script, role: Role) -> Result<(), String> {
    let mut sender = Sender::new(socket, script, role);
    loop {
        match sender.step() {
            Step::Moved => {}
            Step::End => break,
            step => return Err(format!("send: {step:?}")),
        }
    }
    let shut = uninterrupted(|| sys::shutdown(socket, libc::SHUT_WR));
    shut.map_err(|errno| format!("shutdown: {errno:?}"))
}

fn receive(socket: Descriptor, script: &Script, role: Role) -> Result<(), String> {
    let mut receiver = Receiver::new(socket, script, role);
    loop {
        match receiver.step() {
            Step::Moved => {}
            Step::End => break,
            step => return Err(format!("recv: {step:?}")),
        }
    }
    let (received, all) = (receiver.position, script.sends(role.other()));
    if received == all {
        Ok(())
    } else {
        Err(format!("an end after {received}"))
    }
}
