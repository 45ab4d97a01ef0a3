//! Sockets on which a call sleeps: when another thread closes such a socket, it stays open until the call ends, as in
//! the kernel.

use core::sync::atomic::Ordering;

use crate::ground::thread;
use crate::sockets::socket::Socket;
use crate::waiting::housekeeping;

/// Holds a socket on which the thread is about to sleep.
pub fn hold(socket: &Socket) {
    socket
        .local
        .holder
        .store(thread::number(), Ordering::Relaxed);
    socket.local.holds.fetch_add(1, Ordering::AcqRel);
}

/// Releases the socket. If it was closed meanwhile, it ends now.
pub fn release(socket: &Socket) {
    let_go(socket);
    housekeeping::release(socket);
}

/// Takes the hold back; the call goes on with the socket, and releases it at its end.
pub fn let_go(socket: &Socket) {
    let holds = &socket.local.holds;
    // In a child that was forked meanwhile the count is zero.
    let less = |count: u32| count.checked_sub(1);
    let _ = holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
}
