//! Messages of the attach protocol on `SOCK_SEQPACKET` sockets, with descriptors beside them.
//! Nothing here blocks, and descriptors that are not wanted are closed.

use netchannel_abi::message::{MESSAGE_BYTES, MOST_DESCRIPTORS, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// What came from a socket.
#[derive(Debug)]
pub enum Received {
    /// A message of the right size and magic.
    Message {
        /// The message.
        message: Message,
        /// What came beside it.
        descriptors: Vec<OwnedFd>,
        /// More descriptors came than fit, or than this process may hold.
        lost: bool,
    },
    /// Anything else.
    Garbage,
    /// The other side is gone.
    Ended,
    /// Nothing more for now.
    Nothing,
}

/// Takes the next message from `socket`.
pub fn receive(socket: impl AsFd) -> Received {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    );
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let received = match result {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Ended,
    };
    if received.bytes == 0 {
        return Received::Ended;
    }
    let message = bytes.get(..received.bytes).and_then(Message::from_bytes);
    match message {
        Some(message) if !received.flags.contains(ReturnFlags::TRUNC) => Received::Message {
            message,
            descriptors,
            lost: received.flags.contains(ReturnFlags::CTRUNC),
        },
        _ => Received::Garbage,
    }
}

/// Whether the other side has closed its end, or was killed; only a look.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut looked = [PollFd::new(&socket, PollFlags::empty())];
    let none = Timespec::default();
    poll(&mut looked, Some(&none)).is_ok_and(|count| count > 0)
}

/// Sends one message whole.
///
/// # Errors
/// `AGAIN` where it does not fit now, and whatever the kernel says.
pub fn send(
    socket: impl AsFd,
    message: &Message,
    descriptors: &[Rc<OwnedFd>],
) -> Result<(), Errno> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|one| one.as_fd()).collect();
    send_borrowed(socket, message, &borrowed)
}

/// As [`send`], of descriptors that somebody else owns.
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

/// As [`pair`], each with one owner.
pub fn owned_pair(kind: rustix::net::SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    use rustix::net::{AddressFamily, SocketFlags, socketpair};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, kind, flags, None)
}
