//! Tenants that trust one another: their programs have links as programs of one tenant do. What each tenant shows of itself are listeners that
//! one program holds; who connects from another tenant is known to be of the same user and to come from that tenant's addresses.
//!
//! ```text
//!  listeners of this tenant --show--> own Neighbour        entries of the directory <--look-- Neighbours of the others
//!                                                            program connects --offer--> accept channel of the other
//! ```

use super::link::{Link, Made, duplicate};
use super::listener::Listener;
use super::state::{Answer, CoreEngine, Refusal};
use super::trusted::Entry;
use crate::directory::Row;
use crate::limits::{FIRST_ANCHORS, MOST_OFFERS};
use crate::quota::{Amounts, Kind, Ticket};
use netchannel_abi::address::{Address, INET};
use netchannel_abi::directory::entry_flags;
use netchannel_abi::message::{Message, Operation};
use netchannel_abi::tenant::TenantAddresses;
use netchannel_service::addresses;
use netchannel_service::neighbour::{Neighbour, NewLink, News, Offers, OpenListener, Trusted};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A program of another tenant: none that this daemon's numbers name.
const STRANGER: u32 = 0;

impl CoreEngine {
    /// These tenants trust this one, and are trusted. It shows its listeners by `own`.
    pub fn trust(&mut self, own: Arc<Neighbour>, others: Vec<Trusted>) {
        let all = others.iter().flat_map(|other| &other.addresses);
        let bits = |address: &Address| if address.family == INET { 32 } else { 128 };
        let networks = all.map(|address| (*address, bits(address), true));
        self.directory.set_networks(networks.collect());
        let neighbours = &mut self.neighbours;
        neighbours.own = Some(own);
        neighbours.others = others;
        neighbours.changed = true;
        self.look_at_neighbours();
    }

    /// Another tenant has other listeners, or a link to one of this tenant's was made or given up.
    pub fn look_at_neighbours(&mut self) {
        self.note_news();
        let mut present: Vec<Entry> = Vec::new();
        for tenant in &self.neighbours.others {
            for (listener, open) in tenant.shows.listeners() {
                let at = |address: &&Address| is_at(&open, address);
                let entry = |address: &Address| Entry {
                    tenant: tenant.clone(),
                    listener,
                    address: Address {
                        port: open.address.port,
                        ..*address
                    },
                    open: open.clone(),
                };
                present.extend(tenant.addresses.iter().filter(at).map(entry));
            }
        }
        let known = &self.neighbours.entries;
        let is_there = |one: &Entry| present.iter().any(|other| other.is_same(one));
        let gone = known.iter().filter(|(_, one)| !is_there(one));
        let gone: Vec<u32> = gone.map(|(number, _)| *number).collect();
        for number in gone {
            self.neighbours.entries.remove(&number);
            self.directory.remove(number);
            self.forget_links(|link| link.listener == number);
        }
        for entry in present {
            let mut known = self.neighbours.entries.values();
            if known.any(|one| one.is_same(&entry)) {
                continue;
            }
            let number = self.next_listener();
            let row = Row {
                listener: number,
                flags: entry_flags::NEIGHBOUR | entry.open.defers << entry_flags::DEFERS_SHIFT,
                address: entry.address,
                program: STRANGER,
                queue: 0,
                queue_user: entry.open.user,
            };
            // Without an entry the tenant's stack leads there.
            if self.directory.insert(row).is_ok() {
                self.neighbours.entries.insert(number, entry);
            }
        }
    }

    /// Shows the listeners of this tenant, if they have changed.
    pub(super) fn show_listeners(&mut self) {
        if !std::mem::take(&mut self.neighbours.changed) {
            return;
        }
        let Some(own) = self.neighbours.own.clone() else {
            return;
        };
        let mut shown = BTreeMap::new();
        if !self.neighbours.others.is_empty() {
            let listeners: Vec<u32> = self.listeners.keys().copied().collect();
            for number in listeners {
                if let Some(open) = self.open(number) {
                    shown.insert(number, open);
                }
            }
        }
        let channels = &mut self.neighbours.channels;
        channels.retain(|number, _| shown.contains_key(number));
        own.show(shown);
    }

    /// A listener as others see it, if they may see it.
    fn open(&mut self, number: u32) -> Option<OpenListener> {
        let user = self.user_of_all(number)?;
        let known = self.listeners.get(&number)?;
        // Several processes, or a child to come, accept from a queue, of which a program of another tenant can have no part.
        let is_shared = known.mode().shared || known.queue.name != 0;
        if is_shared || known.address.is_loopback() {
            return None;
        }
        let channel = match self.neighbours.channels.get(&number) {
            Some((channel, _)) => Arc::clone(channel),
            None => {
                let (channel, ticket) = self.share_channel(known, user).ok()?;
                let channel = Arc::new(channel);
                let kept = (Arc::clone(&channel), ticket);
                self.neighbours.channels.insert(number, kept);
                channel
            }
        };
        let known = self.listeners.get(&number)?;
        Some(OpenListener {
            address: known.address,
            v6_only: known.v6_only,
            defers: known.defers,
            user,
            channel,
        })
    }

