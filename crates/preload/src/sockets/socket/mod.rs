//! The sockets of the program: entries in its region, and their parts that only this process has.

mod entries;
mod former_port;
mod holders;
mod options_set;

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use std::sync::OnceLock;

use netchannel_abi::program::{self, SocketEntry};
use netchannel_abi::reason::Reason;

pub use entries::{allocate, copy_into, free_entry, set_initial_hints};
pub use holders::sharings;
pub use options_set::{FLAGS, MOST_BYTES, Record, flag, flag_bit, is_on, set_flag};

use crate::descriptors::attach;
use crate::descriptors::attach::header;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::lock::{self, Lock};
use crate::ground::sys;
use crate::sockets::link::LinkEnd;
use crate::sockets::owner_table;
use former_port::FormerPort;

/// Bits of [`SocketEntry::status`].
pub mod status {
    /// `O_NONBLOCK`.
    pub const NONBLOCKING: u32 = 1;
    /// `shutdown(SHUT_WR)` was called.
    pub const SHUT_WRITE: u32 = 2;
    /// `shutdown(SHUT_RD)` was called.
    pub const SHUT_READ: u32 = 4;
    /// The connection was reset, and the error was reported.
    pub const RESET: u32 = 8;
    /// The kernel has reported that the other end has no holder.
    pub const PEER_GONE: u32 = 16;
    /// More than one process may hold it, or it was duplicated: its anchor is not pooled.
    pub const SHARED: u32 = 32;
    /// A first write met a closed peer; the next one fails.
    pub const WRITE_MET_CLOSED: u32 = 64;
    /// A non-blocking connect has not been reported yet.
    pub const CONNECTING: u32 = 128;
    /// A kernel socket on which `bind` was called.
    pub const BOUND: u32 = 256;
    /// The kernel socket is connected, or connecting.
    pub const KERNEL_CONNECTED: u32 = 512;
    /// The peer broke the rules; the connection is void.
    pub const FAULT: u32 = 1024;
    /// The transmit ring can not become larger.
    pub const NO_GROWTH: u32 = 2048;
    /// The anchor brings no more tokens: `shutdown` had to wake its sleepers.
    pub const ANCHOR_SHUT: u32 = 4096;
    /// A fresh socket's descriptor is closed on exec.
    pub const CLOSE_ON_EXEC: u32 = 8192;
    /// The other side has not accepted the connection yet: no bytes can be sent.
    pub const PENDING: u32 = 1 << 14;
    /// The connect has failed: the other side refused it.
    pub const REFUSED: u32 = 1 << 15;
    /// `O_ASYNC`: each piece of news needs a token, which raises the signal.
    pub const ASYNC: u32 = 1 << 16;
    /// It was virtual before the process became another user's: now a local kernel socket, whose other end a process of
    /// the former user serves. Names and options are answered as before.
    pub const HANDED_OVER: u32 = 1 << 17;
    /// `SO_PEEK_OFF` is or was set.
    pub const PEEK_OFFSET: u32 = 1 << 18;
    /// Sent bytes may be held back, or are: `TCP_CORK` is on, or some were sent with `MSG_MORE`.
    pub const HOLDS: u32 = 1 << 19;
    /// `shutdown` met a connect whose failure was not reported: the socket can be neither used nor connected again.
    pub const DISCONNECTING: u32 = 1 << 20;
    /// A call that has received bytes left an error for the next one.
    pub const LEFT_ERROR: u32 = 1 << 21;
    /// The program bound it to a port that it named, or to any port after its connection: it keeps that port without its
    /// connection.
    pub const PORT_NAMED: u32 = 1 << 22;
    /// A pump serves it for one of its processes.
    pub const PUMPED: u32 = 1 << 23;
    /// A writer has found no room at a peer that has ended both directions.
    pub const STALLED: u32 = 1 << 24;
    /// `O_APPEND`.
    pub const APPENDS: u32 = 1 << 25;
    /// `O_NOATIME`.
    pub const NO_ACCESS_TIME: u32 = 1 << 26;
    /// Its listener was bound to an address, which the socket keeps without its connection.
    pub const ADDRESS_NAMED: u32 = 1 << 27;
    /// The connection is gone without an end: dissolved, or a connect whose failure was reported, where other processes
    /// hold it, too.
    pub const DISSOLVED: u32 = 1 << 28;
    /// The last byte that is held back ends a record (`MSG_EOR`).
    pub const RECORD_ENDED: u32 = 1 << 29;
    /// Another process has or had it: what one of them connects is connected for all.
    pub const ELSEWHERE: u32 = 1 << 30;
    /// As [`ELSEWHERE`], where it is not known whether that process has it still: a message brought it there.
    pub const PASSED: u32 = 1 << 31;
}

