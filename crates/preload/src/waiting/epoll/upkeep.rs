//! Notifications from other parts of the library: a socket has become another kind, was closed, has changed; a link was
//! made; a descriptor of the library moves.

use core::sync::atomic::Ordering;

use super::item::Item;
use super::packing::kernel_events_of;
use super::{EpollSet, Membership, NUMBER, State, all, by_index, flag, others, own_data, spares};
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;
use crate::sockets::link::LinkEnd;
use crate::sockets::listener::Watcher;
use crate::sockets::socket::{self, Socket};

pub(super) fn memberships(socket: &Socket) -> Vec<Membership> {
    if !socket.has_memberships() {
        return Vec::new();
    }
    let known = |kept: &socket::Membership| {
        let set = by_index(kept.set as usize)?;
        Some(Membership::new(set, kept.item))
    };
    let kept = socket.with_memberships(|list| list.iter().filter_map(known).collect());
    kept.unwrap_or_default()
}

/// The item of a membership, if it still belongs to this socket.
pub(super) fn item_of<'a>(
    state: &'a mut State,
    member: &Membership,
    socket: &Socket,
) -> Option<&'a mut Item> {
    let item = state.items.get_mut(member.item as usize)?;
    let same = item.word.0 >> 8 == socket.word.0 >> 8;
    (item.alive && same).then_some(item)
}

