//! The lane behind a number of the program, with which every call on data begins.

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
                // By number: a lane whose address is taken is kept in memory, and copied in every call.
                if socket.has(status::PENDING) && !is_connected_yet(fd) {
                    return None;
                }
                return Lane::of(socket, fd);
            }
            Kind::Fresh => {
                materialise_fresh(fd);
                return None;
            }
            Kind::Deferred if deferred::announce(fd) => {}
            _ => return None,
        }
    }
}

/// The lane for a call whose answer depends on whether the connection is over: only a look finds a peer that has ended
/// silently, and one that nobody had accepted may be the kernel's from then on.
#[cold]
pub fn settled_lane(fd: c_int) -> Option<Lane> {
    let found = lane(fd)?;
    found.check_peer_now();
    if housekeeping::carry() {
        return lane(fd);
    }
    Some(found)
}

/// Continues a connect that is under way. False where the kernel carries it on from now on.
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

/// Turns a fresh socket into the kernel's before the kernel is asked about it. Where that fails, the kernel answers for
/// the template.
#[cold]
fn materialise_fresh(fd: c_int) {
    let _ = before_kernel_use(fd);
}