/// A membership in an epoll set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Index of the set.
    pub set: u32,
    /// Number of the item there.
    pub item: u32,
}

/// Frees an entry in the region of another program. Registered by the module that knows those regions.
pub static FREE_ELSEWHERE: OnceLock<fn(&'static SocketEntry)> = OnceLock::new();

/// The part of a socket that only this process has. All zero is a valid empty one.
#[derive(Default)]
pub struct Local {
    /// Counts the sockets that had this entry in this process.
    pub tag: AtomicU32,
    /// Its descriptors in this process.
    pub descriptors: AtomicU32,
    /// The last fork for which it was counted.
    pub forked: AtomicU32,
    /// The link of a virtual socket.
    pub link: AtomicPtr<LinkEnd>,
    /// The listener of a listening socket, known to the module of listeners.
    pub listener: AtomicPtr<()>,
    /// A kernel socket that was bound before the socket became virtual and is kept for its port, plus one; 0 for none.
    pub reserve: AtomicI32,
    /// A duplicate of the anchor among the library's descriptors, with which the anchor goes back to the pool without a
    /// system call, plus one; 0 for none. Only while no other process holds the socket.
    pub spare: AtomicI32,
    /// A descriptor that keeps the socket open for a call that still sleeps in it, plus one; 0 for none.
    pub orphan: AtomicI32,
    /// Calls of this process that sleep on it, and so keep it open.
    pub holds: AtomicU32,
    /// The thread of the last of these.
    pub holder: AtomicU32,
    /// Its part of the sleepers in calls that the entry counts, and of those in `poll`. The entry keeps those of a
    /// process that was killed.
    pub sleepers: [AtomicU32; 2],
    /// Its memberships in epoll sets.
    pub memberships: AtomicPtr<Lock<Vec<Membership>>>,
    /// How often a writer found no room.
    pub full: AtomicU32,
    /// The count of arrived bytes when bytes were last held back.
    pub arrived_at_hold: AtomicU64,
    /// When the kernel was last asked whether the peer lives.
    pub checked: AtomicU64,
    /// When the connection was announced to one of several processes that have the listener, in the units of the clock; 0
    /// where it can not be withdrawn.
    pub announced: AtomicU64,
    /// The port of a connection that has ended.
    pub former_port: FormerPort,
    /// For a deferred connection, the library's duplicate of the end of a pair that is under its number, see
    /// [`crate::sockets::placeholder`], plus one; 0 for none.
    pub first_end: AtomicI32,
    /// The other end, plus one; 0 for none.
    pub other_end: AtomicI32,
    /// When the deferred connection was made, in nanoseconds.
    pub deferred_at: AtomicU64,
    /// Family of a fresh socket.
    pub family: AtomicI32,
    /// The signal owner of a fresh socket, see [`crate::sockets::signal_owner`]; 0 for none.
    pub owner: AtomicU64,
    /// The entry, where it lies in the region of another program.
    pub foreign: AtomicPtr<SocketEntry>,
}

/// Sockets in regions of other programs that this process may use at a time.
const MOST_FOREIGN: usize = 1 << 16;

/// Spare duplicates of anchors in the whole process.
static SPARES: AtomicUsize = AtomicUsize::new(0);
const MOST_SPARES: usize = 256;

/// Closes all of them, since numbers are short. Whether there were any.
#[cold]
pub fn drop_spares() -> bool {
    if SPARES.load(Ordering::Relaxed) == 0 {
        return false;
    }
    table::for_each(|_, word| {
        if word.kind() == Kind::Virtual
            && let Some(socket) = of_word(word)
        {
            socket.drop_spare();
        }
    });
    true
}

/// Calls `each` with the socket behind every descriptor of the library.
pub fn for_each(mut each: impl FnMut(&Socket)) {
    table::for_each(|_, word| match word.kind() {
        Kind::Fresh | Kind::Virtual | Kind::Kernel | Kind::Listener => {
            if let Some(socket) = of_word(word) {
                each(&socket);
            }
        }
        _ => {}
    });
}

/// Indices of foreign sockets: the free ones, and how many were ever used.
static FOREIGN: Lock<(Vec<usize>, usize)> = Lock::new((Vec::new(), 0));

static LOCALS: AtomicPtr<Local> = AtomicPtr::new(core::ptr::null_mut());

/// A socket: its shared entry, its private part, and the word under which it was found.
#[derive(Clone, Copy)]
pub struct Socket {
    /// Shared with forked children and read by the daemon.
    pub entry: &'static SocketEntry,
    /// The part of this process.
    pub local: &'static Local,
    /// Kind, index and tag.
    pub word: Word,
}

/// Maps the local parts.
pub fn initialise(entries: usize) -> bool {
    if !LOCALS.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Some(locals) = sys::reserve((entries + MOST_FOREIGN) * size_of::<Local>()) else {
        return false;
    };
    LOCALS.store(locals.cast(), Ordering::Release);
    true
}

fn local(index: usize) -> Option<&'static Local> {
    let locals = LOCALS.load(Ordering::Acquire);
    if locals.is_null() {
        return None;
    }
    // SAFETY: `index` is below the number of entries, for which the mapping has room; zero bytes
    // are a valid `Local`.
    Some(unsafe { &*locals.add(index) })
}

