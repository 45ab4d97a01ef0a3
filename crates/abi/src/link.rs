//! The link: one sealed memfd that two programs on a host share, made by the daemon.
//!
//! ```text
//!  0        header                       (i)
//!  2048     answer       of a stack      (d)
//!  4096     job queue     client->server (c) tail, entries; (s) head
//!  ....     cells of the client          who of its event loops sleeps, and what is ready
//!  ....     cells of the server
//!  ....     slots                        one per virtual socket
//!  ....     small rings                  two of 2 KiB per slot, side by side in one page
//!  ....     client arena                 larger rings that the client writes
//!  ....     server arena                 larger rings that the server writes
//! ```
//!
//! The file is sparse: a page costs memory only once it is touched, so that a link between two
//! programs with one connection costs a handful of pages while 16,384 connections fit in one link.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::address::SharedAddress;

/// First word of a link.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NCLINK01");
/// Elements in the job queue; a power of two.
pub const QUEUE_CAPACITY: usize = 1024;
/// Event loops of one side that can be woken collectively on one link.
pub const CELLS: usize = 16;
/// Bytes of the ring with which every direction of a connection starts; a power of two.
pub const SMALL_RING: usize = 2048;
/// Log2 of [`SMALL_RING`].
pub const SMALL_RING_LOG2: u32 = 11;
/// Log2 of the smallest ring in an arena.
pub const LEAST_RING_LOG2: u32 = 14;
/// Log2 of the largest ring in an arena.
pub const MOST_RING_LOG2: u32 = 22;
/// Most slots a link can have; the ready map of a [`Cell`] has a bit for each.
pub const MOST_SLOTS: usize = 16384;
const PAGE: usize = 4096;

/// The header of a link. (i) all.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// Slots in this link.
    pub slots: AtomicU32,
    /// [`crate::LAYOUT_HASH`].
    pub layout_hash: AtomicU64,
    /// Bytes of each arena.
    pub arena: AtomicU64,
    /// The daemon's number for this link.
    pub link: AtomicU64,
}

/// Values of [`QueueIndices::asleep`].
pub mod asleep {
    /// The consumer is awake, and may be busy for long.
    pub const AWAKE: u32 = 0;
    /// The consumer sleeps: a producer takes this away and writes one byte on the link channel.
    pub const SLEEPS: u32 = 1;
    /// The consumer is awake in an event loop, and looks again soon.
    pub const LOOPS: u32 = 2;
    /// As [`SLEEPS`], in an event loop that accepts soon after it was woken.
    pub const RESTS: u32 = 3;
    /// How long after its last look a loop is expected to look again soon, by the processor's counter: about a
    /// millisecond.
    pub const LOOKS_AGAIN: u64 = 2_500_000;
}

const _: () = assert!(size_of::<QueueIndices>() == 256);

/// Both index words of the queue, each on cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct QueueIndices {
    /// Elements pushed so far; the producer writes.
    pub tail: AtomicU64,
    _gap: [u64; 15],
    /// Elements popped so far; the consumer writes.
    pub head: AtomicU64,
    /// (b) [`asleep`]: whether and how the consumer is notified of a new element.
    pub asleep: AtomicU32,
    /// (b) Whether the consumer leaves: 0 it stays, 1 it looks once more, 2 it has left, 3 a producer has found 1 and
    /// counts on another look.
    pub departure: AtomicU32,
    /// When a consumer in a loop last looked, by the processor's counter. Where several processes hold the listener,
    /// clients do not wait for one that has not looked for a while. The consumer writes.
    pub looked: AtomicU64,
    _tail_gap: [u32; 26],
}

/// Bytes of the queue: its indices, then its elements.
pub const QUEUE_BYTES: usize =
    (size_of::<QueueIndices>() + QUEUE_CAPACITY * 32).next_multiple_of(PAGE);

