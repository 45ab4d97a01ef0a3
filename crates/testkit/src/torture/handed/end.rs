//! One end of the connection, in the hands of whoever has it now.

use netchannel_testkit::support::{Random, set_nonblocking};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use super::wait::Wait;
use crate::interrupter::Interrupter;
use crate::receiver::Receiver;
use crate::script::{Role, Script};
use crate::sender::Sender;
use crate::step::Step;

/// The most stages of an end. The last one goes on to its end.
const STAGES: u64 = 10;
/// The most calls of a stage.
const CALLS: usize = 40;

/// The script of a round.
pub fn script(seed: u64) -> Script {
    Script::of(seed, seed % 10)
}

/// An end, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub seed: u64,
    pub role: Role,
    /// How many holders it had before.
    pub stage: u64,
    pub socket: Descriptor,
    /// Bytes that were sent and received so far.
    pub sent: usize,
    pub received: usize,
    /// Whether it has shut down sending.
    pub is_shut: bool,
    /// Whether it has read the end.
    pub has_ended: bool,
    /// How its holder waits.
    pub wait: Wait,
}

impl End {
    /// An end that has done nothing.
    pub fn begin(seed: u64, role: Role, socket: Descriptor) -> Self {
        set_nonblocking(socket);
        Self {
            seed,
            role,
            stage: 0,
            socket,
            sent: 0,
            received: 0,
            is_shut: false,
            has_ended: false,
            wait: Wait::Poll,
        }
    }

    /// Whether both directions are over.
    pub fn is_over(&self) -> bool {
        self.is_shut && self.has_ended
    }

    /// One stage: some calls, between which signals may come.
    pub fn play_stage(&mut self, random: &mut Random) {
        let calls = if self.stage == STAGES {
            usize::MAX
        } else {
            random.below(CALLS)
        };
        if !matches!(self.wait, Wait::Set(_)) || random.once_in(2) {
            self.wait.close();
            self.wait = Wait::draw(self.socket, random);
        }
        let interrupter = random
            .once_in(3)
            .then(|| Interrupter::start(self.seed ^ self.stage));
        self.play(calls);
        interrupter.into_iter().for_each(Interrupter::stop);
    }

    /// The draws of a stage.
    pub fn random(&self, salt: u64) -> Random {
        script(self.seed).sizes(self.role, 100 + 4 * self.stage + salt)
    }

    /// Makes so many calls.
    fn play(&mut self, calls: usize) {
        let script: Script = script(self.seed);
        let (socket, role) = (self.socket, self.role);
        let mut sender = Sender::new(socket, &script, role).resumed(self.sent, self.random(1));
        let mut receiver =
            Receiver::new(socket, &script, role).resumed(self.received, self.random(2));
        let mut made = 0;
        while !self.is_over() && (made < calls || !self.is_shut && !sender.is_at_its_position()) {
            made += 1;
            let sends = !self.is_shut && self.send(&mut sender);
            let receives = !self.has_ended && self.receive(&mut receiver);
            let mut events = 0;
            if !self.is_shut {
                events |= sys::OUT;
            }
            if !self.has_ended {
                events |= sys::IN;
            }
            if !sends && !receives && events != 0 {
                self.wait.wait(socket, events);
            }
        }
        (self.sent, self.received) = (sender.position, receiver.position);
    }

    /// Makes one call. Whether it, or what it changed, may be followed by another one at once.
    fn send(&mut self, sender: &mut Sender) -> bool {
        match sender.step() {
            Step::Moved => return true,
            Step::Wait => return false,
            Step::End if script(self.seed).aborts(self.role) => self.end_early(),
            Step::End => {
                let answer = sys::shutdown(self.socket, libc::SHUT_WR);
                assert!(answer.is_ok() || self.may_break(), "{self:?}: {answer:?}");
                self.is_shut = true;
            }
            Step::Broken(errno) => self.expect_break("send", errno),
        }
        true
    }

    fn receive(&mut self, receiver: &mut Receiver) -> bool {
        match receiver.step() {
            Step::Moved => return true,
            Step::Wait => return false,
            Step::End if receiver.position == receiver.total => self.has_ended = true,
            Step::End => {
                let position = receiver.position;
                assert!(self.may_break(), "{self:?}: an end after {position}");
                self.end_early();
            }
            Step::Broken(errno) => self.expect_break("recv", errno),
        }
        true
    }

    /// Whether the other end breaks the connection.
    fn may_break(&self) -> bool {
        script(self.seed).is_lenient(self.role)
    }

    fn end_early(&mut self) {
        (self.is_shut, self.has_ended) = (true, true);
    }

    fn expect_break(&mut self, call: &str, errno: Errno) {
        let expected = script(self.seed).may_fail(self.role, errno);
        assert!(expected, "{self:?}: {call}: {errno:?}");
        self.end_early();
    }
}
