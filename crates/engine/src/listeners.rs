//! Listeners: their holders, and the channel on which their connections are offered.

use super::listener::{Listener, Queue};
use super::state::{Answer, CoreEngine, Refusal};
use crate::directory::Row;
use crate::quota::{Amounts, Kind};
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::directory::{LEFT, entry_flags};
use netchannel_abi::message::{listen_flags, queue_flags};
use netchannel_abi::program::RELAY;
use netchannel_service::addresses::shown as shown_address;
use netchannel_service::core_engine::{Command, ListenerChange, OwnListener};
use netchannel_service::packet;
use rustix::io::Errno;
use rustix::net::SocketType;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

const ROOT: u32 = 0;

/// The kernel never allows a longer backlog.
const MOST_BACKLOG: u64 = 65535;

impl CoreEngine {
    pub(super) fn listen(
        &mut self,
        number: u32,
        words: &[u64; 14],
        socket: Option<&OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let address = Address::from_words([words[0], words[1], words[2]]);
        let (cookie, flags) = (words[3], words[5]);
        let backlog = usize::try_from(words[4].min(MOST_BACKLOG)).unwrap_or(0);
        let most = u64::from(entry_flags::MOST_DEFERS);
        let defers = u32::try_from(words[7].min(most)).unwrap_or(0);
        if !matches!(address.family, INET | INET6) || address.port == 0 || cookie == 0 {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let program = self.program(number)?;
        let user = program.user;
        let known = self.cookies.get(&cookie).copied();
        let holds = known.is_some_and(|known| program.listeners.contains(&known));
        if !holds && program.listeners.len() >= self.limits.listeners_per_program {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        let queue = (words[8], words[9]);
        if let Some(known) = known {
            return self.hold_again(number, known, &address, socket, (backlog, defers), queue);
        }
        self.prove(number, &address, cookie, socket)?;
        // A listener that has closed there must not catch connections for this one.
        self.prove_others_at(address.port);
        self.admit_descriptors(2)?;
        let amounts = Amounts::of(Kind::Listeners, 1).and(Kind::Descriptors, 2);
        let ticket = self.quotas.charge(user, amounts)?;
        let (offers, accepts) = packet::pair(SocketType::SEQPACKET)?;
        let listener = self.next_listener();
        let v6_only = address.family == INET6 && flags & listen_flags::V6_ONLY != 0;
        let made = Listener {
            address,
            cookie,
            user,
            holders: BTreeSet::new(),
            queue: Queue::default(),
            strangers: 0,
            offers,
            accepts,
            offered: 0,
            backlog,
            defers,
            v6_only,
            _ticket: ticket,
        };
        self.directory.insert(Row {
            // Nobody may see it without the queue that its holder brings: he would go another way.
            queue: queue.0,
            ..self.row(&made, listener, number)
        })?;
        tracing::debug!(
            listener,
            cookie,
            address = shown_address(&address),
            program = number,
            "listens"
        );
        self.cookies.insert(cookie, listener);
        let handed = Rc::clone(&made.accepts);
        self.listeners.insert(listener, made);
        self.bring_queue(listener, number, queue);
        self.add_holder(listener, number);
        self.announce(listener);
        Ok(answer(listener, handed))
    }

    /// A program that another daemon knew brings the queue of its listener, in which it has a part before it is a holder.
    fn bring_queue(&mut self, listener: u32, number: u32, (name, flags): (u64, u64)) {
        if name != 0 || flags != 0 {
            // With another queue than the first it is a holder that has no part in it.
            let _ = self.change_queue(listener, number, name, flags);
        }
    }

    /// Another process, or the same one after `exec`, holds a known listener. A program that can not send the socket
    /// must be of the user who made it, since a cookie can be guessed.
    fn hold_again(
        &mut self,
        number: u32,
        listener: u32,
        address: &Address,
        socket: Option<&OwnedFd>,
        (backlog, defers): (usize, u32),
        queue: (u64, u64),
    ) -> Result<Answer, Refusal> {
        let user = self.program(number)?.user;
        let known = self.listeners.get(&listener).ok_or(Errno::NOENT)?;
        if !known.holders.contains(&number) {
            if socket.is_none() && user != known.user {
                return Err(Refusal::Errno(Errno::PERM));
            }
            self.prove(number, address, known.cookie, socket)?;
        }
        let was_unheld = self.hold_unheld(listener, number)?;
        let known = self.listeners.get_mut(&listener).ok_or(Errno::NOENT)?;
        if !known.holders.contains(&number) {
            // It is the one that was awaited.
            known.strangers = known.strangers.saturating_sub(1);
        }
        known.backlog = backlog;
        let handed = Rc::clone(&known.accepts);
        let changes = known.defers != defers || was_unheld;
        known.defers = defers;
        self.directory.defer(listener, defers);
        if changes {
            self.announce(listener);
        }
        self.bring_queue(listener, number, queue);
        self.add_holder(listener, number);
        Ok(answer(listener, handed))
    }

    /// Shows a listener again that nobody held. True where it was such a one.
    fn hold_unheld(&mut self, listener: u32, number: u32) -> Result<bool, Refusal> {
        let known = self.listeners.get(&listener).ok_or(Errno::NOENT)?;
        if !known.holders.is_empty() {
            return Ok(false);
        }
        let row = self.row(known, listener, number);
        self.directory.insert(row)?;
        self.unheld.remove(listener);
        Ok(true)
    }

    /// How a listener is shown to clients while one program holds it.
    fn row(&self, known: &Listener, listener: u32, program: u32) -> Row {
        let v6_only = if known.v6_only {
            entry_flags::V6_ONLY
        } else {
            0
        };
        let remote = self.local.map_or(0, |_| entry_flags::REMOTE);
        Row {
            listener,
            flags: v6_only | known.defers << entry_flags::DEFERS_SHIFT | remote,
            address: known.address,
            program,
            queue: 0,
            queue_user: known.user,
        }
    }

    /// Tells the stack modules of a listener, or of what has changed of it.
    fn announce(&mut self, listener: u32) {
        if let Some(known) = self.listeners.get(&listener) {
            let own = OwnListener {
                address: known.address,
                v6_only: known.v6_only,
                defers: known.defers,
            };
            self.note_change(ListenerChange::Added(listener, own));
        }
    }

    pub(super) fn unlisten(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        if words[0] == 0 {
            // After an exec: drops the listeners that the exec closed.
            let unconfirmed = std::mem::take(&mut self.program_mut(number)?.unconfirmed);
            for listener in unconfirmed {
                self.remove_holder(listener, number);
            }
            return Ok(Answer::default());
        }
        let listener = self.held_listener(number, words[0])?;
        if words[2] != 0
            && let Some(known) = self.listeners.get_mut(&listener.number())
        {
            // It has never waited, so that no other acceptor need look for what it was woken for.
            known.queue.leave(number);
        }
        self.remove_holder(listener.number(), number);
        if words[1] != 0 {
            // Other holders may have closed it without a message.
            self.prove_again(&BTreeSet::from([listener.number()]));
        }
        Ok(Answer::default())
    }

    /// The answer to a `Listen` did not arrive: the program does not hold the listener.
    pub fn on_lost_listen_answer(&mut self, number: u32, listener: u64) {
        if let Ok(listener) = u32::try_from(listener) {
            self.remove_holder(listener, number);
        }
    }

    pub(super) fn add_holder(&mut self, listener: u32, number: u32) {
        if let (Some(known), Some(program)) = (
            self.listeners.get_mut(&listener),
            self.programs.get_mut(&number),
        ) {
            known.holders.insert(number);
            program.listeners.insert(listener);
            program.unconfirmed.remove(&listener);
            let user = program.user;
            self.publish_holders(listener);
            self.note_exposed(listener, user);
        }
    }

    /// A child gets its parent's hold of a listener, and its membership in the queue.
    pub(super) fn add_child(&mut self, listener: u32, parent: u32, child: u32) {
        if let Some(known) = self.listeners.get_mut(&listener)
            && known.queue.members.contains(&parent)
        {
            known.queue.members.insert(child);
        }
        self.add_holder(listener, child);
    }

    /// A holder joins or leaves the queue from which all accept. A second queue of the same listener is unknown to the
    /// members of the first one: the first one stays.
    pub(super) fn queue(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let listener = self.held_listener(number, words[0])?.number();
        self.change_queue(listener, number, words[1], words[2])?;
        let mut answer = Answer::default();
        answer.words[0] = self.staying(listener) as u64;
        self.publish_holders(listener);
        Ok(answer)
    }

    /// As [`Self::queue`], without telling anybody.
    fn change_queue(
        &mut self,
        listener: u32,
        number: u32,
        name: u64,
        flags: u64,
    ) -> Result<(), Refusal> {
        let known = self.listeners.get_mut(&listener).ok_or(Errno::NOENT)?;
        if flags & queue_flags::STRANGER != 0 {
            known.strangers = known.strangers.saturating_add(1);
        } else if flags & queue_flags::STRANGER_GONE != 0 {
            known.strangers = known.strangers.saturating_sub(1);
        }
        let queue = &mut known.queue;
        if flags & queue_flags::ACCEPTS != 0 {
            queue.apart.insert(number);
        }
        if name == 0 {
            queue.leave(number);
        } else if queue.members.is_empty() || queue.name == name {
            if queue.members.is_empty() {
                (queue.is_confined, queue.has_unknown_members) = (false, false);
            }
            queue.name = name;
            queue.is_confined |= flags & queue_flags::CONFINED != 0;
            queue.has_unknown_members |= flags & queue_flags::RELATIVES != 0;
            queue.members.insert(number);
            if flags & queue_flags::LEAVES != 0 {
                queue.leaving.insert(number);
            } else {
                queue.leaving.remove(&number);
            }
        } else {
            return Err(Refusal::Errno(Errno::EXIST));
        }
        Ok(())
    }

    /// How many programs accept from the queue of a listener and do not leave.
    fn staying(&self, listener: u32) -> usize {
        let Some(known) = self.listeners.get(&listener) else {
            return 0;
        };
        let acceptors = self.acceptors(listener);
        let accepts = |member: &&u32| {
            let user = self.programs.get(member).map(|one| one.user);
            acceptors.is_none() || user == acceptors
        };
        let staying = known.queue.members.difference(&known.queue.leaving);
        staying.filter(accepts).count()
    }

    /// The user of the programs that accept from a listener: of all holders except programs of root, which can read
    /// everything anyway. Root where there are no others, `None` where there are several users.
    pub(super) fn acceptors(&self, listener: u32) -> Option<u32> {
        let holders = self.listeners.get(&listener)?.holders.iter();
        let users = holders.map(|holder| self.programs.get(holder).map(|one| one.user));
        let mut found = ROOT;
        for user in users {
            match user? {
                ROOT => {}
                user if found == ROOT || found == user => found = user,
                _ => return None,
            }
        }
        Some(found)
    }

    /// The user of the programs that accept from the queue of a listener, where clients of `user` may use it.
    pub(super) fn acceptors_for(&self, listener: u32, user: u32) -> Option<u32> {
        let known = self.listeners.get(&listener)?;
        let acceptors = self.acceptors(listener);
        acceptors.filter(|acceptor| *acceptor == user || !known.queue.is_confined)
    }

    /// An executed image is not a member of the queues of these listeners.
    pub(super) fn leave_queues(&mut self, number: u32, listeners: &BTreeSet<u32>) {
        for listener in listeners {
            let known = self.listeners.get_mut(listener);
            if known.is_some_and(|known| known.queue.leave(number)) {
                self.publish_holders(*listener);
            }
        }
    }

    /// The holders of a listener have changed: publishes them. A queue is published only if all accepting programs are
    /// members, since others would never see the connections that wait there. Programs of root beside another user's
    /// need no membership.
    fn publish_holders(&mut self, listener: u32) {
        let Some(known) = self.listeners.get(&listener) else {
            return;
        };
        self.neighbours.changed = true;
        let mode = known.mode();
        let (queue, holders) = (&known.queue, &known.holders);
        let acceptors = self.acceptors(listener);
        let is_member = |holder: &u32| {
            let is_root = || {
                self.programs
                    .get(holder)
                    .is_some_and(|one| one.user == ROOT)
            };
            if acceptors != Some(ROOT) && is_root() {
                !queue.apart.contains(holder)
            } else {
                queue.members.contains(holder)
            }
        };
        let is_for_all =
            acceptors.is_some() && known.strangers == 0 && holders.iter().all(is_member);
        let name = if is_for_all { queue.name } else { 0 };
        // Whoever is announced to a holder directly is lost with it to others that this daemon does not know.
        let least = if known.may_have_others() { 2 } else { 0 };
        self.directory.hold(listener, holders.len().max(least));
        self.directory
            .set_queue(listener, name, acceptors.unwrap_or(u32::MAX));
        self.send_to_stacks(|| Command::AcceptMode(listener, mode));
    }

    /// Sends a command to all stack modules, which route connections to listeners of this host.
    fn send_to_stacks(&self, command: impl Fn() -> Command) {
        for stack in &self.stacks {
            stack.send(command());
        }
    }

    /// `number` holds `listener` no longer. With its last holder the listener is removed, unless connections wait for a
    /// program that its socket is on the way to.
    pub(super) fn remove_holder(&mut self, listener: u32, number: u32) {
        if let Some(program) = self.programs.get_mut(&number) {
            program.listeners.remove(&listener);
        }
        let Some(known) = self.listeners.get_mut(&listener) else {
            return;
        };
        known.holders.remove(&number);
        if known.queue.leave(number) {
            known.wake_acceptor();
        }
        known.queue.apart.remove(&number);
        if let Some(other) = known.holders.first() {
            self.directory.assign(listener, *other);
            self.publish_holders(listener);
            return;
        }
        self.directory.remove(listener);
        // The kernel tells nothing of the sockets of another namespace.
        if known.strangers > 0 && known.has_messages(1) && !self.tenant {
            self.unheld.add(listener);
            self.send_to_stacks(|| Command::ListenerClosed(listener));
            self.note_change(ListenerChange::Removed(listener));
            return;
        }
        self.forget_listener(listener);
    }

    /// Forgets a listener that nobody holds, with its accept channel and every offer in it.
    fn forget_listener(&mut self, listener: u32) {
        self.unheld.remove(listener);
        let Some(known) = self.listeners.get(&listener) else {
            return;
        };
        let cookie = known.cookie;
        tracing::debug!(
            listener,
            cookie,
            address = shown_address(&known.address),
            "listens no more"
        );
        // Unread offers keep the daemon's end open.
        let _ = rustix::net::shutdown(&*known.offers, rustix::net::Shutdown::Both);
        self.forget_orphans(listener);
        self.listeners.remove(&listener);
        self.cookies.remove(&cookie);
        // The daemon's own links stay known until it drops them: connections that wait in them may be passed on.
        self.forget_links(|link| link.listener == listener && link.client != RELAY);
        self.note_change(ListenerChange::Removed(listener));
        self.send_to_stacks(|| Command::ListenerClosed(listener));
    }

    /// Drops `listener` with all its holders.
    pub(super) fn drop_listener(&mut self, listener: u32) {
        let known = self.listeners.get(&listener);
        let holders = known.map_or_else(BTreeSet::new, |known| known.holders.clone());
        for holder in holders {
            self.remove_holder(listener, holder);
        }
        self.forget_listener(listener);
    }

    pub(super) fn next_listener(&mut self) -> u32 {
        loop {
            self.last_listener = self.last_listener.wrapping_add(1).max(1);
            if self.last_listener != LEFT
                && !self.listeners.contains_key(&self.last_listener)
                && !self.remotes.contains_key(&self.last_listener)
                && self.neighbours.entry(self.last_listener).is_none()
            {
                return self.last_listener;
            }
        }
    }
}

fn answer(listener: u32, accepts: Rc<OwnedFd>) -> Answer {
    let mut answer = Answer {
        descriptors: vec![accepts],
        ..Answer::default()
    };
    answer.words[0] = u64::from(listener);
    answer
}