/// The words of one side of one connection, on cache lines that only it writes, and its waiter word.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Side {
    /// (o) Bytes written into its transmit ring so far: the stream's sequence.
    pub tail: AtomicU64,
    /// (o) Bytes read from the peer's ring so far.
    pub head: AtomicU64,
    /// (o) Its transmit ring, see [`Geometry`], from `switch_sequence` on.
    pub geometry: AtomicU64,
    /// (o) First sequence that lies in `geometry`; earlier bytes lie in the former ring. Changed only when the peer has
    /// read beyond the last change.
    pub switch_sequence: AtomicU64,
    /// (o) [`side_flags`].
    pub flags: AtomicU32,
    /// (o) Generation of the connection that the words above belong to.
    pub generation: AtomicU32,
    /// (o) Tokens it has written to the anchor in this generation.
    pub tokens: AtomicU32,
    /// (s) only: with RESET before ESTABLISHED, the errno with which the connect fails; 0 for none.
    pub error: AtomicU32,
    /// (o) From where on bytes before `tail` are held back, and until when; 0 where none are. Stored before their
    /// `tail`.
    pub held: AtomicU64,
    /// (o) Sequence behind the last byte that it has sent as urgent, 0 for none. Stored before the `tail` that shows
    /// the byte.
    pub urgent: AtomicU64,
    /// (b) The sleepers of this side that the peer must wake: the owner sets bits, the peer takes them. See [`waiter`].
    pub waiter: AtomicU32,
    /// (o) The class that its program gives the connection, a [`crate::class::Hints`] word. Set after the generation
    /// and changed at any time: a process that sends for the program reads it now and then.
    pub hints: AtomicU32,
    /// (o) Sequence before which the peer reads nothing more: urgent bytes right before which it stood when the next
    /// one was sent. Stored before the `urgent` of that one.
    pub passed: AtomicU64,
    /// (o) Log2 of the size that it wants the peer's transmit ring to have: all bytes that fit into the present one are
    /// in flight to another host. 0 for none. The peer reads it when its ring is full.
    pub wanted_ring: AtomicU32,
    /// (o) Lower half of the sequence of the first of the urgent bytes that follow one another up to the last one, each
    /// sent by itself: for the daemon, which passes them on. Stored before the `urgent` of the last one.
    pub row: AtomicU32,
    /// (o) When its program counts the connection as lost, a [`crate::liveness::Liveness`] word. Set as `hints`.
    pub liveness: AtomicU64,
    /// (o) Changed when the peer shall look at `liveness` and `congestion` again, or is asked about its own socket: see
    /// [`crate::answer`]. 0 where nothing was said yet.
    pub asked: AtomicU32,
    _asked_gap: u32,
    /// (o) The name of the congestion control that its program has chosen, 0 for none. Stored before `asked`.
    pub congestion: [AtomicU64; 2],
    _congestion_gap: [u32; 2],
}

/// Bits of [`Side::flags`].
pub mod side_flags {
    /// No byte follows `tail`.
    pub const FIN: u32 = 1;
    /// The side no longer holds the connection: bytes sent to it meet a reset.
    pub const CLOSED: u32 = 2;
    /// The connection was reset: the peer's reads fail, unread bytes are void.
    pub const RESET: u32 = 4;
    /// (s) only: the program has accepted it.
    pub const ACCEPTED: u32 = 8;
    /// The side has reset its words and put its end of the anchor into its pool.
    pub const RELEASED: u32 = 16;
    /// The side has closed its end of the anchor: the slot needs a new pair.
    pub const ANCHOR_GONE: u32 = 32;
    /// `SO_LINGER` of zero: if the side ends silently, the connection counts as reset.
    pub const ABORTS: u32 = 64;
    /// The side takes no more tokens from its anchor: a hang-up at the peer's end means nothing.
    pub const ANCHOR_SHUT: u32 = 128;
    /// (s) only, on links to the daemon: the other host has accepted the connection. Until then the client waits.
    pub const ESTABLISHED: u32 = 256;
    /// The program reads no more.
    pub const SHUT_READ: u32 = 512;
    /// `SO_OOBINLINE`: urgent bytes are read in line.
    pub const URGENT_INLINE: u32 = 1024;
    /// A process is to be signalled for urgent bytes: they bring an urgent token, for which the kernel raises the
    /// signal.
    pub const URGENT_SIGNALS: u32 = 2048;
    /// The side has a socket of its own, and answers what is asked of it: see [`crate::answer`].
    pub const ANSWERS: u32 = 4096;
    /// (s) only, on links of a tenant to its stack: the connection goes over channels to another host. It is shown, and means nothing else.
    pub const OVER_CHANNELS: u32 = 8192;
    /// The program waits for the low-water mark of its bytes: a writer that finds no room wakes it with fewer.
    pub const LOW_WATER: u32 = 16384;
    /// It neither sends nor reads any more: bytes sent to it meet a reset.
    pub const BOTH_SHUT: u32 = FIN | SHUT_READ;
    /// What a server that was killed before it accepted the connection has not said.
    pub const SAID_BY_ACCEPTOR: u32 = ACCEPTED | FIN | RESET | CLOSED | ANCHOR_SHUT;
}

