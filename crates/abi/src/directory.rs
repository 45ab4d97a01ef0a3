//! The directory: the listeners that programs of this daemon hold. Every program maps it read-only, so that a
//! destination without such a listener costs no request to the daemon.
//!
//! Readers load `sequence` (even), look up, and load it again; if it is odd or has changed, the look-up is void. (d)
//! all.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::address::{Address, INET, SharedAddress};
use crate::copying::SharedRules;

/// First word of a directory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NCDIREC1");
/// Most listeners; a power of two. The table is kept at most half full.
pub const ENTRIES: usize = 8192;
/// Most local addresses.
pub const LOCAL_ADDRESSES: usize = 256;

/// Most networks of other hosts.
pub const NETWORKS: usize = 128;

/// The head of the directory.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Odd while the daemon writes.
    pub sequence: AtomicU64,
    /// Number of valid entries of `local`.
    pub locals: AtomicU32,
    /// 1 when the daemon has ended in good order.
    pub ended: AtomicU32,
    /// Number of valid entries of `network`.
    pub networks: AtomicU32,
    /// The listener to which every connect leads that no other entry is for: the stack through which programs without a
    /// network of their own reach others. 0 where that is the kernel. Outside of `sequence`: it does not change while
    /// programs are attached.
    pub gateway: AtomicU32,
    /// How large transfers are shared with copy workers. Outside of `sequence`: each word is used alone.
    pub copying: SharedRules,
    /// This host's own addresses besides loopback, ports zero.
    pub local: [SharedAddress; LOCAL_ADDRESSES],
    /// Networks of other hosts that this daemon knows; to programs of a tenant, addresses of tenants that may have links
    /// to them now.
    pub network: [Network; NETWORKS],
}

/// A range of addresses of one other host, which begin with the same bits.
#[derive(Debug)]
#[repr(C)]
pub struct Network {
    /// The first address, port zero.
    pub address: SharedAddress,
    /// Length of the prefix in bits.
    pub bits: AtomicU32,
    /// 1 while a channel to that host is up.
    pub up: AtomicU32,
}

impl Network {
    /// Whether an address lies in the range; a mapped one does not.
    #[must_use]
    pub fn contains(&self, address: &Address) -> bool {
        let own = self.address.load();
        let bits = self.bits.load(Ordering::Relaxed);
        let width = if own.family == INET { 32 } else { 128 };
        let differ = u128::from_be_bytes(own.bytes) ^ u128::from_be_bytes(address.bytes);
        // With all bits shifted out no difference is left.
        own.family == address.family
            && bits <= width
            && differ.checked_shr(128 - bits).unwrap_or(0) == 0
    }
}

/// Value of [`Entry::listener`] where a listener was removed: probes continue behind it.
pub const LEFT: u32 = u32::MAX;

/// One listener. An entry with `listener` 0 ends a probe.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// The daemon's number for it; 0 where the entry is empty, [`LEFT`] where the listener was removed.
    pub listener: AtomicU32,
    /// [`entry_flags`].
    pub flags: AtomicU32,
    /// Its address.
    pub address: SharedAddress,
    /// Program that holds it (the daemon's number).
    pub program: AtomicU32,
    /// The user of the acceptors, all ones where there are several. Programs of root may hold the listener, too, and do
    /// not accept from the queue.
    pub queue_user: AtomicU32,
    /// The name of the queue from which all acceptors take connections, 0 where there is none: see [`queue_name`].
    pub queue: AtomicU64,
    _rest: [u32; 4],
}

/// Bytes of the name of a queue.
pub const QUEUE_NAME: usize = 34;

/// The abstract name of a queue: a local socket that all holders of a listener share, to which clients connect.
#[must_use]
pub fn queue_name(queue: u64) -> [u8; QUEUE_NAME] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = *b"\0netchannel-queue-0000000000000000";
    let (_, places) = name.split_at_mut(QUEUE_NAME - 16);
    for (pair, byte) in places.chunks_exact_mut(2).zip(queue.to_be_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    name
}

