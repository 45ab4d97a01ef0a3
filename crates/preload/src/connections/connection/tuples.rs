//! The address pairs of this process's virtual connections: the kernel, which refuses pairs in use, can not see them.
//! Those of other processes are not known.

use core::sync::atomic::Ordering;

use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::link::Role;

use crate::descriptors::names;
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;
use crate::sockets::lane::Lane;
use crate::sockets::options;
use crate::sockets::socket::{self, Socket};

/// Whether any live connection of this process is `wanted`.
fn any(wanted: impl Fn(&Socket, Role) -> bool) -> bool {
    let mut found = false;
    table::for_each(|fd, word| {
        if !found
            && word.kind() == Kind::Virtual
            && let Some(socket) = socket::of_word(word)
            && let Some(lane) = Lane::of(socket, fd)
        {
            found = wanted(&socket, lane.link.role) && !lane.is_over();
        }
    });
    found
}

/// Whether a kernel socket neither listens nor is connected.
pub fn is_closed(fd: i32) -> bool {
    const CLOSED: u8 = 7;
    // The first byte is the state.
    sys::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
        .is_ok_and(|info| info.to_ne_bytes()[0] == CLOSED)
}

/// Whether there is a connection to `peer` from the address that `fd` is bound to.
pub fn is_taken(fd: i32, peer: &Address) -> bool {
    let Some(bound) = names::kernel_address(fd, false).filter(|bound| bound.port != 0) else {
        return false;
    };
    let peer = peer.unmapped();
    any(|socket, role| {
        let (local, to) = (socket.entry.local.load(), socket.entry.peer.load());
        role == Role::Client
            && local.port == bound.port
            && to.unmapped() == peer
            && covers(&bound, &local, false)
    })
}

/// Whether a connection of either side prevents a bind of a socket to `wanted`. The kernel itself knows a connection
/// whose address the program has bound.
pub fn is_in_use(wanted: &Address, binds: &Socket, only_v6: bool) -> bool {
    wanted.port != 0
        && any(|socket, _| {
            let local = socket.entry.local.load();
            local.port == wanted.port
                && socket.local.reserve.load(Ordering::Relaxed) == 0
                && covers(wanted, &local, only_v6)
                && !options::may_share(socket, binds)
        })
}

/// Whether a socket bound to `bound` also gets connections to `local`.
fn covers(bound: &Address, local: &Address, only_v6: bool) -> bool {
    let (plain, local) = (bound.unmapped(), local.unmapped());
    if bound.is_wildcard() {
        return match bound.family {
            INET6 => !only_v6 || local.family == INET6,
            _ => local.family == INET,
        };
    }
    plain.family == local.family && plain.bytes == local.bytes
}
