//! Connections that wait while this process has hardly any numbers. To take one from the queue that relatives share takes
//! two: of its anchor and of the memory of its link. A process that has the link makes do with that of the anchor, which is
//! the one that the accept returns. So before a process gives up its numbers, it sees to it that it has the links.

use crate::descriptors::limits;
use crate::ground::sys;

/// Receives a message of the queue of which at least the anchor finds a number, where the process `has_link`. For an
/// accept the number is one of the program's.
///
/// # Errors
/// Those of `recvmsg`. `EMFILE` where there is no number, or it is not enough.
#[cold]
pub(super) fn receive_anchor(
    fd: i32,
    bytes: &mut [u8],
    descriptors: &mut [i32; sys::MOST],
    for_accept: bool,
    has_link: impl Fn(&[u8]) -> bool,
) -> Result<(usize, usize), i32> {
    let mut peek = || {
        let (length, count, _) = sys::message(fd, bytes, descriptors, libc::MSG_PEEK)?;
        if count > 0 && bytes.get(..length).is_some_and(&has_link) {
            return Ok((length, count));
        }
        close(descriptors, count);
        Err(libc::EMFILE)
    };
    let (length, count) = if for_accept {
        limits::for_program(peek)
    } else {
        limits::for_library(&mut peek)
    }?;
    match sys::receive(fd, &mut [0], libc::MSG_DONTWAIT) {
        Ok(_) => Ok((length, count)),
        Err(error) => {
            close(descriptors, count);
            Err(error)
        }
    }
}

fn close(descriptors: &[i32], count: usize) {
    descriptors
        .iter()
        .take(count)
        .for_each(|fd| sys::close(*fd));
}

/// The anchor as the descriptor that an accept with these flags returns.
pub(super) fn place_anchor(anchor: i32, flags: i32) -> i32 {
    if flags & libc::SOCK_CLOEXEC == 0 {
        let _ = sys::fcntl(anchor, libc::F_SETFD, 0);
    }
    anchor
}
