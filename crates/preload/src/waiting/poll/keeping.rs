//! Sockets on which a call sleeps: who closes one leaves it to the call, as the kernel does.

use core::sync::atomic::Ordering;

use crate::ground::thread;
use crate::sockets::socket::Socket;
use crate::waiting::housekeeping;

/// The thread is about to sleep on the socket, which is kept if another one closes it.
pub(super) fn keep(socket: &Socket) {
    socket
        .local
        .poller
        .store(thread::number(), Ordering::Relaxed);
    socket.local.polled.fetch_add(1, Ordering::AcqRel);
}

/// The thread does not sleep on the socket any more. If that was closed meanwhile, it ends now.
pub(super) fn let_go(socket: &Socket) {
    let polled = &socket.local.polled;
    // In a child that was forked meanwhile nobody is counted.
    let less = |count: u32| count.checked_sub(1);
    let _ = polled.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    housekeeping::release(socket);
}
