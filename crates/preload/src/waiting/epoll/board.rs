//! What several processes that share a set over fork know of it together: which members there are,
//! and what they are told with. Made at the first fork, or before an exec, in memory that all of them share, and the next image.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use netchannel_abi::LAYOUT_HASH;
use netchannel_shm::{Access, Outside, Region};

use crate::descriptors::{attach, limits};
use crate::ground::sys;

/// Processes that may use one set.
const USERS: usize = 16;

/// One member, known by its number in every process.
#[repr(C)]
pub struct Entry {
    /// Counts the members of this number; odd while there is one.
    life: AtomicU32,
    /// What the program asked for.
    pub events: AtomicU32,
    /// What it is told with.
    pub data: AtomicU64,
    /// Counts `EPOLL_CTL_MOD`, from 1.
    changes: AtomicU32,
    /// The change whose one shot is spent.
    spent: AtomicU32,
    /// The socket: its kind and its place in a region, as a word of the table says them; 0 where it is not said.
    socket: AtomicU64,
    /// The descriptor that it was added under.
    pub fd: AtomicI32,
    /// The last change of which an edge was told.
    told: AtomicU32,
    /// What had arrived then,
    arrived: AtomicU64,
    /// and which ends had come.
    ends: AtomicU32,
    _room: u32,
    /// What the socket was when it was added: another one may have its place in the region since.
    identity: AtomicU64,
    /// The region that has the socket, by the number of its file.
    region: AtomicU64,
}

/// A member as the board names it.
#[derive(Clone, Copy, Default)]
pub struct Named {
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
    /// What the image that made it takes a board to be.
    format: AtomicU64,
}

/// Says how all of this lies.
const FORMAT: u64 = LAYOUT_HASH ^ (size_of::<Head>() + size_of::<Entry>() * 0x1_0000) as u64;
/// Members that any board has room for at most.
const MOST: usize = 1 << 20;

/// The memory, of this process's mapping of it.
pub struct Board {
    head: NonNull<Head>,
    length: usize,
    /// The mapping, where it is of a file: the descriptor of that, with which the board goes over an exec.
    file: Option<(Region, i32)>,
    /// What the entries call the region of this process.
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

    /// The same, which goes with an exec. It takes a number.
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

    /// The board that the image before this one has left at `fd`, with room for so many.
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

    /// Its file's descriptor, and how many members it has room for.
    pub fn file(&self) -> Option<(i32, usize)> {
        self.file.as_ref().map(|(_, fd)| (*fd, self.length))
    }

    /// A descriptor of the library has moved.
    pub fn relocate(&mut self, from: i32, to: i32) {
        if let Some((_, fd)) = &mut self.file
            && *fd == from
        {
            *fd = to;
        }
    }

    /// What it says now is this process's alone from now on. False where there is no memory for that: then it is as good as gone.
    pub fn keep(&mut self) -> bool {
        let Some(mut own) = Self::map(self.length, libc::MAP_PRIVATE) else {
            return false;
        };
        // The entries say still what the region is called.
        own.own = self.own;
        let words = Self::bytes(self.length) / size_of::<AtomicU32>();
        let all = |board: &Self| {
            // SAFETY: the mapping has so many words, lives as long as its board, and is only touched by atomics.
            unsafe { core::slice::from_raw_parts(board.head.as_ptr().cast::<AtomicU32>(), words) }
        };
        for (to, from) in all(&own).iter().zip(all(self)) {
            let word = from.load(Ordering::Acquire);
            // What nobody ever wrote stays a hole.
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

    /// Members it has room for.
    pub const fn len(&self) -> usize {
        self.length
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped until the board is dropped; zero bytes are a valid head.
        unsafe { self.head.as_ref() }
    }

    /// The member of a number, or what is left of the last.
    pub fn entry(&self, number: u32) -> Option<&Entry> {
        let index = number as usize;
        // SAFETY: within the mapping, which has room for `length` entries behind the head.
        (index < self.length)
            .then(|| unsafe { &*self.head.add(1).cast::<Entry>().add(index).as_ptr() })
    }

    /// A member was added, and described.
    pub fn add(&self) {
        // Release: pairs with the acquire in `added`.
        self.head().added.fetch_add(1, Ordering::Release);
    }

    /// How many were added.
    pub fn added(&self) -> u32 {
        self.head().added.load(Ordering::Acquire)
    }

    /// The calling process uses the set.
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

    /// Whether another process uses the set too.
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
        // SAFETY: the mapping is this board's, and nobody looks at it any more.
        let _ = unsafe { sys::raw(libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]) };
    }
}

