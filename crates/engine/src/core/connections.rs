//! Links between two programs: made on request, offered to whoever accepts.

use super::links::{End, Made};
use super::{Answer, CoreEngine, Refusal};
use crate::limits::{FIRST_ANCHORS, MOST_OFFERS};
use crate::relay::Command;
use crate::{memory, packet};
use netchannel_abi::address::Address;
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::program::{ENTRIES_OFFSET, Header, SocketEntry, State};
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A link that the daemon made. The programs' own mappings live on whatever becomes of it.
#[derive(Debug)]
pub struct Link {
    /// Program that asked for it.
    pub client: u32,
    /// Listener whose program got the other end.
    pub listener: u32,
    /// The memory.
    pub memory: Rc<OwnedFd>,
}

impl CoreEngine {
    pub(super) fn connect(&mut self, number: u32, words: &[u64; 14]) -> Result<Answer, Refusal> {
        let remote = u32::try_from(words[0]).ok();
        let remote = remote.and_then(|remote| self.remotes.get(&remote).copied());
        if let Some(listens) = remote {
            return self.connect_remote(number, words, &listens);
        }
        let listener = self
            .listener_word(words[0])
            .map_err(|_| Refusal::Errno(Errno::CONNREFUSED))?;
        self.admit_destination(listener, words)?;
        self.admit_living(listener)?;
        self.admit_link(number, listener)?;
        self.admit_descriptors(1)?;
        let made = self.make_link(FIRST_ANCHORS)?;
        let memory = Rc::clone(&made.memory);
        let mut answer = Answer::default();
        answer.words[..4].copy_from_slice(&made.client.words());
        let Made {
            number: link,
            client,
            server,
            ..
        } = made;
        match &self.relay {
            Some(relay) => relay.tell(Command::Serve(server.parts()?)),
            None => self.offer_link(listener, number, server)?,
        }
        answer.descriptors = client.all();
        // A link to the relay leads to more than one listener.
        let listener = if self.relay.is_some() { 0 } else { listener };
        self.note_link(link, number, listener, memory);
        let estate = self.estate(number)?;
        estate.links.set(estate.links.get() + 1);
        Ok(answer)
    }

    pub(super) fn note_link(
        &mut self,
        number: u64,
        client: u32,
        listener: u32,
        memory: Rc<OwnedFd>,
    ) {
        let link = Link {
            client,
            listener,
            memory,
        };
        self.links.insert(number, link);
    }

    /// Offers the server's end of a link that `client` has to whoever accepts.
    pub(super) fn offer_link(
        &mut self,
        listener: u32,
        client: u32,
        server: End,
    ) -> Result<(), Refusal> {
        let [link, slots, arena, anchors] = server.words();
        let mut words = [0; 14];
        let (listening, client) = (u64::from(listener), u64::from(client));
        words[..6].copy_from_slice(&[link, listening, slots, arena, anchors, client]);
        self.offer(listener, words, &server.all())
    }

    /// A program that knew another daemon has its numbers: the listener must be at the destination
    /// that was meant. Words without a family name none.
    pub(super) fn admit_destination(
        &self,
        listener: u32,
        words: &[u64; 14],
    ) -> Result<(), Refusal> {
        let meant = Address::from_words([words[1], words[2], words[3]]).unmapped();
        let known = self.listeners.get(&listener).ok_or(Errno::CONNREFUSED)?;
        if meant.family == 0 || known.is_at(&meant) {
            Ok(())
        } else {
            Err(Refusal::Errno(Errno::CONNREFUSED))
        }
    }

    /// Of a holder that was killed the news may still wait among the events: its listener is refused
    /// as the kernel would refuse it.
    pub(super) fn admit_living(&self, listener: u32) -> Result<(), Refusal> {
        let known = self.listeners.get(&listener).ok_or(Errno::CONNREFUSED)?;
        let lives = |holder: &u32| {
            let program = self.programs.get(holder);
            program.is_some_and(|program| !packet::is_hung_up(&program.socket))
        };
        if known.holders.iter().any(lives) {
            Ok(())
        } else {
            Err(Refusal::Errno(Errno::CONNREFUSED))
        }
    }

