//! Messages to the kernel's packet filter: written, sent, and answered.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Numbers of linux/netlink.h and linux/netfilter/nfnetlink.h.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;
const HEADER: usize = 16;
/// The header of the packet filter's messages.
const FAMILY: usize = 4;

/// A message that is being written.
pub struct Message(Vec<u8>);

impl Message {
    /// A message of a kind, with flags besides those of every request. The kind determines the meaning of `number`: a
    /// queue, or a part of the filter.
    pub fn new(kind: u16, flags: u16, family: u8, number: u16) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | REQUEST).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family, 0]);
        bytes.extend(number.to_be_bytes());
        Message(bytes)
    }

    /// A message that the kernel must acknowledge.
    pub fn asked(kind: u16, flags: u16, family: u8, number: u16) -> Self {
        Message::new(kind, flags | ACKNOWLEDGE, family, number)
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        attribute(&mut self.0, kind, |bytes| bytes.extend(value));
        self
    }

    /// Adds a text, which the kernel wants terminated.
    #[must_use]
    pub fn text(mut self, kind: u16, value: &str) -> Self {
        text(&mut self.0, kind, value);
        self
    }

    /// Adds an attribute that is made of others.
    #[must_use]
    pub fn nested(mut self, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) -> Self {
        attribute(&mut self.0, kind | NESTED, inner);
        self
    }

    /// The whole, with its length.
    fn bytes(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(0);
        if let Some(place) = self.0.first_chunk_mut() {
            *place = length.to_ne_bytes();
        }
        self.0
    }
}

/// Writes an attribute: its length, its kind, what it holds, and what makes it end where the next may begin.
pub fn attribute(bytes: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend([0; 2]);
    bytes.extend(kind.to_ne_bytes());
    inner(bytes);
    let length = u16::try_from(bytes.len() - start).unwrap_or(0);
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Writes an attribute that is made of others.
pub fn nested(bytes: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    attribute(bytes, kind | NESTED, inner);
}

/// Writes a text.
pub fn text(bytes: &mut Vec<u8>, kind: u16, value: &str) {
    attribute(bytes, kind, |bytes| {
        bytes.extend(value.as_bytes());
        bytes.push(0);
    });
}

/// A received message of the packet filter: its kind, its error, its attributes.
pub struct Received<'a> {
    /// Its kind.
    pub kind: u16,
    /// Of an answer: the error, or none.
    pub answer: Option<i32>,
    attributes: &'a [u8],
}

impl Received<'_> {
    /// The value of an attribute.
    pub fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.attributes;
        while let Some(header) = rest.first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let found = u16::from_ne_bytes([header[2], header[3]]) & !NESTED;
            let value = rest.get(4..length)?;
            if found == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    }
}

/// A socket to the packet filter of the host in which it was opened.
#[derive(Debug)]
pub struct Filter(OwnedFd);

impl Filter {
    /// Opens one.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes integers.
        let descriptor = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor just made, owned by nobody else.
        Ok(Filter(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Sends messages as one, which the kernel takes or refuses as a whole where they are between a begin and an end.
    pub fn send(&self, messages: impl IntoIterator<Item = Message>) -> io::Result<()> {
        let bytes: Vec<u8> = messages.into_iter().flat_map(Message::bytes).collect();
        // SAFETY: the bytes live through the call, and are of the length given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Waits until this many messages are acknowledged.
    pub fn answers(&self, count: usize) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        let mut left = count;
        while left > 0 {
            let mut refused = None;
            self.receive(&mut buffer, 0, |received| {
                if let Some(answer) = received.answer {
                    left = left.saturating_sub(1);
                    refused = refused.or((answer != 0).then_some(answer));
                }
            })?;
            if let Some(error) = refused {
                return Err(io::Error::from_raw_os_error(error));
            }
        }
        Ok(())
    }

    /// Receives a datagram, and passes each of its messages to the caller.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        flags: libc::c_int,
        mut each: impl FnMut(&Received<'_>),
    ) -> io::Result<()> {
        // SAFETY: the buffer lives through the call, and is of the length given.
        let length = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                flags,
            )
        };
        let Ok(length) = usize::try_from(length) else {
            return Err(io::Error::last_os_error());
        };
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((received, after)) = split(rest) {
            each(&received);
            rest = after;
        }
        Ok(())
    }

    /// Sets an option of the socket.
    pub fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> bool {
        let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
        // SAFETY: the value is a live integer of the size given.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                length,
            )
        };
        done == 0
    }
}

impl AsRawFd for Filter {
    fn as_raw_fd(&self) -> libc::c_int {
        self.0.as_raw_fd()
    }
}

fn split(bytes: &[u8]) -> Option<(Received<'_>, &[u8])> {
    let header = bytes.first_chunk::<HEADER>()?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    let length = usize::try_from(length).ok()?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let body = bytes.get(HEADER..length)?;
    let answer = (kind == ERROR).then(|| {
        let error = body.first_chunk().map(|error| i32::from_ne_bytes(*error));
        error.map_or(libc::EPROTO, i32::wrapping_neg)
    });
    let received = Received {
        kind,
        answer,
        attributes: body.get(FAMILY..).unwrap_or_default(),
    };
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((received, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let message = Message::new(0x0301, 0, 2, 7)
            .text(1, "abc")
            .nested(2, |bytes| attribute(bytes, 9, |bytes| bytes.push(5)))
            .with(3, &[1, 2, 3, 4]);
        let bytes = message.bytes();
        assert_eq!(&bytes[16..20], [2, 0, 0, 7]);
        let (received, rest) = split(&bytes).unwrap();
        assert_eq!((received.kind, received.answer), (0x0301, None));
        assert_eq!(received.get(1), Some(&b"abc\0"[..]));
        assert_eq!(received.get(3), Some(&[1, 2, 3, 4][..]));
        assert_eq!(received.get(4), None);
        assert!(rest.is_empty());
        assert!(split(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn an_answer_tells_its_error() {
        let mut bytes = Message::new(ERROR, 0, 0, 0).bytes();
        bytes[16..20].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(split(&bytes).unwrap().0.answer, Some(libc::ENOENT));
    }
}
