//! Links of this host at the first worker, and the connects of its programs to remote listeners.

use super::commands::{Listed, Report};
use super::connection::{Peer, Wanted};
use super::front::{FORMER, MOST_FORMER};
use super::opening::{insert, settings, start};
use super::shared::{FIRST_WORKER, Letter};
use super::worker::Worker;
use netchannel_abi::link::Role;
use netchannel_scheduler::{Class, Source, classify};
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::{Ask, Command};
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_vns::VirtualSocket;
use rustix::io::Errno;
use std::sync::Arc;

impl Worker {
    /// CoreEngine tells something about links of this host.
    pub(super) fn on_relay(&mut self, command: Command) {
        match command {
            Command::Serve(parts) => {
                self.add_link(parts);
            }
            Command::Link(listener, answer) => self.on_link(listener, answer),
            Command::Float(listener, answer) => self.on_float(listener, answer),
            Command::Offered(ticket, answer) => self.on_offered(ticket, answer),
            Command::Moved { from, to } => self.on_moved(from, to),
            Command::Manner(listener, manner) => {
                if let Some(front) = &mut self.front {
                    front.targets.set_manner(listener, manner);
                }
            }
            Command::Gone(listener) => self.on_gone(listener),
            Command::Stop => {}
        }
    }

    /// Takes a link of this host up.
    pub(super) fn add_link(&mut self, parts: Parts) -> Option<Key> {
        let number = parts.number;
        let count = &self.front.as_ref()?.count;
        let end = Arc::new(LinkEnd::new(parts, count)?);
        let key = self.cells.add_link(end)?;
        self.keys.insert(number, key);
        Some(key)
    }

    /// A listener of a peer has a number here.
    pub(super) fn add_listener(&mut self, number: u32, listed: Listed) {
        if let Some(front) = &mut self.front {
            front.listeners.insert(number, listed);
        }
    }

    /// It is gone, or its host is out of reach. Who connects to it as it was seen a moment ago asks its host, perhaps over the next
    /// channel: a refusal is for that to say.
    pub(super) fn remove_listener(&mut self, number: u32) {
        let now = self.now;
        let Some(front) = &mut self.front else { return };
        front.former.push_back((now, number));
        while let Some((since, number)) = front.former.front().copied() {
            if now.saturating_sub(since) < FORMER && front.former.len() <= MOST_FORMER {
                break;
            }
            front.listeners.remove(&number);
            front.former.pop_front();
        }
    }

    /// A peer is no more.
    pub(super) fn forget_peer(&mut self, peer: &Arc<Peer>) {
        if let Some(front) = &mut self.front {
            front
                .listeners
                .retain(|_, one| !Arc::ptr_eq(&one.peer, peer));
        }
    }

    /// A program connects to a remote listener.
    pub(super) fn on_opened(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let lane = Lane::accepted(&end, opened.loan).of_daemon();
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let Some(front) = &self.front else { return };
        let known = front.listeners.get(&opened.listener);
        // The program may mean a number that another listener had.
        let meant = known.filter(|one| addresses::covers(&one.address, &opened.server));
        let Some(Listed { peer, theirs, .. }) = meant.cloned() else {
            return refuse(lane, Errno::CONNREFUSED);
        };
        if peer.is_down() {
            // The kernel may reach it, and connections that are there wait for the next channel.
            return refuse(lane, Errno::CONNREFUSED);
        }
        if !front.admits(&peer, &opened.client, end.user()) {
            return refuse(lane, Errno::ADDRNOTAVAIL);
        }
        let said = match classify(&lane.hints()) {
            (_, Source::Default) => None,
            (class, _) => Some(class),
        };
        let wanted = Wanted {
            client: opened.client,
            server: opened.server,
            listener: theirs,
            class: said,
        };
        let mut settings = settings();
        settings.connect_timeout = peer.rules().connect.unwrap_or(settings.connect_timeout);
        let socket = VirtualSocket::active(settings, start(&lane), self.now);
        let made = insert(&peer, &end, wanted, (socket, lane), (0, None), self.now);
        if let Some(connection) = made {
            self.take_ownership(&connection, key, said.unwrap_or(Class::Latency));
        }
    }

    /// The program of a link has ended.
    pub(super) fn on_link_ended(&mut self, key: Key) {
        let Some(end) = self.cells.link(key) else {
            return;
        };
        end.fail();
        if let (Some(front), Role::Client) = (&mut self.front, end.role()) {
            front.targets.forget_link(key);
        }
        self.retire(key);
    }

    /// No new connection comes over a link. It goes with its last connection.
    pub(super) fn retire(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        end.retire();
        if self.index == FIRST_WORKER {
            self.cells.silence(key);
            self.tell_others(|| Letter::LinkEnded(end.number()));
        }
        self.let_go(key);
    }

    /// A link of this host is not used any more.
    pub(super) fn forget_link(&self, end: &LinkEnd) {
        if end.role() == Role::Client {
            self.report(Report::Ask(Ask::Forget(end.number())));
        }
    }
}
