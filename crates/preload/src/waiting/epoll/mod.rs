//! Event loops. The program's epoll descriptor stays a real one; virtual sockets are members of it
//! in user space, and of an inner epoll set that is itself a member of the program's.
//!
//! ```text
//!  program's set (kernel) --+-- ordinary descriptors, as the program added them
//!                           +-- listeners and other sets of the program, under our own data words
//!                           +-- inner set --+-- anchors, registered before the first sleep
//!                                           +-- link channels, channels of listeners, the kick
//! ```
//!
//! News arrives as a bit in the ready map of a cell; while the loop sleeps, also as a token on an anchor, which makes
//! the inner set readable. A socket without a bit in a cell is looked at while the loop is awake (`watched`), and woken
//! by tokens of its own once the loop has slept. The kernel's events with data words of the library are never passed on
//! as they are: each is looked into, and reported only if the member has an event.
//!
//! No path becomes slower with more members: a wait costs as much as there are ready members, a change of a member is
//! constant.

mod adoption;
mod board;
mod cells;
mod detached;
mod edges;
mod holding;
mod inner;
mod item;
mod leaving;
mod lingering;
mod lists;
mod members;
mod nested;
mod others;
mod packing;
mod report;
mod shared;
mod sleep;
mod spares;
mod unconnected;
mod upkeep;
mod wait;

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use libc::c_int;

use crate::descriptors::attach;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::lock::{Guard, Lock};
use crate::ground::{gate, process, sys};
use crate::sockets::link::LinkEnd;

pub use adoption::{take_over, watch_instead, watching};
use item::Item;
pub use item::readiness;
pub use leaving::{RemovedMember, add_again, make_boards_private, remove_from_sets};
use lists::{DescriptorMap, NumberSet, Queue};
pub use nested::is_readable;
pub use packing::{adopt_inherited, end_start, prepare_exec, prepare_start, undo_exec};
pub use shared::{before_fork, reset_in_child};
pub use sleep::SleepingSets;
pub use spares::prepare;
pub use upkeep::{add_link, before_replace, changed, forget, relocate, replaced};

/// A set that has a socket as a member, and the number of its item.
#[derive(Clone, Copy)]
pub struct Membership {
    set: &'static EpollSet,
    item: u32,
}

/// One epoll set of the program.
pub struct EpollSet {
    index: u32,
    /// Counts the sets that had this index.
    tag: AtomicU32,
    fd: AtomicI32,
    inner: AtomicI32,
    /// An eventfd in the inner set that wakes sleepers.
    wake_descriptor: AtomicI32,
    /// Whether a virtual socket, listener or other set was ever a member.
    active: AtomicBool,
    /// Threads that sleep in the kernel for this set, for a set around it, or in poll on it.
    sleepers: AtomicUsize,
    /// All sleepers are to be woken, not only one.
    wakes_all: AtomicBool,
    /// A listener that is a member has new connections, whichever thread took them off their link.
    jobs: AtomicBool,
    /// Counts news for edge-triggered sets around this one.
    edges: AtomicU64,
    /// Whether it is a member of another set.
    has_parents: AtomicBool,
    /// Fresh sockets are members.
    has_fresh: AtomicBool,
    /// The set went through a fork: other processes may use it, too.
    shared: AtomicBool,
    /// The inner set is no member of the program's set, but of the sets around it.
    detached: AtomicBool,
    /// This process is registered as a user of the shared set.
    enrolled: AtomicBool,
    /// It reported an event of a member that only another process has, and may report it again at once.
    reported_stranger: AtomicBool,
    turns: wait::Turns,
    parents: Lock<Vec<Membership>>,
    state: Lock<State>,
}

