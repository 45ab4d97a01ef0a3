//! This process leaves a socket that other processes continue: its last descriptor is closed, and theirs are open.
//!
//! The entry stays this process's as long as its reference is counted. Once it is not, the others may close the socket
//! at any moment, and the next socket of any of them may get the entry. So all that is read there is read before:
//!
//! ```text
//!  wait for copies that began before --> note what the ledger needs --> release the reference --+--> others stay: leave
//!                                                                                               +--> none stays: undo
//! ```

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::Geometry;

use super::ephemeral_port;
use crate::descriptors::attach;
use crate::descriptors::table::Kind;
use crate::ground::lock;
use crate::sockets::lane::Lane;
use crate::sockets::link::LinkEnd;
use crate::sockets::listener::Listener;
use crate::sockets::socket::Socket;

/// What is left, noted while the entry is still this socket's.
pub(super) enum Leaving {
    Nothing,
    Listener(&'static Listener),
    Connection {
        link: &'static LinkEnd,
        handle: Handle,
        rings: [Geometry; 2],
        port: u16,
        /// The kernel's socket that keeps the port, plus one; 0 for none.
        bound: i32,
    },
}

impl Leaving {
    /// Before this process's reference is released.
    pub fn begin(fd: i32, socket: &Socket) -> Self {
        match socket.listener() {
            Some(listener) => Self::Listener(listener),
            None if socket.word.kind() == Kind::Virtual => Self::of_connection(fd, socket),
            None => Self::Nothing,
        }
    }

    fn of_connection(fd: i32, socket: &Socket) -> Self {
        let Some(lane) = Lane::of(*socket, fd) else {
            return Self::Nothing;
        };
        // A copy that began before the descriptor was closed has ended then. One that another process makes changes
        // neither blocks nor words meanwhile.
        let (transmit, receive) = (&socket.entry.transmit.lock, &socket.entry.receive.lock);
        if !lock::acquire(receive) {
            return Self::Nothing;
        }
        lock::release(receive);
        if !lock::acquire(transmit) {
            return Self::Nothing;
        }
        let rings = lane.rings();
        lock::release(transmit);
        let bound = socket.local.reserve.swap(0, Ordering::Relaxed);
        socket
            .local
            .link
            .store(core::ptr::null_mut(), Ordering::Release);
        Self::Connection {
            link: lane.link,
            handle: lane.handle(),
            rings,
            port: ephemeral_port(socket, bound),
            bound,
        }
    }

    /// Others hold the socket, or held it a moment ago. Nothing is read in its entry.
    pub fn leave(self, socket: &Socket) {
        match self {
            Self::Nothing => {}
            Self::Listener(listener) => listener.close(false),
            Self::Connection {
                link,
                handle,
                rings,
                port,
                bound,
            } => {
                if bound > 0 {
                    attach::close_internal(bound - 1);
                }
                link.leave(handle, rings, port);
                link.remove_user();
                if socket.is_foreign() {
                    socket.leave();
                }
            }
        }
    }

    /// All others have closed the socket meanwhile: this process ends it.
    pub fn undo(self, socket: &Socket) {
        if let Self::Connection { link, bound, .. } = self {
            let local = socket.local;
            local.reserve.store(bound, Ordering::Relaxed);
            let link = core::ptr::from_ref(link).cast_mut();
            local.link.store(link, Ordering::Release);
        }
    }
}
