//! Links between two programs: made on request, and offered to the holders of a listener.

use super::checked::{Reachable, is_connected};
use super::link::{End, Link, Made};
use super::state::{Answer, CoreEngine, Refusal, narrow};
use crate::limits::{FIRST_ANCHORS, LINKS_PER_SEARCH, MOST_OFFERS};
use crate::quota::{Amounts, Kind, Ticket};
use crate::region::named_links;
use netchannel_abi::address::Address;
use netchannel_abi::link::{QueueIndices, Role};
use netchannel_abi::message::{Message, Operation};
use netchannel_ring::departure;
use netchannel_service::core_engine::Command;
use netchannel_service::{memory, packet};
use netchannel_shm::Outside;
use rustix::io::Errno;
use rustix::net::SocketType;
use std::collections::HashSet;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

impl CoreEngine {
    pub(super) fn connect(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let remote = u32::try_from(words[0]).ok();
        let remote = remote.and_then(|remote| self.remotes.get(&remote).copied());
        if let Some(listens) = remote {
            return self.connect_remote(number, words, listens);
        }
        if let Some(entry) = self.neighbours.entry(narrow(words[0])?).cloned() {
            return self.connect_neighbour(number, words, &entry);
        }
        let meant = Address::from_words([words[1], words[2], words[3]]).unmapped();
        let user = self.program(number)?.user;
        let reached = self.reachable(user, words[0], &meant)?;
        let listener = reached.number();
        let is_queued = words[4] != 0;
        let one = if is_queued {
            let acceptors = self.acceptors_for(listener, user);
            Some(acceptors.ok_or(Errno::PERM)?)
        } else {
            self.user_of_all(listener)
        };
        let ticket = self.admit_link(number, listener)?;
        let made = self.make_link(if is_queued { 0 } else { FIRST_ANCHORS })?;
        let memory = Rc::clone(&made.memory);
        let mut answer = Answer::default();
        answer.words[..4].copy_from_slice(&made.client.words());
        let Made {
            number: link,
            client,
            server,
            ..
        } = made;
        answer.words[4] = one.map_or(u64::MAX, u64::from);
        answer.descriptors = match self.local.and_then(|local| self.stack(local)) {
            _ if is_queued => vec![Rc::clone(&memory)],
            Some(stack) => {
                stack.send(Command::Serve(server.parts(Some(user))?));
                client.all()
            }
            None => {
                self.offer_link(reached, number, user, server)?;
                client.all()
            }
        };
        // A link to a stack module leads to more than one listener.
        let listener = if self.local.is_some() { 0 } else { listener };
        let link_of_client = Link {
            queued: is_queued,
            _ticket: Some(ticket),
            ..Link::new(number, user, listener, memory)
        };
        self.note_link_of_client(link, link_of_client)?;
        Ok(answer)
    }

    /// A holder of a listener has accepted a connection of a link that it does not have yet.
    pub(super) fn join(&self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let listener = self.held_listener(number, words[0])?.number();
        let link = self.links.get(&words[1]).ok_or(Errno::NOENT)?;
        let user = self.program(number)?.user;
        let is_first = link.joined.get().is_none_or(|joined| joined == user);
        if link.listener != listener
            || self.acceptors_for(listener, link.user) != Some(user)
            || !is_first
        {
            return Err(Refusal::Errno(Errno::PERM));
        }
        link.joined.set(Some(user));
        let layout = self.limits.layout();
        let mut answer = Answer::default();
        answer.words[0] = layout.slots as u64;
        answer.words[1] = layout.arena as u64;
        answer.words[2] = u64::from(link.user);
        answer.descriptors = vec![Rc::clone(&link.memory)];
        Ok(answer)
    }

    /// Offers one connection of a queued link of program `number` to the acceptors: the queue has its name in another network namespace
    /// than the program.
    pub(super) fn enter(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let refused = Refusal::Errno(Errno::PERM);
        let (user, slot) = (self.program(number)?.user, words[2]);
        let known = self.links.get(&words[1]).ok_or(Errno::NOENT)?;
        let is_own = known.queued && known.client == number && known.user == user;
        let (listener, memory) = (known.listener, Rc::clone(&known.memory));
        if !is_own || u64::from(listener) != words[0] || slot >= self.limits.slots as u64 {
            return Err(refused);
        }
        let acceptors = self.acceptors_for(listener, user);
        let acceptors = acceptors.ok_or(Errno::PERM)?;
        self.reachable(user, words[0], &Address::default())?;
        // As in `join`: the memory is for the acceptors of one user.
        let known = self.links.get(&words[1]).ok_or(Errno::NOENT)?;
        if known.joined.get().is_some_and(|joined| joined != acceptors) {
            return Err(refused);
        }
        let anchor = descriptors.into_iter().next();
        let anchor = anchor.filter(|anchor| is_connected(anchor, SocketType::STREAM));
        let anchor = anchor.ok_or(Refusal::Fault("an Enter without a connection"))?;
        known.joined.set(Some(acceptors));
        let words = self.words_of_one(listener, (words[1], number, user), (slot, words[3]));
        // The memory takes the place of the channel, of which a queued link has none.
        let offered = [Rc::clone(&memory), memory, Rc::new(anchor)];
        self.offer(listener, words, &offered)?;
        Ok(Answer::default())
    }

