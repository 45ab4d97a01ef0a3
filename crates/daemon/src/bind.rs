//! The sockets of the daemon, and the lock that makes it the only one at its path.

use crate::options::ServeError;
use netchannel_configuration::Tenant;
use netchannel_control::path;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The bound sockets. Their files are removed when this is dropped.
#[derive(Debug)]
pub struct Bound {
    /// The socket to which programs attach.
    pub attach: OwnedFd,
    /// The socket of commands.
    pub control: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Bound {
    /// Takes the lock, removes the files of a killed daemon, and binds both sockets.
    ///
    /// # Errors
    /// [`ServeError::AlreadyServed`] where another daemon holds the lock.
    pub fn new(attach: &Path, tenant: Option<&Tenant>) -> Result<Self, ServeError> {
        path::prepare_directory(attach)?;
        let fail = |errno| ServeError::Bind(attach.to_owned(), errno);
        let control = path::control_socket(attach);
        let too_long = |_| ServeError::TooLong(attach.to_owned());
        let attach_address = SocketAddrUnix::new(attach).map_err(too_long)?;
        let control_address = SocketAddrUnix::new(&control).map_err(too_long)?;
        let lock = lock(&path::lock_file(attach))
            .map_err(fail)?
            .ok_or_else(|| ServeError::AlreadyServed(attach.to_owned()))?;
        // The daemon that left these files has ended, since it does not hold the lock.
        for stale in [attach, &control] {
            remove_socket(stale).map_err(fail)?;
        }
        let (seqpacket, stream) = (SocketType::SEQPACKET, SocketType::STREAM);
        let (attaching, asking) = access(tenant);
        let bound = Self {
            attach: listen(attach, &attach_address, seqpacket, attaching).map_err(fail)?,
            control: listen(&control, &control_address, stream, asking).map_err(fail)?,
            path: attach.to_owned(),
            _lock: lock,
        };
        Ok(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let control = path::control_socket(&self.path);
        for file in [&control, &self.path, &path::lock_file(&self.path)] {
            if let Err(error) = std::fs::remove_file(file)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {} ({error})", file.display());
            }
        }
    }
}

/// Locks the file, and checks that it is still the one at its path, since a daemon that ends removes it.
fn lock(file: &Path) -> Result<Option<OwnedFd>, Errno> {
    loop {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let ours = rustix::fs::fstat(&descriptor)?;
        match rustix::fs::statat(CWD, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) => {
                return Ok(Some(descriptor));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Removes a socket, but never a file of another kind that was named by mistake.
pub fn remove_socket(file: &Path) -> Result<(), Errno> {
    match rustix::fs::statat(CWD, file, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket() => {
            rustix::fs::unlink(file)
        }
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Who may connect to a socket.
#[derive(Clone, Copy)]
struct Access {
    mode: u32,
    /// Whose it is; the daemon's user where none is named.
    user: Option<u32>,
}

/// Who may attach, and who may ask. Programs of every user attach to root's daemon, and what a command may ask is decided per request.
/// Programs of a tenant attach as its table says, and only the daemon's user and root ask.
fn access(tenant: Option<&Tenant>) -> (Access, Access) {
    let own = |mode| Access { mode, user: None };
    match tenant {
        Some(Tenant { mode, user, .. }) => {
            let attaching = Access {
                mode: *mode,
                user: *user,
            };
            (attaching, own(0o600))
        }
        None if rustix::process::geteuid().is_root() => (own(0o666), own(0o666)),
        None => (own(0o600), own(0o600)),
    }
}

fn listen(
    file: &Path,
    address: &SocketAddrUnix,
    kind: SocketType,
    access: Access,
) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::bind(&socket, address)?;
    // Before it is another's: root's daemon keeps no right to change a file of others.
    rustix::fs::chmod(file, Mode::from_raw_mode(access.mode))?;
    if let Some(user) = access.user {
        rustix::fs::chown(file, Some(Uid::from_raw(user)), None)?;
    }
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_per_path_and_nothing_is_left_behind() {
        let place = tempfile::tempdir().unwrap();
        let attach = place.path().join("a.sock");
        let first = Bound::new(&attach, None).unwrap();
        let second = Bound::new(&attach, None).unwrap_err();
        assert!(matches!(second, ServeError::AlreadyServed(_)), "{second}");
        drop(first);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        Bound::new(&attach, None).unwrap();
    }

    #[test]
    fn stale_sockets_give_way_and_other_files_do_not() {
        let place = tempfile::tempdir().unwrap();
        let attach = place.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&attach).unwrap());
        Bound::new(&attach, None).unwrap();
        std::fs::write(&attach, "precious").unwrap();
        assert!(Bound::new(&attach, None).is_err());
        assert_eq!(std::fs::read(&attach).unwrap(), b"precious");
        let long = place.path().join("x".repeat(120));
        assert!(matches!(
            Bound::new(&long, None),
            Err(ServeError::TooLong(_))
        ));
    }
}