/// Bits of [`Side::waiter`].
pub mod waiter {
    /// A thread sleeps on the anchor until bytes, an end or a reset arrive.
    pub const DATA: u32 = 1;
    /// A thread sleeps on the anchor until there is room.
    pub const SPACE: u32 = 2;
    /// The event loop of the cell wants to be notified of room.
    pub const CELL_SPACE: u32 = 4;
    /// Shift of the cell's number plus one; 0 where no event loop has the socket.
    pub const CELL_SHIFT: u32 = 8;
    /// Mask of the cell's number plus one.
    pub const CELL_MASK: u32 = 0xff << CELL_SHIFT;
}

/// The low bits of [`Meta::queued`]. The side that changes the first value decides.
pub mod queued {
    /// It waits.
    pub const WAITS: u32 = 0;
    /// A server has accepted it.
    pub const ACCEPTED: u32 = 1;
    /// The client has withdrawn it.
    pub const WITHDRAWN: u32 = 2;
    /// Shift of the low bits of the slot's generation, which tell the connection from a former one.
    pub const GENERATION_SHIFT: u32 = 2;

    /// The word of the connection of that generation.
    #[must_use]
    pub const fn word(generation: u32, fate: u32) -> u32 {
        generation << GENERATION_SHIFT | fate
    }
}

/// The addresses and numbers of a connection, written by the client before the slot is announced. (c) all but `queued`.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Meta {
    /// The client's own address.
    pub client: SharedAddress,
    /// The address the client connected to.
    pub server: SharedAddress,
    /// Counts the slot's connections.
    pub generation: AtomicU32,
    /// The requested listener.
    pub listener: AtomicU32,
    /// Number of the anchor pair: how often the slot got a new one.
    pub anchor: AtomicU32,
    /// (b) The state of a connection in the queue of a listener: see [`queued`].
    pub queued: AtomicU32,
    _gap: [u32; 16],
}

/// One virtual socket of a link.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot {
    /// (c)
    pub client: Side,
    /// (s)
    pub server: Side,
    /// (c)
    pub meta: Meta,
}

const _: () = assert!(size_of::<Side>() == 128 && size_of::<Meta>() == 128);
const _: () = assert!(size_of::<Slot>() == 384);
const _: () = assert!(core::mem::offset_of!(Side, waiter) == 64);

/// One event loop of one side: whether it sleeps, and which of its sockets have news.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Cell {
    /// (b) 1 while the loop sleeps in the kernel; the peer takes it away and writes a token.
    pub asleep: AtomicU32,
    _gap: [u32; 15],
    /// (b) A bit per word of `ready` that is not zero.
    pub summary: [AtomicU64; 4],
    _summary_gap: [u64; 4],
    /// (b) A bit per slot: the peer sets it, the owner takes it.
    pub ready: [AtomicU64; 256],
}

const _: () = assert!(size_of::<Cell>() == 4096);
const _: () = assert!(core::mem::offset_of!(Cell, ready) == 128);

/// The place of a ring in the link: an offset from the link's start and the log2 of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes from the start of the link.
    pub offset: u64,
    /// Log2 of the size in bytes.
    pub log2: u32,
}

impl Geometry {
    /// The word in shared memory.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.log2 as u64) << 56 | self.offset & ((1 << 56) - 1)
    }

    /// Reads a word. Any word gives some geometry; [`Layout::accepts`] checks it.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self {
            offset: word & ((1 << 56) - 1),
            log2: word.to_le_bytes()[7] as u32,
        }
    }

    /// Bytes of the ring. Meaningful only for an accepted geometry.
    #[must_use]
    pub const fn size(self) -> u64 {
        1 << (self.log2 & 63)
    }
}

/// `SO_INCOMING_CPU` of every anchor, a number of no processor. The option means nothing to the kernel on a local
/// socket. By this mark a process that receives an anchor tells it from a local socket of the program, without a
/// request to the daemon.
pub const ANCHOR_MARK: i32 = 0x4e43_414e;

/// Which end of a link a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The end that connects.
    Client = 0,
    /// The end that accepts.
    Server = 1,
}

impl Role {
    /// Reads a word; unknown words are `Server`.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        if word == Self::Client as u64 {
            Self::Client
        } else {
            Self::Server
        }
    }

    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Offsets within a link of given size. A private copy, never read back from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of slots.
    pub slots: usize,
    /// Bytes of each arena.
    pub arena: usize,
}

impl Layout {
    /// Start of the queue in which the client announces connections.
    #[must_use]
    pub const fn job_queue(&self) -> usize {
        PAGE
    }