fn entry(index: usize) -> Option<&'static SocketEntry> {
    let attachment = attach::current()?;
    if index >= attachment.entries {
        return foreign_entry(index - attachment.entries, index);
    }
    attachment
        .region
        .at(program::ENTRIES_OFFSET + index * size_of::<SocketEntry>())
}

#[cold]
fn foreign_entry(number: usize, index: usize) -> Option<&'static SocketEntry> {
    if number >= MOST_FOREIGN {
        return None;
    }
    // SAFETY: null, or an entry of a region that is mapped forever.
    unsafe { local(index)?.foreign.load(Ordering::Acquire).as_ref() }
}

/// A socket of this process for an entry that another process has made: entry `own` of this process's region, or an
/// entry of another region.
pub fn of_entry(entry: &'static SocketEntry, own: Option<usize>) -> Option<Socket> {
    let index = match own {
        Some(index) => index,
        None => {
            let mut foreign = FOREIGN.lock()?;
            let number = match foreign.0.pop() {
                Some(number) => number,
                None if foreign.1 < MOST_FOREIGN => {
                    foreign.1 += 1;
                    foreign.1 - 1
                }
                None => return None,
            };
            attach::current()?.entries + number
        }
    };
    let local = local(index)?;
    let pointer = core::ptr::from_ref(entry).cast_mut();
    local.foreign.store(pointer, Ordering::Release);
    reset_local(local);
    owner_table::note(index, true);
    let tag = local.tag.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let word = Word::new(Kind::Virtual, u32::try_from(index).ok()?, tag);
    Some(Socket { entry, local, word })
}

fn reset_local(local: &Local) {
    local.descriptors.store(1, Ordering::Relaxed);
    local.link.store(core::ptr::null_mut(), Ordering::Relaxed);
    local
        .listener
        .store(core::ptr::null_mut(), Ordering::Relaxed);
    local.reserve.store(0, Ordering::Relaxed);
    local.spare.store(0, Ordering::Relaxed);
    local.orphan.store(0, Ordering::Relaxed);
    local.first_end.store(0, Ordering::Relaxed);
    local.other_end.store(0, Ordering::Relaxed);
    local.holds.store(0, Ordering::Relaxed);
    for count in &local.sleepers {
        count.store(0, Ordering::Relaxed);
    }
    local.owner.store(0, Ordering::Relaxed);
    local.checked.store(0, Ordering::Relaxed);
    local.announced.store(0, Ordering::Relaxed);
    local.former_port.forget();
}

