//! The system calls and the memory shared with the kernel: an event, and the ring that its records come through.

use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};
use perf_event_open_sys::{ioctls, perf_event_open};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event that is open.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Opens an event of a thread on a processor; either may be any (-1).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open(attributes: &perf_event_attr, thread: i32, processor: i32) -> io::Result<Self> {
        let mut attributes = *attributes;
        // SAFETY: the kernel reads (and, where it knows less, writes the size of) a live attribute structure whose size is told.
        let number = unsafe {
            perf_event_open(
                &raw mut attributes,
                thread,
                processor,
                -1,
                PERF_FLAG_FD_CLOEXEC.into(),
            )
        };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor, and nobody else knows of it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Lets its records come through the ring of another event of the same processor.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn redirect(&self, to: &Self) -> io::Result<()> {
        // SAFETY: both descriptors are open; no memory is passed.
        let done = unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), to.0.as_raw_fd()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Stops it.
    pub fn disable(&self) {
        // SAFETY: the descriptor is open; no memory is passed. An event that has ended needs no stopping.
        unsafe { ioctls::DISABLE(self.0.as_raw_fd(), 0) };
    }
}

/// The ring of an event: one page with the indices, and a power of two of pages with records.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    size: usize,
}

impl Ring {
    /// Maps the ring of an event.
    ///
    /// # Errors
    /// The kernel's refusal: for an ordinary user the memory of all rings is bounded.
    pub fn map(event: &Event, pages: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let length = page * (pages + 1);
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of this program lies there.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.0.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            base,
            page,
            size: page * pages,
        })
    }

    /// Appends all present records to `into`, as the kernel wrote them.
    pub fn take(&self, into: &mut Vec<u8>) {
        let control = self.base.cast::<perf_event_mmap_page>().as_ptr();
        // SAFETY: the first page is mapped as long as self is, the fields are aligned, and both sides use them atomically.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*control).data_head),
                AtomicU64::from_ptr(&raw mut (*control).data_tail),
            )
        };
        // Pairs with the kernel's barrier before it moves the head: the records up to there are written.
        let written = head.load(Ordering::Acquire);
        // Relaxed: only this thread moves the tail.
        let read = tail.load(Ordering::Relaxed);
        let size = u64::try_from(self.size).unwrap_or(u64::MAX);
        let length = written.saturating_sub(read).min(size);
        let place = |sequence: u64| usize::try_from(sequence % size).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0);
        let first = length.min(self.size - place(read));
        for (start, length) in [(place(read), first), (0, length - first)] {
            let before = into.len();
            into.resize(before + length, 0);
            // SAFETY: both ends of the copy are within the pages of records, which the kernel does not write between tail and head, and
            // within what was just added.
            unsafe {
                let from = self.base.as_ptr().add(self.page + start);
                std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(before), length);
            }
        }
        // Pairs with the kernel's reading of the tail before it writes: the bytes have been copied.
        tail.store(written, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's alone, and nothing points into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}
