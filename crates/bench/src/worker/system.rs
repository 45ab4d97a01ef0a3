//! The few system calls that `std` does not offer, most for an event loop, through libc's symbols, as
//! an ordinary C program would make them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A level-triggered epoll set.
pub struct Epoll {
    descriptor: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// An empty set that reports up to `capacity` events at a time.
    pub fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor just made, owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Epoll {
            descriptor,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity],
        })
    }

    /// Reports `descriptor` under `token` whenever it can be read.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, libc::EPOLLIN, token)
    }

    /// Reports it when it can be written to: a connection has been made, or not.
    pub fn add_writable(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, libc::EPOLLOUT, token)
    }

    /// Reports one that is in the set when it can be read from now on.
    pub fn make_readable(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, libc::EPOLLIN, token)
    }

    fn control(
        &self,
        what: libc::c_int,
        descriptor: BorrowedFd<'_>,
        events: libc::c_int,
        token: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: token,
        };
        // SAFETY: both descriptors are open and `event` lives through the call.
        let result = unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                what,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits, then puts the tokens of which there is news into `ready`.
    pub fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<()> {
        self.wait_until(ready, None)
    }

    /// The same, so long at most.
    pub fn wait_at_most(&mut self, ready: &mut Vec<u64>, limit: Duration) -> io::Result<()> {
        self.wait_until(ready, Some(limit))
    }

    fn wait_until(&mut self, ready: &mut Vec<u64>, limit: Option<Duration>) -> io::Result<()> {
        let capacity = i32::try_from(self.events.len()).unwrap_or(i32::MAX);
        let set = self.descriptor.as_raw_fd();
        let events = self.events.as_mut_ptr();
        let count = match limit {
            // SAFETY: `events` has room for `capacity` elements.
            None => unsafe { libc::epoll_wait(set, events, capacity, -1) },
            Some(limit) => {
                let limit = [limit.as_secs(), limit.subsec_nanos().into()];
                let number = libc::SYS_epoll_pwait2;
                // SAFETY: as above; the limit lives through the call, and is as the kernel has it; no signals are allowed. By number,
                // as older C libraries do not have it.
                let count = unsafe {
                    libc::syscall(number, set, events, capacity, limit.as_ptr(), 0_usize, 0)
                };
                libc::c_int::try_from(count).unwrap_or(-1)
            }
        };
        ready.clear();
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        let count = usize::try_from(count).unwrap_or(0);
        ready.extend(self.events[..count].iter().map(|event| event.u64));
        Ok(())
    }
}

/// Begins to connect; whether it succeeds is told by [`pending_error`] when it can be written to.
pub fn connect_nonblocking(address: SocketAddr) -> io::Result<OwnedFd> {
    let SocketAddr::V4(address) = address else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked before it is owned.
    let descriptor = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let name = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: address.ip().to_bits().to_be(),
        },
        sin_zero: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>()).unwrap_or(0);
    // SAFETY: the name is live and of the length given.
    let result = unsafe { libc::connect(descriptor, (&raw const name).cast(), length) };
    let error = io::Error::last_os_error();
    if result != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    Ok(socket)
}

/// The error that a socket has for us.
pub fn pending_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut error: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: the option writes at most `length` bytes into the live `error`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    };
    match (result, error) {
        (0, 0) => Ok(()),
        (0, error) => Err(io::Error::from_raw_os_error(error)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes one connection, non-blocking; nothing when there is none.
pub fn accept_nonblocking(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        // SAFETY: null address pointers are allowed and mean "not wanted".
        let descriptor = unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        };
        if descriptor >= 0 {
            // SAFETY: a descriptor just made, owned by nobody else.
            return Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            // A connection that died in the queue, or a signal: ask again.
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
            _ => return Err(error),
        }
    }
}

/// Reads what there is; nothing when that would block.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: pointer and length are of one live buffer.
    let result = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
        )
    };
    transferred(result)
}

/// Writes what fits; nothing when that would block.
pub fn send(socket: BorrowedFd<'_>, buffer: &[u8]) -> io::Result<Option<usize>> {
    // SAFETY: pointer and length are of one live buffer.
    let result = unsafe {
        libc::send(
            socket.as_raw_fd(),
            buffer.as_ptr().cast(),
            buffer.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    transferred(result)
}

fn transferred(result: isize) -> io::Result<Option<usize>> {
    if let Ok(count) = usize::try_from(result) {
        return Ok(Some(count));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// A closed connection becomes an error of the call, and a message that says so.
pub fn ignore_broken_pipes() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// The token under which a descriptor is registered: its own number.
pub fn token(descriptor: RawFd) -> u64 {
    u64::try_from(descriptor).unwrap_or(u64::MAX)
}

/// Looks whether there is anything to read, without waiting.
pub fn poll_once(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut one = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live entry.
    if unsafe { libc::poll(&raw mut one, 1, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a child that ends at once, and waits for it.
pub fn fork_once() -> io::Result<()> {
    // SAFETY: the child makes one system call.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child, without what is run at the end of a program.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is a local.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a child that does this until it fails or its parent ends, and then says why and ends.
pub fn fork_to(work: impl FnOnce() -> io::Error) -> io::Result<()> {
    // SAFETY: this program has one thread, so the child can do what its parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            eprintln!("{}", work());
            // SAFETY: ends the child, without what is run at the end of a program.
            unsafe { libc::_exit(1) }
        }
        _ => Ok(()),
    }
}

/// Sleeps until the program is killed.
pub fn pause() -> ! {
    loop {
        // SAFETY: no pointers.
        unsafe { libc::pause() };
    }
}
