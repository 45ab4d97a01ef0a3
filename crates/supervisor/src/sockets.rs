//! The sockets of the program, by the inode of the end that it has. What has ended is remembered for a while, for questions about it.
//!
//! ```text
//!  program's descriptors --> end ======= AF_UNIX pair ======= ours --pump-- stream (virtual, by the library)
//!  (any number, any process)
//! ```

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::pump::Pump;
use crate::system::{self, Sys};

/// What has ended and is remembered.
const ENDED: usize = 1024;
/// The most connections that wait at a listener here; more wait in the stream's own queue.
const BACKLOG: usize = 128;

/// A call that is answered later.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The call.
    pub id: u64,
    /// Its thread.
    pub thread: u32,
    /// Where the address goes and where its length is, or zero.
    pub address: (u64, u64),
    /// Flags of the new descriptor.
    pub flags: c_int,
}

/// Connections that wait to be accepted, and calls that wait for one.
#[derive(Debug, Default)]
pub struct Queue {
    /// Connections.
    pub streams: VecDeque<OwnedFd>,
    /// Calls.
    pub waiters: VecDeque<Waiter>,
    /// The most connections.
    pub most: usize,
}

/// What a socket is doing.
#[derive(Debug)]
pub enum State {
    /// Neither connected nor listening.
    Fresh,
    /// On the way: who waits for it; without a waiter the program's end, which can not be written meanwhile.
    Connecting(Option<Waiter>, Option<OwnedFd>),
    /// Bytes are pumped.
    Connected,
    /// It listens.
    Listening(Queue),
}

/// A socket of the program.
#[derive(Debug)]
pub struct Socket {
    /// Inode of the program's end.
    pub inode: u64,
    /// Its family.
    pub domain: c_int,
    /// The other end of the program's.
    pub ours: OwnedFd,
    /// The TCP socket.
    pub stream: OwnedFd,
    /// What it is doing.
    pub state: State,
    /// Bytes on the way.
    pub pump: Pump,
    /// Where the program's end was given to: a thread, and the number of its descriptor if it is known.
    pub holder: (u32, Option<c_int>),
    /// Whether the program's end can not be written.
    pub stopped: bool,
    generation: u32,
}

impl Socket {
    /// Makes the program's end writable, which it has not been while it was on the way.
    pub fn let_write(&mut self) {
        let mut room = [0_u8; 8192];
        if std::mem::take(&mut self.stopped) {
            while system::receive(self.ours.as_fd(), &mut room).is_ok_and(|got| got > 0) {}
        }
    }

    /// Makes the program's end, of which this is a duplicate, not writable.
    ///
    /// # Errors
    /// The errno.
    pub fn stop_writing(&mut self, end: BorrowedFd<'_>) -> Sys<()> {
        let least = 0_i32.to_ne_bytes();
        system::set_option(end, libc::SOL_SOCKET, libc::SO_SNDBUF, &least)?;
        let filling = [0_u8; 4096];
        while system::send(end, &filling).is_ok() {}
        self.stopped = true;
        Ok(())
    }
}

/// Gives a writing end its usual room again.
pub fn widen(end: BorrowedFd<'_>) {
    let usual = ROOM.to_ne_bytes();
    let _ = system::set_option(end, libc::SOL_SOCKET, libc::SO_SNDBUF, &usual);
}

/// Room of a pair's buffers; the kernel may allow less.
pub const ROOM: c_int = 1 << 19;

/// What is remembered of a socket that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its family.
    pub domain: c_int,
    /// Its own address.
    pub name: Vec<u8>,
    /// The error that nobody has asked for.
    pub error: c_int,
}

/// Which of the two descriptors of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The other end of the program's.
    Ours,
    /// The TCP socket.
    Stream,
}

/// A socket that may be gone: its place, and who was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// As a token of an event.
    #[must_use]
    pub fn token(self, side: Side) -> u64 {
        let side = u64::from(side == Side::Stream);
        u64::from(self.generation) << 32 | u64::from(self.place) << 1 | side
    }

    /// From a token.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    #[must_use]
    pub const fn of(token: u64) -> (Self, Side) {
        let key = Self {
            place: (token as u32) >> 1,
            generation: (token >> 32) as u32,
        };
        let side = if token & 1 == 0 {
            Side::Ours
        } else {
            Side::Stream
        };
        (key, side)
    }
}

/// Tokens of what is no socket have this generation.
pub const NO_SOCKET: u32 = u32::MAX;

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    places: Vec<Option<Box<Socket>>>,
    free: Vec<u32>,
    by_inode: HashMap<u64, Key>,
    ended: HashMap<u64, Ended>,
    order: VecDeque<u64>,
    generation: u32,
}

impl Sockets {
    /// A socket for a stream: it is in the table, and the program's end is returned.
    ///
    /// # Errors
    /// The errno, where no pair can be made.
    pub fn add(
        &mut self,
        domain: c_int,
        stream: OwnedFd,
        waits_never: bool,
        thread: u32,
    ) -> Sys<(Key, OwnedFd)> {
        let flags = if waits_never { libc::SOCK_NONBLOCK } else { 0 };
        let (end, ours) = system::pair(flags)?;
        let inode = system::inode(end.as_fd())?;
        self.generation = self.generation.wrapping_add(1) % NO_SOCKET;
        let generation = self.generation;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let key = Key { place, generation };
        self.places[place as usize] = Some(Box::new(Socket {
            inode,
            domain,
            ours,
            stream,
            state: State::Fresh,
            pump: Pump::default(),
            holder: (thread, None),
            stopped: false,
            generation,
        }));
        self.ended.remove(&inode);
        self.by_inode.insert(inode, key);
        Ok((key, end))
    }

