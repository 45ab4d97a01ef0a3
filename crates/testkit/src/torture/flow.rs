//! One end of one connection, driven by readiness: a sender and a receiver that make one step at a time.

use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::blocking;
use crate::receiver::Receiver;
use crate::script::{Ending, Role, Script};
use crate::sender::Sender;
use crate::step::Step;

/// One end of a connection, driven by readiness.
pub struct Flow {
    pub socket: Descriptor,
    script: Script,
    role: Role,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    /// Whether the sender took an error, or may have.
    sender_broke: bool,
    /// How the stream of the other end ended, once it has.
    outcome: Option<Step>,
}

impl Flow {
    pub fn new(socket: Descriptor, script: Script, role: Role) -> Self {
        let receiver = (!script.aborts(role)).then(|| Receiver::new(socket, &script, role));
        let sender = Some(Sender::new(socket, &script, role));
        Self {
            socket,
            script,
            role,
            sender,
            receiver,
            sender_broke: false,
            outcome: None,
        }
    }

    /// Whether the end still wants to send.
    pub fn wants_to_send(&self) -> bool {
        self.sender.is_some()
    }

    /// How far it is.
    pub fn describe(&self) -> String {
        let sent = self.sender.as_ref().map(|sender| sender.position);
        let received = self.receiver.as_ref().map(|receiver| receiver.position);
        let (name, outcome) = (self.name(), self.outcome);
        format!("{name}: sent {sent:?}, received {received:?}, outcome {outcome:?}")
    }

    fn name(&self) -> String {
        format!("{:?} as {:?}", self.script, self.role)
    }

    /// Makes at most `calls` calls while they make progress. True once the connection is done and closed.
    pub fn advance(&mut self, calls: usize) -> bool {
        let sending = self.send(calls);
        let receiving = self.receive(calls);
        if sending || receiving {
            return false;
        }
        if self.sender.is_none() && self.receiver.is_none() {
            blocking::close(self.socket, &self.script, self.role);
            return true;
        }
        false
    }

    /// Whether more could be sent at once.
    fn send(&mut self, calls: usize) -> bool {
        for _ in 0..calls {
            let Some(sender) = &mut self.sender else {
                return false;
            };
            let step = sender.step();
            self.sender_broke = sender.may_hide_an_error;
            match step {
                Step::Moved => {}
                Step::Wait => return false,
                Step::End => {
                    self.sender = None;
                    if !self.script.aborts(self.role) {
                        let answer = sys::shutdown(self.socket, libc::SHUT_WR);
                        let lenient = self.script.is_lenient(self.role);
                        assert!(answer.is_ok() || lenient, "{}: {answer:?}", self.name());
                    }
                }
                Step::Broken(errno) => {
                    self.expect_break(errno, "send");
                    self.sender = None;
                    self.sender_broke = true;
                }
            }
        }
        self.sender.is_some()
    }

    fn receive(&mut self, calls: usize) -> bool {
        if self.outcome.is_some() {
            // The first result counts, because an ordinary end follows a reset.
            return false;
        }
        for _ in 0..calls {
            let Some(receiver) = &mut self.receiver else {
                return false;
            };
            let step = receiver.step();
            match step {
                Step::Moved => continue,
                Step::Wait => return false,
                Step::End => {
                    let (position, total) = (receiver.position, receiver.total);
                    let whole = position == total || self.script.is_lenient(self.role);
                    assert!(whole, "{}: an end after {position}", self.name());
                }
                Step::Broken(errno) => self.expect_break(errno, "recv"),
            }
            self.outcome = Some(step);
            if self.script.is_lenient(self.role) {
                self.sender = None;
            }
            if self.script.ending != Ending::Killed {
                self.receiver = None;
            }
            return false;
        }
        self.receiver.is_some()
    }

    fn expect_break(&self, errno: Errno, call: &str) {
        let expected = self.script.may_fail(self.role, errno);
        assert!(expected, "{}: {call}: {errno:?}", self.name());
    }

    /// Whether the stream of the other end has ended.
    pub fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// The connection's number, where it is a small one.
    pub fn key(&self) -> usize {
        usize::try_from(self.script.number).unwrap_or(usize::MAX)
    }

    /// How many bytes were received, and whether these must be all: the stream ended and the sender got no error, which
    /// it would have taken from the receiver.
    pub fn received(&self) -> (usize, bool) {
        let position = self
            .receiver
            .as_ref()
            .map_or(0, |receiver| receiver.position);
        (
            position,
            self.outcome == Some(Step::End) && !self.sender_broke,
        )
    }
}
