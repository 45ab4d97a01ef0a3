//! The region of one program: its virtual sockets, shared with its forked children and with the
//! daemon, which only reads it (for `netchannel ss`) and never trusts it.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::address::SharedAddress;

/// First word of a program region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NCPROGR1");
/// Number of the daemon's own relay among programs: the addresses that it names are true.
pub const RELAY: u32 = u32::MAX;

/// The head of a program region.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`]. (i)
    pub magic: AtomicU64,
    /// [`crate::LAYOUT_HASH`]. (i)
    pub layout_hash: AtomicU64,
    /// Entries in this region. (i)
    pub entries: AtomicU32,
    /// Entries ever used: those above were never written. (o)
    pub high_water: AtomicU32,
    /// First free entry plus one, and a tag against ABA in the upper half. (o)
    pub free: AtomicU64,
    /// Connections made over shared memory. (o)
    pub connects: AtomicU64,
    /// Connections accepted over shared memory. (o)
    pub accepts: AtomicU64,
    /// Sockets that fell back to kernel TCP, by [`crate::reason::Reason`]. (o)
    pub fallbacks: [AtomicU64; 32],
    /// Tokens written to sleeping peers. (o)
    pub tokens: AtomicU64,
    /// Times a thread of the program slept for a socket. (o)
    pub sleeps: AtomicU64,
    /// Faults found in words of peers. (o)
    pub faults: AtomicU64,
    /// Records of [`Holder`] ever used: those above were never written. (o)
    pub holders: AtomicU32,
}

/// A process that holds sockets of the region: the program, or a child of it. A bit for each entry follows, so that its
/// relatives can release the references of a process that ended without closing.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Holder {
    /// Its number in the lower half, and in the upper half the inode of the PID namespace of that number, 0 where that
    /// is not known and no process may judge whether it lives. 0 while the record is free; see [`TAKEN`]. (o)
    pub process: AtomicU64,
}

/// The lower half of [`Holder::process`] while a process is being forked, or its references are being released: no
/// process has that number. In the upper half each fork has another value, so that a parent that comes late does not
/// give the record to its child, which has ended, when another fork has claimed the record.
pub const TAKEN: u64 = u32::MAX as u64;

/// Whether a word of [`Holder::process`] is such a value.
#[must_use]
pub const fn is_taken(process: u64) -> bool {
    process & TAKEN == TAKEN
}

/// Processes that can share a region with a record each. References of further ones stay when they are killed.
pub const HOLDERS: usize = 512;

/// States of a [`SocketEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Unused.
    Free = 0,
    /// Made by `socket`, neither bound nor connected.
    Fresh = 1,
    /// Connected over a link.
    Virtual = 2,
    /// An ordinary kernel TCP socket.
    Kernel = 3,
    /// A listener.
    Listener = 4,
}

impl State {
    /// Reads a word; unknown words are `Free`.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Fresh,
            2 => Self::Virtual,
            3 => Self::Kernel,
            4 => Self::Listener,
            _ => Self::Free,
        }
    }
}

/// One direction as its owner sees it: private to the program and its forked children.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Direction {
    /// 0, or the thread that holds the lock of the direction.
    pub lock: AtomicU32,
    /// Threads that sleep on the anchor for it.
    pub sleepers: AtomicU32,
    /// Own index: tail when sending, head when receiving.
    pub own: AtomicU64,
    /// For sending: bytes sent last that met a closed peer. For receiving: the index from which on bytes have
    /// timestamps. Of a listener, receiving: a word that names the process that alone has looked for connections,
    /// all ones where several have, 0 before.
    pub noted: AtomicU64,
    /// Current ring, a [`crate::link::Geometry`] word.
    pub geometry: AtomicU64,
    /// For sending: the former ring, while the peer still reads from it. For receiving: a ring reserved for sending,
    /// for a process that can allocate none from the arena.
    pub former_geometry: AtomicU64,
    /// Last `switch_sequence` that was published (sending) or adopted (receiving).
    pub switch_sequence: AtomicU64,
    /// Largest ring allowed, from `SO_SNDBUF` or `SO_RCVBUF`; 0 for automatic.
    pub limit: AtomicU64,
    /// Bits of the direction, private to the library.
    pub flags: AtomicU32,
    /// For sending: counts wake-ups without bytes that no peer announces.
    pub news: AtomicU32,
}

