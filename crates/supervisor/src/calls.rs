//! What is answered to each call of the program.
//!
//! ```text
//!  socket    --> a pair, whose one end the program gets: so duplicates, members of epoll sets and children hold from the beginning
//!  connect   --> the stream connects; meanwhile the end can not be written, so poll and epoll tell when it is there
//!  listen    --> the stream listens; a byte at the end for each connection that waits, which accept takes away
//!  the rest  --> asked of the stream
//! ```

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};

use crate::names::Names;
use crate::notify::{Call, Notify};
use crate::options::{self, LONGEST, Whose};
use crate::sockets::{self, Key, Side, Sockets, State, Waiter};
use crate::system::{self, ADDRESS, Epoll, Sys};
use crate::threads::{self, Threads};

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It returns this, or fails.
    Result(Sys<i64>),
    /// By the kernel.
    Kernel,
    /// Later, or it has been.
    Later,
}

const DONE: Answer = Answer::Result(Ok(0));

const fn fail(error: c_int) -> Answer {
    Answer::Result(Err(error))
}

impl<T> From<Sys<T>> for Answer {
    fn from(result: Sys<T>) -> Self {
        Self::Result(result.map(|_| 0))
    }
}

/// What answers.
#[derive(Debug)]
pub struct Calls {
    /// Where the kernel asks.
    pub notify: Notify,
    /// What is waited for.
    pub epoll: Epoll,
    /// The sockets.
    pub sockets: Sockets,
    /// The threads that have asked.
    pub threads: Threads,
    /// Sockets that ask for names.
    pub names: Names,
    /// Whether names are served here, as the kernel's network has none.
    pub serves_names: bool,
}

/// The socket that a call names.
struct Found {
    key: Key,
    /// A duplicate of the program's end.
    end: OwnedFd,
}

impl Calls {
    /// Answers a call.
    pub fn handle(&mut self, call: &Call) {
        let answer = self.answer(call);
        match answer {
            Answer::Result(result) => {
                self.notify.answer(call.id, result);
            }
            Answer::Kernel => {
                self.notify.let_through(call.id);
            }
            Answer::Later => {}
        }
    }

    fn answer(&mut self, call: &Call) -> Answer {
        if call.number == libc::SYS_socket {
            return self.socket(call);
        }
        let found = match self.find(call) {
            Ok(found) => found,
            Err(answer) => return answer,
        };
        match call.number {
            libc::SYS_connect => self.connect(call, found),
            libc::SYS_bind => self.bind(call, &found),
            libc::SYS_listen => self.listen(call, &found),
            libc::SYS_accept => self.accept(call, &found, 0),
            libc::SYS_accept4 => self.accept(call, &found, call.int(3)),
            libc::SYS_getsockname => self.name(call, &found, false),
            libc::SYS_getpeername => self.name(call, &found, true),
            libc::SYS_getsockopt => self.option(call, &found),
            libc::SYS_setsockopt => self.set_option(call, &found),
            libc::SYS_shutdown => self.shutdown(call, &found),
            _ => Answer::Kernel,
        }
    }

    /// The socket of the first argument. What is not ours is the kernel's.
    fn find(&mut self, call: &Call) -> Result<Found, Answer> {
        // What can not be had, the kernel refuses, or is allowed where this process is not.
        let end = self.threads.descriptor(call.thread, call.int(0));
        let end = end.map_err(|_| Answer::Kernel)?;
        let inode = system::inode(end.as_fd()).map_err(|_| Answer::Kernel)?;
        if let Some(key) = self.sockets.find(inode) {
            return Ok(Found { key, end });
        }
        if self.sockets.ended(inode).is_some() {
            return Err(self.of_ended(call, inode));
        }
        Err(self.of_other(call, &end, inode))
    }