    /// The socket, if it is there still.
    pub fn get(&mut self, key: Key) -> Option<&mut Socket> {
        let socket = self.places.get_mut(key.place as usize)?.as_deref_mut()?;
        (socket.generation == key.generation).then_some(socket)
    }

    /// The socket whose end on the program's side has this inode.
    #[must_use]
    pub fn find(&self, inode: u64) -> Option<Key> {
        self.by_inode.get(&inode).copied()
    }

    /// What is remembered of one that has ended.
    pub fn ended(&mut self, inode: u64) -> Option<&mut Ended> {
        self.ended.get_mut(&inode)
    }

    /// Whether bytes of the program are still on the way.
    #[must_use]
    pub fn owes(&self) -> bool {
        let mut all = self.places.iter().flatten();
        all.any(|socket| matches!(socket.state, State::Connected))
    }

    /// Takes a socket out of the table. With `error`, that is told to who asks for the socket's error.
    pub fn remove(&mut self, key: Key, error: c_int) -> Option<Box<Socket>> {
        self.get(key)?;
        let socket = self.places.get_mut(key.place as usize)?.take()?;
        self.free.push(key.place);
        self.by_inode.remove(&socket.inode);
        if self.order.len() >= ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        let name = system::name(socket.stream.as_fd(), false).unwrap_or_default();
        let domain = socket.domain;
        let ended = Ended {
            domain,
            name,
            error,
        };
        self.order.push_back(socket.inode);
        self.ended.insert(socket.inode, ended);
        Some(socket)
    }
}

/// Takes what waits at a listener into its queue, as far as it has room. Whether a call waits for what is there.
pub fn take_waiting(socket: &mut Socket) -> bool {
    let stream = socket.stream.as_fd();
    let State::Listening(queue) = &mut socket.state else {
        return false;
    };
    while queue.streams.len() < queue.most {
        let Ok(accepted) = system::accept(stream) else {
            break;
        };
        queue.streams.push_back(accepted);
        if queue.waiters.len() < queue.streams.len() {
            // The program's end can be read once for each connection.
            let _ = system::send(socket.ours.as_fd(), &[0]);
        }
    }
    !queue.waiters.is_empty() && !queue.streams.is_empty()
}

/// A queue for a backlog.
#[must_use]
pub fn queue(backlog: c_int) -> Queue {
    let most = usize::try_from(backlog).unwrap_or(BACKLOG);
    Queue {
        most: most.clamp(1, BACKLOG),
        ..Queue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> OwnedFd {
        system::stream(libc::AF_INET).unwrap()
    }

    #[test]
    fn a_place_is_used_again_and_its_former_key_finds_nothing() {
        let mut sockets = Sockets::default();
        let (first, end) = sockets.add(libc::AF_INET, stream(), true, 1).unwrap();
        let inode = system::inode(end.as_fd()).unwrap();
        assert_eq!(sockets.find(inode), Some(first));
        assert!(sockets.remove(first, libc::ECONNREFUSED).is_some());
        assert_eq!(sockets.ended(inode).unwrap().error, libc::ECONNREFUSED);
        let (second, _end) = sockets.add(libc::AF_INET, stream(), true, 1).unwrap();
        assert_eq!(first.place, second.place);
        assert!(sockets.get(first).is_none() && sockets.remove(first, 0).is_none());
        assert!(sockets.get(second).is_some());
        assert_eq!(sockets.find(inode), None);
    }

    #[test]
    fn what_has_ended_is_bounded() {
        let mut sockets = Sockets::default();
        for _ in 0..ENDED + 10 {
            let (key, _end) = sockets.add(libc::AF_INET, stream(), true, 1).unwrap();
            sockets.remove(key, 0);
        }
        assert!(sockets.ended.len() <= ENDED && sockets.order.len() <= ENDED);
        assert!(sockets.by_inode.is_empty());
    }

    #[test]
    fn tokens_lead_back() {
        for side in [Side::Ours, Side::Stream] {
            let key = Key {
                place: 0x7fff_fff0,
                generation: 0xffff_fff1,
            };
            assert_eq!(Key::of(key.token(side)), (key, side));
        }
    }

    #[test]
    fn an_end_is_stopped_and_let_write() {
        let mut sockets = Sockets::default();
        let (key, end) = sockets.add(libc::AF_INET, stream(), true, 1).unwrap();
        let socket = sockets.get(key).unwrap();
        socket.stop_writing(end.as_fd()).unwrap();
        assert_eq!(system::send(end.as_fd(), b"x"), Err(libc::EAGAIN));
        widen(end.as_fd());
        socket.let_write();
        assert_eq!(system::send(end.as_fd(), b"x"), Ok(1));
    }
}
