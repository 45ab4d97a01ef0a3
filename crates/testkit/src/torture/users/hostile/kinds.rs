//! Every kind of descriptor that can be sent.

use std::os::fd::{AsRawFd, OwnedFd};

use netchannel_abi::link::Layout;
use netchannel_abi::program;
use netchannel_testkit::support::Random;
use netchannel_testkit::sys;

use super::super::board::Board;
use super::packet::{owned, pair};

/// Sizes that the daemon knows, and others.
pub fn sizes() -> [usize; 6] {
    let layout = Layout {
        slots: netchannel_abi::link::MOST_SLOTS,
        arena: 256 << 20,
    };
    let entries = 65_536;
    [
        program::size(entries),
        program::size(64),
        layout.size(),
        4096,
        0,
        1 << 40,
    ]
}

/// A memfd of a size, with seals or without.
pub fn memory(flags: libc::c_uint, size: usize, seals: libc::c_int) -> Option<OwnedFd> {
    // SAFETY: the name is terminated.
    let file =
        owned(unsafe { libc::memfd_create(c"hostile".as_ptr(), flags | libc::MFD_CLOEXEC) })?;
    let length = libc::off_t::try_from(size).unwrap_or(0);
    // SAFETY: takes integers.
    unsafe {
        libc::ftruncate(file.as_raw_fd(), length);
        libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals);
    }
    Some(file)
}

/// Seals against shrinking, growing and more seals, as regions have them.
pub const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// An unnamed file in a folder.
fn unnamed(folder: &std::ffi::CStr, size: usize) -> Option<OwnedFd> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the name is terminated.
    let file = owned(unsafe { libc::open(folder.as_ptr(), flags, 0o600) })?;
    let length = libc::off_t::try_from(size).unwrap_or(0);
    // SAFETY: takes integers.
    unsafe { libc::ftruncate(file.as_raw_fd(), length) };
    Some(file)
}

fn socket(family: libc::c_int, kind: libc::c_int) -> Option<OwnedFd> {
    // SAFETY: takes integers.
    owned(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })
}

/// A listening socket. Whoever has it may show its port as his own.
fn listening(board: &Board) -> Option<OwnedFd> {
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM)?;
    // SAFETY: takes integers. Without a name the kernel chooses a port.
    unsafe { libc::listen(socket.as_raw_fd(), 4) };
    board.grant(sys::getsockname(socket.as_raw_fd()).ok()?.port());
    Some(socket)
}

/// A descriptor of a random kind. `None` if the system does not have that kind.
pub fn any(board: &Board, random: &mut Random) -> Option<OwnedFd> {
    let sizes = sizes();
    let size = sizes[random.below(sizes.len())];
    let seals = if random.once_in(3) {
        libc::c_int::from(random.number().to_le_bytes()[0] & 0x1f)
    } else {
        SEALS
    };
    let sealing = libc::MFD_ALLOW_SEALING;
    match random.below(16) {
        0 | 1 => memory(libc::MFD_HUGETLB | sealing, 4 << 20, seals),
        2 | 3 => memory(sealing, size, seals),
        4 => memory(0, size, 0),
        5 => unnamed(c"/tmp", size.min(1 << 20)),
        6 => unnamed(c"/dev/shm", size.min(1 << 30)),
        7 => socket(libc::AF_INET, libc::SOCK_STREAM),
        8 => listening(board),
        9 => {
            let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM];
            Some(pair(kinds[random.below(3)])?.0)
        }
        10 => {
            let mut ends = [0; 2];
            // SAFETY: `ends` has room for two descriptors.
            unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
            owned(ends[random.below(2)])
        }
        // SAFETY: takes integers.
        11 => owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }),
        // SAFETY: takes integers.
        12 => owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }),
        13 => {
            // SAFETY: takes integers.
            let secret = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
            let file = owned(i32::try_from(secret).unwrap_or(-1))?;
            // SAFETY: takes integers.
            unsafe { libc::ftruncate(file.as_raw_fd(), 1 << 20) };
            Some(file)
        }
        14 => {
            let flags = libc::O_PATH | libc::O_CLOEXEC;
            // SAFETY: the name is terminated.
            owned(unsafe { libc::open(c"/tmp".as_ptr(), flags) })
        }
        _ => {
            // SAFETY: the name is terminated.
            owned(unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })
        }
    }
}
