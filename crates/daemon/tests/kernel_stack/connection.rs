//! A connection: a lane, a socket of the kernel's, and the bytes between them.

use netchannel_abi::link::side_flags;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::routing::Destination;
use netchannel_service::urgent::Row;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that are copied at once.
const STRIDE: u64 = 64 << 10;
/// The lane of a connection.
pub enum State {
    /// A client of the kernel's on its way to a program.
    Coming(Destination),
    /// The same, while CoreEngine offers it.
    Offered(Destination, Lane, Key),
    /// A program on its way to a server of the kernel's.
    Going(Lane),
    Open(Lane),
    Changing,
}

pub struct Connection {
    pub stamp: u64,
    pub state: State,
    pub socket: OwnedFd,
    pub place: Option<(Key, u32)>,
    /// The program's end of stream was told to the kernel.
    pub said_end: bool,
    /// The kernel's end of stream was told to the program.
    pub heard_end: bool,
}

/// How a connection ended.
pub enum Over {
    Finished,
    Reset,
}

impl Connection {
    /// Copies what can be copied.
    pub fn pump(&mut self, lane: &mut Lane) -> Option<Over> {
        // Before the bytes: whoever has said FIN or is gone writes no more.
        let flags = lane.peer_flags();
        let gone = lane.has_hung_up() && flags & side_flags::CLOSED == 0;
        match self.send(lane) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(()) => return Some(Over::Reset),
        }
        if flags & side_flags::RESET != 0 || gone && lane.ended_by_reset() {
            return Some(Over::Reset);
        }
        if flags & side_flags::CLOSED != 0 || gone {
            return Some(Over::Finished);
        }
        if flags & side_flags::FIN != 0 && !std::mem::replace(&mut self.said_end, true) {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        match self.receive(lane) {
            Ok(()) => None,
            Err(()) => Some(Over::Reset),
        }
    }

    /// True where all that the program has written was sent.
    fn send(&self, lane: &mut Lane) -> Result<bool, ()> {
        let mut buffer = vec![0; usize::try_from(STRIDE).unwrap()];
        loop {
            let spans = lane.readable(lane.consumed(), STRIDE).map_err(drop)?;
            let length = spans[0].length + spans[1].length;
            if length == 0 {
                return Ok(true);
            }
            let count = transfer(&lane.runs(spans), &[Room::from(&mut buffer[..length])]);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, &buffer[..count], flags) {
                Ok(sent) => lane.consume(lane.consumed() + sent as u64).map_err(drop)?,
                Err(Errno::AGAIN) => return Ok(false),
                Err(_) => return Err(()),
            }
        }
    }

    fn receive(&mut self, lane: &mut Lane) -> Result<(), ()> {
        let mut buffer = vec![0; usize::try_from(STRIDE).unwrap()];
        while !self.heard_end {
            let mut free = lane.limit().map_err(drop)? - lane.published();
            if free < STRIDE && lane.grow(STRIDE).map_err(drop)? {
                free = lane.limit().map_err(drop)? - lane.published();
            }
            if free == 0 {
                lane.request_space_news();
                free = lane.limit().map_err(drop)? - lane.published();
            }
            let most = usize::try_from(free.min(STRIDE)).unwrap();
            if most == 0 {
                return Ok(());
            }
            match rustix::net::recv(&self.socket, &mut buffer[..most], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.heard_end = true;
                    lane.set_flags(side_flags::FIN);
                }
                Ok((count, _)) => {
                    let at = lane.published();
                    let spans = lane.room(at, count as u64).map_err(drop)?;
                    transfer(&[Run::from(&buffer[..count])], &lane.rooms(spans));
                    lane.publish_with_mark(at + count as u64, Row::default())
                        .map_err(drop)?;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(()),
            }
        }
        Ok(())
    }
}

pub fn reset(socket: &OwnedFd) {
    sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
}

pub fn connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket)??;
    Ok(rustix::net::getpeername(socket).is_ok())
}

pub fn set_priority(socket: &OwnedFd, priority: u32) {
    let priority = libc::c_int::try_from(priority).unwrap();
    // SAFETY: the option is an int, which lives as long as the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            (&raw const priority).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
}

pub fn priority(socket: &OwnedFd) -> u32 {
    let (mut priority, mut length) = (0_u32, 4);
    // SAFETY: the option is an int, and there is room for one.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            (&raw mut priority).cast(),
            &raw mut length,
        )
    };
    assert_eq!(got, 0);
    priority
}
