//! Memory that a process whose memory is limited keeps aside for the library. When the kernel refuses it more, this goes back: what was
//! begun is brought to its end, and from then on the process makes no more virtual connections, and other programs come to its listeners
//! by the kernel. So nothing that was promised to a peer fails for want of memory, and no allocation does.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sys;

/// Room for some links of which clients know already, and for what is noted of their connections.
const BYTES: usize = 8 << 20;

static PLACE: AtomicUsize = AtomicUsize::new(0);
static SHORT: AtomicBool = AtomicBool::new(false);

/// Where the process has a limit, takes the ballast.
pub fn take() {
    let limited = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(sys::limit);
    if limited.iter().all(|limit| *limit == libc::RLIM_INFINITY)
        || PLACE.load(Ordering::Relaxed) != 0
        || is_short()
    {
        return;
    }
    match sys::reserve(BYTES) {
        Some(made) => PLACE.store(made.expose_provenance(), Ordering::Release),
        None => SHORT.store(true, Ordering::Relaxed),
    }
}

/// The kernel refuses memory. True where there is some now, once.
#[cold]
pub fn drop() -> bool {
    let place = PLACE.swap(0, Ordering::AcqRel);
    if place == 0 {
        return false;
    }
    SHORT.store(true, Ordering::Relaxed);
    let words = [place, BYTES, 0, 0, 0, 0];
    // SAFETY: a mapping that nothing was ever put into.
    unsafe { sys::raw(libc::SYS_munmap, words) }.is_ok()
}

/// Whether memory has been refused: nothing new is begun.
#[inline]
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}
