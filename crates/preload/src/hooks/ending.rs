//! The end of the process.

use libc::c_int;

use crate::connections::connection::{deferred, withdrawal};
use crate::descriptors::attach;
use crate::ground::sys;
use crate::sockets::listener;

/// Ends the process. Other holders of its listeners accept the pending connections.
///
/// # Safety
/// As `_exit`.
pub(super) unsafe fn end(status: c_int) -> ! {
    hand_on();
    loop {
        // SAFETY: no pointers; the caller wants the process to end.
        let _ = unsafe { sys::raw(libc::SYS_exit_group, [sys::int(status), 0, 0, 0, 0, 0]) };
    }
}

/// Runs when the program ends by `exit`, after the functions that it registered.
#[unsafe(link_section = ".text.netchannel_start")]
extern "C" fn finish() {
    hand_on();
}

/// What other processes are still to get of this one, if it has had any socket.
#[inline(always)]
fn hand_on() {
    if attach::current().is_some() {
        hand_on_now();
    }
}

#[cold]
fn hand_on_now() {
    deferred::end_all();
    withdrawal::withdraw_all();
    listener::hand_on_at_exit();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

hook! {
    fn _exit(status: c_int) {
        end(status);
    }

    fn _Exit(status: c_int) {
        end(status);
    }
}
