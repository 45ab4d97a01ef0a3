//! A channel over loopback, and a way to cut it.

use crate::hosts::{Channel, Dequeued, Status};
use netchannel_shm::run::{gather_write, scatter_read};
use netchannel_shm::{Room, Run};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub struct Tcp(TcpStream);

/// Cuts a channel, as if the network had.
pub struct Cut(TcpStream);

impl Cut {
    pub fn cut(&self) {
        self.0.shutdown(Shutdown::Both).unwrap();
    }
}

/// Both ends of a channel.
pub fn pair() -> (Tcp, Tcp, Cut) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for end in [&one, &other] {
        end.set_nodelay(true).unwrap();
        end.set_nonblocking(true).unwrap();
    }
    let cut = Cut(one.try_clone().unwrap());
    (Tcp(one), Tcp(other), cut)
}

impl Channel for Tcp {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn enqueue(&mut self, pieces: &[Run<'_>]) -> io::Result<usize> {
        match gather_write(self.0.as_raw_fd(), pieces) {
            Ok(count) => Ok(count),
            Err(libc::EAGAIN) => Ok(0),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued> {
        match scatter_read(self.0.as_raw_fd(), rooms) {
            Ok(0) => Ok(Dequeued::End),
            Ok(count) => Ok(Dequeued::Bytes(count)),
            Err(libc::EAGAIN) => Ok(Dequeued::Nothing),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn status(&mut self) -> Status {
        Status::default()
    }
}
