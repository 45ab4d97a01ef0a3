//! The lane behind a number of the program's, as every call on data begins.

use libc::c_int;

use super::{before_kernel_use, deferred};
use crate::descriptors::table::{self, Kind};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, status};
use crate::waiting::housekeeping;

/// The lane behind a descriptor, when it is a connected virtual socket.
#[inline(always)]
pub fn lane(fd: c_int) -> Option<Lane> {
    loop {
        let word = table::get(fd);
        match word.kind() {
            Kind::Virtual => {
                let socket = socket::of_word(word)?;
                // By number: a lane whose address is taken is kept in memory, and copied on the way of every call.
                if socket.has(status::PENDING) && !is_connected_yet(fd) {
                    return None;
                }
                return Lane::of(socket, fd);
            }
            Kind::Fresh => {
                becomes_real(fd);
                return None;
            }
            Kind::Deferred if deferred::announce(fd) => {}
            _ => return None,
        }
    }
}

/// Goes on with a connect that is under way. False where the kernel carries it on from now on.
#[cold]
#[inline(never)]
pub fn is_connected_yet(fd: c_int) -> bool {
    let word = table::get(fd);
    if let Some(lane) = socket::of_word(word).and_then(|socket| Lane::of(socket, fd)) {
        lane.progress();
        housekeeping::carry();
    }
    table::get(fd) == word
}

/// The kernel will be asked about a socket that it does not know yet. Where none can be made it answers for one that it connects to
/// nothing.
#[cold]
fn becomes_real(fd: c_int) {
    let _ = before_kernel_use(fd);
}
