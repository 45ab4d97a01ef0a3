//! The attach protocol: fixed messages of 128 bytes over a `SOCK_SEQPACKET` socket, with descriptors. One request, one
//! answer, in order; the answer repeats `operation` and `sequence`, and `status` is 0 or an errno.
//!
//! | operation | words of the request | words of the answer | descriptors |
//! |---|---|---|---|
//! | Attach | 0 version, 1 layout hash, 2 process id, 3-4 name (16 bytes), 5 entries of the region that comes with it or 0 | 0 program, 1 entries of the region, 2 user, 3 region | -> the program region, if there is one; <- program region, unless it came; directory (read-only) |
//! | Adopt | 0 listeners in the list, 1-11 their numbers (two 32-bit per word) | | <- the child's end of a new attach socket |
//! | Listen | 0-2 address, 3 socket cookie of the TCP listener, 4 backlog, 5 flags, 6 not 0 when the socket comes with it, 7 how often a silent client is asked before it may be accepted, 8 the name of the queue that its holders have together, for a program that another daemon knew, 9 flags of Queue | 0 listener | -> the TCP listener, which another user may have made; <- the program's end of the accept channel |
//! | Unlisten | 0 listener, or 0 for all that were not announced after an exec; 1 not 0 where it may listen for nobody any more, 2 not 0 where the program has never waited for its connections: then no other acceptor is woken | | |
//! | Queue | 0 listener, 1 the name of the queue that its holders have together, or 0 where the program has no part in it any more, 2 flags | 0 how many programs accept from it and go on to | |
//! | Join | 0 listener, 1 link whose connections go through the listener's queue | 0 slots, 1 arena bytes, 2 user of the client | <- link |
//! | Enter | 0 listener, 1 link whose connections go through the listener's queue, 2 slot, 3 ring for the acceptor (a `Geometry`), or 0: for a client in another network namespace than the queue | | -> the acceptor's end of the anchor |
//! | Connect | 0 listener, 1-3 destination, which must be the listener's, 4 not 0 for a link whose connections go through the listener's queue, of which the memory is all that is answered | 0 link, 1 slots, 2 arena bytes, 3 anchors that follow, 4 user of all that hold the listener, or accept from its queue; all ones where there are several, 5-7 the addresses of the tenant of that listener, if it is another one | <- link, link channel, anchors |
//! | Reoffer | 0 link, 1 listener, 2 slot, 3 not 0 to leave it to whoever comes to hold the listener, the own next image too, where no other program does yet, 4 user of the client, for a link that the daemon does not know, 5 ring for the acceptor (a `Geometry`), or 0 | | -> link, link channel, anchor |
//! | Ports | 0 how many, or 0 and the socket that shows the port: then 1-3 to where it is to be connected, 5 process | 0 first port, 1 how many | -> a TCP socket that the program has bound to the port, if it asks for that one |
//! | Deposit | 0 cookie of the anchor, 1 link, 2 slot, 3 role, 4 generation, 5 region that has the socket, 6 its entry there | | -> link |
//! | Names | | | <- the program's end of a pair over which the stack of its tenant takes questions to name servers (below) |
//! | Lookup | 0 cookie of the anchor, 1 not 0 when it is looked up again | 0-6 as deposited, 7 entries of the region, 8 slots, 9 arena bytes | <- link, program region |
//!
//! A deposit is for one process: it can be looked up as often as it was deposited. After an exec the new image sends
//! Attach again on the same socket. A region comes from a child, which shares its parent's, and from a program that
//! knew another daemon. No two daemons give the same numbers to regions, links and listeners: each begins at another
//! number.
//!
//! On an accept channel the daemon sends `Offer`: 0 link, 1 listener, 2 slots, 3 arena bytes, 4 anchors that follow, 5
//! program, 6 first slot, 7 whether it is one connection of a link that another holder of the listener keeps, 8 user of
//! that program, or the highest number where no user needs a check: for the daemon itself, or a program of the same
//! user that passes on a link of a former daemon, 9-11 the addresses of that program's tenant, if it is another one
//! ([`crate::tenant`]), 12 for one connection the ring that its acceptor may use, or 0; descriptors: link, link channel,
//! anchors. There is no answer: the receiver holds the server's end of the link from then on. `Look` has neither words
//! nor descriptors: an acceptor has ended, whom a connection in the queue may have woken, and another one is to look
//! there.
//!
//! The kernel names the sender with each message (`SCM_CREDENTIALS`); the socket on which it came does not count. A
//! process that has changed its user attaches anew, with a region of its own, before it is given anything else.
//!
//! On a pair of `Names` each packet is a datagram, behind the three words of the server's address: to which it goes, or from which it
//! comes ([`NAMES_PORT`], [`MOST_QUESTION`]).
//!
//! On a link channel the client sends `Anchors`: 0 count, 1-11 their slots (two 32-bit per word);
//! descriptors: the server's ends. Any message of one byte is a doorbell.

