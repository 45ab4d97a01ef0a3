//! Name service over datagrams: a program's own resolver gets one end of a pair, and the stack of its tenant the other.

use super::state::{Answer, CoreEngine, Refusal};
use netchannel_service::core_engine::Command;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::rc::Rc;

impl CoreEngine {
    /// A pair for questions to name servers. Packets, so that each end sees when the other one has no holder.
    pub(super) fn serve_names(&self) -> Result<Answer, Refusal> {
        let gateway = self.remotes.values().find(|(to, _)| to.family == 0);
        let stack = gateway.and_then(|(_, stack)| self.stack(*stack));
        let stack = stack.ok_or(Errno::NETUNREACH)?;
        self.admit_descriptors(2)?;
        let kind = SocketType::SEQPACKET;
        let (theirs, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        stack.send(Command::Names(other));
        Ok(Answer {
            descriptors: vec![Rc::new(theirs)],
            ..Answer::default()
        })
    }
}