/// Bits of [`Entry::flags`].
pub mod entry_flags {
    /// An IPv6 listener that takes no IPv4.
    pub const V6_ONLY: u32 = 1;
    /// Several processes hold it: a client must reach one that waits.
    pub const SHARED: u32 = 2;
    /// The daemon's relay leads to it: one link serves all such listeners, and connecting takes as long as the other
    /// side needs.
    pub const REMOTE: u32 = 4;
    /// A program of another tenant holds it: who connects comes from his own tenant's address.
    pub const NEIGHBOUR: u32 = 8;
    /// From this bit on, at most [`MOST_DEFERS`]: how often TCP would probe a silent client before the connection may
    /// be accepted, 0 where it may be accepted at once (`TCP_DEFER_ACCEPT`). A client announces the connection with its
    /// first bytes, or then.
    pub const DEFERS_SHIFT: u32 = 8;
    /// Larger numbers are shown as this one.
    pub const MOST_DEFERS: u32 = 255;
    /// From this bit on: the number of processes that hold it, at most [`MOST_HOLDERS`].
    pub const HOLDERS_SHIFT: u32 = 16;
    /// Larger numbers are shown as this one.
    pub const MOST_HOLDERS: u32 = 255;
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Where the entries start.
pub const ENTRIES_OFFSET: usize = size_of::<Header>().next_multiple_of(64);
/// Where the owners of ports start: a word of 64 bits for each port. The lower half is the user whose programs may use
/// the port for virtual sockets, as [`owner_word`], 0 for nobody; the upper half is the address, as [`place_word`].
/// Outside of `sequence`: each word is used alone. So an acceptor can check the address and port that a client names.
pub const PORTS_OFFSET: usize =
    (ENTRIES_OFFSET + ENTRIES * size_of::<Entry>()).next_multiple_of(4096);
/// Words of the owners of ports.
pub const PORTS: usize = 1 << 16;
/// Bytes of the whole directory.
pub const SIZE: usize = PORTS_OFFSET + PORTS * size_of::<AtomicU64>();

/// The word of a port that belongs to `user`. The kernel has no user with the highest number.
#[must_use]
pub const fn owner_word(user: u32) -> u32 {
    user.wrapping_add(1)
}

/// First entry to probe for a port.
#[must_use]
pub const fn bucket(port: u16) -> usize {
    (port as usize).wrapping_mul(0x9e37) & (ENTRIES - 1)
}

/// Any address of the host: for ports that the daemon gave, or that are bound to any address of both families.
pub const ANYWHERE: u32 = 0;
/// Any IPv4 address of the host. As an address it can not be bound.
const ANYWHERE_V4: u32 = 1;
/// Any IPv6 address.
const ANYWHERE_V6: u32 = 2;

/// The word for the address to which the kernel let a program bind the port: an IPv4 address is itself, an IPv6 address
/// is a digest; a host has too few addresses to choose one with an equal digest.
#[must_use]
pub fn place_word(bound: &Address, v6_only: bool) -> u32 {
    let plain = bound.unmapped();
    if plain.is_wildcard() {
        return match (plain.family, v6_only) {
            (INET, _) => ANYWHERE_V4,
            (_, true) => ANYWHERE_V6,
            _ => ANYWHERE,
        };
    }
    let [a, b, c, d, ..] = plain.bytes;
    if plain.family == INET {
        return u32::from_be_bytes([a, b, c, d]);
    }
    let digest = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    plain.bytes.iter().fold(0x811c_9dc5, digest) | 1 << 31
}

/// Whether a port's word allows a program of the user with [`owner_word`] `owner` to come from `address`.
#[must_use]
pub fn is_owned(word: u64, owner: u32, address: &Address) -> bool {
    let [user, place] = [word, word >> 32].map(|half| (half & 0xffff_ffff) as u32);
    let plain = address.unmapped();
    let there = match place {
        ANYWHERE => true,
        ANYWHERE_V4 => plain.family == INET,
        ANYWHERE_V6 => plain.family != INET,
        place => place == place_word(&plain, false),
    };
    owner != 0 && user == owner && there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_a_name() {
        assert_eq!(
            &queue_name(0x0123_4567_89ab_cdef),
            b"\0netchannel-queue-0123456789abcdef"
        );
        assert_ne!(queue_name(1), queue_name(1 << 60));
    }

    #[test]
    fn a_port_is_owned_where_it_was_bound() {
        let word = |bound: Address, v6_only| {
            u64::from(place_word(&bound, v6_only)) << 32 | u64::from(owner_word(1001))
        };
        let own = |word, address| is_owned(word, owner_word(1001), &address);
        let (here, there) = (
            Address::v4([127, 0, 0, 1], 5),
            Address::v4([127, 0, 0, 2], 5),
        );
        let (six, other) = (Address::v6([7; 16], 5, 0), Address::v6([8; 16], 5, 0));
        let one = word(here, false);
        assert!(own(one, here) && own(one, here.mapped()));
        assert!(!own(one, there) && !own(one, six) && !is_owned(one, owner_word(1002), &here));
        let any = word(Address::v4([0; 4], 5), false);
        assert!(own(any, here) && own(any, there) && !own(any, six));
        let any = word(Address::v6([0; 16], 5, 0), true);
        assert!(own(any, six) && own(any, other) && !own(any, here));
        let any = word(Address::v6([0; 16], 5, 0), false);
        assert!(own(any, six) && own(any, here));
        let one = word(six, false);
        assert!(own(one, six) && !own(one, other) && !own(one, here));
        // The port belongs to nobody.
        assert!(!is_owned(0, owner_word(u32::MAX), &here));
    }

    #[test]
    fn a_network_is_told_by_its_first_bits() {
        let network = |address: Address, bits| {
            let network = Network {
                address: SharedAddress::default(),
                bits: AtomicU32::new(bits),
                up: AtomicU32::new(0),
            };
            network.address.store(&address);
            network
        };
        let v4 = |last: [u8; 4]| Address::v4(last, 80);
        let of = network(Address::v4([10, 1, 2, 0], 0), 23);
        assert!(of.contains(&v4([10, 1, 3, 9])) && of.contains(&v4([10, 1, 2, 0])));
        assert!(!of.contains(&v4([10, 1, 4, 0])));
        assert!(!of.contains(&v4([10, 1, 3, 9]).mapped()));
        assert!(network(Address::v4([0; 4], 0), 0).contains(&v4([1, 2, 3, 4])));
        let one = network(Address::v4([10, 1, 2, 1], 0), 32);
        assert!(one.contains(&v4([10, 1, 2, 1])) && !one.contains(&v4([10, 1, 2, 2])));
        // An invalid entry contains nothing.
        assert!(!network(Address::v4([10, 1, 2, 1], 0), 33).contains(&v4([10, 1, 2, 1])));
        let v6 = Address::v6([7; 16], 1, 0);
        assert!(network(v6, 128).contains(&v6) && network(v6, 3).contains(&v6));
    }
}
