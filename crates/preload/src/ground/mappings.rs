//! Memory that other processes can write, too: a list of all regions and links that are mapped. A process that becomes
//! another user's leaves all of them, whatever each is for. Without locks, since a signal handler may use the list.

use core::sync::atomic::{AtomicPtr, Ordering};

use netchannel_shm::Region;

/// An entry of the list. Never freed; unused while the pointer is null.
struct Entry {
    region: AtomicPtr<Region>,
    next: *const Entry,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or a leaked box that was complete before it was shown.
    let read = |place: *const Entry| unsafe { place.as_ref() };
    let mut next = read(FIRST.load(Ordering::Acquire));
    core::iter::from_fn(move || {
        let place = next?;
        next = read(place.next);
        Some(place)
    })
}

/// Adds a region that other processes can write.
pub fn note(region: &'static Region) {
    let pointer = core::ptr::from_ref(region).cast_mut();
    let empty = core::ptr::null_mut();
    let (taken, other) = (Ordering::AcqRel, Ordering::Relaxed);
    let placed = entries().any(|place| {
        let word = &place.region;
        word.load(other).is_null() && word.compare_exchange(empty, pointer, taken, other).is_ok()
    });
    if placed {
        return;
    }
    let made = Box::into_raw(Box::new(Entry {
        region: AtomicPtr::new(pointer),
        next: FIRST.load(Ordering::Acquire),
    }));
    loop {
        // SAFETY: no other thread knows the entry yet.
        let next = unsafe { (*made).next }.cast_mut();
        match FIRST.compare_exchange(next, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(other) => unsafe { (*made).next = other },
        }
    }
}

/// Removes a region that this process has left.
pub fn forget(region: &Region) {
    let pointer = core::ptr::from_ref(region).cast_mut();
    let empty = core::ptr::null_mut();
    for place in entries() {
        let _ = place
            .region
            .compare_exchange(pointer, empty, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Leaves all regions but `kept`: private zeros take their place at the same addresses, for threads that still access
/// them.
pub fn leave_all(kept: &Region) {
    for place in entries() {
        // SAFETY: null, or a region of a leaked box.
        let region = unsafe { place.region.load(Ordering::Acquire).as_ref() };
        if let Some(region) = region.filter(|region| !core::ptr::eq(*region, kept)) {
            forget(region);
            region.vacate();
        }
    }
}