    fn share_channel(&self, known: &Listener, user: u32) -> Result<(Offers, Ticket), Refusal> {
        self.admit_descriptors(2)?;
        let ticket = self
            .quotas
            .charge(user, Amounts::of(Kind::Descriptors, 2))?;
        let channel = Offers {
            offers: duplicate(&known.offers)?,
            accepts: duplicate(&known.accepts)?,
        };
        Ok((channel, ticket))
    }

    /// A program connects to a listener of another tenant: it gets a link to the program that holds it, as within a tenant.
    pub(super) fn connect_neighbour(
        &mut self,
        number: u32,
        words: &[u64; 14],
        entry: &Entry,
    ) -> Result<Answer, Refusal> {
        let meant = Address::from_words([words[1], words[2], words[3]]).unmapped();
        let (there, tenant) = (&entry.address, &entry.tenant);
        let is_there = (meant.bytes, meant.port) == (there.bytes, there.port);
        if meant.family != 0 && !is_there {
            return Err(Refusal::Errno(Errno::CONNREFUSED));
        }
        let user = self.program(number)?.user;
        let shown = tenant.shows.listener(entry.listener);
        let open = shown.ok_or(Errno::CONNREFUSED)?;
        // Where these refuse, the tenant's stack leads the connection.
        if open.user != user || words[4] != 0 {
            return Err(Refusal::Errno(Errno::PERM));
        }
        if open.channel.has(MOST_OFFERS) {
            return Err(Refusal::Errno(Errno::AGAIN));
        }
        let own_number = u32::try_from(words[0]).unwrap_or(0);
        let ticket = self.admit_link(number, own_number)?;
        let Made {
            number: link,
            memory,
            client,
            server,
        } = self.make_link(FIRST_ANCHORS)?;
        let from = TenantAddresses::of(self.directory.locals());
        // Before the offer: who accepts may hand the connection on, and its daemon has to know the link.
        let lease = tenant.shows.lead(NewLink {
            number: link,
            user,
            from,
            listener: entry.listener,
            memory: duplicate(&memory)?,
        });
        let mut offered = [0; 14];
        let [_, slots, arena, anchors] = server.words();
        let listening = u64::from(entry.listener);
        offered[..6].copy_from_slice(&[link, listening, slots, arena, anchors, STRANGER.into()]);
        offered[8] = u64::from(user);
        offered[9..12].copy_from_slice(&from.to_words());
        let offer = Message::new(Operation::Offer, 0, offered);
        let offers = Rc::new(duplicate(&open.channel.offers)?);
        self.in_flight
            .send(&offers, user, &offer, &server.all())
            .map_err(|_| Errno::AGAIN)?;
        let mut answer = Answer::default();
        answer.words[..4].copy_from_slice(&client.words());
        answer.words[4] = u64::from(user);
        let to = TenantAddresses::of(&tenant.addresses);
        answer.words[5..8].copy_from_slice(&to.to_words());
        answer.descriptors = client.all();
        let made = Link {
            _ticket: Some(ticket),
            _lease: Some(lease),
            ..Link::new(number, user, own_number, memory)
        };
        self.note_link_of_client(link, made)?;
        Ok(answer)
    }

    /// Links that programs of other tenants have to listeners of this one: whoever hands on a connection of one proves it by the memory.
    pub(super) fn note_news(&mut self) {
        let news = self.neighbours.own.as_ref().map(|own| own.news());
        for one in news.into_iter().flatten() {
            match one {
                News::Made(link) => self.note_neighbours_link(link),
                News::Gone(number) => {
                    let known = self.links.get(&number);
                    if known.is_some_and(|known| known.client == STRANGER) {
                        self.links.remove(&number);
                    }
                }
            }
        }
    }

    fn note_neighbours_link(&mut self, link: NewLink) {
        let is_known = self.links.contains_key(&link.number);
        // Without a record its connections are accepted, and not handed on.
        let Ok(ticket) = self.admit_own_link() else {
            return;
        };
        if is_known || !self.listeners.contains_key(&link.listener) {
            return;
        }
        let noted = Link {
            from: link.from,
            _ticket: Some(ticket),
            ..Link::new(STRANGER, link.user, link.listener, Rc::new(link.memory))
        };
        self.note_link(link.number, noted);
    }
}

/// Whether a listener takes connections to one of its tenant's addresses.
fn is_at(open: &OpenListener, address: &Address) -> bool {
    let wanted = Address {
        port: open.address.port,
        ..*address
    };
    addresses::covers(&open.address, &wanted) && !(open.v6_only && wanted.family == INET)
}