    /// A connection that one holder of a listener did not accept goes to another.
    pub(super) fn reoffer(
        &mut self,
        number: u32,
        words: &[u64; 14],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let (link, slot) = (words[0], words[2]);
        let listener = self.listener_word(words[1])?;
        let holders = &self.listeners.get(&listener).ok_or(Errno::NOENT)?.holders;
        let slots = self.limits.slots as u64;
        // Before an exec the program hands it to its own next image.
        if words[3] == 0 && !holders.iter().any(|holder| *holder != number) {
            return Err(Refusal::Errno(Errno::NOENT));
        }
        if slot >= slots {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        if !self.is_connection(link, &descriptors) {
            return Err(Refusal::Fault("a Reoffer without a connection"));
        }
        let client = self.links.get(&link).map_or(0, |known| known.client);
        let words = self.words_of_one(listener, link, client, slot);
        let offered: Vec<_> = descriptors.into_iter().map(Rc::new).collect();
        self.offer(listener, words, &offered)?;
        Ok(Answer::default())
    }

    /// An offer of one connection of a link that another keeps.
    pub(super) fn words_of_one(
        &self,
        listener: u32,
        link: u64,
        client: u32,
        slot: u64,
    ) -> [u64; 14] {
        let layout = self.limits.layout();
        let [slots, arena] = [layout.slots, layout.arena].map(|size| size as u64);
        let (listener, client) = (u64::from(listener), u64::from(client));
        let mut words = [0; 14];
        // The last word: a connection is handed on, this is no new link.
        words[..8].copy_from_slice(&[link, listener, slots, arena, 1, client, slot, 1]);
        words
    }

    /// Whether `descriptors` are a link, a link channel and an anchor: nothing else is passed on,
    /// least of all what would keep a program alive that is gone.
    fn is_connection(&self, link: u64, descriptors: &[OwnedFd]) -> bool {
        use rustix::net::sockopt::{socket_domain, socket_type};
        let [memory, channel, anchor] = descriptors else {
            return false;
        };
        let kind = |socket: &OwnedFd| {
            let local = socket_domain(socket) == Ok(AddressFamily::UNIX);
            local.then(|| socket_type(socket).ok()).flatten()
        };
        let size = u64::try_from(self.limits.layout().size()).unwrap_or(0);
        let known = self.links.get(&link).map(|known| &known.memory);
        kind(channel) == Some(SocketType::SEQPACKET)
            && kind(anchor) == Some(SocketType::STREAM)
            && memory::is_sealed(memory, size)
            && known.is_none_or(|known| memory::is_same(memory, known))
    }

    /// Puts an offer into the accept channel of `listener`. A full channel is a full backlog, and
    /// so is the kernel's bound on descriptors in flight.
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
        // Offers nobody takes hold descriptors in flight, of which the kernel grants few.
        let waiting = rustix::io::ioctl_fionread(&*known.accepts).unwrap_or(0);
        if waiting >= MOST_OFFERS * MESSAGE_BYTES as u64 {
            return Err(Refusal::Errno(Errno::AGAIN));
        }
        let message = Message::new(Operation::Offer, 0, words);
        packet::send(&known.offers, &message, descriptors)
            .map_err(|_| Refusal::Errno(Errno::AGAIN))?;
        known.offered += 1;
        Ok(())
    }

    /// Whether `number` may make one more link.
    pub(super) fn admit_link(&mut self, number: u32, listener: u32) -> Result<(), Refusal> {
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
        // Servers that come and go behind one listener leave links that nobody uses any more.
        if same.count() >= 8 || self.estate(number)?.links.get() >= most {
            self.forget_unused(number)?;
        }
        if self.estate(number)?.links.get() >= most {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        Ok(())
    }

    /// Drops the records of links that no socket of program `number` uses, but for the newest.
    fn forget_unused(&mut self, number: u32) -> Result<(), Refusal> {
        let estate = Rc::clone(self.estate(number)?);
        let raw = estate.region.as_raw_fd();
        let region = Region::map(raw, estate.size, Access::ReadOnly).map_err(memory::errno)?;
        let header: &Header = region.at(0).ok_or(Errno::INVAL)?;
        let used = header
            .high_water
            .load(Ordering::Relaxed)
            .min(estate.entries);
        let mut named = HashSet::new();
        for index in 0..usize::try_from(used).unwrap_or(0) {
            let offset = ENTRIES_OFFSET + index * size_of::<SocketEntry>();
            let Some(entry) = region.at::<SocketEntry>(offset) else {
                break;
            };
            if entry.state.load(Ordering::Relaxed) == State::Virtual as u32 {
                named.insert(entry.link.load(Ordering::Relaxed));
            }
        }
        let mine = self.links.iter().filter(|(_, link)| link.client == number);
        named.extend(mine.map(|(link, _)| *link).next_back());
        let unused: HashSet<u64> = self
            .links
            .iter()
            .filter(|(link, known)| known.client == number && !named.contains(link))
            .map(|(link, _)| *link)
            .collect();
        self.links.retain(|link, _| !unused.contains(link));
        let left = estate.links.get().saturating_sub(unused.len());
        estate.links.set(left);
        Ok(())
    }

    pub(super) fn forget_links(&mut self, which: impl Fn(&Link) -> bool) {
        let programs = &self.programs;
        self.links.retain(|_, link| {
            let gone = which(link);
            let owner = programs
                .get(&link.client)
                .and_then(|one| one.estate.as_ref());
            if let (true, Some(estate)) = (gone, owner) {
                estate.links.set(estate.links.get().saturating_sub(1));
            }
            !gone
        });
    }
}
