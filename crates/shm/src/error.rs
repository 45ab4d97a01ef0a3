//! Errors of regions.

/// Why a region could not be made or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmError {
    /// A system call failed with this errno.
    System(i32),
    /// The file can still shrink or grow, or has another size than announced.
    NotSealed,
    /// It is no ordinary memory: huge pages, a file, a socket.
    NotMemory,
}

impl core::fmt::Display for ShmError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::System(errno) => write!(formatter, "shared memory: system error {errno}"),
            Self::NotSealed => formatter.write_str(
                "shared memory: the file is not sealed against a change of size, or has another size",
            ),
            Self::NotMemory => formatter
                .write_str("shared memory: the file is not ordinary memory (an ordinary memfd)"),
        }
    }
}

// Written by hand: the library in other programs links no needless crate.
impl core::error::Error for ShmError {}

pub(crate) fn errno() -> i32 {
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() }
}
