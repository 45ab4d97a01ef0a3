//! A link, as the daemon knows it, and its two ends before they are handed out.

use crate::quota::Ticket;
use netchannel_abi::link::{Layout, Role};
use netchannel_abi::tenant::TenantAddresses;
use netchannel_service::link::Parts;
use netchannel_service::neighbour::Lease;
use netchannel_service::packet;
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A link that the daemon made. The programs' own mappings live on when the record is dropped.
#[derive(Debug)]
pub struct Link {
    /// The program that asked for it.
    pub client: u32,
    /// The user of that program.
    pub user: u32,
    /// The listener whose program got the other end.
    pub listener: u32,
    /// The addresses of that program's tenant, if it is another one.
    pub(super) from: TenantAddresses,
    /// The memory.
    pub memory: Rc<OwnedFd>,
    /// Its connections go through a queue.
    pub(super) queued: bool,
    /// The user of the programs that fetched the link to accept from a queue. No program of another user may fetch it.
    pub(super) joined: Cell<Option<u32>>,
    /// The charge to that user; `None` for the daemon's own links.
    pub(super) _ticket: Option<Ticket>,
    /// The other tenant knows of it, where it leads to one.
    pub(super) _lease: Option<Lease>,
}

impl Link {
    /// A link without a queue between programs of one tenant, or of the daemon itself.
    pub(super) fn new(client: u32, user: u32, listener: u32, memory: Rc<OwnedFd>) -> Self {
        Self {
            client,
            user,
            listener,
            from: TenantAddresses::default(),
            memory,
            queued: false,
            joined: Cell::default(),
            _ticket: None,
            _lease: None,
        }
    }
}

/// A new link.
pub(super) struct Made {
    pub number: u64,
    pub memory: Rc<OwnedFd>,
    pub client: End,
    pub server: End,
}

/// One end of a new link.
pub(super) struct End {
    pub number: u64,
    pub role: Role,
    pub layout: Layout,
    pub memory: Rc<OwnedFd>,
    pub channel: OwnedFd,
    pub anchors: Vec<OwnedFd>,
}

impl End {
    /// The number, slots, bytes of an arena and anchors, as in messages.
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

    /// The end in the form that a stack module takes, with the user whose program connects over it, if one does.
    pub fn parts(self, user: Option<u32>) -> Result<Parts, Errno> {
        let memory = duplicate(&self.memory)?;
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

/// Another number of a descriptor.
pub(super) fn duplicate(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    descriptor
        .try_clone()
        .map_err(|error| packet::errno(&error))
}
