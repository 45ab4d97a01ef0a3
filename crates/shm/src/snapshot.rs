//! A private copy of a part of another process's memory, accessed like a [`crate::Region`] but taken by reading the
//! file. So reading a hole makes no page at the reader's expense, nothing is mapped, and the copy does not change.

use crate::{Outside, Shared, ShmError};
use core::cell::UnsafeCell;

const PAGE: usize = 4096;

/// At least as strictly aligned as any structure in a region.
#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; PAGE]>);

/// A buffer for a copy, which can be filled repeatedly. It takes memory from the first copy on.
pub struct Snapshot {
    pages: Box<[Page]>,
    /// The size of the buffer in pages.
    count: usize,
    /// Offset of the copy in the file.
    start: usize,
    /// Bytes that were read.
    filled: usize,
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = formatter.debug_struct("Snapshot");
        shown.field("start", &self.start);
        shown.field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// An empty buffer for at least so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            pages: Box::default(),
            count: bytes.div_ceil(PAGE),
            start: 0,
            filled: 0,
        }
    }

    /// Size of the buffer.
    #[must_use]
    pub fn room(&self) -> usize {
        self.count * PAGE
    }

    /// Copies `length` bytes of a file from `start` on, or as many as fit and exist. The former copy is dropped.
    ///
    /// # Errors
    /// The errno of the kernel; then the copy is empty.
    pub fn fill(&mut self, outside: &Outside, start: usize, length: usize) -> Result<(), ShmError> {
        let length = length.min(self.room());
        self.start = start;
        self.filled = 0;
        if self.pages.is_empty() {
            let pages = (0..self.count).map(|_| Page(UnsafeCell::new([0; PAGE])));
            self.pages = pages.collect();
        }
        // SAFETY: the pages are contiguous and borrowed for writing, and `length` is not beyond them.
        let into =
            unsafe { core::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), length) };
        self.filled = outside.read(start, into)?;
        Ok(())
    }

    /// The structure at `offset` in the file, or `None` where it was not copied wholly or is not aligned in the copy.
    #[must_use]
    pub fn at<T: Shared>(&self, offset: usize) -> Option<&T> {
        self.slice(offset, 1).and_then(<[T]>::first)
    }

    /// `count` structures from `offset` in the file on, or `None` as above.
    #[must_use]
    pub fn slice<T: Shared>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let within = offset.checked_sub(self.start)?;
        if within > self.filled
            || self.filled - within < bytes
            || !within.is_multiple_of(align_of::<T>())
        {
            return None;
        }
        // SAFETY: within the pages, which live as long as `self` and are written only through an exclusive borrow;
        // aligned, since the pages are aligned more strictly than any `T`; `T: Shared` is valid for any bytes, and may
        // change them, which the cells allow.
        Some(unsafe {
            core::slice::from_raw_parts(self.pages.as_ptr().byte_add(within).cast(), count)
        })
    }
}

const _: () = assert!(align_of::<Page>() == PAGE && size_of::<Page>() == PAGE);
