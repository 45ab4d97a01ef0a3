//! The board: the members of a set that several processes share over fork, and their events. It is made at the first
//! fork or before an exec, in memory that all of these processes and the next image share.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use netchannel_abi::LAYOUT_HASH;
use netchannel_shm::{Access, Outside, Region};

use super::edges::Edge;
use crate::descriptors::{attach, limits};
use crate::ground::sys;

/// Processes that may use one set.
const USERS: usize = 16;

/// One member, with the same number in every process.
#[repr(C)]
pub struct Entry {
    /// Counts the members that had this number; odd while there is one.
    life: AtomicU32,
    /// The events that the program asked for.
    pub events: AtomicU32,
    /// The data word that the program gave.
    pub data: AtomicU64,
    /// Counts `EPOLL_CTL_MOD`, from 1.
    changes: AtomicU32,
    /// The change whose one-shot event was reported.
    spent: AtomicU32,
    /// The socket: its kind and its index in a region, as a word of the table; 0 where it is not named.
    socket: AtomicU64,
    /// The descriptor under which it was added.
    pub fd: AtomicI32,
    /// The last change for which an edge was reported.
    reported: AtomicU32,
    /// The count of arrivals that was reported with that change.
    arrived: AtomicU64,
    /// The ends that were reported with that change.
    ends: AtomicU32,
    /// The count of other wake-ups that was reported with that change.
    news: AtomicU32,
    /// Identifies the socket that was added: another one may have its entry since.
    identity: AtomicU64,
    /// The region of the socket, by the inode of its file.
    region: AtomicU64,
}

/// The socket of a member as the board names it.
#[derive(Clone, Copy, Default)]
pub struct SocketName {
    pub socket: u64,
    pub identity: u64,
    pub region: u64,
}

#[repr(C)]
struct Head {
    users: [AtomicU32; USERS],
    /// Counts members that were added since the fork.
    added: AtomicU32,
    _room: u32,
    /// The layout of the board, as the image that made it knows it.
    format: AtomicU64,
}

/// Identifies the layout of the board.
const FORMAT: u64 = LAYOUT_HASH ^ (size_of::<Head>() + size_of::<Entry>() * 0x1_0000) as u64;
/// Most members of a board.
const MOST: usize = 1 << 20;

/// A process's mapping of a board.
pub struct Board {
    head: NonNull<Head>,
    length: usize,
    /// The mapping, where it is of a file, and the descriptor with which the board survives an exec.
    file: Option<(Region, i32)>,
    /// The number by which entries name the region of this process.
    pub own: u64,
}

// SAFETY: the memory is shared and only touched by atomics.
unsafe impl Send for Board {}

impl Board {
    fn bytes(length: usize) -> usize {
        size_of::<Head>() + length * size_of::<Entry>()
    }

    /// A board for at least this many members.
    pub fn new(least: usize) -> Option<Self> {
        Self::in_file(least).or_else(|| Self::map(Self::room(least), libc::MAP_SHARED))
    }

    fn room(least: usize) -> usize {
        least.saturating_mul(2).clamp(1024, MOST)
    }

    /// A board in a file, which survives an exec. It needs a descriptor.
    pub fn in_file(least: usize) -> Option<Self> {
        let length = Self::room(least);
        if limits::are_scarce() || !limits::allow_file(Self::bytes(length)) {
            return None;
        }
        let create =
            || Region::create(c"netchannel-set", Self::bytes(length)).map_err(|_| libc::EMFILE);
        let (fd, region) = limits::for_library(create).ok()?;
        let made = Self::of_region(region, attach::make_internal(fd), length)?;
        made.head().format.store(FORMAT, Ordering::Relaxed);
        Some(made)
    }

    /// The board that the former image has left at `fd`, with room for `length` members.
    pub fn inherit(fd: i32, length: usize) -> Option<Self> {
        let sent = Outside::admit(fd, Self::bytes(length.min(MOST))).ok()?;
        let made = Self::of_region(sent.map(Access::ReadWrite).ok()?, fd, length)?;
        (made.head().format.load(Ordering::Relaxed) == FORMAT).then_some(made)
    }

