//! Memory that other processes can write too: regions and links, whosoever they are. A list of all of it, so that a process which
//! becomes another user's can leave it without a look at what it was for. Without locks: it may be asked for in a signal handler.

use core::sync::atomic::{AtomicPtr, Ordering};

use netchannel_shm::Region;

/// A place in the list. Never freed; empty while the pointer is null.
struct Place {
    region: AtomicPtr<Region>,
    next: *const Place,
}

static FIRST: AtomicPtr<Place> = AtomicPtr::new(core::ptr::null_mut());

fn places() -> impl Iterator<Item = &'static Place> {
    // SAFETY: null, or a leaked box that was complete before it was shown.
    let read = |place: *const Place| unsafe { place.as_ref() };
    let mut next = read(FIRST.load(Ordering::Acquire));
    core::iter::from_fn(move || {
        let place = next?;
        next = read(place.next);
        Some(place)
    })
}

/// This process can write a region that others can write.
pub fn note(region: &'static Region) {
    let pointer = core::ptr::from_ref(region).cast_mut();
    let empty = core::ptr::null_mut();
    let (taken, other) = (Ordering::AcqRel, Ordering::Relaxed);
    let placed = places().any(|place| {
        let word = &place.region;
        word.load(other).is_null() && word.compare_exchange(empty, pointer, taken, other).is_ok()
    });
    if placed {
        return;
    }
    let made = Box::into_raw(Box::new(Place {
        region: AtomicPtr::new(pointer),
        next: FIRST.load(Ordering::Acquire),
    }));
    loop {
        // SAFETY: nobody knows it yet.
        let next = unsafe { (*made).next }.cast_mut();
        match FIRST.compare_exchange(next, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(other) => unsafe { (*made).next = other },
        }
    }
}

/// It has left a region.
pub fn forget(region: &Region) {
    let pointer = core::ptr::from_ref(region).cast_mut();
    let empty = core::ptr::null_mut();
    for place in places() {
        let _ = place
            .region
            .compare_exchange(pointer, empty, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Leaves all of it but `kept`: at the same addresses lie private zeros, for whoever looks too late.
pub fn leave_all(kept: &Region) {
    for place in places() {
        // SAFETY: null, or a region of a leaked box.
        let region = unsafe { place.region.load(Ordering::Acquire).as_ref() };
        if let Some(region) = region.filter(|region| !core::ptr::eq(*region, kept)) {
            forget(region);
            region.vacate();
        }
    }
}