    /// Start of cell `index` of `owner`.
    #[must_use]
    pub const fn cell(&self, owner: Role, index: usize) -> usize {
        PAGE + QUEUE_BYTES + (owner as usize * CELLS + index) * PAGE
    }

    /// Start of slot `index`.
    #[must_use]
    pub const fn slot(&self, index: usize) -> usize {
        PAGE + QUEUE_BYTES + 2 * CELLS * PAGE + index * size_of::<Slot>()
    }

    /// The small ring of slot `index` that `producer` writes.
    #[must_use]
    pub const fn small_ring(&self, producer: Role, index: usize) -> Geometry {
        let base = self.slot(self.slots).next_multiple_of(PAGE);
        let offset = base + (index * 2 + producer as usize) * SMALL_RING;
        Geometry {
            offset: offset as u64,
            log2: SMALL_RING_LOG2,
        }
    }

    /// Start of the arena that `producer` writes.
    #[must_use]
    pub const fn arena_start(&self, producer: Role) -> usize {
        let base = self.slot(self.slots).next_multiple_of(PAGE) + self.slots * 2 * SMALL_RING;
        base.next_multiple_of(1 << MOST_RING_LOG2) + self.arena * producer as usize
    }

    /// Bytes of the whole link.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.arena_start(Role::Server) + self.arena
    }

    /// Whether `geometry`, which a peer of role `producer` named for slot `index`, may be used by it: the slot's own
    /// small ring, or a naturally aligned block of the producer's arena.
    #[must_use]
    pub const fn accepts(&self, producer: Role, index: usize, geometry: Geometry) -> bool {
        let small = self.small_ring(producer, index);
        if geometry.offset == small.offset && geometry.log2 == small.log2 {
            return true;
        }
        if geometry.log2 < LEAST_RING_LOG2 || geometry.log2 > MOST_RING_LOG2 {
            return false;
        }
        let start = self.arena_start(producer) as u64;
        geometry.offset & (geometry.size() - 1) == 0
            && geometry.offset >= start
            && geometry.offset - start <= self.arena as u64
            && self.arena as u64 - (geometry.offset - start) >= geometry.size()
    }

    /// Whether the sizes themselves are valid: at least one slot, an arena of whole largest rings.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.slots >= 1
            && self.slots <= MOST_SLOTS
            && self.arena >= 1 << MOST_RING_LOG2
            && self.arena <= 1 << 34
            && self.arena.is_multiple_of(1 << MOST_RING_LOG2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        slots: 64,
        arena: 1 << 26,
    };

    #[test]
    fn parts_do_not_overlap() {
        assert!(LAYOUT.cell(Role::Client, 0) >= LAYOUT.job_queue() + QUEUE_BYTES);
        assert!(LAYOUT.slot(0) > LAYOUT.cell(Role::Server, CELLS - 1));
        let first = LAYOUT.small_ring(Role::Client, 0);
        assert!(usize::try_from(first.offset).unwrap() >= LAYOUT.slot(LAYOUT.slots));
        let last = LAYOUT.small_ring(Role::Server, LAYOUT.slots - 1);
        let end = usize::try_from(last.offset + last.size()).unwrap();
        assert!(LAYOUT.arena_start(Role::Client) >= end);
        assert_eq!(LAYOUT.slot(1) % 128, 0);
    }

    #[test]
    fn accepts_only_what_the_producer_owns() {
        let start = LAYOUT.arena_start(Role::Client) as u64;
        let good = Geometry {
            offset: start + (1 << 16),
            log2: 16,
        };
        assert!(LAYOUT.accepts(Role::Client, 3, good));
        assert!(!LAYOUT.accepts(Role::Server, 3, good));
        assert!(!LAYOUT.accepts(
            Role::Client,
            3,
            Geometry {
                offset: start + 64,
                log2: 16
            }
        ));
        assert!(!LAYOUT.accepts(
            Role::Client,
            3,
            Geometry {
                offset: start,
                log2: 63
            }
        ));
        let end = start + LAYOUT.arena as u64;
        assert!(!LAYOUT.accepts(
            Role::Client,
            3,
            Geometry {
                offset: end,
                log2: 16
            }
        ));
        assert!(!LAYOUT.accepts(Role::Client, 3, LAYOUT.small_ring(Role::Client, 4)));
        assert!(LAYOUT.accepts(Role::Client, 3, LAYOUT.small_ring(Role::Client, 3)));
        assert_eq!(Geometry::from_word(good.to_word()), good);
    }
}
