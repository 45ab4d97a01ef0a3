//! A process that uses kernel TCP only from some moment on: its calls bypass the library ([`crate::sockets::rings`]),
//! or it may not make those that the library needs ([`crate::descriptors::confinement`]).

use netchannel_abi::reason::Reason;

use crate::connections::connection;
use crate::descriptors::copying;
use crate::descriptors::table::{self, Kind};
use crate::processes::pump_hand_over;
use crate::sockets::socket;

/// Moves virtual sockets to a pump, and turns fresh sockets and listeners into the kernel's.
#[cold]
pub fn leave_library(why: Reason) {
    let (mut fresh, mut listeners) = (Vec::new(), Vec::new());
    table::for_each(|fd, word| match word.kind() {
        Kind::Fresh => fresh.push(fd),
        Kind::Listener => listeners.push(fd),
        _ => {}
    });
    for fd in fresh {
        // Where that fails, the program has a socket that the kernel can not connect.
        let _ = connection::to_kernel(fd, why);
    }
    for fd in listeners {
        connection::unlisten(fd);
        if let Some(socket) = socket::of(fd) {
            socket.falls_back(why);
        }
    }
    copying::without_helpers(|| {
        let kept = pump_hand_over::prepare().complete();
        kept.iter().for_each(|one| one.publish(why));
    });
}
