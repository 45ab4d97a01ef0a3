//! Making, connecting, accepting, shutting.

use libc::{c_int, c_void, sockaddr, socklen_t};

use netchannel_abi::address::Address;

use super::datagrams;
use crate::connections::accepting::Accepted;
use crate::connections::asking;
use crate::connections::connection::{self, Connected, deferred, lane, settled_lane};
use crate::descriptors::names;
use crate::descriptors::table::{self, Kind};
use crate::ground::{real, sys};
use crate::sockets::lane::notify_of_room;
use crate::sockets::socket::{self, Socket, status};
use crate::sockets::{class, options};
use crate::waiting::housekeeping;

/// The C result of a call that returns 0 or an errno.
fn done(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => real::fail(error),
    }
}

/// The name of a kernel socket, where the kernel would show another one or none.
#[cold]
fn shown_name(fd: c_int) -> Option<Address> {
    let socket = socket::of(fd)?;
    if socket.has(status::HANDED_OVER) {
        return Some(socket.entry.local.load());
    }
    let former = &socket.local.former_port;
    let own = names::kernel_address(fd, false).filter(|_| former.is_noted())?;
    let port = former.instead_of(own.port);
    Some(Address { port, ..own })
}

/// A socket that was virtual before the process became another user's.
fn handed_over(fd: c_int) -> Option<Socket> {
    socket::of(fd).filter(|socket| socket.has(status::HANDED_OVER))
}

/// The socket for an option. Where that depends on its connection, a look finds first whether the connection is over.
fn settled_for_option(fd: c_int, level: c_int, name: c_int) -> Option<Socket> {
    let found = socket::of(fd)?;
    if found.word.kind() == Kind::Virtual && options::depends_on_connection(level, name) {
        settled_lane(fd);
        return socket::of(fd);
    }
    Some(found)
}