/// Removes the kernel's own registrations of `fd` before its file is replaced, and notes one-shot events that the
/// kernel has reported.
pub fn before_replace(fd: i32, socket: &Socket) {
    for member in memberships(socket) {
        let Some(mut state) = member.set.state.lock() else {
            continue;
        };
        member.set.end_lingering(&mut state, member.item, Some(fd));
        let in_kernel = |item: &&mut Item| item.current_fd == fd && item.word.kind() != Kind::Fresh;
        if let Some(item) = item_of(&mut state, &member, socket).filter(in_kernel) {
            let set = member.set.fd.load(Ordering::Relaxed);
            if item.native && item.is_oneshot() {
                // An enabled member has at least `EPOLLERR` in the kernel's list.
                let asked = kernel_events_of(set, item.fd);
                item.enabled = asked.is_none_or(|asked| asked & flag(libc::EPOLLERR) != 0);
            }
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }
}

/// Called when the socket under `fd` has become another kind: its sets treat it accordingly.
pub fn replaced(fd: i32, socket: &Socket) {
    for member in memberships(socket) {
        let set = member.set;
        let Some(mut state) = set.state.lock() else {
            continue;
        };
        let Some(item) = item_of(&mut state, &member, socket).copied() else {
            continue;
        };
        if item.current_fd != fd {
            continue;
        }
        set.remove(&mut state, member.item, true);
        let named = state.index.get(item.fd);
        let fresh = Item {
            enabled: item.enabled,
            current_fd: fd,
            ..Item::new(item.fd, socket.word, item.events, item.data)
        };
        if !fresh.native && set.activate().is_err() {
            continue;
        }
        // As a rule this is the number that was just freed: then the membership stays valid.
        let number = EpollSet::allocate_item(&mut state);
        set.insert(&mut state, fresh, number);
        if item.fd != fd {
            // The number under which it was added may be another member's.
            named.inspect(|named| state.index.set(item.fd, *named));
        }
        drop(state);
        if number != member.item {
            set.forget_membership(socket, member.item);
            socket.with_memberships(|list| list.push(set.membership(number)));
        }
        if socket.word.kind() != Kind::Virtual {
            // The kernel reports a listener under a data word of the library, other sockets under the program's.
            let set = set.fd.load(Ordering::Relaxed);
            let (events, data) = match (item.enabled, fresh.native) {
                (true, true) => (item.events, item.data),
                (enabled, native) => {
                    let events = if enabled { item.events } else { 0 };
                    // An event that the kernel reports unasked after the one-shot event is reported once, and not to
                    // the program.
                    let once = if native { flag(libc::EPOLLONESHOT) } else { 0 };
                    (events | once, own_data() | u64::from(number) & NUMBER)
                }
            };
            let control = |operation| sys::epoll_control(set, operation, fd, events, data);
            // The kernel does not know a socket yet that was fresh or virtual.
            let is_unknown = item.word.kind() == Kind::Fresh
                || control(libc::EPOLL_CTL_MOD) == Err(libc::ENOENT);
            if is_unknown {
                let _ = control(libc::EPOLL_CTL_ADD);
            }
        }
        set.changed();
    }
}

/// Called for a change of the socket that no peer announces, or when tokens of it were taken by a thread that is not in
/// the set of the index `except`: they may have been meant for its other sets.
pub fn changed(socket: &Socket, except: Option<u32>) {
    for member in memberships(socket) {
        if except != Some(member.set.index) {
            notify(&member, socket);
        }
    }
}

fn notify(member: &Membership, socket: &Socket) {
    if let Some(mut state) = member.set.state.lock() {
        let Some(item) = item_of(&mut state, member, socket) else {
            return;
        };
        if item.cell.is_none() && item.word.kind() == Kind::Virtual {
            state.watched.insert(member.item);
        }
        state.ready.push(member.item);
    }
    member.set.changed();
}

/// Called when a descriptor of the socket is closed: with the last one, sets forget it.
pub fn forget(fd: i32, socket: &Socket) {
    let members = memberships(socket);
    if members.is_empty() {
        return;
    }
    let several = socket.local.descriptors.load(Ordering::Acquire) > 1;
    let other = several.then(|| table::find(socket.word)).flatten();
    for member in members {
        let Some(mut state) = member.set.state.lock() else {
            continue;
        };
        let lingering = other.map(|_| fd);
        member.set.end_lingering(&mut state, member.item, lingering);
        let is_shared = state.board.is_some();
        let Some(item) = item_of(&mut state, &member, socket) else {
            continue;
        };
        match other {
            Some(other) => {
                // It stays known by the number under which it was added, which may be given to the socket again.
                let leaves = item.current_fd == fd;
                let anchored = item.registered;
                if leaves {
                    item.current_fd = other;
                }
                if leaves && anchored {
                    member.set.register_anew(&mut state, member.item, fd);
                }
            }
            None => {
                // Relatives that hold the socket keep it as a member of the shared set. Of any other set the kernel would
                // report it as long as another process has it, or a message.
                let everywhere = !is_shared || socket.entry.references.load(Ordering::Acquire) <= 1;
                if item.word.kind() == Kind::Listener && !is_shared {
                    let set = member.set.fd.load(Ordering::Relaxed);
                    let _ = sys::epoll_control(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
                }
                member.set.remove(&mut state, member.item, everywhere);
                drop(state);
                // A wake-up may have gone to the closed socket.
                member.set.changed();
            }
        }
    }
    if other.is_none() {
        socket.with_memberships(Vec::clear);
    }
}

/// Called for a new link: every loop with a listener watches it.
pub fn add_link(link: &'static LinkEnd) {
    for set in all() {
        if set.is_active()
            && let Some(mut state) = set.state.lock()
            && !state.listeners.is_empty()
        {
            set.add_link_locked(&mut state, link);
        }
    }
}

/// A descriptor of the library is about to get a new number: registers it under that in all sets.
pub fn relocate(from: i32, to: i32) {
    spares::relocate(from, to);
    others::relocate(from, to);
    for set in all() {
        if let Some(mut state) = set.state.lock()
            && let Some(board) = &mut state.board
        {
            board.relocate(from, to);
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let inner = set.inner.load(Ordering::Acquire);
        if inner == from {
            let outer = set.fd.load(Ordering::Relaxed);
            let data = own_data() | NUMBER;
            if set.detached_inner().is_some() {
                set.relocate_detached(from, to);
            } else {
                let events = flag(libc::EPOLLIN);
                let _ = sys::epoll_control(outer, libc::EPOLL_CTL_DEL, from, 0, 0);
                let _ = sys::epoll_control(outer, libc::EPOLL_CTL_ADD, to, events, data);
            }
            let _ = set.inner.compare_exchange(from, to, order.0, order.1);
            continue;
        }
        if set.wake_descriptor.load(Ordering::Acquire) == from {
            let holds = if set.detached_inner().is_some() {
                set.fd.load(Ordering::Relaxed)
            } else {
                inner
            };
            let _ = sys::epoll_control(holds, libc::EPOLL_CTL_DEL, from, 0, 0);
            set.register_wake_descriptor(to);
            let _ = set
                .wake_descriptor
                .compare_exchange(from, to, order.0, order.1);
        } else if inner >= 0 && sys::epoll_control(inner, libc::EPOLL_CTL_DEL, from, 0, 0).is_ok() {
            set.add_channel(to, 0);
        }
    }
}