    /// Makes a link with this number of anchors.
    pub(super) fn make_link(&mut self, anchors: usize) -> Result<Made, Refusal> {
        let layout = self.limits.layout();
        let (one, other) = packet::owned_pair(SocketType::SEQPACKET)?;
        self.last_link += 1;
        let number = self.last_link;
        let memory = Rc::new(memory::link(layout, number)?);
        let end = |role, channel| End {
            number,
            role,
            layout,
            memory: Rc::clone(&memory),
            channel,
            anchors: Vec::new(),
        };
        let mut client = end(Role::Client, one);
        let mut server = end(Role::Server, other);
        for _ in 0..anchors.min(layout.slots) {
            let (one, other) = packet::anchor_pair()?;
            client.anchors.push(one);
            server.anchors.push(other);
        }
        Ok(Made {
            number,
            memory,
            client,
            server,
        })
    }

    /// As [`Self::note_link`], for a link of a program, whose links are counted.
    pub(super) fn note_link_of_client(&mut self, number: u64, link: Link) -> Result<(), Refusal> {
        let client = link.client;
        self.note_link(number, link);
        let region = self.own_region(client)?;
        region.links.set(region.links.get() + 1);
        Ok(())
    }

    pub(super) fn note_link(&mut self, number: u64, link: Link) {
        let (listener, user) = (link.listener, link.user);
        self.links.insert(number, link);
        if self.listeners.contains_key(&listener) {
            self.note_exposed(listener, user);
        }
    }

    /// Offers the server's end of a link of `client` to the process that accepts.
    pub(super) fn offer_link(
        &mut self,
        listener: Reachable,
        client: u32,
        user: u32,
        server: End,
    ) -> Result<(), Refusal> {
        let [link, slots, arena, anchors] = server.words();
        let mut words = [0; 14];
        let listener = listener.number();
        let (listening, client) = (u64::from(listener), u64::from(client));
        words[..6].copy_from_slice(&[link, listening, slots, arena, anchors, client]);
        words[8] = u64::from(user);
        self.offer(listener, words, &server.all())
    }

    /// Whether a listener has a living holder. The hang-up of a killed holder may still be pending among the events:
    /// its listener is refused as the kernel would refuse it.
    pub(super) fn is_living(&self, listener: u32) -> bool {
        let lives = |holder: &u32| {
            let program = self.programs.get(holder);
            program.is_some_and(|program| !packet::is_hung_up(&program.socket))
        };
        let known = self.listeners.get(&listener);
        known.is_some_and(|known| known.holders.iter().any(lives))
    }