impl Entry {
    /// Takes a free number for a new member: its life, or `None` where there is one.
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

    /// Says which socket the member is, after [`Self::describe`].
    pub fn name(&self, named: Named, fd: i32) {
        self.fd.store(fd, Ordering::Relaxed);
        self.identity.store(named.identity, Ordering::Relaxed);
        self.region.store(named.region, Ordering::Relaxed);
        // Release: pairs with the acquire in `named`.
        self.socket.store(named.socket, Ordering::Release);
    }

    /// What [`Self::name`] said.
    pub fn named(&self) -> Named {
        // Acquire: pairs with the release in `name`.
        let socket = self.socket.load(Ordering::Acquire);
        Named {
            socket,
            identity: self.identity.load(Ordering::Relaxed),
            region: self.region.load(Ordering::Relaxed),
        }
    }

    /// Says what the member of a claimed number is.
    pub fn describe(&self, events: u32, data: u64, enabled: bool) {
        self.events.store(events, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.spent.store(u32::from(!enabled), Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.ends.store(0, Ordering::Relaxed);
        self.changes.store(1, Ordering::Release);
    }

    /// Whether a member is there, and which.
    pub fn life(&self) -> Option<u32> {
        let life = self.life.load(Ordering::Acquire);
        (life % 2 == 1).then_some(life)
    }

    /// The member ends, in all processes.
    pub fn end(&self, life: u32) {
        let _ = self
            .life
            .compare_exchange(life, life + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// `EPOLL_CTL_MOD`. The number of the change.
    pub fn change(&self, events: u32, data: u64) -> u32 {
        self.events.store(events, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The last change.
    pub fn last_change(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// What some process was told of an edge-triggered member since it was changed so: what had arrived, and which ends had come.
    pub fn told(&self, change: u32) -> Option<(u64, u32)> {
        // Acquire: pairs with the release in `tell`.
        (self.told.load(Ordering::Acquire) == change).then(|| {
            (
                self.arrived.load(Ordering::Relaxed),
                self.ends.load(Ordering::Relaxed),
            )
        })
    }

    /// The edge was told before, when so much had arrived and these ends had come.
    pub fn note_told(&self, change: u32, arrived: u64, ends: u32) {
        self.arrived.store(arrived, Ordering::Relaxed);
        self.ends.store(ends, Ordering::Relaxed);
        // Release: pairs with the acquire in `told`.
        self.told.store(change, Ordering::Release);
    }

    /// The calling process tells its program of an edge, of what has `arrived` since `seen`. False where another one was quicker.
    pub fn tell(&self, change: u32, seen: u64, arrived: u64, ends: u32) -> bool {
        let first = self.told.load(Ordering::Acquire) != change;
        let from = if first {
            self.arrived.load(Ordering::Relaxed)
        } else {
            seen
        };
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let exchanged = self
            .arrived
            .compare_exchange(from, arrived, order.0, order.1);
        if exchanged.is_ok() {
            self.ends.store(ends, Ordering::Relaxed);
            // Release: pairs with the acquire in `told`.
            self.told.store(change, Ordering::Release);
        }
        exchanged.is_ok()
    }

    /// The one shot of this change is spent.
    pub fn spend(&self, change: u32) {
        self.spent.store(change, Ordering::Release);
    }

    /// Whether the one shot of this change is spent.
    pub fn is_spent(&self, change: u32) -> bool {
        self.spent.load(Ordering::Acquire) == change
    }
}