    fn of_region(region: Region, fd: i32, length: usize) -> Option<Self> {
        let words = Self::bytes(length) / size_of::<AtomicU64>();
        let start = region.slice::<AtomicU64>(0, words)?.as_ptr();
        Some(Self {
            head: NonNull::new(start.cast_mut())?.cast(),
            length,
            file: Some((region, fd)),
            own: own_region(),
        })
    }

    /// The descriptor of its file, and its number of members.
    pub fn file(&self) -> Option<(i32, usize)> {
        self.file.as_ref().map(|(_, fd)| (*fd, self.length))
    }

    /// Notes that a descriptor of the library has a new number.
    pub fn relocate(&mut self, from: i32, to: i32) {
        if let Some((_, fd)) = &mut self.file
            && *fd == from
        {
            *fd = to;
        }
    }

    /// Replaces the shared memory by a private copy. False where there is no memory for that: then the board must not
    /// be used any more.
    pub fn make_private(&mut self) -> bool {
        let Some(mut own) = Self::map(self.length, libc::MAP_PRIVATE) else {
            return false;
        };
        // The entries still name the region by its former number.
        own.own = self.own;
        let words = Self::bytes(self.length) / size_of::<AtomicU32>();
        let all = |board: &Self| {
            // SAFETY: the mapping has so many words, lives as long as its board, and is only touched by atomics.
            unsafe { core::slice::from_raw_parts(board.head.as_ptr().cast::<AtomicU32>(), words) }
        };
        for (to, from) in all(&own).iter().zip(all(self)) {
            let word = from.load(Ordering::Acquire);
            // Words that were never written stay a hole.
            if word != 0 {
                to.store(word, Ordering::Relaxed);
            }
        }
        *self = own;
        true
    }

