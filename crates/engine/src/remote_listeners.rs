//! Listeners of other hosts: shown in the directory, and reached over a link whose other end is a stack module.

use super::link::{Link, Made};
use super::state::{Answer, CoreEngine, Refusal, StackId};
use crate::directory::Row;
use crate::limits::FIRST_ANCHORS;
use netchannel_abi::address::Address;
use netchannel_abi::directory::entry_flags;
use netchannel_abi::program::RELAY;
use netchannel_service::core_engine::{Command, ListenerChange};
use rustix::io::Errno;

impl CoreEngine {
    /// A new number for a listener of another host.
    pub fn next_remote(&mut self) -> u32 {
        self.next_listener()
    }

    /// Shows a listener of another host to programs.
    ///
    /// # Errors
    /// `NOBUFS` when the directory is full.
    pub fn add_remote(
        &mut self,
        number: u32,
        address: &Address,
        stack: StackId,
    ) -> Result<(), Errno> {
        self.directory.insert(Row {
            listener: number,
            flags: entry_flags::REMOTE,
            address: *address,
            program: RELAY,
            queue: 0,
            queue_user: 0,
        })?;
        self.remotes.insert(number, (*address, stack));
        Ok(())
    }

    /// Every connect to an address that no listener has leads to the stack module: it has listener `number` for all of them.
    pub fn set_gateway(&mut self, number: u32, stack: StackId) {
        self.remotes.insert(number, (Address::default(), stack));
        self.directory.set_gateway(number);
    }

    /// Removes a listener of another host. Its connections live on.
    pub fn remove_remote(&mut self, number: u32) {
        if self.remotes.remove(&number).is_some() {
            self.directory.remove(number);
        }
    }

    /// Makes the link of a program to a stack module, for all listeners of that module on other hosts.
    pub(super) fn connect_remote(
        &mut self,
        number: u32,
        words: &[u64; 14],
        (listens, stack): (Address, StackId),
    ) -> Result<Answer, Refusal> {
        let meant = Address::from_words([words[1], words[2], words[3]]).unmapped();
        let there = (listens.bytes, listens.port) == (meant.bytes, meant.port);
        let is_gateway = listens.family == 0;
        if meant.family != 0 && !is_gateway && !there {
            return Err(Refusal::Errno(Errno::CONNREFUSED));
        }
        let ticket = self.admit_link(number, 0)?;
        let user = self.program(number)?.user;
        let Made {
            number: link,
            memory,
            client,
            server,
        } = self.make_link(FIRST_ANCHORS)?;
        let mut answer = Answer::default();
        answer.words[..4].copy_from_slice(&client.words());
        // The listener is the daemon's.
        answer.words[4] = u64::MAX;
        answer.descriptors = client.all();
        let stack = self.stack(stack).ok_or(Errno::CONNREFUSED)?;
        stack.send(Command::Serve(server.parts(Some(user))?));
        let made = Link {
            _ticket: Some(ticket),
            ..Link::new(number, user, 0, memory)
        };
        self.note_link_of_client(link, made)?;
        Ok(answer)
    }

    /// Takes the changes of listeners of this host since the last call.
    pub fn take_changes(&mut self) -> Vec<ListenerChange> {
        self.show_listeners();
        std::mem::take(&mut self.listener_changes)
    }

    pub(super) fn note_change(&mut self, news: ListenerChange) {
        self.neighbours.changed = true;
        if !self.stacks.is_empty() {
            self.listener_changes.push(news);
        }
    }
}
