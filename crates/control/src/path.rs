//! The paths of a daemon's sockets.

use netchannel_trust::{Distrust, in_user_namespace, place};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The environment variable that names the attach socket.
pub const SOCKET_VARIABLE: &str = "NETCHANNEL_SOCKET";

/// The default directory of root's daemon.
const FOLDER_OF_ROOT: &str = "/run/netchannel";

/// Why no socket path could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The network namespace is unknown.
    #[error("cannot tell the network namespace from /proc/self/ns/net ({0}); is /proc mounted?")]
    Namespace(io::Error),
    /// The folder could not be made.
    #[error("cannot make the folder {0} ({1}); name another place with --socket PATH")]
    Directory(PathBuf, io::Error),
    /// Another user could create a socket there.
    #[error("the folder {0} is not used: {1}; name another place with --socket PATH")]
    Distrusted(PathBuf, Distrust),
}

/// The inode of the network namespace this process is in.
///
/// # Errors
/// When `/proc` does not show it.
pub fn network_namespace() -> Result<u64, PathError> {
    std::fs::metadata("/proc/self/ns/net")
        .map(|metadata| metadata.ino())
        .map_err(PathError::Namespace)
}

/// The default attach socket of a program or command: `$NETCHANNEL_SOCKET`, else one per user and network namespace.
///
/// # Errors
/// When the network namespace is unknown.
pub fn default_socket() -> Result<PathBuf, PathError> {
    if let Some(path) = variable(SOCKET_VARIABLE) {
        return Ok(path);
    }
    let name = format!("{}.sock", network_namespace()?);
    Ok(default_directory().join(name))
}

fn default_directory() -> PathBuf {
    let user = rustix::process::geteuid();
    // Root's daemon serves all users, from wherever it was started.
    if user.is_root() && !in_user_namespace() {
        return PathBuf::from(FOLDER_OF_ROOT);
    }
    // `su` and `sudo` may leave the variable of the calling user.
    let own = |directory: &PathBuf| {
        std::fs::metadata(directory).is_ok_and(|found| found.uid() == user.as_raw())
    };
    if let Some(directory) = variable("XDG_RUNTIME_DIR").filter(own) {
        return directory.join("netchannel");
    }
    if user.is_root() {
        return PathBuf::from(FOLDER_OF_ROOT);
    }
    PathBuf::from(format!("/tmp/netchannel-{}", user.as_raw()))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The control socket beside an attach socket.
#[must_use]
pub fn control_socket(attach: &Path) -> PathBuf {
    suffixed(attach, ".control")
}

/// The lock that makes a daemon the only one at its path.
#[must_use]
pub fn lock_file(attach: &Path) -> PathBuf {
    suffixed(attach, ".lock")
}

/// The file name of the library.
pub const LIBRARY: &str = "libnetchannel.so";
/// The file name of the supervisor for programs of containers.
pub const SUPERVISOR: &str = "netchannel-supervisor";
/// The file name of the dynamic linker that it is started with.
pub const LINKER: &str = "ld.so";

/// The folder of the library, and of the supervisor, for programs of a tenant, beside its attach socket.
#[must_use]
pub fn library_folder(attach: &Path) -> PathBuf {
    suffixed(attach, ".lib")
}

/// The log file of a daemon in the background.
#[must_use]
pub fn log_file(attach: &Path) -> PathBuf {
    suffixed(attach, ".log")
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the folder of an attach socket where it does not exist: open to all when root makes it,
/// so that programs of every user can attach, closed to others otherwise.
///
/// # Errors
/// When it can not be created, or another user can change files in it.
pub fn prepare_directory(attach: &Path) -> Result<(), PathError> {
    let directory = match attach.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let user = rustix::process::geteuid();
    let mode = if user.is_root() { 0o755 } else { 0o700 };
    let fail = |error| PathError::Directory(directory.to_owned(), error);
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
        .map_err(fail)?;
    // Whatever the mask of new files is: that of a service may be strict.
    for folder in missing {
        std::fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(fail)?;
    }
    place::folder(directory).map_err(|why| PathError::Distrusted(directory.to_owned(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_stand_beside_the_socket() {
        let attach = Path::new("/run/x/1.sock");
        assert_eq!(control_socket(attach), Path::new("/run/x/1.sock.control"));
        assert_eq!(lock_file(attach), Path::new("/run/x/1.sock.lock"));
        assert_eq!(log_file(attach), Path::new("/run/x/1.sock.log"));
        assert_eq!(library_folder(attach), Path::new("/run/x/1.sock.lib"));
    }

    #[test]
    fn the_folder_is_made_with_the_mode_of_its_user() {
        let place = tempfile::tempdir().unwrap();
        let attach = place.path().join("deep/er/a.sock");
        prepare_directory(&attach).unwrap();
        let mode = std::fs::metadata(attach.parent().unwrap())
            .unwrap()
            .permissions()
            .mode();
        let wanted = if rustix::process::geteuid().is_root() {
            0o755
        } else {
            0o700
        };
        assert_eq!(mode & 0o777, wanted);
        prepare_directory(&attach).unwrap();
    }
}
