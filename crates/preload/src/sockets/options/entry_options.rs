//! Options that the entry of a socket keeps itself, also where the list of set options has ended with an image.

use core::sync::atomic::Ordering;

use libc::c_int;

use super::set_raw;
use crate::sockets::socket::Socket;
use crate::sockets::socket::{MOST_BYTES, Record};

/// Sets them on a kernel socket.
pub(super) fn replay(socket: &Socket, fd: c_int) {
    let entry = socket.entry;
    let timeouts = [
        (libc::SO_RCVTIMEO, &entry.receive_timeout),
        (libc::SO_SNDTIMEO, &entry.send_timeout),
    ];
    for (name, microseconds) in timeouts {
        let microseconds = microseconds.load(Ordering::Relaxed);
        if microseconds > 0 {
            let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
            set(fd, name, seconds.to_ne_bytes(), rest.to_ne_bytes());
        }
    }
    // The word is the seconds plus one.
    if let Some(seconds) = entry.linger.load(Ordering::Relaxed).checked_sub(1) {
        set(
            fd,
            libc::SO_LINGER,
            1_i32.to_ne_bytes(),
            seconds.to_ne_bytes(),
        );
    }
    let low_water = entry.low_water.load(Ordering::Relaxed);
    if low_water > 1 {
        set(fd, libc::SO_RCVLOWAT, low_water.to_ne_bytes(), []);
    }
}

fn set<const ONE: usize, const OTHER: usize>(
    fd: c_int,
    name: c_int,
    one: [u8; ONE],
    other: [u8; OTHER],
) {
    let mut value = [0; MOST_BYTES];
    let bytes = one.into_iter().chain(other);
    value
        .iter_mut()
        .zip(bytes)
        .for_each(|(place, byte)| *place = byte);
    let length = u32::try_from(ONE + OTHER).unwrap_or(0);
    let level = libc::SOL_SOCKET;
    let _ = set_raw(
        fd,
        &Record {
            level,
            name,
            length,
            value,
        },
    );
}
