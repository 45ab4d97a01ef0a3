//! Datagrams of a socket that asks name servers: before each stands the address of the server.

use libc::{c_int, iovec, msghdr};
use netchannel_abi::address::Address;
use netchannel_abi::message::{MOST_QUESTION, NAMES_PORT};

use super::{Asker, becoming, note};
use crate::ground::real;

/// Bytes of the address before a datagram.
pub(super) const HEAD: usize = 24;

/// A datagram that has come.
pub struct Received {
    /// Its bytes in the buffers; with `MSG_TRUNC` all of them.
    pub length: usize,
    /// As in `msg_flags`.
    pub flags: c_int,
    /// The server.
    pub from: Address,
}

/// A message of the head and the buffers.
fn with_head(head: &mut [u8; HEAD], buffers: &[iovec]) -> Vec<iovec> {
    let mut list = Vec::with_capacity(buffers.len() + 1);
    list.push(iovec {
        iov_base: head.as_mut_ptr().cast(),
        iov_len: HEAD,
    });
    list.extend_from_slice(buffers);
    list
}

fn message_of(list: &mut [iovec]) -> msghdr {
    // SAFETY: all zero is a valid message: without a name, buffers and control data.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = list.as_mut_ptr();
    message.msg_iovlen = list.len();
    message
}

/// Receives a datagram.
///
/// # Errors
/// As `recvmsg` of a UDP socket.
///
/// # Safety
/// The program gave the buffers to be written to.
pub unsafe fn receive(
    fd: c_int,
    asker: &Asker,
    buffers: &[iovec],
    flags: c_int,
) -> Result<Received, c_int> {
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 {
        return Err(if flags & libc::MSG_OOB != 0 {
            libc::EOPNOTSUPP
        } else {
            libc::EAGAIN
        });
    }
    let mut head = [0; HEAD];
    let mut list = with_head(&mut head, buffers);
    loop {
        let mut message = message_of(&mut list);
        // SAFETY: the head is a local, the rest is the program's.
        let got = unsafe { real::recvmsg(fd, &raw mut message, flags) };
        let Ok(got) = usize::try_from(got) else {
            return Err(real::errno());
        };
        let Some(length) = got.checked_sub(HEAD) else {
            // The stack is gone: as where a server refuses.
            let quiet = becoming::quieten(fd, asker)?;
            note(fd, quiet);
            return Err(libc::ECONNREFUSED);
        };
        let from = address_of(&head);
        if asker.peer.is_none_or(|peer| peer == from) {
            let flags = message.msg_flags & libc::MSG_TRUNC;
            return Ok(Received {
                length,
                flags,
                from,
            });
        }
        // A connected socket hears nobody else.
        if flags & libc::MSG_PEEK != 0 {
            let mut byte = 0_u8;
            // SAFETY: a local.
            unsafe { real::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
        }
    }
}

fn address_of(head: &[u8; HEAD]) -> Address {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    Address::from_words(words)
}

/// Sends a datagram to a server, without one to that of the connection.
///
/// # Errors
/// As `sendmsg` of a UDP socket.
///
/// # Safety
/// The program gave the buffers to be read.
pub unsafe fn send(
    fd: c_int,
    asker: &Asker,
    to: Option<Address>,
    buffers: &[iovec],
    flags: c_int,
) -> Result<usize, c_int> {
    let to = to.map(|to| asker.as_named(to)).or(asker.peer);
    let to = to.ok_or(libc::EDESTADDRREQ)?;
    if to.port != NAMES_PORT {
        return Err(libc::ENETUNREACH);
    }
    let total = buffers
        .iter()
        .map(|one| one.iov_len)
        .fold(0, usize::saturating_add);
    if total > MOST_QUESTION {
        return Err(libc::EMSGSIZE);
    }
    let mut head = [0; HEAD];
    for (bytes, word) in head.chunks_exact_mut(8).zip(to.to_words()) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let mut list = with_head(&mut head, buffers);
    let message = message_of(&mut list);
    let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the head is a local, the rest is the program's.
    let go = || match usize::try_from(unsafe { real::sendmsg(fd, &raw const message, flags) }) {
        Ok(sent) => Ok(sent.saturating_sub(HEAD)),
        Err(_) => Err(real::errno()),
    };
    match go() {
        Err(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN | libc::EDESTADDRREQ) => {
            // The stack is gone, and perhaps there is another one.
            let again = becoming::renew(fd, asker).map_err(|_| libc::ENETUNREACH)?;
            note(fd, again);
            go()
        }
        sent => sent,
    }
}