/// Bytes of a message on the socket.
pub const MESSAGE_BYTES: usize = 128;
/// First word of every message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"NCA1");
/// Most descriptors beside one message.
pub const MOST_DESCRIPTORS: usize = 34;

/// The port of name service, the only one to which datagrams go.
pub const NAMES_PORT: u16 = 53;
/// The longest question.
pub const MOST_QUESTION: usize = 4096;

/// The request or announcement of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// First message of a program.
    Attach = 1,
    /// A child is about to be forked and gets a socket of its own.
    Adopt = 2,
    /// A TCP socket began to listen.
    Listen = 3,
    /// The program no longer holds a listener.
    Unlisten = 4,
    /// Make a link to the program that holds a listener.
    Connect = 5,
    /// The daemon offers a link on an accept channel.
    Offer = 6,
    /// Hand a connection that was not accepted to another holder of the listener.
    Reoffer = 7,
    /// Reserve ephemeral ports.
    Ports = 8,
    /// Deposit the state of a connection for a process that gets the descriptor.
    Deposit = 9,
    /// Fetch a deposit.
    Lookup = 10,
    /// More anchors for a link, from client to server.
    Anchors = 11,
    /// The program shares the queue from which all holders of a listener accept.
    Queue = 12,
    /// Fetch the memory of a link, of which a connection came through a queue.
    Join = 13,
    /// Fetch a pair for questions to name servers.
    Names = 14,
    /// Offer one connection to the acceptors of a listener whose queue is out of reach.
    Enter = 15,
    /// The daemon wakes an acceptor of a queue, on an accept channel, since another one has ended.
    Look = 16,
}

impl Operation {
    /// Reads a word.
    #[must_use]
    pub const fn from_word(word: u32) -> Option<Self> {
        Some(match word {
            1 => Self::Attach,
            2 => Self::Adopt,
            3 => Self::Listen,
            4 => Self::Unlisten,
            5 => Self::Connect,
            6 => Self::Offer,
            7 => Self::Reoffer,
            8 => Self::Ports,
            9 => Self::Deposit,
            10 => Self::Lookup,
            11 => Self::Anchors,
            12 => Self::Queue,
            13 => Self::Join,
            14 => Self::Names,
            15 => Self::Enter,
            16 => Self::Look,
            _ => return None,
        })
    }
}

/// Bits of word 2 of `Queue`.
pub mod queue_flags {
    /// The program is root's, and accepts: if another user's programs do, too, there is no queue.
    pub const ACCEPTS: u64 = 1;
    /// The program sees users under other numbers than the daemon.
    pub const CONFINED: u64 = 2;
    /// The program is about to end or to close the listener.
    pub const LEAVES: u64 = 4;
    /// (Listen) Relatives that this daemon may not know yet hold the listener, too.
    pub const RELATIVES: u64 = 8;
    /// One more program that has no part in the queue may hold the listener: a message brings it to one, or a relative had
    /// the socket before it listened. Until that program announces it, it has no queue.
    pub const STRANGER: u64 = 16;
    /// One of these programs has let it go.
    pub const STRANGER_GONE: u64 = 32;
}

/// Bits of word 5 of `Listen`.
pub mod listen_flags {
    /// `IPV6_V6ONLY` is set.
    pub const V6_ONLY: u64 = 1;
    /// `SO_REUSEPORT` is set.
    pub const REUSE_PORT: u64 = 2;
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// [`Operation`] as a word.
    pub operation: u32,
    /// 0 or an errno; 0 in requests.
    pub status: u32,
    /// Copied from request to answer.
    pub sequence: u32,
    /// See the table above.
    pub words: [u64; 14],
}

impl Message {
    /// A request.
    #[must_use]
    pub const fn new(operation: Operation, sequence: u32, words: [u64; 14]) -> Self {
        Self {
            operation: operation as u32,
            status: 0,
            sequence,
            words,
        }
    }

    /// The bytes on the socket.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let head = [MAGIC, self.operation, self.status, self.sequence];
        for (chunk, word) in bytes[..16].chunks_exact_mut(4).zip(head) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        for (chunk, word) in bytes[16..].chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a datagram; `None` unless it has the right size and magic.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let (head, tail) = bytes.split_at(16);
        let half =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if half(0) != MAGIC {
            return None;
        }
        let mut words = [0; 14];
        for (word, chunk) in words.iter_mut().zip(tail.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(chunk);
            *word = u64::from_le_bytes(eight);
        }
        Some(Self {
            operation: half(4),
            status: half(8),
            sequence: half(12),
            words,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_garbage_is_refused() {
        let message = Message::new(Operation::Listen, 9, core::array::from_fn(|i| i as u64));
        assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        assert_eq!(Message::from_bytes(&[0; 128]), None);
        assert_eq!(Message::from_bytes(&message.to_bytes()[..127]), None);
        assert_eq!(Operation::from_word(17), None);
    }
}
