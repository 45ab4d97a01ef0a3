//! The directory: which listeners the programs of this daemon hold. Read-only to every program,
//! so that a destination that is not ours costs no question to the daemon.
//!
//! Readers take `sequence` (even), look, and take it again; while it is odd or has changed, the
//! look-up is void. (d) all.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::address::SharedAddress;

/// First word of a directory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NCDIREC1");
/// Listeners that fit; a power of two. The table is kept at most half full.
pub const ENTRIES: usize = 8192;
/// Local addresses that fit.
pub const LOCAL_ADDRESSES: usize = 256;

/// The head of the directory.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Odd while the daemon writes.
    pub sequence: AtomicU64,
    /// How many of `local` count.
    pub locals: AtomicU32,
    /// 1 when the daemon has ended in good order.
    pub ended: AtomicU32,
    _gap: [u32; 8],
    /// This host's own addresses besides loopback, ports zero.
    pub local: [SharedAddress; LOCAL_ADDRESSES],
}

/// Value of [`Entry::listener`] where a listener was taken out: probes go on behind it.
pub const LEFT: u32 = u32::MAX;

/// One listener. An entry with `listener` 0 ends a probe.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// The daemon's number for it; 0 where the entry is empty, [`LEFT`] where it was left.
    pub listener: AtomicU32,
    /// [`entry_flags`].
    pub flags: AtomicU32,
    /// Where it listens.
    pub address: SharedAddress,
    /// Program that holds it (the daemon's number).
    pub program: AtomicU32,
    _gap: [u32; 7],
}

/// Bits of [`Entry::flags`].
pub mod entry_flags {
    /// An IPv6 listener that takes no IPv4.
    pub const V6_ONLY: u32 = 1;
    /// Several processes hold it: whoever connects must reach one that waits.
    pub const SHARED: u32 = 2;
    /// The daemon's relay leads to it: one link serves all such listeners, and connecting takes the
    /// time that the other side needs.
    pub const REMOTE: u32 = 4;
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Where the entries start.
pub const ENTRIES_OFFSET: usize = size_of::<Header>().next_multiple_of(64);
/// Bytes of the whole directory.
pub const SIZE: usize = ENTRIES_OFFSET + ENTRIES * size_of::<Entry>();

/// First entry to probe for a port.
#[must_use]
pub const fn bucket(port: u16) -> usize {
    (port as usize).wrapping_mul(0x9e37) & (ENTRIES - 1)
}
