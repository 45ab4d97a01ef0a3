//! Connections that wait while this process has hardly any numbers. To take one from the queue that relatives share takes
//! two: of its anchor and of the memory of its link. A process that has the link makes do with that of the anchor, which is
//! the one that the accept returns. So before a process gives up its numbers, it sees to it that it has the links.

use netchannel_abi::link::Role;

use super::Listener;
use super::shared_queues::memory_identity;
use crate::descriptors::limits;
use crate::ground::sys;
use crate::sockets::foreign;

/// Receives a message of the queue of which only the anchor finds a number, where this process has its link. For an
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
) -> Result<(usize, usize), i32> {
    let mut peek = || {
        let (length, count, _) = sys::message(fd, bytes, descriptors, libc::MSG_PEEK)?;
        let identity = memory_identity(bytes.get(..length).unwrap_or(&[]));
        if count > 0 && foreign::knows_link(Role::Server, identity) {
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

impl Listener {
    /// Leaves what waits to all relatives, where there are any. This process has the links from now on.
    #[cold]
    pub(super) fn share_before_scarcity(&self) {
        if self.is_only_acceptor() || !self.can_share() {
            return;
        }
        self.drain_taken();
        for pending in self.pending.take_all() {
            // Never removed: the link stays.
            pending.link.add_user();
            if !self.put_shared(&pending) {
                pending.link.remove_user();
                self.pending.push_back(pending);
            }
        }
    }

    /// Resets what is left in the queue for want of numbers.
    pub(super) fn discard_shared(&self) {
        self.shared_queues().inspect(|shared| shared.discard());
    }
}
