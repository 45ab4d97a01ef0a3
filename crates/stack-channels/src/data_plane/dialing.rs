//! Connects of this host's programs to listeners of peers.

use super::commands::{Listed, Report};
use super::connection::Wanted;
use super::opening::{insert, settings, start};
use super::worker::ChannelWorker;
use netchannel_abi::link::Role;
use netchannel_scheduler::{Class, Source, classify};
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::StackRequest;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::stack::{OF_TENANT, Origin};
use netchannel_vns::VirtualSocket;
use rustix::io::Errno;
use std::sync::Arc;

impl ChannelWorker {
    /// A program connects to a listener of a peer.
    pub(super) fn dial(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let mut lane = Lane::accepted(&end, opened.loan).of_daemon();
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let origin = self.origins.get(&key);
        if origin.is_some() {
            lane.lead_to_module();
        }
        let known = match origin {
            Some(_) => self.dialer.at(&opened.server, &opened.client),
            None => self.dialer.get(opened.listener),
        };
        // The number may have belonged to another listener when the program looked it up.
        let meant = known.filter(|one| addresses::covers(&one.address, &opened.server));
        let Some(Listed { peer, theirs, .. }) = meant.cloned() else {
            return refuse(lane, Errno::CONNREFUSED);
        };
        if peer.is_down() {
            // Kernel TCP may reach the host. Existing connections wait for the next channel.
            return refuse(lane, Errno::CONNREFUSED);
        }
        let admitted = match origin {
            // Its own address, by which no other host takes it for a program of this host.
            Some(origin) => origin.has(&opened.client) && !peer.rules().is_own(&opened.client),
            None => self.dialer.admits(&peer, &opened.client, end.user()),
        };
        if !admitted {
            return refuse(lane, Errno::ADDRNOTAVAIL);
        }
        let declared = match classify(&lane.hints()) {
            (_, Source::Default) => None,
            (class, _) => Some(class),
        };
        let wanted = Wanted {
            client: opened.client,
            server: opened.server,
            listener: theirs,
            class: declared,
        };
        let mut settings = settings();
        settings.connect_timeout = peer.rules().connect.unwrap_or(settings.connect_timeout);
        let socket = VirtualSocket::active(settings, start(&lane), self.now);
        let made = insert(&peer, &end, wanted, (socket, lane), (0, None), self.now);
        if let Some(connection) = made {
            self.take_ownership(&connection, key, declared.unwrap_or(Class::Latency));
        }
    }

    /// A tenant's connections come over a link.
    pub(super) fn add_crossing(&mut self, mut parts: Parts, origin: Arc<Origin>) {
        let number = parts.number;
        parts.user = Some(OF_TENANT);
        let end = LinkEnd::new(parts, &origin.count).map(Arc::new);
        // Where it can not be had, the tenant's stack sees the end of its channel.
        if let Some(key) = end.and_then(|end| self.cells.add_link(end)) {
            self.keys.insert(number, key);
            self.origins.insert(key, origin);
        }
    }

    /// A link of this host is not used any more.
    pub(super) fn forget_link(&self, end: &LinkEnd) {
        if end.role() == Role::Client {
            self.report(Report::Request(StackRequest::Forget(end.number())));
        }
    }
}