hook! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        if (domain == libc::AF_INET || domain == libc::AF_INET6)
            && plain == libc::SOCK_STREAM
            && (protocol == 0 || protocol == libc::IPPROTO_TCP)
            && crate::is_ready()
            && let Some(fd) = connection::open(domain, kind)
        {
            return fd;
        }
        real::socket(domain, kind, protocol)
    }

    fn __socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        socket(domain, kind, protocol)
    }

    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        if let Some(socket) = deferred::at(fd) {
            return done(connection::refuse_bind(&socket, address, length));
        }
        if let Some(lane) = settled_lane(fd) {
            return done(connection::bind(&lane, address, length));
        }
        if asking::at(fd).is_some() {
            return real::fail(libc::EINVAL);
        }
        let socket = match connection::before_kernel_use(fd) {
            Ok(socket) => socket,
            Err(error) => return real::fail(error),
        };
        if let Some(socket) = socket.filter(|socket| !socket.has(status::BOUND))
            && names::check(address, length).is_ok()
            && let Some(wanted) = names::read(address, length).filter(|wanted| wanted.port != 0)
            && connection::is_in_use(&wanted, &socket, options::is_only_v6(fd))
            // One that listens or is connected without a bind has a port; who did so before shows it still.
            && connection::is_closed(fd)
            // The kernel refuses an address of another family as such.
            && sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(c_int::from(wanted.family))
        {
            return real::fail(libc::EADDRINUSE);
        }
        let result = real::uninterrupted(|| real::bind(fd, address, length));
        if let (0, Some(socket)) = (result, socket) {
            socket.local.former_port.forget();
            let named = names::read(address, length).is_some_and(|wanted| wanted.port != 0);
            socket.mark(if named { status::BOUND | status::PORT_NAMED } else { status::BOUND });
        }
        result
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        if deferred::at(fd).is_some() {
            return real::fail(libc::EINVAL);
        }
        let socket = match connection::before_kernel_use(fd) {
            Ok(socket) => socket,
            Err(error) => return real::fail(error),
        };
        if lane(fd).is_some() {
            return real::fail(libc::EINVAL);
        }
        let result = real::uninterrupted(|| real::listen(fd, backlog));
        if result == 0 && table::get(fd).kind() == Kind::Foreign {
            connection::listen_received(fd);
        } else if let (0, Some(socket)) = (result, socket) {
            socket.local.former_port.forget();
            if let Some(listener) = socket.listener() {
                listener.change_backlog(fd, backlog);
            } else if socket.word.kind() == Kind::Kernel {
                connection::listen(fd, Some(socket), backlog);
            }
        }
        result
    }

    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let Some(socket) = socket::of(fd) else { return asking::connect(fd, address, length) };
        if let Err(error) = names::check(address, length) {
            return real::fail(error);
        }
        if (length as usize) < size_of::<libc::sa_family_t>() {
            return real::fail(libc::EINVAL);
        }
        let target = names::read(address, length).map(asking::over_tcp);
        if target.is_none() && names::is_unspecified(address, length) {
            return match socket.word.kind() {
                Kind::Fresh => 0,
                Kind::Virtual => done(connection::dissolve(fd, &socket)),
                Kind::Deferred => done(deferred::dissolve(fd, &socket)),
                _ => {
                    let result = real::connect(fd, address, length);
                    if result == 0 {
                        connection::unlisten(fd);
                    }
                    result
                }
            };
        }
        if let Some(refused) = connection::refuse_address(&socket, target, address, length) {
            return done(refused);
        }
        match connection::connect(fd, &socket, target) {
            Connected::Virtual(result) => done(result),
            Connected::Kernel => {
                let mut result = real::connect(fd, address, length);
                // What a signal ends goes on, but for what a supervisor of the program has not let begin.
                while result < 0 && real::errno() == libc::EINTR && connection::is_closed(fd) {
                    result = real::connect(fd, address, length);
                }
                if result < 0 && real::errno() == libc::ECONNREFUSED {
                    connection::note_refused(fd);
                    return real::fail(libc::ECONNREFUSED);
                }
                result
            }
        }
    }

    fn __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        connect(fd, address, length)
    }

    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        accept4(fd, address, length, 0)
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        match table::get(fd).kind() {
            Kind::Listener => {}
            Kind::Foreign => connection::recognise_listener(fd),
            Kind::Kernel => connection::announce_late(fd),
            _ => {}
        }
        let Some(socket) = socket::of(fd).filter(|s| s.word.kind() == Kind::Listener) else {
            let made = real::accept4(fd, address, length, flags);
            if made < 0 && real::errno() == libc::EAGAIN && connection::recognise_listener_of_relative(fd) {
                return accept4(fd, address, length, flags);
            }
            return made;
        };
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return real::fail(libc::EINVAL);
        }
        loop {
            let accepted = crate::connections::accepting::accept(fd, &socket, flags);
            let tries = matches!(accepted, Ok(Accepted::Try(_)));
            match accepted {
                Ok(Accepted::Virtual(made, peer)) => {
                    if address.is_null() {
                        return made;
                    }
                    return match names::write(&peer, address, length) {
                        Ok(()) => made,
                        Err(error) => {
                            libc::close(made);
                            real::fail(error)
                        }
                    };
                }
                Ok(Accepted::Kernel(fd) | Accepted::Try(fd)) => {
                    let room = if address.is_null() { 0 } else { names::room(length).unwrap_or(0) };
                    let made = real::accept4(fd, address, length, flags);
                    if made >= 0 {
                        let peer = names::read(address, room.try_into().unwrap_or(0));
                        connection::note_kernel_accept(made, &socket, flags & libc::SOCK_NONBLOCK != 0, peer);
                    } else if real::errno() == libc::EAGAIN
                        && (tries || !socket.has(status::NONBLOCKING))
                        && table::get(fd).kind() == Kind::Listener
                    {
                        // Another process was quicker, and the kernel's listener never blocks.
                        continue;
                    }
                    housekeeping::release(&socket);
                    return made;
                }
                Err(error) => {
                    housekeeping::release(&socket);
                    return real::fail(error);
                }
            }
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        if housekeeping::any_deferred() {
            if how == libc::SHUT_RD && deferred::shut_read(fd) {
                return 0;
            }
            if !(0..=2).contains(&how) && deferred::at(fd).is_some() {
                return real::fail(libc::EINVAL);
            }
        }
        match settled_lane(fd) {
            None => {
                // A relative may have listened.
                if let Some(found) = socket::of(fd).filter(|found| found.has(status::SHARED))
                    && !found.has(status::KERNEL_CONNECTED)
                {
                    connection::recognise_listener_of_relative(fd);
                }
                if let Err(error) = connection::before_shutdown(fd) {
                    return real::fail(error);
                }
                let result = real::uninterrupted(|| real::shutdown(fd, how));
                if result == 0 && how != libc::SHUT_WR {
                    connection::unlisten(fd);
                }
                result
            }
            Some(_) if !(0..=2).contains(&how) => real::fail(libc::EINVAL),
            Some(lane) => done(connection::shutdown(&lane, how)),
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        if let Some(known) = deferred::at(fd) {
            return done(names::write(&known.entry.local.load(), address, length));
        }
        match lane(fd) {
            None => match shown_name(fd) {
                Some(own) => done(names::write(&own, address, length)),
                None => match asking::at(fd) {
                    Some(asker) => done(names::write(&asker.own_name(), address, length)),
                    None => real::uninterrupted(|| real::getsockname(fd, address, length)),
                },
            },
            Some(lane) => done(names::write(&lane.socket.entry.local.load(), address, length)),
        }
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        if let Some(known) = deferred::at(fd) {
            return done(names::write(&known.entry.peer.load(), address, length));
        }
        match settled_lane(fd) {
            None => match handed_over(fd) {
                Some(socket) => done(names::write(&socket.entry.peer.load(), address, length)),
                None => match asking::at(fd).map(|asker| asker.peer()) {
                    Some(Some(peer)) => done(names::write(&peer, address, length)),
                    Some(None) => real::fail(libc::ENOTCONN),
                    None => real::uninterrupted(|| real::getpeername(fd, address, length)),
                },
            },
            Some(lane) => {
                if lane.is_connecting() || lane.is_over() {
                    return real::fail(libc::ENOTCONN);
                }
                done(names::write(&lane.socket.entry.peer.load(), address, length))
            }
        }
    }

    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t,
    ) -> c_int {
        let Some(socket) = settled_for_option(fd, level, name) else {
            // What only a UDP socket has means nothing to who asks name servers.
            if level != libc::SOL_SOCKET && asking::at(fd).is_some() {
                return 0;
            }
            return real::uninterrupted(|| real::setsockopt(fd, level, name, value, length));
        };
        match socket.word.kind() {
            _ if class::is_own(level) => done(class::set(&socket, fd, name, value, length)),
            Kind::Fresh | Kind::Virtual | Kind::Deferred => {
                done(options::set(&socket, fd, level, name, value, length))
            }
            _ if socket.has(status::HANDED_OVER) => {
                if level == libc::SOL_SOCKET {
                    // Options that a local socket has, such as timeouts, act on it.
                    real::uninterrupted(|| real::setsockopt(fd, level, name, value, length));
                }
                done(options::set(&socket, fd, level, name, value, length))
            }
            kind => {
                let listener = socket.listener().filter(|_| kind == Kind::Listener);
                let former = listener.and_then(|listener| listener.before_set(&socket));
                let result = real::uninterrupted(|| real::setsockopt(fd, level, name, value, length));
                if result == 0 {
                    options::note(&socket, fd, level, name, value, length);
                }
                if let (0, Some(listener), Some(former)) = (result, listener, former) {
                    listener.begin_era(former);
                }
                if result == 0 && listener.is_some() && options::may_make_room(level, name) {
                    notify_of_room(&socket);
                }
                if let (0, Some(listener)) = (result, listener)
                    && (level, name) == (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)
                {
                    listener.change_deferral(fd);
                }
                result
            }
        }
    }

    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t,
    ) -> c_int {
        super::advance_connect(fd);
        // What an earlier look has noted: a program may look at its connection by this call only.
        housekeeping::carry();
        match socket::of(fd) {
            Some(socket) if class::is_own(level) => {
                done(class::get(&socket, name, value, length))
            }
            Some(socket)
                if matches!(socket.word.kind(), Kind::Fresh | Kind::Virtual | Kind::Deferred)
                    || socket.has(status::HANDED_OVER) =>
            {
                done(options::get(&socket, fd, level, name, value, length))
            }
            _ => match asking::at(fd).and_then(|asker| asker.option(level, name)) {
                Some(answer) => done(datagrams::give_option(answer, value, length)),
                None => real::uninterrupted(|| real::getsockopt(fd, level, name, value, length)),
            },
        }
    }

    fn sockatmark(fd: c_int) -> c_int {
        if deferred::at(fd).is_some() {
            return 0;
        }
        match lane(fd) {
            None => real::sockatmark(fd),
            Some(lane) => c_int::from(lane.is_at_mark()),
        }
    }

    fn isfdtype(fd: c_int, kind: c_int) -> c_int {
        real::isfdtype(fd, kind)
    }
}
