//! The reasons why a daemon is not used, as messages.

use core::fmt;
use std::path::PathBuf;

/// The reason why a path or a peer is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// A component of the path can not be examined; with the errno. `ENOENT` where it does not exist.
    Unreachable(PathBuf, i32),
    /// A directory, symbolic link or socket of another user.
    Owner {
        /// The path.
        path: PathBuf,
        /// The owner.
        owner: u32,
        /// The user who checks.
        own: u32,
    },
    /// A directory in which others may create files.
    Writable {
        /// The path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Not a socket.
    NoSocket(PathBuf),
    /// Not a directory.
    NoFolder(PathBuf),
    /// A process of another user listens there.
    Peer {
        /// The process, as far as this namespace knows it.
        process: i32,
        /// The user of the process.
        user: u32,
        /// The user who checks.
        own: u32,
    },
    /// The kernel did not tell which process listens; with the errno.
    Unknown(i32),
}

impl Distrust {
    /// Whether nothing exists at the path, which is no fault.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Unreachable(_, libc::ENOENT))
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(path, errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(to, "{} cannot be looked at ({error})", path.display())
            }
            Self::Owner { path, owner, own } => write!(
                to,
                "{} belongs to user {owner}, who is neither you (user {own}) nor root",
                path.display()
            ),
            Self::Writable { path, mode } => write!(
                to,
                "others than its owner may write the folder {} (its mode is {:04o}); `chmod go-w` helps if it is yours",
                path.display(),
                mode & 0o7777
            ),
            Self::NoSocket(path) => write!(to, "{} is not a socket", path.display()),
            Self::NoFolder(path) => write!(to, "{} is not a folder", path.display()),
            Self::Peer { process, user, own } => write!(
                to,
                "process {process} of user {user} serves there, who is neither you (user {own}) nor root"
            ),
            Self::Unknown(errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(to, "the kernel does not say who serves there ({error})")
            }
        }
    }
}

impl std::error::Error for Distrust {}
