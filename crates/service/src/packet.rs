//! Messages of the attach protocol on `SOCK_SEQPACKET` sockets, with descriptors as ancillary data. No function here
//! blocks. Unwanted descriptors are closed.

use netchannel_abi::link::ANCHOR_MARK;
use netchannel_abi::message::{MESSAGE_BYTES, MOST_DESCRIPTORS, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// The sender of a message, as the kernel states it with each message. No other code makes a value of this type, so
/// that what a program may do is never decided by the maker of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    process: u32,
    user: u32,
}

impl Sender {
    /// The process, in the daemon's PID namespace; 0 where it has no number there.
    #[must_use]
    pub const fn process(&self) -> u32 {
        self.process
    }

    /// The real user of the process, or another user that it may become.
    #[must_use]
    pub const fn user(&self) -> u32 {
        self.user
    }
}

/// The result of a receive.
#[derive(Debug)]
pub enum Received {
    /// A message of the right size and magic.
    Message {
        /// The message.
        message: Message,
        /// The descriptors that came with the message.
        descriptors: Vec<OwnedFd>,
        /// More descriptors came than fit, or than this process may hold.
        lost: bool,
        /// The sender, where the socket was set to report it ([`pass_credentials`]).
        sender: Option<Sender>,
    },
    /// Any other message.
    Garbage,
    /// The other side has closed its end.
    Ended,
    /// No message for now.
    Nothing,
}

/// The user that the kernel reports where it knows none.
const NOBODY: u32 = 65534;

/// Space for ancillary data, aligned as the kernel writes it.
#[repr(C, align(8))]
struct Ancillary([u8; 256]);

/// Descriptors and credentials, each behind a header of 16 bytes.
const _: () =
    assert!(size_of::<Ancillary>() >= 16 + (4 * MOST_DESCRIPTORS).next_multiple_of(8) + 16 + 16);

/// From now on the kernel reports the sender with each message. An accepted socket inherits this from its listening
/// socket.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn pass_credentials(socket: impl AsFd) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_passcred(socket, true)
}

/// The errno of an error of the standard library.
#[must_use]
pub fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Receives the next message from `socket`.
pub fn receive(socket: impl AsFd) -> Received {
    let mut bytes = [0_u8; MESSAGE_BYTES + 1];
    let mut ancillary = Ancillary([0; 256]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut ancillary).cast();
    header.msg_controllen = size_of::<Ancillary>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points at locals that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    let Ok(length) = usize::try_from(length) else {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return match errno {
            Some(libc::EAGAIN | libc::EINTR) => Received::Nothing,
            _ => Received::Ended,
        };
    };
    // SAFETY: the kernel has just filled the header and what it points at.
    let (descriptors, sender) = unsafe { read_ancillary(&header) };
    if length == 0 {
        return Received::Ended;
    }
    let message = bytes.get(..length).and_then(Message::from_bytes);
    match message {
        Some(message) if header.msg_flags & libc::MSG_TRUNC == 0 => Received::Message {
            message,
            descriptors,
            lost: header.msg_flags & libc::MSG_CTRUNC != 0,
            sender,
        },
        _ => Received::Garbage,
    }
}

/// The received descriptors, which this process owns from now on, and the sender.
///
/// # Safety
/// `header` is as `recvmsg` left it, read for the first time.
unsafe fn read_ancillary(header: &libc::msghdr) -> (Vec<OwnedFd>, Option<Sender>) {
    let mut descriptors = Vec::new();
    let mut sender = None;
    // SAFETY: the header is the kernel's, by the caller's promise.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: null, or within the control bytes.
    while let Some(one) = unsafe { next.as_ref() } {
        // SAFETY: as above; the data lie behind the header.
        let (data, start) = unsafe { (libc::CMSG_DATA(one), libc::CMSG_LEN(0)) };
        let length = one.cmsg_len.saturating_sub(start as usize);
        match (one.cmsg_level, one.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for index in 0..length / size_of::<RawFd>() {
                    // SAFETY: within the data; the kernel made the descriptor for us alone.
                    descriptors.push(unsafe {
                        OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned())
                    });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                // SAFETY: within the data, and any bytes are valid.
                let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                // A message sent before the kernel was asked to report senders comes from process 0 and the user
                // nobody.
                if credentials.pid != 0 || credentials.uid != NOBODY {
                    sender = Some(Sender {
                        process: credentials.pid.unsigned_abs(),
                        user: credentials.uid,
                    });
                }
            }
            _ => {}
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(header, one) };
    }
    (descriptors, sender)
}