    fn map(length: usize, kind: libc::c_int) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = Self::bytes(length);
        // SAFETY: a new mapping at an address the kernel chooses.
        let mapped = unsafe {
            let arguments = [
                0,
                bytes,
                sys::int(protection),
                sys::int(flags),
                usize::MAX,
                0,
            ];
            sys::raw(libc::SYS_mmap, arguments)
        };
        let head = core::ptr::with_exposed_provenance_mut(mapped.ok()?);
        Some(Self {
            head: NonNull::new(head)?,
            length,
            file: None,
            own: own_region(),
        })
    }

    /// The number of members it has room for.
    pub const fn len(&self) -> usize {
        self.length
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped until the board is dropped; zero bytes are a valid head.
        unsafe { self.head.as_ref() }
    }

    /// The entry of a number, used or not.
    pub fn entry(&self, number: u32) -> Option<&Entry> {
        let index = number as usize;
        // SAFETY: within the mapping, which has room for `length` entries behind the head.
        (index < self.length)
            .then(|| unsafe { &*self.head.add(1).cast::<Entry>().add(index).as_ptr() })
    }

    /// Counts a member that was added and described.
    pub fn add(&self) {
        // Release: pairs with the acquire in `added`.
        self.head().added.fetch_add(1, Ordering::Release);
    }

    /// The count of added members.
    pub fn added(&self) -> u32 {
        self.head().added.load(Ordering::Acquire)
    }

    /// Registers the calling process as a user of the set.
    pub fn enroll(&self, process: u32) {
        let users = &self.head().users;
        if users
            .iter()
            .any(|user| user.load(Ordering::Relaxed) == process)
        {
            return;
        }
        let _ = users.iter().find(|user| {
            user.compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
    }

    /// Whether another living process uses the set.
    pub fn has_others(&self, process: u32) -> bool {
        self.head().users.iter().any(|user| {
            let number = user.load(Ordering::Relaxed);
            if number == 0 || number == process {
                return false;
            }
            let lives = sys::exists(number);
            if !lives {
                let _ = user.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
            lives
        })
    }
}

fn own_region() -> u64 {
    attach::memory_identity().map_or(0, |(_, file)| file)
}

impl Drop for Board {
    fn drop(&mut self) {
        if let Some((_, fd)) = self.file.take() {
            return attach::close_internal(fd);
        }
        let bytes = Self::bytes(self.length);
        let start = self.head.as_ptr().expose_provenance();
        // SAFETY: the mapping is this board's, and no thread accesses it any more.
        let _ = unsafe { sys::raw(libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]) };
    }
}

impl Entry {
    /// Claims the entry for a new member and returns its life; `None` where it is in use.
    pub fn claim(&self) -> Option<u32> {
        let life = self.life.load(Ordering::Relaxed);
        if life % 2 == 1 {
            return None;
        }
        let claimed =
            self.life
                .compare_exchange(life, life + 1, Ordering::AcqRel, Ordering::Relaxed);
        self.socket.store(0, Ordering::Relaxed);
        claimed.ok().map(|life| life + 1)
    }

    /// Names the socket of the member, after [`Self::describe`].
    pub fn set_name(&self, name: SocketName, fd: i32) {
        self.fd.store(fd, Ordering::Relaxed);
        self.identity.store(name.identity, Ordering::Relaxed);
        self.region.store(name.region, Ordering::Relaxed);
        // Release: pairs with the acquire in `name`.
        self.socket.store(name.socket, Ordering::Release);
    }

    /// The name that [`Self::set_name`] stored.
    pub fn name(&self) -> SocketName {
        // Acquire: pairs with the release in `set_name`.
        let socket = self.socket.load(Ordering::Acquire);
        SocketName {
            socket,
            identity: self.identity.load(Ordering::Relaxed),
            region: self.region.load(Ordering::Relaxed),
        }
    }

    /// Stores the events of a claimed member.
    pub fn describe(&self, events: u32, data: u64, enabled: bool) {
        self.events.store(events, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.spent.store(u32::from(!enabled), Ordering::Relaxed);
        self.reported.store(0, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.ends.store(0, Ordering::Relaxed);
        self.changes.store(1, Ordering::Release);
    }

    /// The life of the member, if the entry is in use.
    pub fn life(&self) -> Option<u32> {
        let life = self.life.load(Ordering::Acquire);
        (life % 2 == 1).then_some(life)
    }

    /// Ends the member, in all processes.
    pub fn end(&self, life: u32) {
        let _ = self
            .life
            .compare_exchange(life, life + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// `EPOLL_CTL_MOD`. Returns the number of the change.
    pub fn change(&self, events: u32, data: u64) -> u32 {
        self.events.store(events, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The number of the last change.
    pub fn last_change(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// What the processes have reported of an edge-triggered member since this change.
    pub fn reported_edge(&self, change: u32) -> Option<Edge> {
        // Acquire: pairs with the release in `note_edge`.
        (self.reported.load(Ordering::Acquire) == change).then(|| Edge {
            arrived: self.arrived.load(Ordering::Relaxed),
            ends: self.ends.load(Ordering::Relaxed),
            news: self.news.load(Ordering::Relaxed),
        })
    }

    /// Notes an edge that was reported with a change.
    pub fn note_edge(&self, change: u32, edge: Edge) {
        self.arrived.store(edge.arrived, Ordering::Relaxed);
        self.ends.store(edge.ends, Ordering::Relaxed);
        self.news.store(edge.news, Ordering::Relaxed);
        // Release: pairs with the acquire in `reported_edge`.
        self.reported.store(change, Ordering::Release);
    }

    /// Claims the report of an edge, for what has come since `seen`. False where another process was quicker.
    pub fn claim_edge(&self, change: u32, seen: Edge, edge: Edge) -> bool {
        let first = self.reported.load(Ordering::Acquire) != change;
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let claimed = if first || seen.arrived != edge.arrived {
            let from = if first {
                self.arrived.load(Ordering::Relaxed)
            } else {
                seen.arrived
            };
            let word = &self.arrived;
            word.compare_exchange(from, edge.arrived, order.0, order.1)
                .is_ok()
        } else {
            let word = &self.news;
            word.compare_exchange(seen.news, edge.news, order.0, order.1)
                .is_ok()
        };
        if claimed {
            self.note_edge(change, edge);
        }
        claimed
    }

    /// Notes that the one-shot event of this change was reported.
    pub fn spend(&self, change: u32) {
        self.spent.store(change, Ordering::Release);
    }

    /// Whether the one-shot event of this change was reported.
    pub fn is_spent(&self, change: u32) -> bool {
        self.spent.load(Ordering::Acquire) == change
    }
}