    /// What is said of a socket that has ended, while the program still has its end.
    fn of_ended(&mut self, call: &Call, inode: u64) -> Answer {
        let Some(ended) = self.sockets.ended(inode) else {
            return Answer::Kernel;
        };
        match call.number {
            libc::SYS_getsockname => {
                let name = ended.name.clone();
                put_address(call.thread, (call.arguments[1], call.arguments[2]), &name).into()
            }
            libc::SYS_getsockopt => {
                let value = match (call.int(1), call.int(2)) {
                    (libc::SOL_SOCKET, libc::SO_ERROR) => std::mem::take(&mut ended.error),
                    (libc::SOL_SOCKET, libc::SO_DOMAIN) => ended.domain,
                    (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
                    (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
                    _ => 0,
                };
                give_value(call, &value.to_ne_bytes()).into()
            }
            libc::SYS_setsockopt => DONE,
            libc::SYS_connect if ended.error == 0 => fail(libc::ECONNABORTED),
            libc::SYS_connect => fail(std::mem::take(&mut ended.error)),
            libc::SYS_getpeername | libc::SYS_shutdown => fail(libc::ENOTCONN),
            _ => fail(libc::EINVAL),
        }
    }

    fn socket(&mut self, call: &Call) -> Answer {
        let (domain, kind, protocol) = (call.int(0), call.int(1), call.int(2));
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !(flags | 0xf) != 0 {
            return fail(libc::EINVAL);
        }
        if protocol != 0 && protocol != libc::IPPROTO_TCP {
            // Also of several paths: the program then takes TCP.
            return fail(libc::EPROTONOSUPPORT);
        }
        let never = kind & libc::SOCK_NONBLOCK != 0;
        let made =
            system::stream(domain).and_then(|stream| self.add(call.thread, domain, stream, never));
        let (key, end) = match made {
            Ok(made) => made,
            Err(error) => return fail(error),
        };
        match self.give(call.id, key, &end, kind & libc::SOCK_CLOEXEC != 0) {
            Ok(()) => Answer::Later,
            Err(error) => {
                self.sockets.remove(key, 0);
                fail(error)
            }
        }
    }

    /// A socket for a stream, which is watched on the program's side.
    fn add(
        &mut self,
        thread: u32,
        domain: c_int,
        stream: OwnedFd,
        never: bool,
    ) -> Sys<(Key, OwnedFd)> {
        let (key, end) = self.sockets.add(domain, stream, never, thread)?;
        let socket = self.sockets.get(key).ok_or(libc::EIO)?;
        let watched = (self.epoll).add_edges(socket.ours.as_fd(), key.token(Side::Ours));
        if let Err(error) = watched {
            self.sockets.remove(key, 0);
            return Err(error);
        }
        Ok((key, end))
    }

    /// Gives the program its end as the answer.
    fn give(&mut self, id: u64, key: Key, end: &OwnedFd, close_on_exec: bool) -> Sys<()> {
        let number = self.notify.answer_with(id, end.as_fd(), close_on_exec)?;
        if let Some(socket) = self.sockets.get(key) {
            socket.holder.1 = Some(number);
        }
        Ok(())
    }

    fn connect(&mut self, call: &Call, found: Found) -> Answer {
        let address = match read_address(call) {
            Ok(address) => address,
            Err(error) => return fail(error),
        };
        if !self.notify.is_valid(call.id) {
            return Answer::Later;
        }
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        let never = system::never_waits(found.end.as_fd());
        match &mut socket.state {
            State::Fresh => {}
            State::Connected | State::Listening(_) => return fail(libc::EISCONN),
            // Called again after a signal, or by another thread.
            State::Connecting(waiter, _) => {
                if never {
                    return fail(libc::EALREADY);
                }
                if let Some(before) = waiter.replace(waiting(call, 0)) {
                    self.notify.answer(before.id, Err(libc::EALREADY));
                }
                return Answer::Later;
            }
        }
        let mut began = system::connect(socket.stream.as_fd(), &address);
        if began == Err(libc::ECONNABORTED) {
            // What a connect that has failed leaves behind for the next, where it did not wait for it.
            began = system::connect(socket.stream.as_fd(), &address);
        }
        if let Err(error) = began
            && error != libc::EINPROGRESS
        {
            return fail(error);
        }
        let token = found.key.token(Side::Stream);
        if let Err(error) = self.epoll.add_edges(socket.stream.as_fd(), token)
            && error != libc::EEXIST
        {
            return fail(error);
        }
        if began.is_ok() {
            socket.state = State::Connected;
            return DONE;
        }
        if !never {
            socket.state = State::Connecting(Some(waiting(call, 0)), None);
            return Answer::Later;
        }
        if let Err(error) = socket.stop_writing(found.end.as_fd()) {
            return fail(error);
        }
        socket.state = State::Connecting(None, Some(found.end));
        fail(libc::EINPROGRESS)
    }

    /// A stream that was on the way may be there, or has failed.
    pub fn go_on(&mut self, key: Key) {
        let Some(socket) = self.sockets.get(key) else {
            return;
        };
        let error = system::waiting_error(socket.stream.as_fd());
        let State::Connecting(waiter, end) = &mut socket.state else {
            return;
        };
        let (waiter, end) = (waiter.take(), end.take());
        if error == 0 {
            socket.state = State::Connected;
            if let Some(end) = end {
                sockets::widen(end.as_fd());
            }
            socket.let_write();
        } else if socket.stopped {
            // With bytes that nobody read, closing ours is an error at the program's end, as poll tells it.
            let ours = self.sockets.remove(key, error);
            drop(ours);
        } else {
            socket.state = State::Fresh;
            self.epoll.remove(socket.stream.as_fd());
        }
        if let Some(waiter) = waiter {
            let result = if error == 0 { Ok(0) } else { Err(error) };
            self.notify.answer(waiter.id, result);
        }
    }

    fn bind(&mut self, call: &Call, found: &Found) -> Answer {
        let address = match read_address(call) {
            Ok(address) => address,
            Err(error) => return fail(error),
        };
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        system::bind(socket.stream.as_fd(), &address).into()
    }

    fn listen(&mut self, call: &Call, found: &Found) -> Answer {
        let backlog = call.int(1);
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        if matches!(socket.state, State::Connecting(..) | State::Connected) {
            return fail(libc::EINVAL);
        }
        if let Err(error) = system::listen(socket.stream.as_fd(), backlog) {
            return fail(error);
        }
        if let State::Listening(queue) = &mut socket.state {
            queue.most = sockets::queue(backlog).most;
            return DONE;
        }
        socket.state = State::Listening(sockets::queue(backlog));
        // A listener can not be written.
        let stopped = socket.stop_writing(found.end.as_fd());
        let token = found.key.token(Side::Stream);
        let watched = self.epoll.add_edges(socket.stream.as_fd(), token);
        stopped.and(watched).into()
    }

    /// A listener may have connections.
    pub fn take_waiting(&mut self, key: Key) {
        while let Some(socket) = self.sockets.get(key)
            && sockets::take_waiting(socket)
        {
            let State::Listening(queue) = &mut socket.state else {
                return;
            };
            let Some(waiter) = queue.waiters.pop_front() else {
                return;
            };
            // Who does not wait any more leaves the connection to the next.
            let _ = self.accept_for(key, &waiter, false);
        }
    }

    /// Gives the first connection that waits to a call. `None` where the call is not there any more.
    fn accept_for(&mut self, key: Key, waiter: &Waiter, never: bool) -> Option<Sys<()>> {
        if !self.notify.is_valid(waiter.id) {
            return None;
        }
        let socket = self.sockets.get(key)?;
        let domain = socket.domain;
        let State::Listening(queue) = &mut socket.state else {
            return None;
        };
        let stream = queue.streams.pop_front()?;
        let never = never || waiter.flags & libc::SOCK_NONBLOCK != 0;
        let given = self.give_stream(waiter, domain, stream, never);
        let (result, stream) = match given {
            Ok(()) => return Some(Ok(())),
            Err(refused) => refused,
        };
        // It is the next one's, whatever was wrong with this call: but with TCP a bad address costs a connection, too.
        if let Some(stream) = stream
            && let Some(socket) = self.sockets.get(key)
            && let State::Listening(queue) = &mut socket.state
        {
            queue.streams.push_front(stream);
            let _ = system::send(socket.ours.as_fd(), &[0]);
        }
        if result != libc::ENOENT {
            self.notify.answer(waiter.id, Err(result));
        }
        Some(Err(result))
    }

    fn give_stream(
        &mut self,
        waiter: &Waiter,
        domain: c_int,
        stream: OwnedFd,
        never: bool,
    ) -> Result<(), (c_int, Option<OwnedFd>)> {
        if waiter.address.0 != 0 {
            let name = system::name(stream.as_fd(), true).unwrap_or_default();
            if let Err(error) = put_address(waiter.thread, waiter.address, &name) {
                return Err((error, None));
            }
        }
        let added = self.add(waiter.thread, domain, stream, never);
        let (key, end) = added.map_err(|error| (error, None))?;
        if let Err(error) = self.give(waiter.id, key, &end, waiter.flags & libc::SOCK_CLOEXEC != 0)
        {
            let socket = self.sockets.remove(key, 0);
            return Err((error, socket.map(|socket| socket.stream)));
        }
        if let Some(socket) = self.sockets.get(key) {
            socket.state = State::Connected;
            let token = key.token(Side::Stream);
            let _ = self.epoll.add_edges(socket.stream.as_fd(), token);
        }
        Ok(())
    }

    fn accept(&mut self, call: &Call, found: &Found, flags: c_int) -> Answer {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return fail(libc::EINVAL);
        }
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        sockets::take_waiting(socket);
        let waiter = waiting(call, flags);
        let State::Listening(queue) = &mut socket.state else {
            return fail(libc::EINVAL);
        };
        if queue.streams.is_empty() {
            if system::never_waits(found.end.as_fd()) {
                return fail(libc::EAGAIN);
            }
            queue.waiters.push_back(waiter);
            return Answer::Later;
        }
        // The byte that stands for the connection.
        let _ = system::receive(found.end.as_fd(), &mut [0]);
        let _ = self.accept_for(found.key, &waiter, false);
        self.take_waiting(found.key);
        Answer::Later
    }

    fn name(&mut self, call: &Call, found: &Found, of_peer: bool) -> Answer {
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        let name = system::name(socket.stream.as_fd(), of_peer);
        let place = (call.arguments[1], call.arguments[2]);
        name.and_then(|name| put_address(call.thread, place, &name))
            .into()
    }

    fn option(&mut self, call: &Call, found: &Found) -> Answer {
        let (level, name) = (call.int(1), call.int(2));
        match options::whose(level, name) {
            Whose::Descriptor => return Answer::Kernel,
            Whose::Refused => return fail(libc::ENOPROTOOPT),
            Whose::Stream => {}
        }
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        let length = match threads::read_int(call.thread, call.arguments[4]) {
            Ok(length) => length,
            Err(error) => return fail(error),
        };
        let Ok(length) = usize::try_from(length) else {
            return fail(libc::EINVAL);
        };
        let value = system::option(socket.stream.as_fd(), level, name, length.min(LONGEST));
        value.and_then(|value| give_value(call, &value)).into()
    }

    fn set_option(&mut self, call: &Call, found: &Found) -> Answer {
        let (level, name) = (call.int(1), call.int(2));
        match options::whose(level, name) {
            Whose::Descriptor => return Answer::Kernel,
            Whose::Refused => return fail(libc::ENOPROTOOPT),
            Whose::Stream => {}
        }
        let Ok(length) = usize::try_from(call.int(4)) else {
            return fail(libc::EINVAL);
        };
        let value = threads::read(call.thread, call.arguments[3], length.min(LONGEST));
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        let stream = socket.stream.as_fd();
        value
            .and_then(|value| system::set_option(stream, level, name, &value))
            .into()
    }

    fn shutdown(&mut self, call: &Call, found: &Found) -> Answer {
        let how = call.int(1);
        let Some(socket) = self.sockets.get(found.key) else {
            return fail(libc::EBADF);
        };
        match &socket.state {
            State::Connected => Answer::Kernel,
            State::Fresh => system::shutdown(socket.stream.as_fd(), how).into(),
            State::Connecting(..) | State::Listening(_) => {
                let is_write = how == libc::SHUT_WR;
                if is_write && matches!(socket.state, State::Listening(_)) {
                    return system::shutdown(socket.stream.as_fd(), how).into();
                }
                self.give_up(found.key, libc::EINVAL);
                DONE
            }
        }
    }

    /// A socket that the program has let go, or shut, before it was connected. Calls that wait fail with this error.
    pub fn give_up(&mut self, key: Key, error: c_int) {
        let Some(socket) = self.sockets.remove(key, 0) else {
            return;
        };
        let waiters = match socket.state {
            State::Listening(queue) => queue.waiters.into_iter().collect(),
            State::Connecting(waiter, _) => Vec::from_iter(waiter),
            State::Fresh | State::Connected => Vec::new(),
        };
        for waiter in waiters {
            self.notify.answer(waiter.id, Err(error));
        }
    }
}

const fn waiting(call: &Call, flags: c_int) -> Waiter {
    Waiter {
        id: call.id,
        thread: call.thread,
        address: (call.arguments[1], call.arguments[2]),
        flags,
    }
}

/// The address of `connect` and `bind`.
///
/// # Errors
/// The errno.
pub fn read_address(call: &Call) -> Sys<Vec<u8>> {
    match usize::try_from(call.int(2)) {
        Ok(length) if length <= ADDRESS => threads::read(call.thread, call.arguments[1], length),
        _ => Err(libc::EINVAL),
    }
}

/// Writes an address as far as there is room, and its whole length.
///
/// # Errors
/// The errno.
pub fn put_address(thread: u32, (at, length_at): (u64, u64), address: &[u8]) -> Sys<()> {
    let room = threads::read_int(thread, length_at)?;
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
    threads::write(thread, at, &address[..room.min(address.len())])?;
    let length = c_int::try_from(address.len()).unwrap_or(0);
    threads::write(thread, length_at, &length.to_ne_bytes())
}

/// Writes the value of an option as far as there is room, and how much that is.
///
/// # Errors
/// The errno.
pub fn give_value(call: &Call, value: &[u8]) -> Sys<()> {
    let (at, length_at) = (call.arguments[3], call.arguments[4]);
    let room = threads::read_int(call.thread, length_at)?;
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
    let value = &value[..room.min(value.len())];
    threads::write(call.thread, at, value)?;
    let length = c_int::try_from(value.len()).unwrap_or(0);
    threads::write(call.thread, length_at, &length.to_ne_bytes())
}