/// Whether the other side has closed its end, or was killed. The check changes nothing.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut looked = [PollFd::new(&socket, PollFlags::empty())];
    let none = Timespec::default();
    poll(&mut looked, Some(&none)).is_ok_and(|count| count > 0)
}

/// The bytes on `socket` that the other side has not read and may still read, with the kernel's own for each message.
pub fn unread(socket: impl AsFd) -> usize {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one integer.
    let asked = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if asked < 0 {
        return 0;
    }
    usize::try_from(bytes).unwrap_or(0)
}

/// Sends one whole message.
///
/// # Errors
/// `AGAIN` where the message does not fit now, or the error of the kernel.
pub fn send(
    socket: impl AsFd,
    message: &Message,
    descriptors: &[Rc<OwnedFd>],
) -> Result<(), Errno> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|one| one.as_fd()).collect();
    send_borrowed(socket, message, &borrowed)
}

/// As [`send`], for descriptors that the caller does not own.
///
/// # Errors
/// As [`send`].
pub fn send_borrowed(
    socket: impl AsFd,
    message: &Message,
    borrowed: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = message.to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(borrowed)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == MESSAGE_BYTES {
        Ok(())
    } else {
        Err(Errno::MSGSIZE)
    }
}

/// A pair of connected sockets, as daemon and programs use them.
pub fn pair(kind: rustix::net::SocketType) -> Result<(Rc<OwnedFd>, Rc<OwnedFd>), Errno> {
    let (one, other) = owned_pair(kind)?;
    Ok((Rc::new(one), Rc::new(other)))
}

/// As [`pair`], with one owner for each end.
pub fn owned_pair(kind: rustix::net::SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    use rustix::net::{AddressFamily, SocketFlags, socketpair};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, kind, flags, None)
}

/// A pair of anchors, each with the mark by which a program recognizes an anchor.
pub fn anchor_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let pair = owned_pair(rustix::net::SocketType::STREAM)?;
    for end in [&pair.0, &pair.1] {
        rustix::net::sockopt::set_socket_incoming_cpu(end, ANCHOR_MARK.cast_unsigned())?;
    }
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_abi::message::Operation;
    use rustix::net::SocketType;

    #[test]
    fn each_message_says_who_sent_it_once_that_is_asked_for() {
        let (one, other) = owned_pair(SocketType::SEQPACKET).unwrap();
        let message = Message::new(Operation::Ports, 1, [1; 14]);
        let (shown, more) = owned_pair(SocketType::STREAM).unwrap();
        let came = || match receive(&other) {
            Received::Message {
                descriptors,
                sender,
                lost,
                ..
            } => (descriptors.len(), sender, lost),
            something => panic!("{something:?}"),
        };
        send_borrowed(&one, &message, &[shown.as_fd()]).unwrap();
        assert_eq!(came(), (1, None, false));
        send_borrowed(&one, &message, &[]).unwrap();
        pass_credentials(&other).unwrap();
        assert_eq!(came(), (0, None, false), "sent before");
        let us = Sender {
            process: std::process::id(),
            user: rustix::process::getuid().as_raw(),
        };
        send_borrowed(&one, &message, &[shown.as_fd(), more.as_fd()]).unwrap();
        assert_eq!(came(), (2, Some(us), false));
        let many = [shown.as_fd(); MOST_DESCRIPTORS];
        send_borrowed(&one, &message, &many).unwrap();
        assert_eq!(came(), (MOST_DESCRIPTORS, Some(us), false));
    }
}
