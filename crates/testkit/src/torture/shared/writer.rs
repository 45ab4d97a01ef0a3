//! One of the writers of a connection.

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use super::byte_of;
use super::wait::Wait;

/// Sends so many bytes.
pub fn write(socket: Descriptor, writer: usize, total: usize, random: &mut Random) {
    let wait = Wait::draw(socket, sys::OUT, random);
    let flags = libc::MSG_NOSIGNAL | wait.flags();
    let mut sent = 0;
    while sent < total {
        let most = [64, 3_000, 50_000][random.below(3)];
        let length = random.between(1, most).min(total - sent);
        let bytes: Vec<u8> = (sent..sent + length)
            .map(|position| byte_of(writer, position))
            .collect();
        let (first, second) = bytes.split_at(random.below(length + 1));
        let answer = match random.below(3) {
            0 => sys::send(socket, &bytes, flags),
            1 => sys::send_vector(socket, &[first, second], flags),
            _ => sys::number_send(socket, &bytes, flags),
        };
        match answer {
            Ok(size) => sent += size,
            Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EAGAIN)) if wait.is_own() => wait.wait(),
            Err(errno) => panic!("writer {writer} after {sent} of {total}: {errno:?}"),
        }
    }
}