/// In a forked child, where other threads that held the locks do not exist.
pub fn reset_in_child() {
    FOREIGN.reset();
    let entries = attach::current().map_or(0, |own| own.entries);
    let used = header().map_or(0, |header| {
        header.high_water.load(Ordering::Relaxed) as usize
    });
    let foreign = FOREIGN.lock().map_or(0, |foreign| foreign.1);
    for index in (0..used.min(entries)).chain(entries..entries + foreign) {
        let Some(local) = local(index) else { return };
        // SAFETY: null, or a list that is a leaked box.
        let memberships = unsafe { local.memberships.load(Ordering::Relaxed).as_ref() };
        local.holds.store(0, Ordering::Relaxed);
        for count in &local.sleepers {
            count.store(0, Ordering::Relaxed);
        }
        memberships.inspect(|list| list.reset());
    }
}

/// Entry `index` of this process's region.
pub fn own_entry(index: usize) -> Option<&'static SocketEntry> {
    entry(index).filter(|_| attach::current().is_some_and(|own| index < own.entries))
}

/// The socket that a word names.
#[inline]
pub fn of_word(word: Word) -> Option<Socket> {
    let index = word.index();
    Some(Socket {
        entry: entry(index)?,
        local: local(index)?,
        word,
    })
}

/// The socket behind a descriptor, if it is one of the library's.
#[inline]
pub fn of(fd: i32) -> Option<Socket> {
    let word = table::get(fd);
    match word.kind() {
        Kind::Foreign | Kind::Epoll | Kind::Internal => None,
        _ => of_word(word),
    }
}

impl Socket {
    /// Whether the descriptor still names this socket.
    #[inline]
    pub fn is(&self, fd: i32) -> bool {
        table::get(fd) == self.word
    }

    /// Whether this number is not the program's, but kept for a call that sleeps on a closed one.
    pub fn is_kept(&self, fd: i32) -> bool {
        // Acquire: pairs with the release of the thread that keeps it.
        fd >= 0 && self.local.orphan.load(Ordering::Acquire) == fd + 1
    }

    /// Whether any of these status bits is set.
    #[inline]
    pub fn has(&self, bits: u32) -> bool {
        self.entry.status.load(Ordering::Relaxed) & bits != 0
    }

    /// Sets status bits and returns those that were set before.
    #[inline]
    pub fn mark(&self, bits: u32) -> u32 {
        if self.entry.status.load(Ordering::Relaxed) & bits == bits {
            return bits;
        }
        self.entry.status.fetch_or(bits, Ordering::AcqRel) & bits
    }

    /// Clears status bits.
    #[inline]
    pub fn unmark(&self, bits: u32) {
        if self.has(bits) {
            self.entry.status.fetch_and(!bits, Ordering::AcqRel);
        }
    }

    /// Resets the socket to its state before it was connected, except for its options.
    pub fn reset_connection(&self) {
        let kept = status::NONBLOCKING
            | status::BOUND
            | status::PORT_NAMED
            | status::SHARED
            | status::ELSEWHERE
            | status::PASSED
            | status::ASYNC
            | status::PEEK_OFFSET
            | status::APPENDS
            | status::NO_ACCESS_TIME;
        self.entry.status.fetch_and(kept, Ordering::AcqRel);
        entries::forget_marks(self.entry);
        for direction in [&self.entry.transmit, &self.entry.receive] {
            let limit = direction.limit.load(Ordering::Relaxed);
            entries::clear(direction);
            direction.limit.store(limit, Ordering::Relaxed);
        }
    }