struct CellUse {
    /// `None` while the entry is not used.
    link: Option<&'static LinkEnd>,
    cell: usize,
    /// Item plus one, by slot.
    items: Vec<u32>,
    members: usize,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    free: Vec<u32>,
    /// By the descriptor under which a member was added.
    index: DescriptorMap,
    ready: Queue,
    cells: Vec<CellUse>,
    /// Items without a cell that are looked at on every pass.
    watched: NumberSet,
    /// Items with bytes that are held back.
    holding: NumberSet,
    /// Items whose anchor is not in the inner set yet.
    unregistered: NumberSet,
    listeners: NumberSet,
    nested: NumberSet,
    /// Fresh sockets, which the kernel's set does not have.
    fresh: NumberSet,
    links: Vec<&'static LinkEnd>,
    /// When it was last published that a loop looks at them, in the clock's units.
    looked: u64,
    /// Counts the passes that reported events.
    round: u32,
    /// As of [`socket::sharings`], when no member with a cell was another process's, too. 0 where that is not known.
    unshared: u32,
    /// A member was removed since the last sleep: a wake-up may have gone to it.
    member_left: bool,
    /// The members that all processes sharing the set know.
    board: Option<board::Board>,
    /// The board's count of added members at the last look.
    added: u32,
    /// Where the search for a free number on the board begins.
    hint: u32,
    /// Events of members that only other processes have.
    strangers: Vec<libc::epoll_event>,
}

const SETS: usize = 8192;
static TABLE: [AtomicPtr<EpollSet>; SETS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SETS];
static UNUSED: Lock<Vec<u32>> = Lock::new(Vec::new());
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The upper half of the inner set's data words.
mod inner_data {
    pub const ITEM: u64 = 0;
    pub const CHANNEL: u64 = 1;
    pub const WAKE: u64 = 2;
}

/// The low bits of the library's data words in the program's sets: an item, or all ones for the inner set.
const NUMBER: u64 = 0xff_ffff;

/// The value of [`own_data`] in an image that has inherited sets, whose members the kernel knows by it; otherwise 0.
static OWN_DATA: AtomicU64 = AtomicU64::new(0);

/// The high bits of the library's data words: neither a pointer nor a small number, and different in each program, so
/// that no program uses them by chance.
#[inline]
fn own_data() -> u64 {
    let inherited = OWN_DATA.load(Ordering::Relaxed);
    if inherited != 0 {
        return inherited;
    }
    let place = (&raw const TABLE).addr() as u64;
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63) & !NUMBER
}

const fn flag(value: c_int) -> u32 {
    value.cast_unsigned()
}

/// Registers a new set of the program, also where no daemon serves: one may later.
pub fn opened(fd: i32) {
    if process::is_vfork_child() {
        return;
    }
    let reused = UNUSED.lock().and_then(|mut unused| unused.pop());
    let index = reused.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let Some(place) = TABLE.get(index as usize) else {
        return;
    };
    if place.load(Ordering::Acquire).is_null() {
        let set = EpollSet::new(index);
        place.store(Box::into_raw(Box::new(set)), Ordering::Release);
    }
    let Some(set) = by_index(index as usize) else {
        return;
    };
    set.fd.store(fd, Ordering::Relaxed);
    let tag = set.tag.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let _inside = gate::enter();
    table::set(fd, Word::new(Kind::Epoll, index, tag));
}

fn by_index(index: usize) -> Option<&'static EpollSet> {
    // SAFETY: sets are leaked boxes, never freed.
    unsafe { TABLE.get(index)?.load(Ordering::Acquire).as_ref() }
}

/// Every set that was ever opened.
fn all() -> impl Iterator<Item = &'static EpollSet> {
    let count = NEXT.load(Ordering::Relaxed) as usize;
    (0..count.min(SETS)).filter_map(by_index)
}

/// The set behind a descriptor.
#[inline]
pub fn of(fd: i32) -> Option<&'static EpollSet> {
    let word = table::get(fd);
    if word.kind() == Kind::Epoll {
        by_index(word.index())
    } else {
        None
    }
}

