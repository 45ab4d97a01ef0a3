//! One end of a session: whole messages with descriptors, sent in order, or kept until the other side reads.

use netchannel_service::memory::is_sealed;
use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors beside one message, at most: those of a link, and one for a long text.
pub const MOST_DESCRIPTORS: usize = 40;
/// Bytes of a message that is sent as such. A longer one lies in memory whose descriptor is sent.
const SHORT: usize = 4 << 10;
/// Bytes of a message, at most.
const MOST_BYTES: u64 = 16 << 20;
/// Messages that wait until the other side reads, at most.
const MOST_WAITING: usize = 4096;

/// A message as it is sent: its text, and its descriptors.
type Packet = (Vec<u8>, Vec<OwnedFd>);

/// One end.
#[derive(Debug)]
pub struct Endpoint {
    socket: OwnedFd,
    waiting: VecDeque<Packet>,
}

/// What came.
#[derive(Debug)]
pub enum Received<T> {
    /// A message, and its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing for now.
    Nothing,
    /// The other side has ended.
    Ended,
    /// The other side does not keep to the rules.
    Garbage,
}

impl Endpoint {
    /// The end that a socket is.
    #[must_use]
    pub const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            waiting: VecDeque::new(),
        }
    }

    /// Both ends of a new session.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    }

    /// Sends a message, or keeps it until the other side reads. Returns whether some are kept: then the socket is to be watched for room.
    ///
    /// # Errors
    /// The other side has ended, or reads nothing.
    pub fn send(
        &mut self,
        message: &impl Serialize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<bool, Errno> {
        let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
        if self.waiting.len() >= MOST_WAITING {
            return Err(Errno::NOBUFS);
        }
        self.waiting.push_back((text, descriptors));
        self.flush()
    }

    /// Sends what is kept. Returns whether there is more.
    ///
    /// # Errors
    /// The other side has ended.
    pub fn flush(&mut self) -> Result<bool, Errno> {
        while let Some((text, descriptors)) = self.waiting.front() {
            match send_packet(&self.socket, text, descriptors) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// Whether messages are kept.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Received<T> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // For this message only: most sessions are quiet, and there are many.
        let mut buffer = vec![0; SHORT + 1];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Ended,
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Received::Ended;
        }
        let lost = received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let text = buffer.get(..received.bytes).filter(|_| !lost);
        let read = text.and_then(|text| read(text, &mut descriptors));
        read.map_or(Received::Garbage, |message| {
            Received::Message(message, descriptors)
        })
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The text that says that the message lies in the memory of the first descriptor.
const LONG: &[u8] = b"\"long\"";

fn send_packet(socket: &OwnedFd, text: &[u8], descriptors: &[OwnedFd]) -> Result<(), Errno> {
    let mut all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let memory;
    let mut text = text;
    if text.len() > SHORT {
        memory = in_memory(text)?;
        all.insert(0, memory.as_fd());
        text = LONG;
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !all.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&all)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(text)], &mut ancillary, flags).map(drop)
}

fn in_memory(text: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("netchannel-message", flags)?;
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        written += rustix::io::write(&memory, rest)?;
    }
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(memory)
}

fn read<T: DeserializeOwned>(text: &[u8], descriptors: &mut Vec<OwnedFd>) -> Option<T> {
    if text != LONG {
        return serde_json::from_slice(text).ok();
    }
    if descriptors.is_empty() {
        return None;
    }
    let memory = descriptors.remove(0);
    let size = u64::try_from(rustix::fs::fstat(&memory).ok()?.st_size).ok()?;
    // Reading another kind of file may wait for whoever sent it.
    if !is_sealed(&memory, size) {
        return None;
    }
    let size = usize::try_from(size.min(MOST_BYTES)).ok()?;
    let mut all: Vec<u8> = Vec::with_capacity(size);
    while all.len() < size {
        let at = u64::try_from(all.len()).ok()?;
        match rustix::io::pread(&memory, spare_capacity(&mut all), at) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    serde_json::from_slice(&all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Endpoint, Endpoint) {
        let (one, two) = Endpoint::pair().unwrap();
        (Endpoint::new(one), Endpoint::new(two))
    }

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn messages_come_whole_with_their_descriptors() {
        let (mut one, mut two) = ends();
        assert!(matches!(two.receive::<String>(), Received::Nothing));
        let many = (0..MOST_DESCRIPTORS - 1).map(|_| file()).collect();
        assert_eq!(one.send(&"short", Vec::new()), Ok(false));
        assert_eq!(one.send(&"x".repeat(1 << 20), many), Ok(false));
        let Received::Message(text, none) = two.receive::<String>() else {
            panic!("nothing");
        };
        assert_eq!((text.as_str(), none.len()), ("short", 0));
        let Received::Message(text, many) = two.receive::<String>() else {
            panic!("nothing");
        };
        assert_eq!((text.len(), many.len()), (1 << 20, MOST_DESCRIPTORS - 1));
        drop(one);
        assert!(matches!(two.receive::<String>(), Received::Ended));
        assert!(two.send(&"late", Vec::new()).is_err());
    }

    #[test]
    fn what_is_not_read_is_kept_in_order_and_within_limits() {
        let (mut one, mut two) = ends();
        let mut sent = 0_u64;
        while one.send(&sent, vec![file()]) != Err(Errno::NOBUFS) {
            sent += 1;
        }
        assert!(one.is_blocked());
        for expected in 0..sent {
            let _ = one.flush();
            let Received::Message(number, with) = two.receive::<u64>() else {
                panic!("nothing");
            };
            assert_eq!((number, with.len()), (expected, 1));
        }
        assert!(!one.is_blocked());
    }

    #[test]
    fn garbage_is_told_from_messages() {
        let (one, mut two) = ends();
        for text in [&b"{"[..], LONG, b"7", &[b' '; SHORT + 1]] {
            send_packet(&one.socket, text, &[]).unwrap();
            assert!(
                matches!(two.receive::<String>(), Received::Garbage),
                "{text:?}"
            );
        }
        send_packet(&one.socket, LONG, &[file()]).unwrap();
        assert!(matches!(two.receive::<String>(), Received::Garbage));
    }
}
