//! Urgent bytes, both ways. The program's marks lie beside its bytes; the kernel sends the last byte of a call as urgent, and ends a
//! read at the mark.
//!
//! ```text
//!  to the network:    |-- bytes before it --|u|-- bytes behind it --|    three calls
//!  from the network:  PRI --> read up to the mark --> the byte: apart (MSG_OOB), or in line where the program has it so
//! ```
//!
//! A mark that comes while the bytes around it are read is told a moment late, as to any program; no byte is lost, and none is in
//! the stream of a program that reads them apart.

use netchannel_abi::link::side_flags;
use netchannel_service::lane::Lane;
use netchannel_service::urgent::Row;
use netchannel_shm::Room;
use netchannel_shm::kernel_socket::is_at_mark;
use netchannel_shm::run::{scatter_read, scatter_read_urgent};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsRawFd, OwnedFd};

/// How many of `length` bytes from `from` on go with the next call, and whether as urgent: then it is one.
pub fn to_send(row: Row, from: u64, length: u64) -> (u64, bool) {
    if row.end <= from {
        return (length, false);
    }
    match row.first.saturating_sub(from) {
        0 => (1, true),
        before => (before.min(length), false),
    }
}

/// What is known of a socket's urgent byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Urgent {
    /// The kernel has said that there is one to read.
    ahead: bool,
    /// The program reads them in line, and so does this end.
    inline: bool,
}

impl Urgent {
    /// Of a socket that reads them in line already.
    pub const fn inline() -> Self {
        Self {
            ahead: false,
            inline: true,
        }
    }

    /// The kernel says that there is one to read.
    pub const fn note(&mut self) {
        self.ahead = true;
    }

    /// Whether one is to be read.
    pub const fn is_ahead(self) -> bool {
        self.ahead
    }

    /// The kernel's socket is as the program's flags say.
    #[inline]
    pub fn follow(&mut self, flags: u32, socket: &OwnedFd) {
        let inline = flags & side_flags::URGENT_INLINE != 0;
        if inline != self.inline {
            self.inline = inline;
            // It fails only for what is no socket.
            let _ = sockopt::set_socket_oobinline(socket, inline);
        }
    }

    /// Reads into `rooms`, which begin at sequence `at`, up to the urgent byte or that byte alone. Returns how many bytes were read, and
    /// which of them are urgent.
    ///
    /// # Errors
    /// The errno of `recvmsg`.
    #[inline]
    pub fn read(
        &mut self,
        socket: &OwnedFd,
        rooms: &[Room<'_>],
        at: u64,
    ) -> Result<(u64, Row), i32> {
        if self.ahead {
            return self.read_with_mark(socket, rooms, at);
        }
        Ok((
            scatter_read(socket.as_raw_fd(), rooms)? as u64,
            Row::default(),
        ))
    }

    #[cold]
    fn read_with_mark(
        &mut self,
        socket: &OwnedFd,
        rooms: &[Room<'_>],
        at: u64,
    ) -> Result<(u64, Row), i32> {
        let one = Row {
            first: at,
            end: at + 1,
        };
        let at_mark = is_at_mark(socket);
        let socket = socket.as_raw_fd();
        if !at_mark {
            match scatter_read(socket, rooms) {
                Err(error) if Errno::from_raw_os_error(error) == Errno::AGAIN => {}
                read => return Ok((read? as u64, Row::default())),
            }
            // It was read over before the kernel told of it.
        } else if self.inline {
            self.ahead = false;
            let first = rooms.iter().find_map(Room::first);
            let first = first.unwrap_or(Room::empty());
            return Ok((scatter_read(socket, &[first])? as u64, one));
        }
        self.ahead = false;
        match scatter_read_urgent(socket, rooms) {
            Ok(0) | Err(_) => {
                let read = scatter_read(socket, rooms)?;
                Ok((read as u64, Row::default()))
            }
            Ok(taken) => Ok((taken as u64, one)),
        }
    }

    /// There is no room: the program is told of an urgent byte that comes next all the same, as by TCP.
    pub fn announce(self, socket: &OwnedFd, lane: &mut Lane) {
        if self.ahead && is_at_mark(socket) {
            let first = lane.published();
            let end = first + 1;
            lane.announce_mark(Row { first, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_urgent_byte_goes_alone() {
        let row = |first, end| Row { first, end };
        assert_eq!(to_send(Row::default(), 5, 10), (10, false));
        assert_eq!(to_send(row(7, 9), 5, 10), (2, false));
        assert_eq!(to_send(row(7, 9), 7, 8), (1, true));
        assert_eq!(to_send(row(7, 9), 8, 7), (1, true));
        assert_eq!(to_send(row(7, 9), 9, 6), (6, false));
        assert_eq!(to_send(row(70, 71), 9, 6), (6, false));
    }
}
