//! One of the readers of a connection.

use std::sync::atomic::Ordering;

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use super::wait::Wait;
use super::{COUNTED, Tally, WRITERS};

/// What a reader knows of the order of its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It is the only reader: each writer counts.
    OfEachWriter,
    /// There is one writer: the bytes of each call count.
    WithinOneCall,
    /// Nothing: only how many there are of each value.
    Unknown,
}

/// Reads to the end.
pub fn read(socket: Descriptor, order: Order, tally: &Tally, mut random: Random) {
    let wait = Wait::draw(socket, sys::IN, &mut random);
    let mut next = [None; WRITERS];
    let mut buffer = vec![0_u8; 60_000];
    if order == Order::OfEachWriter {
        next = [Some(0); WRITERS];
    }
    loop {
        let most = [16, 3_000, 60_000][random.below(3)];
        let length = random.between(1, most);
        let (first, second) = buffer[..length].split_at_mut(random.below(length + 1));
        let answer = match random.below(4) {
            0 => sys::recv_vector(socket, &mut [first, second], wait.flags()).map(|(size, _)| size),
            1 => sys::number_recv(socket, &mut buffer[..length], wait.flags()),
            // Others receive, too, while this call waits for all.
            2 if !wait.is_own() && order != Order::WithinOneCall => {
                sys::recv(socket, &mut buffer[..length], libc::MSG_WAITALL)
            }
            _ => sys::recv(socket, &mut buffer[..length], wait.flags()),
        };
        match answer {
            Ok(0) => return,
            Ok(size) => {
                if order == Order::WithinOneCall {
                    next = [None; WRITERS];
                }
                for byte in &buffer[..size] {
                    tally.0[usize::from(*byte)].fetch_add(1, Ordering::Relaxed);
                    let (writer, value) =
                        (usize::from(*byte) / COUNTED, usize::from(*byte) % COUNTED);
                    assert!(
                        order == Order::Unknown || next[writer].is_none_or(|next| next == value),
                        "writer {writer}: {value} in place of {:?}",
                        next[writer]
                    );
                    next[writer] = Some((value + 1) % COUNTED);
                }
            }
            Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EAGAIN)) if wait.is_own() => wait.wait(),
            Err(errno) => panic!("a reader: {errno:?}"),
        }
    }
}
