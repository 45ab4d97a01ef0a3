//! A new link, before its two ends go their ways.

use super::{CoreEngine, Refusal};
use crate::relay::Parts;
use crate::{memory, packet};
use netchannel_abi::link::{Layout, Role};
use rustix::net::SocketType;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A new link.
pub(super) struct Made {
    pub number: u64,
    pub memory: Rc<OwnedFd>,
    pub client: End,
    pub server: End,
}

/// One end of a new link.
pub(super) struct End {
    number: u64,
    role: Role,
    layout: Layout,
    memory: Rc<OwnedFd>,
    pub channel: OwnedFd,
    anchors: Vec<OwnedFd>,
}

impl End {
    /// Number, slots, bytes of an arena, anchors: as messages tell them.
    pub fn words(&self) -> [u64; 4] {
        let sizes = [self.layout.slots, self.layout.arena, self.anchors.len()];
        let [slots, arena, anchors] = sizes.map(|size| size as u64);
        [self.number, slots, arena, anchors]
    }

    /// The descriptors for a program: memory, channel, anchors.
    pub fn all(self) -> Vec<Rc<OwnedFd>> {
        let mut all = vec![self.memory, Rc::new(self.channel)];
        all.extend(self.anchors.into_iter().map(Rc::new));
        all
    }

    /// The end as the relay takes it, and the user whose program connects over it, if one does.
    pub fn parts(self, user: Option<u32>) -> Result<Parts, Refusal> {
        let memory = self
            .memory
            .try_clone()
            .map_err(|error| packet::errno(&error))?;
        Ok(Parts {
            number: self.number,
            role: self.role,
            layout: self.layout,
            memory,
            channel: self.channel,
            anchors: self.anchors,
            user,
        })
    }
}

impl CoreEngine {
    /// Makes a link with so many anchors.
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
}
