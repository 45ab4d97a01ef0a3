//! A daemon comes, goes, and another one follows: what is known of that, and who is told.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use super::Attachment;

/// The daemon is known to have gone, and no other one knows this program.
static GONE: AtomicBool = AtomicBool::new(false);

/// Something showed that the daemon has gone.
pub fn daemon_is_gone() {
    GONE.store(true, Ordering::Release);
}

/// Whether it has gone, and no other one knows this program.
#[inline]
pub fn is_gone() -> bool {
    GONE.load(Ordering::Relaxed)
}

/// Another daemon serves. True for who is the first to say so, and tells it of this program.
pub fn another_serves() -> bool {
    // Acquire: pairs with the release in `daemon_is_gone`.
    GONE.swap(false, Ordering::Acquire)
}

/// What stands on the attachment, and is told as it comes and goes.
pub trait Dependants: Sync {
    /// There will be a region with so many entries. False where it can not be used.
    fn prepare(&self, entries: usize) -> bool;
    /// There is a region.
    fn begin(&self);
    /// Another daemon serves, whose directory takes the place of `former`'s.
    fn follow(&self, former: &Attachment);
    /// The daemon does not keep what it gave to this program.
    fn forget(&self);
}

/// Registered when the library begins.
pub static DEPENDANTS: OnceLock<&'static dyn Dependants> = OnceLock::new();
