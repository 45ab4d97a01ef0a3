//! Requests of programs: checks the sender and the form, and dispatches.

use super::state::{Answer, CoreEngine, Refusal};
use crate::quota::DAEMON;
use netchannel_abi::message::{Message, Operation};
use netchannel_service::packet::Sender;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;

impl CoreEngine {
    /// Handles one request of program `number`. `lost` says that descriptors of the message were lost.
    ///
    /// # Errors
    /// An errno for the answer, or the fault for which the program must be detached.
    pub fn handle_request(
        &mut self,
        number: u32,
        message: &Message,
        descriptors: Vec<OwnedFd>,
        lost: bool,
        sender: Option<Sender>,
    ) -> Result<Answer, Refusal> {
        let sender = sender.ok_or(Refusal::Fault("a message of which nobody knows the sender"))?;
        if message.status != 0 {
            return Err(Refusal::Fault("an answer where a request belongs"));
        }
        let operation = Operation::from_word(message.operation);
        let operation = operation.ok_or(Refusal::Fault("an operation that does not exist"))?;
        let words = &message.words;
        let wanted = match operation {
            // A region comes with its size.
            Operation::Attach => usize::from(words[5] != 0),
            // A listening socket proves the listener.
            Operation::Listen => usize::from(words[6] != 0),
            Operation::Deposit | Operation::Enter => 1,
            Operation::Reoffer => 3,
            // A bound socket shows the port that is requested.
            Operation::Ports if words[0] == 0 => descriptors.len().min(1),
            _ => 0,
        };
        if lost {
            return Err(Refusal::Errno(Errno::MFILE));
        }
        if descriptors.len() != wanted {
            return Err(Refusal::Fault("a wrong number of descriptors"));
        }
        if sender.user() != self.program(number)?.user {
            if operation != Operation::Attach {
                return Err(Refusal::Errno(Errno::PERM));
            }
            self.reset_for_user(number, sender)?;
        }
        let program = self.program(number)?;
        // A child may release listeners with which its parent announced it, and nothing else.
        let lets_go = program.adopted && operation == Operation::Unlisten;
        let early = program.region.is_none() && !lets_go;
        if matches!(
            operation,
            Operation::Attach
                | Operation::Adopt
                | Operation::Listen
                | Operation::Connect
                | Operation::Names
        ) {
            self.in_flight.admit(sender.user())?;
        }
        match operation {
            // A second Attach comes from the same process after an exec.
            Operation::Attach => self.attach(number, sender, words, descriptors),
            _ if early => Err(Refusal::Fault("a request before Attach")),
            Operation::Adopt => self.adopt(number, words),
            Operation::Listen => self.listen(number, words, descriptors.first()),
            Operation::Unlisten => self.unlisten(number, words),
            Operation::Queue => self.queue(number, words),
            Operation::Join => self.join(number, words),
            Operation::Enter => self.enter(number, words, descriptors),
            Operation::Connect => self.connect(number, words),
            Operation::Reoffer => self.reoffer(number, words, descriptors),
            Operation::Ports => self.reserve_ports(number, words, descriptors.first()),
            Operation::Deposit => self.deposit(number, words, descriptors),
            Operation::Lookup => self.look_up(number, words),
            Operation::Names => self.serve_names(),
            Operation::Offer | Operation::Anchors | Operation::Look => {
                Err(Refusal::Fault("a message that belongs to another socket"))
            }
        }
    }

    /// Sends the answer to a request of program `number`.
    ///
    /// # Errors
    /// `NOBUFS` where its user has too many unread, and the errors of `sendmsg`.
    pub fn send_answer(
        &mut self,
        number: u32,
        socket: &Rc<OwnedFd>,
        message: &Message,
        answer: &Answer,
    ) -> Result<(), Errno> {
        let user = self.programs.get(&number).map_or(DAEMON, |one| one.user);
        let descriptors = &answer.descriptors;
        self.in_flight.send(socket, user, message, descriptors)?;
        if let Some(cookie) = answer.fetched {
            self.deposits.take(cookie, user, false);
            self.settle_released();
        }
        Ok(())
    }
}
