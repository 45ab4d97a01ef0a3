//! The environment of the program as it begins, read once and in one pass: every program that starts pays for it.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The values of these variables; of several of one name the first, as `getenv` finds it.
///
/// # Safety
/// No other thread changes the environment meanwhile, nor while the values are used.
#[inline]
pub unsafe fn values<const COUNT: usize>(names: [&[u8]; COUNT]) -> [Option<&'static [u8]>; COUNT] {
    let mut values = [None; COUNT];
    // SAFETY: the C library's list of C strings, which ends with null.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            for (value, name) in values.iter_mut().zip(names) {
                if value.is_none() {
                    *value = value_of(*at, name).map(CStr::to_bytes);
                }
            }
            at = at.add(1);
        }
    }
    values
}

/// What stands behind `name=`, where an entry begins so.
#[inline]
unsafe fn value_of<'a>(entry: *const c_char, name: &[u8]) -> Option<&'a CStr> {
    let mut at = entry;
    // SAFETY: a byte is only read where none before it was the end of the string.
    unsafe {
        for byte in name.iter().chain(b"=") {
            if at.read().cast_unsigned() != *byte {
                return None;
            }
            at = at.add(1);
        }
        Some(CStr::from_ptr(at))
    }
}

/// A value that is kept, since the program may change its environment.
pub struct Kept {
    start: AtomicPtr<u8>,
    length: AtomicUsize,
}

impl Kept {
    /// No value.
    pub const fn new() -> Self {
        Self {
            start: AtomicPtr::new(core::ptr::null_mut()),
            length: AtomicUsize::new(0),
        }
    }

    /// Keeps a value. Called at most once, at the start.
    pub fn keep(&self, value: &[u8]) {
        let kept = Box::leak(Box::<[u8]>::from(value));
        self.length.store(kept.len(), Ordering::Relaxed);
        // Release: pairs with the acquire in `get`, which reads the length and the bytes.
        self.start.store(kept.as_mut_ptr(), Ordering::Release);
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&'static [u8]> {
        let start = self.start.load(Ordering::Acquire);
        let length = self.length.load(Ordering::Relaxed);
        // SAFETY: both are of one block, which is never freed.
        (!start.is_null()).then(|| unsafe { core::slice::from_raw_parts(start, length) })
    }
}
