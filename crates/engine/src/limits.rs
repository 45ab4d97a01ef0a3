//! The limits of one program and of one user.

use netchannel_abi::{directory, link};

/// Quotas and sizes. The defaults suit a host with a few hundred programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Programs attached at once.
    pub programs: usize,
    /// Programs of one user attached at once.
    pub programs_per_user: usize,
    /// Connections to the attach socket that have not attached yet.
    pub half_open: usize,
    /// Those of one user.
    pub half_open_per_user: usize,
    /// Sockets in the region of a program.
    pub entries: u32,
    /// Listeners one program holds.
    pub listeners_per_program: usize,
    /// Listeners the programs of one user hold.
    pub listeners_per_user: usize,
    /// Links one program made.
    pub links_per_program: usize,
    /// Links the programs of one user made.
    pub links_per_user: usize,
    /// Slots of a link.
    pub slots: usize,
    /// Bytes of each arena of a link.
    pub arena: usize,
    /// Bytes of links and region that one program may occupy if it touches every page.
    pub reserved_per_program: u64,
    /// Bytes that regions and links of one user may occupy when another one is requested; 0 for half of the host's
    /// memory.
    pub memory_per_user: u64,
    /// Descriptors that may be open for programs; 0 for as many as the process may open.
    pub descriptors: usize,
    /// Deposits.
    pub deposits: usize,
    /// Deposits of one user.
    pub deposits_per_user: usize,
    /// Descriptors sent to programs of one user that they have not read.
    pub in_flight_per_user: usize,
    /// Ephemeral ports one program holds.
    pub ports_per_program: usize,
    /// Ephemeral ports the programs of one user hold.
    pub ports_per_user: usize,
    /// Ports that one program has bound in the kernel and shown.
    pub claims_per_program: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            programs: 4096,
            programs_per_user: 2048,
            half_open: 256,
            half_open_per_user: 64,
            entries: 65536,
            listeners_per_program: 1024,
            listeners_per_user: 2048,
            links_per_program: 1024,
            links_per_user: 16384,
            slots: link::MOST_SLOTS,
            arena: 256 << 20,
            reserved_per_program: 1 << 40,
            memory_per_user: 0,
            descriptors: 0,
            deposits: 16384,
            deposits_per_user: 4096,
            in_flight_per_user: 65536,
            ports_per_program: 16384,
            ports_per_user: 32768,
            claims_per_program: 1024,
        }
    }
}

impl Limits {
    /// The layout of every link this daemon makes.
    #[must_use]
    pub const fn layout(&self) -> link::Layout {
        link::Layout {
            slots: self.slots,
            arena: self.arena,
        }
    }
}

/// Listeners that fit into the directory. Its table is kept at most half full.
pub const MOST_LISTENERS: usize = directory::ENTRIES / 2;
/// Offers that may wait on one accept channel: from programs that connect at the same moment to a listener that does
/// not accept.
pub const MOST_OFFERS: u64 = 128;
/// Most messages in an accept channel beside which another one still wakes an acceptor.
pub const MOST_LOOKS: u64 = 4;
/// Descriptors that the daemon keeps free, so that it can always answer and pass on.
pub const DESCRIPTOR_RESERVE: usize = 128;
/// Anchors sent along with a new link.
pub const FIRST_ANCHORS: usize = 16;
/// Links that are requested between two searches of a region for unused links.
pub const LINKS_PER_SEARCH: usize = 8;