    /// The link of a virtual socket.
    #[inline]
    pub fn link(&self) -> Option<&'static LinkEnd> {
        // SAFETY: links are leaked boxes, never freed.
        unsafe { self.local.link.load(Ordering::Acquire).as_ref() }
    }

    /// Runs `with` on the list of epoll sets.
    pub fn with_memberships<R>(&self, with: impl FnOnce(&mut Vec<Membership>) -> R) -> Option<R> {
        Some(with(&mut *lazy(&self.local.memberships)?.lock()?))
    }

    /// Whether this process ever added it to an epoll set: a load, no lock.
    #[inline]
    pub fn ever_had_memberships(&self) -> bool {
        !self.local.memberships.load(Ordering::Acquire).is_null()
    }

    /// Whether it is in any epoll set, without making the list.
    pub fn has_memberships(&self) -> bool {
        self.memberships() > 0
    }

    /// The number of its memberships in epoll sets, without making the list.
    pub fn memberships(&self) -> usize {
        // SAFETY: lists are leaked boxes, reused with the entry.
        unsafe { self.local.memberships.load(Ordering::Acquire).as_ref() }
            .and_then(Lock::lock)
            .map_or(0, |list| list.len())
    }

    /// Keeps a duplicate of the anchor, if there is room for more of them.
    pub fn keep_spare(&self, anchor: i32) {
        if SPARES.fetch_add(1, Ordering::Relaxed) < MOST_SPARES {
            self.local.spare.store(anchor + 1, Ordering::Release);
        } else {
            SPARES.fetch_sub(1, Ordering::Relaxed);
            attach::close_internal(anchor);
        }
    }

    /// Takes the duplicate that [`Self::keep_spare`] kept, if it is still there.
    pub fn take_spare(&self) -> Option<i32> {
        if self.local.spare.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let spare = self.local.spare.swap(0, Ordering::AcqRel).checked_sub(1);
        let spare = spare.filter(|spare| *spare >= 0)?;
        SPARES.fetch_sub(1, Ordering::Relaxed);
        Some(spare)
    }

    /// Closes it: from now on only the program's descriptors hold the connection.
    pub fn drop_spare(&self) {
        if let Some(spare) = self.take_spare() {
            attach::close_internal(spare);
        }
    }

    /// Frees the entry. No thread may use it afterwards; a thread that still has the word finds another tag in the
    /// table.
    pub fn free(&self) {
        lock::release(&self.entry.transmit.lock);
        lock::release(&self.entry.receive.lock);
        if self.is_foreign() {
            FREE_ELSEWHERE.get().inspect(|free| free(self.entry));
            return self.leave();
        }
        owner_table::note(self.word.index(), false);
        if let Some(header) = header() {
            free_entry(header, self.word.index(), self.entry);
        }
    }

    /// Whether its entry lies in the region of another program.
    pub fn is_foreign(&self) -> bool {
        attach::current().is_some_and(|own| self.word.index() >= own.entries)
    }

    /// Drops a foreign socket: this process has no descriptor of it any more.
    pub fn leave(&self) {
        let Some(own) = attach::current() else { return };
        if let Some(number) = self.word.index().checked_sub(own.entries)
            && let Some(mut foreign) = FOREIGN.lock()
        {
            foreign.0.push(number);
        }
    }

    /// Records the reason why the socket is the kernel's, and counts it.
    pub fn falls_back(&self, reason: Reason) {
        self.entry.reason.store(reason as u32, Ordering::Relaxed);
        count_fallback(reason);
    }
}

/// Counts a fallback.
pub fn count_fallback(reason: Reason) {
    if let Some(counter) = header().and_then(|header| header.fallbacks.get(reason as usize)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn lazy<T: Default>(slot: &AtomicPtr<Lock<T>>) -> Option<&'static Lock<T>> {
    let existing = slot.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: leaked box, never freed.
        return unsafe { existing.as_ref() };
    }
    let made = Box::into_raw(Box::new(Lock::new(T::default())));
    match slot.compare_exchange(
        core::ptr::null_mut(),
        made,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        // SAFETY: leaked box, never freed.
        Ok(_) => unsafe { made.as_ref() },
        Err(other) => {
            // SAFETY: no other thread ever saw `made`; `other` is a leaked box.
            unsafe {
                drop(Box::from_raw(made));
                other.as_ref()
            }
        }
    }
}
