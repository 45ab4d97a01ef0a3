//! What the library knows of a descriptor number: one word, found without a lock.
//!
//! A word that is zero is a descriptor the library has nothing to do with.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::ground::lock::Lock;
use crate::ground::sys;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Not ours.
    Foreign = 0,
    /// A TCP socket that has done nothing yet; the kernel sees a duplicate of the template.
    Fresh = 1,
    /// A connected virtual socket; the kernel sees its anchor.
    Virtual = 2,
    /// A kernel TCP socket, kept for `netchannel ss`.
    Kernel = 3,
    /// A TCP listener that also accepts virtual connections.
    Listener = 4,
    /// An epoll set.
    Epoll = 5,
    /// A TCP socket that is connected to a listener which waits for what its clients say, and of which nobody knows yet.
    Deferred = 7,
    /// The library's own; the program must not touch it.
    Internal = 6,
}

/// A word of the table: kind, index of the socket or set, and a tag against reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// A descriptor that is not ours.
    pub const FOREIGN: Self = Self(0);

    /// Composes a word.
    pub const fn new(kind: Kind, index: u32, tag: u32) -> Self {
        Self(kind as u64 | ((index & 0xff_ffff) as u64) << 8 | (tag as u64) << 32)
    }

    /// The kind.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self.0 & 0xff {
            1 => Kind::Fresh,
            2 => Kind::Virtual,
            3 => Kind::Kernel,
            4 => Kind::Listener,
            5 => Kind::Epoll,
            6 => Kind::Internal,
            7 => Kind::Deferred,
            _ => Kind::Foreign,
        }
    }

    /// The index.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 >> 8 & 0xff_ffff) as usize
    }
}

static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// 0 while there is no table.
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static MAKING: Lock<()> = Lock::new(());
/// One more than the highest descriptor that ever had a word, among the program's and among those
/// where the library has its own: the gap between may be a million words wide.
static HIGH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// First number the library uses for itself.
#[unsafe(link_section = ".data.netchannel_start")]
static LIBRARYS: AtomicI32 = AtomicI32::new(256);

/// Descriptors of the library start here.
#[inline]
pub fn librarys() -> i32 {
    LIBRARYS.load(Ordering::Relaxed)
}

/// Makes the table with the first word of it, for as many descriptors as the process can ever have: most programs never need one.
#[cold]
#[inline(never)]
fn make() -> Option<()> {
    let _guard = MAKING.lock()?;
    if LENGTH.load(Ordering::Relaxed) == 0 {
        let limit = sys::limit(libc::RLIMIT_NOFILE, None);
        let most = limit.map_or(u64::MAX, |limit| limit.rlim_max);
        let length = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .clamp(1024, 1 << 20);
        let words = sys::reserve(length * 8)?;
        WORDS.store(words.cast(), Ordering::Relaxed);
        // Release: pairs with the load in `cell`, there are so many words.
        LENGTH.store(length, Ordering::Release);
    }
    Some(())
}

/// Whether any descriptor was ever of the library's concern.
pub fn is_made() -> bool {
    LENGTH.load(Ordering::Relaxed) > 0
}

/// In a forked child, where who made the table meanwhile does not exist.
pub fn reset_in_child() {
    MAKING.reset();
}

#[inline]
fn cell(fd: i32) -> Option<&'static AtomicU64> {
    let index = usize::try_from(fd).ok()?;
    // Acquire: pairs with the release in `make`.
    if index >= LENGTH.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: the mapping has LENGTH words and lives for ever.
    Some(unsafe { &*WORDS.load(Ordering::Relaxed).add(index) })
}

/// The word of a descriptor.
#[inline]
pub fn get(fd: i32) -> Word {
    // Acquire: pairs with the release in `set`, the socket behind the word is complete.
    cell(fd).map_or(Word::FOREIGN, |cell| Word(cell.load(Ordering::Acquire)))
}

/// Changes the word of a descriptor. False when the table has no place for it.
pub fn set(fd: i32, word: Word) -> bool {
    if word != Word::FOREIGN && LENGTH.load(Ordering::Relaxed) == 0 && make().is_none() {
        return false;
    }
    cell(fd).is_some_and(|cell| {
        if word != Word::FOREIGN {
            let high = &HIGH[usize::from(fd >= librarys())];
            high.fetch_max(usize::try_from(fd).unwrap_or(0) + 1, Ordering::Relaxed);
        }
        cell.store(word.0, Ordering::Release);
        true
    })
}

/// One more than the highest descriptor of the program's that ever had a word.
pub fn highest() -> usize {
    HIGH[0].load(Ordering::Relaxed)
}

/// The library's descriptors start at another number from now on: those below are looked for among the program's.
pub fn split_at(high: i32) {
    LIBRARYS.store(high, Ordering::Relaxed);
    let ours = HIGH[1].load(Ordering::Relaxed);
    let high = usize::try_from(high).unwrap_or(0);
    if ours > 0 {
        HIGH[0].fetch_max(ours.min(high), Ordering::Relaxed);
    }
}

/// Changes the word only if it still is `old`.
pub fn change(fd: i32, old: Word, new: Word) -> bool {
    cell(fd).is_some_and(|cell| {
        cell.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })
}

/// Calls `each` with every descriptor whose word is not zero.
pub fn for_each(mut each: impl FnMut(i32, Word)) {
    let [own, ours] = [&HIGH[0], &HIGH[1]].map(|high| {
        let end = high.load(Ordering::Relaxed);
        i32::try_from(end).unwrap_or(0)
    });
    for fd in (0..own).chain(own.max(librarys())..ours) {
        let word = get(fd);
        if word != Word::FOREIGN {
            each(fd, word);
        }
    }
}

/// A descriptor that has the word: the highest of them.
pub fn find(word: Word) -> Option<i32> {
    find_if(|_, known| known == word)
}

/// A descriptor that fits: the highest of them.
pub fn find_if(fits: impl Fn(i32, Word) -> bool) -> Option<i32> {
    let mut found = None;
    for_each(|fd, known| {
        if fits(fd, known) {
            found = Some(fd);
        }
    });
    found
}