/// One socket of the program.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct SocketEntry {
    /// [`State`].
    pub state: AtomicU32,
    /// [`crate::reason::Reason`] why it is not virtual.
    pub reason: AtomicU32,
    /// Processes that hold it, and descriptors that are being passed to others.
    pub references: AtomicU32,
    /// Status bits, private to the library (non-blocking, shut directions, pending error ...).
    pub status: AtomicU32,
    /// Descriptor number in the process that made it.
    pub descriptor: AtomicI32,
    /// Process that made it.
    pub process: AtomicU32,
    /// [`crate::link::Role`] of this end.
    pub role: AtomicU32,
    /// Slot in the link.
    pub slot: AtomicU32,
    /// The daemon's number for the link.
    pub link: AtomicU64,
    /// Generation of the connection in its slot.
    pub generation: AtomicU32,
    /// The daemon's number for the listener (of a listener, or of an accepted connection's listener).
    pub listener: AtomicU32,
    /// Own address.
    pub local: SharedAddress,
    /// The peer's address.
    pub peer: SharedAddress,
    /// Next free entry plus one, while free.
    pub next_free: AtomicU32,
    /// `SO_ERROR` to be taken once, an errno.
    pub error: AtomicI32,
    /// 0, or the thread that changes the sleepers of the anchor, or takes tokens off it.
    pub anchor_lock: AtomicU32,
    /// `SO_RCVLOWAT` in bytes, 0 for the default of one.
    pub low_water: AtomicU32,
    /// `SO_RCVTIMEO` in microseconds, 0 for none.
    pub receive_timeout: AtomicU64,
    /// `SO_SNDTIMEO` in microseconds, 0 for none.
    pub send_timeout: AtomicU64,
    /// `SO_LINGER`: 0 off, otherwise seconds plus one.
    pub linger: AtomicU32,
    /// Boolean options, private to the library: which were set, and their values 16 bits higher.
    pub flags: AtomicU32,
    /// The class that the program gives it, a [`crate::class::Hints`] word.
    pub hints: AtomicU32,
    /// `SO_PEEK_OFF`: how many bytes a peek skips, negative for none.
    pub peek_offset: AtomicI32,
    /// Sequence behind the last byte it has sent as urgent, 0 for none.
    pub urgent_sent: AtomicU64,
    /// The `passed` word that it last published, see [`crate::link::Side::passed`].
    pub urgent_passed: AtomicU64,
    /// Sequence behind the peer's last urgent byte that was taken with `MSG_OOB`.
    pub urgent_taken: AtomicU64,
    /// The `held` word that it last published, see [`crate::link::Side::held`].
    pub held: AtomicU64,
    /// The pump that serves it for one of its processes, while other processes have it, too; 0 while the pump is being
    /// made.
    pub pump: AtomicU32,
    /// How many times a process has waited until that pump had caught up with its program.
    pub waits_for_pump: AtomicU32,
    /// The number of the latest of these waits up to which the pump has caught up.
    pub caught_up: AtomicU32,
    /// The `row` word that it last published, see [`crate::link::Side::row`].
    pub urgent_row: AtomicU32,
    /// Sending.
    pub transmit: Direction,
    /// Receiving.
    pub receive: Direction,
    /// 0, or the thread that accesses the options.
    pub options_lock: AtomicU32,
    /// Words of `options` in use.
    pub option_words: AtomicU32,
    /// Descriptors of it that are being passed to other processes, as far as is known.
    pub travels: AtomicU32,
    /// Counts the sockets that have had the entry, this one included.
    pub life: AtomicU32,
    /// Options without a word of their own, in the order in which they were set. For each option a word: level (8
    /// bits), name (16), size of the value (8), and its first four bytes; then as many words as the other bytes take.
    pub options: [AtomicU64; OPTION_WORDS],
}

/// Words for the options of a socket. Few programs set more than six.
pub const OPTION_WORDS: usize = 38;

const _: () = assert!(size_of::<Header>() == 4096);
const _: () = assert!(size_of::<Holder>() == 64);
const _: () = assert!(size_of::<SocketEntry>() <= 640);

/// Where the entries start.
pub const ENTRIES_OFFSET: usize = size_of::<Header>();

/// Bytes from one [`Holder`] to the next: whole pages, so that an unused record takes no memory.
const fn holder_bytes(entries: usize) -> usize {
    (size_of::<Holder>() + entries.div_ceil(64) * size_of::<AtomicU64>()).next_multiple_of(4096)
}

/// Where record `index` of a region with `entries` sockets starts.
#[must_use]
pub const fn holder(entries: usize, index: usize) -> usize {
    let start = (ENTRIES_OFFSET + entries * size_of::<SocketEntry>()).next_multiple_of(4096);
    start + index * holder_bytes(entries)
}

/// Where the word with the bit of `entry` is, in record `index`. The bit is `entry % 64`.
#[must_use]
pub const fn held(entries: usize, index: usize, entry: usize) -> usize {
    holder(entries, index) + size_of::<Holder>() + entry / 64 * size_of::<AtomicU64>()
}

/// Bytes of a region with `entries` sockets.
#[must_use]
pub const fn size(entries: usize) -> usize {
    holder(entries, HOLDERS)
}
