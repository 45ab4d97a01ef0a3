//! The library's knowledge of a descriptor number: one word, found without a lock.
//!
//! A word of zero is a descriptor that does not concern the library.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::ground::lock::Lock;
use crate::ground::sys;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Not a descriptor of interest.
    Foreign = 0,
    /// A TCP socket that is neither bound nor connected yet; the kernel sees a duplicate of the template.
    Fresh = 1,
    /// A connected virtual socket; the kernel sees its anchor.
    Virtual = 2,
    /// A kernel TCP socket, kept for `netchannel ss`.
    Kernel = 3,
    /// A TCP listener that also accepts virtual connections.
    Listener = 4,
    /// An epoll set.
    Epoll = 5,
    /// A TCP socket that is connected to a listener with `TCP_DEFER_ACCEPT`, and not announced to it yet.
    Deferred = 7,
    /// The library's own; the program must not access it.
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
#[unsafe(link_section = ".data.netchannel_start")]
static MAKING: Lock<()> = Lock::new(());
/// One more than the highest descriptor that ever had a word, among the program's and among the library's: the gap
/// between them may be a million words wide.
#[unsafe(link_section = ".data.netchannel_start")]
static HIGHEST: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// First number of the library's own descriptors.
#[unsafe(link_section = ".data.netchannel_start")]
static FIRST_LIBRARY_NUMBER: AtomicI32 = AtomicI32::new(256);

/// First number of the library's own descriptors.
#[inline]
pub fn first_library_number() -> i32 {
    FIRST_LIBRARY_NUMBER.load(Ordering::Relaxed)
}

/// Makes the table when its first word is set, for as many descriptors as the process can ever have: most programs
/// never need one.
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

/// Whether any descriptor ever concerned the library.
pub fn is_made() -> bool {
    LENGTH.load(Ordering::Relaxed) > 0
}

/// In a forked child, where a thread that was making the table does not exist.
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
    // SAFETY: the mapping has LENGTH words and lives forever.
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
            let high = &HIGHEST[usize::from(fd >= first_library_number())];
            high.fetch_max(usize::try_from(fd).unwrap_or(0) + 1, Ordering::Relaxed);
        }
        cell.store(word.0, Ordering::Release);
        true
    })
}

/// One more than the highest descriptor of the program that ever had a word.
pub fn highest() -> usize {
    HIGHEST[0].load(Ordering::Relaxed)
}

/// Moves the first number of the library's descriptors: those below are looked for among the program's.
pub fn split_at(high: i32) {
    FIRST_LIBRARY_NUMBER.store(high, Ordering::Relaxed);
    let ours = HIGHEST[1].load(Ordering::Relaxed);
    let high = usize::try_from(high).unwrap_or(0);
    if ours > 0 {
        HIGHEST[0].fetch_max(ours.min(high), Ordering::Relaxed);
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
    let [own, ours] = [&HIGHEST[0], &HIGHEST[1]].map(|high| {
        let end = high.load(Ordering::Relaxed);
        i32::try_from(end).unwrap_or(0)
    });
    for fd in (0..own).chain(own.max(first_library_number())..ours) {
        let word = get(fd);
        if word != Word::FOREIGN {
            each(fd, word);
        }
    }
}

/// The highest descriptor that has the word.
pub fn find(word: Word) -> Option<i32> {
    find_if(|_, known| known == word)
}

/// The highest descriptor that fits.
pub fn find_if(fits: impl Fn(i32, Word) -> bool) -> Option<i32> {
    let mut found = None;
    for_each(|fd, known| {
        if fits(fd, known) {
            found = Some(fd);
        }
    });
    found
}
