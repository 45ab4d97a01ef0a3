//! Runs of bytes that a peer may write at any time, moved by address: from one region to another, and directly between
//! regions and sockets.
//!
//! ```text
//!  Span (offset, length) --checked against the region--> Run (to read), Room (to fill)
//!       Run --gather_write--> socket        socket --scatter_read--> Room
//!       Run --------------------transfer--------------------------> Room
//! ```
//!
//! Both are addresses with a length: nothing here makes a reference to the bytes, or looks at them.

use core::marker::PhantomData;

use crate::{Region, copy};

/// A range in a region: a claim, until [`Region::run`] or [`Region::room`] has checked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the start of the region.
    pub offset: usize,
    /// How many bytes.
    pub length: usize,
}

/// Bytes to be read. Laid out as the kernel's vector, so that a list of runs is a list of vectors.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Run<'a>(libc::iovec, PhantomData<&'a Region>);

/// Bytes to be written. Laid out as the kernel's vector.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Room<'a>(libc::iovec, PhantomData<&'a Region>);

impl Run<'_> {
    /// How many bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.0.iov_len
    }

    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self(NOTHING, PhantomData)
    }
}

impl Room<'_> {
    /// How many bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.0.iov_len
    }

    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self(NOTHING, PhantomData)
    }

    /// The first byte, where there is one.
    #[must_use]
    pub const fn first(&self) -> Option<Self> {
        if self.0.iov_len == 0 {
            return None;
        }
        let vector = libc::iovec {
            iov_len: 1,
            ..self.0
        };
        Some(Self(vector, PhantomData))
    }
}

const NOTHING: libc::iovec = libc::iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
};

/// Private bytes, sent together with runs in one call: the header before a payload.
impl<'a> From<&'a [u8]> for Run<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        let vector = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        Self(vector, PhantomData)
    }
}

/// A private buffer, filled together with room in regions in one call.
impl<'a> From<&'a mut [u8]> for Room<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        let vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        Self(vector, PhantomData)
    }
}

impl Region {
    /// Bytes to be read; `None` where they would not lie within the region.
    #[inline]
    #[must_use]
    pub fn run(&self, span: Span) -> Option<Run<'_>> {
        Some(Run(self.vector(span)?, PhantomData))
    }

    /// Bytes to be written; `None` where they would not lie within the region. Only for a region that was mapped for
    /// writing: otherwise the kernel refuses it, and a copy faults.
    #[inline]
    #[must_use]
    pub fn room(&self, span: Span) -> Option<Room<'_>> {
        Some(Room(self.vector(span)?, PhantomData))
    }

    fn vector(&self, span: Span) -> Option<libc::iovec> {
        Some(libc::iovec {
            iov_base: self.address(span.offset, span.length)?.cast(),
            iov_len: span.length,
        })
    }
}

/// Copies the bytes of `from` into `to`, as many as both have. Returns the number of bytes.
pub fn transfer(from: &[Run<'_>], to: &[Room<'_>]) -> usize {
    let (mut sources, mut targets) = (from.iter(), to.iter());
    let (mut source, mut target) = (NOTHING, NOTHING);
    let mut done = 0;
    loop {
        while source.iov_len == 0 {
            let Some(next) = sources.next() else {
                return done;
            };
            source = next.0;
        }
        while target.iov_len == 0 {
            let Some(next) = targets.next() else {
                return done;
            };
            target = next.0;
        }
        let step = source.iov_len.min(target.iov_len);
        // SAFETY: both lie within borrowed mappings or slices, and are accessed as raw bytes only. Where they overlap,
        // in a region that is named twice, the resulting bytes are arbitrary, which is valid for bytes.
        unsafe { copy::copy(target.iov_base.cast(), source.iov_base.cast(), step) };
        for vector in [&mut source, &mut target] {
            vector.iov_base = vector.iov_base.wrapping_byte_add(step);
            vector.iov_len -= step;
        }
        done += step;
    }
}

/// Most runs or rooms of one call.
pub const MOST_VECTORS: usize = 1024;

/// Writes the runs to a socket in one call that does not block. Returns the number of bytes written.
///
/// # Errors
/// The errno of `sendmsg`; no signal is raised.
pub fn gather_write(socket: i32, runs: &[Run<'_>]) -> Result<usize, i32> {
    gather(socket, runs, 0)
}

/// As [`gather_write`], of a single byte, which is sent as urgent.
///
/// # Errors
/// The errno of `sendmsg`; no signal is raised.
pub fn gather_write_urgent(socket: i32, runs: &[Run<'_>]) -> Result<usize, i32> {
    gather(socket, runs, libc::MSG_OOB)
}

fn gather(socket: i32, runs: &[Run<'_>], more: libc::c_int) -> Result<usize, i32> {
    let message = header(runs.as_ptr().cast_mut().cast(), runs.len());
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    // SAFETY: `Run` is laid out as the vector; the kernel reads from mappings and slices that are
    // borrowed, and refuses what is not mapped.
    to_result(unsafe { libc::sendmsg(socket, &raw const message, flags) })
}

/// Reads from a socket into the rooms in one call that does not block. Returns the number of bytes read; 0 is the end
/// of the stream.
///
/// # Errors
/// The errno of `recvmsg`.
pub fn scatter_read(socket: i32, rooms: &[Room<'_>]) -> Result<usize, i32> {
    let mut message = header(rooms.as_ptr().cast_mut().cast(), rooms.len());
    // SAFETY: `Room` is laid out as the vector; the kernel writes into mappings and slices that are
    // borrowed, the slices for writing.
    to_result(unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) })
}

/// Takes a socket's urgent byte, which is not in line, into the first room that has a place.
///
/// # Errors
/// The errno of `recvmsg`: `EAGAIN` where it has not arrived, `EINVAL` where there is none.
pub fn scatter_read_urgent(socket: i32, rooms: &[Room<'_>]) -> Result<usize, i32> {
    let mut message = header(rooms.as_ptr().cast_mut().cast(), rooms.len());
    let flags = libc::MSG_DONTWAIT | libc::MSG_OOB;
    // SAFETY: as in `scatter_read`.
    to_result(unsafe { libc::recvmsg(socket, &raw mut message, flags) })
}

fn header(vectors: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zero is a valid header without name and control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors;
    message.msg_iovlen = count.min(MOST_VECTORS);
    message
}

fn to_result(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| crate::error::errno())
}
