//! The doorbell: a byte to the other side says that there is something in the region. In a guest it is a port of virtio-serial, and in
//! tests a socket.

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes that are taken at a time.
const BUFFER: usize = 64;

/// A doorbell.
#[derive(Debug)]
pub struct Bell {
    descriptor: OwnedFd,
    /// Whether somebody is at the other end.
    is_connected: bool,
}

impl Bell {
    /// Opens a character device, or connects to a socket.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let kind = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
        let descriptor = if kind.is_socket() {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
            let socket = rustix::net::socket_with(unix, stream, flags, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            socket
        } else {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            rustix::fs::open(path, flags, Mode::empty())?
        };
        Ok(Self {
            descriptor,
            is_connected: true,
        })
    }

    /// To be watched.
    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Whether it may be relied on.
    pub(crate) const fn works(&self) -> bool {
        self.is_connected
    }

    /// Something came; with `end` the other side has gone.
    pub(crate) fn hear(&mut self, end: bool) {
        self.is_connected = !end;
        let mut buffer = [0; BUFFER];
        // A few bytes at most wait, since one is written for each sleep. More make no difference: the device tells of each.
        for _ in 0..BUFFER {
            match rustix::io::read(&self.descriptor, &mut buffer) {
                Ok(BUFFER) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// Rings.
    pub(crate) fn ring(&self) {
        // A bell that is full rings already, and one without a listener is of no use.
        let _ = rustix::io::write(&self.descriptor, b"!");
    }
}
