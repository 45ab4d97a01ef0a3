//! The functions of the C library that are used, behind safe signatures. They are the C library's and not system calls, since
//! the library takes their place in this process: so a socket made here is a virtual one wherever it can be.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

/// A result with the errno.
pub type Sys<T> = Result<T, c_int>;

/// Room for an address of any family.
pub const ADDRESS: usize = size_of::<libc::sockaddr_storage>();

/// The last error of this thread.
#[must_use]
pub fn errno() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

fn check(result: c_int) -> Sys<c_int> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn count(result: isize) -> Sys<usize> {
    usize::try_from(result).map_err(|_| errno())
}

fn owned(result: c_int) -> Sys<OwnedFd> {
    // SAFETY: the C library made it for us.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn short(length: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(length).unwrap_or(0)
}

/// A pair of local stream sockets, with these flags.
///
/// # Errors
/// The errno.
pub fn pair(flags: c_int) -> Sys<(OwnedFd, OwnedFd)> {
    pair_of(SOCK_STREAM | flags)
}

fn pair_of(kind: c_int) -> Sys<(OwnedFd, OwnedFd)> {
    let mut made = [-1; 2];
    let at = made.as_mut_ptr();
    // SAFETY: two numbers are written.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind | SOCK_CLOEXEC, 0, at) })?;
    Ok((owned(made[0])?, owned(made[1])?))
}

/// A pair of local sockets that keep messages apart, with these flags.
///
/// # Errors
/// The errno.
pub fn packet_pair(flags: c_int) -> Sys<(OwnedFd, OwnedFd)> {
    pair_of(libc::SOCK_SEQPACKET | flags)
}

/// A TCP socket that does not wait.
///
/// # Errors
/// The errno.
pub fn stream(domain: c_int) -> Sys<OwnedFd> {
    let kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(domain, kind, libc::IPPROTO_TCP) })
}

/// Connects.
///
/// # Errors
/// The errno.
pub fn connect(fd: BorrowedFd<'_>, address: &[u8]) -> Sys<()> {
    let length = short(address.len());
    // SAFETY: the address is read for its length.
    check(unsafe { libc::connect(fd.as_raw_fd(), address.as_ptr().cast(), length) }).map(drop)
}

/// Binds.
///
/// # Errors
/// The errno.
pub fn bind(fd: BorrowedFd<'_>, address: &[u8]) -> Sys<()> {
    let length = short(address.len());
    // SAFETY: the address is read for its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr().cast(), length) }).map(drop)
}

/// Listens.
///
/// # Errors
/// The errno.
pub fn listen(fd: BorrowedFd<'_>, backlog: c_int) -> Sys<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Accepts a socket that does not wait.
///
/// # Errors
/// The errno.
pub fn accept(fd: BorrowedFd<'_>) -> Sys<OwnedFd> {
    let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    owned(unsafe { libc::accept4(fd.as_raw_fd(), none, std::ptr::null_mut(), flags) })
}

/// Shuts a direction.
///
/// # Errors
/// The errno.
pub fn shutdown(fd: BorrowedFd<'_>, how: c_int) -> Sys<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), how) }).map(drop)
}

/// The socket's own address, or its peer's.
///
/// # Errors
/// The errno.
pub fn name(fd: BorrowedFd<'_>, of_peer: bool) -> Sys<Vec<u8>> {
    let ask = if of_peer {
        libc::getpeername
    } else {
        libc::getsockname
    };
    let mut address = vec![0_u8; ADDRESS];
    let mut length = short(ADDRESS);
    // SAFETY: at most `length` bytes are written.
    check(unsafe { ask(fd.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length) })?;
    address.truncate(length as usize);
    Ok(address)
}

/// The value of an option, of at most `most` bytes.
///
/// # Errors
/// The errno.
pub fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int, most: usize) -> Sys<Vec<u8>> {
    let mut value = vec![0_u8; most];
    let mut length = short(most);
    // SAFETY: at most `length` bytes are written.
    check(unsafe {
        let at = value.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut length)
    })?;
    value.truncate(length as usize);
    Ok(value)
}

/// Sets an option.
///
/// # Errors
/// The errno.
pub fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> Sys<()> {
    let length = short(value.len());
    // SAFETY: the value is read for its length.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) })
        .map(drop)
}