/// Closes a descriptor of a set; the last one ends the set.
pub fn closed(fd: i32, word: Word) {
    table::change(fd, word, Word::FOREIGN);
    let Some(set) = by_index(word.index()) else {
        return;
    };
    if let Some(other) = table::find(word) {
        if set.fd.load(Ordering::Relaxed) == fd {
            set.fd.store(other, Ordering::Relaxed);
        }
        return set.moved(fd, other);
    }
    set.leave_parents();
    set.tag.fetch_add(1, Ordering::Relaxed);
    // With the inner set the kernel forgets all its members.
    attach::close_internal(set.inner.swap(-1, Ordering::AcqRel));
    if let Some(mut state) = set.state.lock() {
        for number in 0..u32::try_from(state.items.len()).unwrap_or(0) {
            set.remove_with_membership(&mut state, number);
        }
        *state = State::default();
    }
    set.has_fresh.store(false, Ordering::Relaxed);
    attach::close_internal(set.wake_descriptor.swap(-1, Ordering::AcqRel));
    set.active.store(false, Ordering::Release);
    set.detached.store(false, Ordering::Release);
    set.shared.store(false, Ordering::Relaxed);
    set.jobs.store(false, Ordering::Relaxed);
    if let Some(mut unused) = UNUSED.lock() {
        unused.push(set.index);
    }
}

impl EpollSet {
    fn new(index: u32) -> Self {
        Self {
            index,
            tag: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            inner: AtomicI32::new(-1),
            wake_descriptor: AtomicI32::new(-1),
            reported_stranger: AtomicBool::new(false),
            active: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            wakes_all: AtomicBool::new(false),
            jobs: AtomicBool::new(false),
            edges: AtomicU64::new(0),
            has_parents: AtomicBool::new(false),
            has_fresh: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            enrolled: AtomicBool::new(false),
            turns: wait::Turns::default(),
            parents: Lock::new(Vec::new()),
            state: Lock::new(State::default()),
        }
    }

    fn lock(&self) -> Result<Guard<'_, State>, i32> {
        self.state.lock().ok_or(libc::EAGAIN)
    }

    /// Whether the set has or had members that the kernel's set does not have.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether the program has it open.
    fn is_open(&self) -> bool {
        of(self.fd.load(Ordering::Relaxed)).is_some_and(|known| core::ptr::eq(known, self))
    }

    /// Whether `word` still names this set.
    fn is(&self, word: Word) -> bool {
        word == Word::new(Kind::Epoll, self.index, self.tag.load(Ordering::Relaxed))
    }

    /// Makes the inner set. A thread that sleeps in the kernel's set only is woken by it, and then sleeps for all
    /// members.
    fn activate(&self) -> Result<(), i32> {
        if self.is_active() {
            return Ok(());
        }
        let inner = spares::set()?;
        let set = self.fd.load(Ordering::Relaxed);
        let events = flag(libc::EPOLLIN);
        let data = own_data() | NUMBER;
        let added = sys::epoll_control(set, libc::EPOLL_CTL_ADD, inner, events, data);
        if let Err(error) = added
            && error != libc::ELOOP
        {
            attach::close_internal(inner);
            return Err(error);
        }
        self.inner.store(inner, Ordering::Release);
        if added.is_err() {
            self.detach();
        }
        self.active.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Wakes a thread that sleeps in the set, or in a set around it, after a change.
    fn wake(&self) {
        // Pairs with `announce_sleep`: a sleeper counts itself, then looks once more.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.write_wake_descriptor();
        }
    }

    #[cold]
    fn write_wake_descriptor(&self) {
        let mut fd = self.wake_descriptor.load(Ordering::Acquire);
        if fd < 0 {
            let Some(made) = self.make_wake_descriptor() else {
                return;
            };
            fd = made;
        }
        let one = 1u64.to_ne_bytes();
        let pointer = one.as_ptr().addr();
        // SAFETY: the kernel reads `one`.
        let _ = unsafe { sys::raw(libc::SYS_write, [sys::int(fd), pointer, 8, 0, 0, 0]) };
    }

    fn make_wake_descriptor(&self) -> Option<i32> {
        let inner = self.inner.load(Ordering::Acquire);
        if inner < 0 {
            return None;
        }
        let made = spares::counter().ok()?;
        let placed =
            self.wake_descriptor
                .compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = placed {
            attach::close_internal(made);
            return Some(other);
        }
        self.register_wake_descriptor(made);
        Some(made)
    }
}
