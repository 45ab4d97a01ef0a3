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
//! News arrives as a bit in the ready map of a cell; while the loop sleeps, also as a token on an
//! anchor, which makes the inner set readable. A socket that has no place in a cell is looked at
//! while the loop is awake (`watched`), and woken by tokens of its own once the loop has slept.
//! The kernel's events under our own data words are never shown as they are: each is looked into,
//! and told only if the member has something to tell.
//!
//! No path costs more with more members: a wait costs what is ready, a change of a member is
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
mod packing;
mod report;
mod shared;
mod sleep;
mod spares;
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

pub use adoption::{take_over, watching};
use item::Item;
pub use item::readiness;
pub use leaving::{Left, keep_boards, put_in, take_out};
use lists::{Bag, Index, Queue};
pub use nested::is_readable;
pub use packing::{adopt_inherited, pack, unpack};
pub use shared::{before_fork, reset_in_child};
pub use sleep::Asleep;
pub use spares::prepare;
pub use upkeep::{add_link, before_replace, changed, forget, note_spent, relocate, replaced};

/// A set in which a socket is a member, and as which item.
#[derive(Clone, Copy)]
pub struct Membership {
    set: &'static EpollSet,
    item: u32,
}

/// One epoll set of the program.
pub struct EpollSet {
    index: u32,
    /// Counts the sets that had this place.
    tag: AtomicU32,
    fd: AtomicI32,
    inner: AtomicI32,
    /// An eventfd in the inner set, to wake those who sleep.
    kick: AtomicI32,
    /// Whether any virtual socket, listener or other set was ever a member.
    active: AtomicBool,
    /// Threads that sleep in the kernel for this set, or for one around it, or in poll on it.
    sleepers: AtomicUsize,
    /// All of them are to be woken, and not only one.
    wakes_all: AtomicBool,
    /// A listener that is a member got connections, whoever took them off their link.
    jobs: AtomicBool,
    /// Counts news, for edge-triggered sets around this one.
    edges: AtomicU64,
    /// Whether it is a member of another set.
    has_parents: AtomicBool,
    /// It went through a fork: other processes may use it too.
    shared: AtomicBool,
    /// The inner set is no member of the program's, but of the sets around it.
    detached: AtomicBool,
    /// This process has said that it uses it.
    enrolled: AtomicBool,
    /// It told of what only another process knows, and may tell of it again at once.
    strange: AtomicBool,
    turns: wait::Turns,
    parents: Lock<Vec<Membership>>,
    state: Lock<State>,
}

struct CellUse {
    /// `None` while the place is not used.
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
    index: Index,
    ready: Queue,
    cells: Vec<CellUse>,
    /// Items without a cell that are looked at on every pass.
    watched: Bag,
    /// Items of which more has come that is held back, for a time at most.
    holding: Bag,
    /// Items whose anchor is not in the inner set yet.
    unregistered: Bag,
    listeners: Bag,
    nested: Bag,
    links: Vec<&'static LinkEnd>,
    /// Counts the looks that told what is ready.
    round: u32,
    /// A member left since the last sleep: a wake-up may have gone to it.
    left: bool,
    /// What is known to all processes that share the set.
    board: Option<board::Board>,
    /// Members that were added on the board when it was last looked at.
    added: u32,
    /// Where a free number on the board is looked for.
    hint: u32,
    /// Events of members that only other processes have.
    strangers: Vec<libc::epoll_event>,
}

const SETS: usize = 8192;
static TABLE: [AtomicPtr<EpollSet>; SETS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SETS];
static UNUSED: Lock<Vec<u32>> = Lock::new(Vec::new());
static NEXT: AtomicU32 = AtomicU32::new(0);

/// What the inner set's data words name.
mod inside {
    pub const ITEM: u64 = 0;
    pub const CHANNEL: u64 = 1;
    pub const KICK: u64 = 2;
}

/// The low bits of our own data words in the program's sets: an item, or all ones for the inner set.
const NUMBER: u64 = 0xff_ffff;

/// What [`own_data`] says in an image that has sets of the one before, in which the kernel knows members by it; else 0.
static OWN_DATA: AtomicU64 = AtomicU64::new(0);

/// The high bits of our own data words: no pointer, no small number, and not the same in another
/// program, so that no program uses it by chance.
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

/// A new set of the program becomes known, also where no daemon serves: one may later.
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

/// Every set there ever was.
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

/// A descriptor of a set is closed; with the last one the set ends.
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
    // With the inner set all its members go.
    attach::close_internal(set.inner.swap(-1, Ordering::AcqRel));
    if let Some(mut state) = set.state.lock() {
        for number in 0..u32::try_from(state.items.len()).unwrap_or(0) {
            set.remove_with_membership(&mut state, number);
        }
        *state = State::default();
    }
    attach::close_internal(set.kick.swap(-1, Ordering::AcqRel));
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
            kick: AtomicI32::new(-1),
            strange: AtomicBool::new(false),
            active: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            wakes_all: AtomicBool::new(false),
            jobs: AtomicBool::new(false),
            edges: AtomicU64::new(0),
            has_parents: AtomicBool::new(false),
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

    /// Whether members are or were there of which the kernel does not know all.
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

    /// Makes the inner set. Who sleeps in the kernel alone is woken, to sleep for all members.
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

    /// Wakes those who sleep in the set, or in one around it; the caller changed something.
    fn wake(&self) {
        // Pairs with `fall_asleep`: who sleeps counts itself, then looks once more.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.kick();
        }
    }

    #[cold]
    fn kick(&self) {
        let mut fd = self.kick.load(Ordering::Acquire);
        if fd < 0 {
            let Some(made) = self.make_kick() else { return };
            fd = made;
        }
        let one = 1u64.to_ne_bytes();
        let pointer = one.as_ptr().addr();
        // SAFETY: eight bytes of ours.
        let _ = unsafe { sys::raw(libc::SYS_write, [sys::int(fd), pointer, 8, 0, 0, 0]) };
    }

    fn make_kick(&self) -> Option<i32> {
        let inner = self.inner.load(Ordering::Acquire);
        if inner < 0 {
            return None;
        }
        let made = spares::counter().ok()?;
        let placed = self
            .kick
            .compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = placed {
            attach::close_internal(made);
            return Some(other);
        }
        self.put_kick(made);
        Some(made)
    }
}
