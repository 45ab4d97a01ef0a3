//! Daemons that come, go, and follow one another: the state, and the modules that are notified.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::OnceLock;

use super::Attachment;

/// The daemon has ended, and no other one knows this program.
static GONE: AtomicBool = AtomicBool::new(false);

/// Notes that the daemon has ended.
pub fn daemon_is_gone() {
    GONE.store(true, Ordering::Release);
}

/// Whether the daemon has ended, and no other one knows this program.
#[inline]
pub fn is_daemon_gone() -> bool {
    GONE.load(Ordering::Relaxed)
}

/// Called when another daemon serves. True for the first caller, which then introduces this program.
pub fn note_new_daemon() -> bool {
    // Acquire: pairs with the release in `daemon_is_gone`.
    GONE.swap(false, Ordering::Acquire)
}

/// The modules that depend on the attachment, notified of its changes.
pub trait AttachmentObserver: Sync {
    /// A region with so many entries is about to be installed. False where it can not be used.
    fn prepare(&self, entries: usize) -> bool;
    /// The region is installed.
    fn begin(&self);
    /// Another daemon serves, whose directory takes the place of `former`'s.
    fn follow(&self, former: &Attachment);
    /// The daemon no longer keeps what it gave to this program.
    fn forget(&self);
}

/// Registered when the library begins.
pub static OBSERVER: OnceLock<&'static dyn AttachmentObserver> = OnceLock::new();

/// The function that registers the observer and what else sockets need, which most programs never do.
#[unsafe(link_section = ".data.netchannel_start")]
static REGISTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Called at the start.
#[inline]
pub fn register_later(register: fn()) {
    // Relaxed: only this thread runs yet.
    REGISTER.store(register as *mut (), Ordering::Relaxed);
}

/// Registers before the first attachment, whichever call it is that attaches.
pub(super) fn register_now() {
    let register = REGISTER.load(Ordering::Relaxed);
    if OBSERVER.get().is_none() && !register.is_null() {
        // SAFETY: a function of this type was stored.
        let register = unsafe { core::mem::transmute::<*mut (), fn()>(register) };
        register();
    }
}