/// The error that waits at a socket, which is taken.
#[must_use]
pub fn waiting_error(fd: BorrowedFd<'_>) -> c_int {
    let value = option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 4).unwrap_or_default();
    value.try_into().map_or(0, c_int::from_ne_bytes)
}

/// Sends without waiting, and without a signal.
///
/// # Errors
/// The errno.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Sys<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are read for their length.
    count(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Receives without waiting.
///
/// # Errors
/// The errno.
pub fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> Sys<usize> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: at most the room's length is written.
    count(unsafe { libc::recv(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), flags) })
}

/// The inode of a socket, which tells it from all others.
///
/// # Errors
/// The errno.
pub fn inode(fd: BorrowedFd<'_>) -> Sys<u64> {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is written.
    check(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) })?;
    Ok(status.st_ino)
}

/// Whether calls on the descriptor's file do not wait.
#[must_use]
pub fn never_waits(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Something happened: a token, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was given when the descriptor was added.
    pub token: u64,
    /// Bits of `EPOLLIN` and others.
    pub events: u32,
}

/// Bits of epoll as the kernel's words have them.
pub const IN: u32 = libc::EPOLLIN.unsigned_abs();
/// Can be written.
pub const OUT: u32 = libc::EPOLLOUT.unsigned_abs();
/// Both directions have ended.
pub const HUP: u32 = libc::EPOLLHUP.unsigned_abs();
/// An error waits.
pub const ERR: u32 = libc::EPOLLERR.unsigned_abs();
const EDGES: u32 = libc::EPOLLET.unsigned_abs() | libc::EPOLLRDHUP.unsigned_abs();

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// The errno.
    pub fn new() -> Sys<Self> {
        // SAFETY: no pointers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Tells of each time that the descriptor can be read or written anew.
    ///
    /// # Errors
    /// The errno.
    pub fn add_edges(&self, fd: BorrowedFd<'_>, token: u64) -> Sys<()> {
        self.add(fd, token, IN | OUT | EDGES)
    }

    /// Tells of the descriptor as long as it can be read.
    ///
    /// # Errors
    /// The errno.
    pub fn add_level(&self, fd: BorrowedFd<'_>, token: u64) -> Sys<()> {
        self.add(fd, token, IN)
    }

    fn add(&self, fd: BorrowedFd<'_>, token: u64, events: u32) -> Sys<()> {
        let mut event = libc::epoll_event { events, u64: token };
        let (set, member) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event is read.
        check(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, member, &raw mut event) })
            .map(drop)
    }

    /// Removes the descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        let (set, member) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: no event is read.
        unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, member, std::ptr::null_mut()) };
    }

    /// Waits for at most this many milliseconds; -1 for ever.
    pub fn wait(&self, milliseconds: c_int) -> Vec<Event> {
        const MOST: usize = 128;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let most = c_int::try_from(MOST).unwrap_or(1);
        // SAFETY: at most `most` events are written.
        let got = unsafe {
            libc::epoll_wait(
                self.0.as_fd().as_raw_fd(),
                events.as_mut_ptr(),
                most,
                milliseconds,
            )
        };
        let got = usize::try_from(got).unwrap_or(0);
        let told = events.iter().take(got).map(|event| Event {
            token: event.u64,
            events: event.events,
        });
        told.collect()
    }
}

/// Whether the descriptor can be read, an error waits or it has ended.
#[must_use]
pub fn is_readable(fd: BorrowedFd<'_>) -> (bool, bool) {
    let mut asked = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry is read and written.
    let got = unsafe { libc::poll(&raw mut asked, 1, 0) };
    let is = |bit| got > 0 && asked.revents & bit != 0;
    let over = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    (is(libc::POLLIN), is(over))
}

/// Waits until any of the descriptors can be read or has ended, and says which.
pub fn wait_for<const COUNT: usize>(descriptors: [BorrowedFd<'_>; COUNT]) -> [bool; COUNT] {
    let mut asked = descriptors.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let count = libc::nfds_t::try_from(COUNT).unwrap_or(0);
    // SAFETY: the entries are read and written.
    unsafe { libc::poll(asked.as_mut_ptr(), count, -1) };
    asked.map(|entry| entry.revents != 0)
}
