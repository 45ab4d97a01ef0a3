//! Why a daemon is not used, in words for whoever wanted to.

use core::fmt;
use std::path::PathBuf;

/// What keeps a path or a peer from being trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// What is on the path cannot be looked at; with the errno. `ENOENT` where nothing is there.
    Unreachable(PathBuf, i32),
    /// A folder, symbolic link or socket of another user.
    Owner {
        /// Where it lies.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asked.
        own: u32,
    },
    /// A folder in which others may put what they like.
    Writable {
        /// Where it lies.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Something else than a socket.
    NoSocket(PathBuf),
    /// Something else than a folder.
    NoFolder(PathBuf),
    /// A process of another user listens there.
    Peer {
        /// The process, as far as this namespace knows it.
        process: i32,
        /// Whose it is.
        user: u32,
        /// Who asked.
        own: u32,
    },
    /// The kernel did not say who listens there; with the errno.
    Unknown(i32),
}

impl Distrust {
    /// Whether nothing is there at all, which is nobody's fault.
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