    /// Passes a connection that one holder of a listener did not accept to another holder.
    pub(super) fn reoffer(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        self.note_news();
        let (link, slot) = (words[0], words[2]);
        let listener = self.held_listener(number, words[1])?;
        let known = self.listeners.get(&listener.number());
        let known = known.ok_or(Errno::NOENT)?;
        let slots = self.limits.slots as u64;
        let has_others =
            known.strangers > 0 || known.holders.iter().any(|holder| *holder != number);
        // Before an exec it is for the own next image, before a spawn for a program that is to come.
        if words[3] == 0 && !has_others {
            return Err(Refusal::Errno(Errno::NOENT));
        }
        if slot >= slots {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let passed = self.handed_over(number, listener, (link, words[4]), descriptors)?;
        let mut words = self.words_of_one(listener.number(), passed.words(), (slot, words[5]));
        words[9..12].copy_from_slice(&passed.from().to_words());
        let offered = passed.into_descriptors().into_iter();
        let offered: Vec<_> = offered.map(Rc::new).collect();
        self.offer(listener.number(), words, &offered)?;
        Ok(Answer::default())
    }

    /// The words of an offer of one connection, of a link that another program keeps: its slot, and the ring that its
    /// acceptor may use, or 0.
    pub(super) fn words_of_one(
        &self,
        listener: u32,
        (link, client, user): (u64, u32, u32),
        (slot, ring): (u64, u64),
    ) -> [u64; 14] {
        let layout = self.limits.layout();
        let [slots, arena] = [layout.slots, layout.arena].map(|size| size as u64);
        let [listener, client, user] = [listener, client, user].map(u64::from);
        let mut words = [0; 14];
        // The last but one of these marks a connection that is handed on, in contrast to a new link.
        words[..9].copy_from_slice(&[link, listener, slots, arena, 1, client, slot, 1, user]);
        words[12] = ring;
        words
    }

    /// Sends an offer into the accept channel of `listener`. A full channel is a full backlog, and so is the bound on
    /// descriptors in flight.
    pub(super) fn offer(
        &mut self,
        listener: u32,
        words: [u64; 14],
        descriptors: &[Rc<OwnedFd>],
    ) -> Result<(), Refusal> {
        let known = self
            .listeners
            .get_mut(&listener)
            .ok_or(Errno::CONNREFUSED)?;
        // Offers that nobody takes hold descriptors in flight, of which the kernel allows few.
        if known.has_messages(MOST_OFFERS) {
            return Err(Refusal::Errno(Errno::AGAIN));
        }
        let message = Message::new(Operation::Offer, 0, words);
        self.in_flight
            .send(&known.offers, known.user, &message, descriptors)
            .map_err(|_| Refusal::Errno(Errno::AGAIN))?;
        known.offered += 1;
        Ok(())
    }

    /// Whether `number` may make another link, which is charged to its user.
    pub(super) fn admit_link(&mut self, number: u32, listener: u32) -> Result<Ticket, Refusal> {
        let bytes = self.limits.layout().size() as u64;
        let affordable = self.limits.reserved_per_program / bytes;
        let most = usize::try_from(affordable)
            .unwrap_or(usize::MAX)
            .min(self.limits.links_per_program);
        let mine = |link: &&Link| link.client == number;
        let same = self
            .links
            .values()
            .filter(|link| mine(link) && link.listener == listener);
        // Servers that come and go at one listener leave unused links.
        let crowded = same.count() >= 8 || self.own_region(number)?.links.get() >= most;
        let region = self.own_region(number)?;
        region
            .requested_since_search
            .set(region.requested_since_search.get().saturating_add(1));
        if crowded && region.requested_since_search.get() >= LINKS_PER_SEARCH {
            region.requested_since_search.set(0);
            self.forget_unused(number)?;
        }
        if self.own_region(number)?.links.get() >= most {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        let user = self.program(number)?.user;
        self.admit_memory(user)?;
        let kept = 1 + usize::from(!self.stacks.is_empty());
        self.admit_descriptors(kept)?;
        let amounts = Amounts::of(Kind::Links, 1).and(Kind::Descriptors, kept);
        Ok(self.quotas.charge(user, amounts)?)
    }

    /// Drops the records of links that no socket of program `number` uses: links whose server has left, and the oldest
    /// ones. The others are kept, because a connection over them may be in transit, and only the record proves its
    /// origin when it is passed on.
    fn forget_unused(&mut self, number: u32) -> Result<(), Refusal> {
        let region = Rc::clone(self.own_region(number)?);
        let Some(mut named) = named_links(&region) else {
            return Ok(());
        };
        let mine = self.links.iter().filter(|(_, link)| link.client == number);
        let stays = mine.rev().filter(|(_, link)| !self.has_left(link));
        named.extend(stays.take(MOST_IN_USE).map(|(link, _)| *link));
        let unused: HashSet<u64> = self
            .links
            .iter()
            .filter(|(link, known)| known.client == number && !named.contains(link))
            .map(|(link, _)| *link)
            .collect();
        self.links.retain(|link, _| !unused.contains(link));
        let left = region.links.get().saturating_sub(unused.len());
        region.links.set(left);
        Ok(())
    }

    /// Whether the server's end has announced that it takes no more connections. A killed server announces nothing.
    fn has_left(&self, link: &Link) -> bool {
        let layout = self.limits.layout();
        let place = layout.job_queue() + offset_of!(QueueIndices, departure);
        let mut word = [0; 4];
        let read = Outside::admit(link.memory.as_raw_fd(), layout.size())
            .and_then(|memory| memory.read(place, &mut word));
        read.is_ok() && u32::from_ne_bytes(word) == departure::LEFT
    }

    /// A client has ended. Its connections may still wait in a queue, and who has accepted none of its connections gets the
    /// memory from this daemon only: of those links the newest are kept as long as the listener exists.
    pub(super) fn forget_links_of(&mut self, client: u32) {
        let mine = self.links.iter().filter(|(_, link)| link.client == client);
        let (kept, gone): (Vec<_>, Vec<_>) =
            mine.partition(|(_, link)| link.queued && self.acceptors(link.listener).is_some());
        let [kept, gone] = [kept, gone].map(|list| list.into_iter().map(|(link, _)| *link));
        let (kept, mut gone): (Vec<u64>, HashSet<u64>) = (kept.collect(), gone.collect());
        self.orphans.extend(kept);
        while self.orphans.len() > MOST_ORPHANS {
            gone.extend(self.orphans.pop_front());
        }
        self.links.retain(|link, _| !gone.contains(link));
    }

    pub(super) fn forget_orphans(&mut self, listener: u32) {
        let links = &mut self.links;
        self.orphans.retain(|orphan| {
            let stays = links
                .get(orphan)
                .is_some_and(|link| link.listener != listener);
            if !stays {
                links.remove(orphan);
            }
            stays
        });
    }

    pub(super) fn forget_links(&mut self, which: impl Fn(&Link) -> bool) {
        let programs = &self.programs;
        self.links.retain(|_, link| {
            let gone = which(link);
            let owner = programs
                .get(&link.client)
                .and_then(|one| one.region.as_ref());
            if let (true, Some(region)) = (gone, owner) {
                region.links.set(region.links.get().saturating_sub(1));
            }
            !gone
        });
    }
}

/// The limit of links whose clients have ended.
const MOST_ORPHANS: usize = 64;

/// The limit of links that a process uses to living servers of one listener, or a few processes of one program.
const MOST_IN_USE: usize = 64;
