//! Closing, duplicating and inspecting descriptors; forking.

use libc::{c_int, c_uint, c_ulong};
use netchannel_abi::link::waiter as bits;
use netchannel_abi::reason::Reason;

use super::datagrams;
use crate::connections::asking;
use crate::connections::connection::{self, deferred, flags, lane};
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{copying, limits, reserved_number, user};
use crate::ground::{gate, real, sys};
use crate::processes::{fork as forking, relocate};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, status};
use crate::sockets::{placeholder, signal_owner};
use crate::waiting::epoll;
use crate::waiting::replacement;

/// Closes a descriptor of the library. `None` where the kernel must do all of it.
#[unsafe(link_section = ".text.netchannel_start")]
fn close_ours(fd: c_int) -> Option<Result<(), i32>> {
    let word = table::get(fd);
    match word.kind() {
        Kind::Foreign => {
            asking::closed(fd);
            None
        }
        // The library's own: for the program it is not open.
        Kind::Internal => Some(Err(libc::EBADF)),
        Kind::Epoll => {
            epoll::closed(fd, word);
            None
        }
        _ => Some(match socket::of_word(word) {
            Some(socket) => connection::close(fd, &socket),
            None => Err(libc::EBADF),
        }),
    }
}

/// Notes that `to` has become a duplicate of `from`.
fn duplicated(from: c_int, to: c_int) {
    connection::forget_closed(to);
    let _inside = gate::enter();
    let word = table::get(from);
    match word.kind() {
        Kind::Foreign => asking::duplicated(from, to),
        Kind::Internal => {}
        Kind::Epoll => {
            table::set(to, word);
        }
        _ => {
            if let Some(socket) = socket::of_word(word) {
                socket.add_descriptor();
                table::set(to, word);
            }
        }
    }
}

/// Duplicates of a fresh socket must share one file: it becomes the kernel's first.
fn before_duplicate(fd: c_int) -> Result<(), i32> {
    match deferred::at(fd) {
        Some(deferred) => {
            placeholder::end_with_connection(&deferred);
            Ok(())
        }
        None => connection::before_kernel_use(fd).map(drop),
    }
}

fn replace(from: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !table::is_made() && !asking::any() {
        // No number ever concerned the library, as in the children of a shell.
        return call();
    }
    if table::get(from).kind() == Kind::Internal {
        return real::fail(libc::EBADF);
    }
    if let Err(error) = before_duplicate(from) {
        return real::fail(error);
    }
    let open = table::get(to) != Word::FOREIGN;
    let is_kept = || socket::of(to).is_some_and(|socket| socket.is_kept(to));
    if open && table::get(from) == table::get(to) && !is_kept() {
        // The number names the same file before and after.
        return call();
    }
    if from != to
        && sys::fcntl(from, libc::F_GETFD, 0).is_ok()
        // A number that the kernel will not give keeps its file.
        && (!open || limits::allow(to))
    {
        if reserved_number::is_reserved(to) || !relocate::make_way(to) {
            return real::fail(libc::EBUSY);
        }
        let polled = replacement::begin(to);
        let _ = close_ours(to);
        let result = call();
        if result >= 0 {
            duplicated(from, to);
        }
        if polled {
            replacement::end();
        }
        return result;
    }
    let result = call();
    if result >= 0 && from != to {
        duplicated(from, to);
    }
    result
}

fn set_nonblocking(fd: c_int, on: bool) {
    if let Some(socket) = socket::of(fd) {
        if on {
            socket.mark(status::NONBLOCKING);
        } else {
            socket.unmark(status::NONBLOCKING);
        }
    }
}

fn note_flags(fd: c_int, argument: usize) {
    if let (Some(socket), Ok(argument)) = (socket::of(fd), c_int::try_from(argument)) {
        flags::note(&socket, argument);
    }
}

/// Whether the file of a socket carries the marks of a listener, also where another process has made it one.
fn is_marked(fd: c_int, word: Word) -> bool {
    word.kind() == Kind::Listener
        || word.kind() == Kind::Kernel
            && socket::of_word(word).is_some_and(|socket| flags::may_be_marked(&socket))
            && flags::of_marked(fd).is_some()
}

/// `O_ASYNC`: the kernel signals events of the anchor, so all news must come there as tokens.
fn set_asynchronous(fd: c_int, on: bool) {
    let known = on || deferred::at(fd).is_none();
    let Some(lane) = known.then(|| lane(fd)).flatten() else {
        return;
    };
    if on {
        lane.socket.mark(status::SHARED | status::ASYNC);
        // Room is told to who meets a want of it from now on.
        lane.arm(bits::DATA);
    } else {
        lane.socket.unmark(status::ASYNC);
    }
}

/// The numbers of a range that the library knows, in order: its own, or the program's. A number that is kept for a call
/// that sleeps on a closed one is the library's own.
fn within(first: c_uint, last: c_uint, own: bool) -> Vec<c_int> {
    let mut found = Vec::new();
    table::for_each(|fd, word| {
        let inside = c_uint::try_from(fd).is_ok_and(|number| (first..=last).contains(&number));
        let is_kept = || socket::of_word(word).is_some_and(|socket| socket.is_kept(fd));
        if inside && own == (word.kind() == Kind::Internal || is_kept()) {
            found.push(fd);
        }
    });
    found
}

/// Whether a command sets the owner or the number of the signal.
fn is_of_signals(command: c_int) -> bool {
    const F_SETSIG: c_int = 10;
    const F_SETOWN_EX: c_int = 15;
    matches!(command, libc::F_SETOWN | F_SETSIG | F_SETOWN_EX)
}

unsafe fn control(
    fd: c_int,
    command: c_int,
    argument: usize,
    call: unsafe extern "C" fn(c_int, c_int, usize) -> c_int,
) -> c_int {
    let word = table::get(fd);
    if word == Word::FOREIGN {
        // SAFETY: the program's arguments.
        return datagrams::after_control(fd, command, unsafe { call(fd, command, argument) });
    }
    if word.kind() == Kind::Internal {
        return real::fail(libc::EBADF);
    }
    let asynchronous = argument & sys::int(libc::O_ASYNC) != 0;
    if word.kind() == Kind::Deferred && is_of_signals(command) {
        deferred::announce(fd);
    }
    if word.kind() == Kind::Fresh
        && signal_owner::is_owner_command(command)
        && let Some(socket) = socket::of_word(word)
        // SAFETY: the program's arguments, for another file.
        && let Some(result) = signal_owner::with_fresh_owner(&socket, |file| unsafe { call(file, command, argument) })
    {
        return result;
    }
    if word.kind() == Kind::Fresh
        && (is_of_signals(command) || command == libc::F_SETFL && asynchronous)
    {
        // The kernel keeps the owner with the file, which fresh sockets share.
        if let Err(error) = connection::to_kernel(fd, Reason::Option) {
            return real::fail(error);
        }
        // SAFETY: the program's arguments.
        return unsafe { call(fd, command, argument) };
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            if let Err(error) = before_duplicate(fd) {
                return real::fail(error);
            }
            // SAFETY: the program's arguments.
            let made = unsafe { call(fd, command, argument) };
            if made >= 0 {
                duplicated(fd, made);
            }
            made
        }
        libc::F_SETFD if word.kind() == Kind::Fresh => {
            // SAFETY: the program's arguments.
            let result = unsafe { call(fd, command, argument) };
            if result == 0 {
                note_close_on_exec(fd, argument & sys::int(libc::FD_CLOEXEC) != 0);
            }
            result
        }
        libc::F_SETFL if word.kind() == Kind::Fresh => {
            // All fresh sockets share the kernel's file.
            if argument & sys::int(libc::O_DIRECT) != 0 {
                return real::fail(libc::EINVAL);
            }
            note_flags(fd, argument);
            0
        }
        libc::F_GETFL if word.kind() == Kind::Fresh => {
            libc::O_RDWR | socket::of(fd).map_or(0, |socket| flags::of(&socket))
        }
        libc::F_SETFL => {
            let marked = is_marked(fd, word);
            let anchor = word.kind() == Kind::Virtual;
            // On a file of another user the kernel takes no `O_NOATIME`. An anchor may be such a file, and `O_NOATIME`
            // is a mark of listeners.
            let kept = argument & !sys::int(libc::O_NOATIME);
            let given = match c_int::try_from(argument) {
                Ok(argument) if marked => sys::int(flags::marks(argument) & !libc::O_NOATIME),
                _ if anchor => kept,
                _ => argument,
            };
            // SAFETY: the program's arguments.
            let result = unsafe { call(fd, command, given) };
            if result == 0 {
                note_flags(fd, argument);
                set_asynchronous(fd, asynchronous);
                if let Some(socket) = socket::of(fd) {
                    if marked && flags::has_unused(&socket) {
                        flags::apply_marks(&socket, fd);
                    } else if anchor && socket.has(status::APPENDS) {
                        // The flag stays on the anchor, which is not pooled afterwards.
                        socket.mark(status::SHARED);
                    }
                }
            }
            result
        }
        libc::F_GETFL => {
            // SAFETY: the program's arguments.
            let result = unsafe { call(fd, command, argument) };
            match socket::of(fd) {
                Some(socket) if result >= 0 && is_marked(fd, word) => {
                    flags::shown(result, flags::of(&socket))
                }
                Some(socket) if result >= 0 && word.kind() == Kind::Virtual => {
                    result | flags::of(&socket) & libc::O_NOATIME
                }
                _ => result,
            }
        }
        _ => {
            // SAFETY: the program's arguments.
            let result = unsafe { call(fd, command, argument) };
            if result == 0 && is_of_signals(command) {
                lane(fd).inspect(Lane::enable_urgent_signals);
            }
            result
        }
    }
}

unsafe extern "C" fn plain_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::fcntl(fd, command, argument) }
}

unsafe extern "C" fn plain_fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::fcntl64(fd, command, argument) }
}

const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;
const FIOGETOWN: c_ulong = 0x8903;
const SIOCGPGRP: c_ulong = 0x8904;
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894b;
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;

/// `CLOSE_RANGE_UNSHARE`: the thread first gets a table of its own.
const UNSHARE: c_int = 2;
/// `CLOSE_RANGE_CLOEXEC`.
const ONLY_MARK: c_int = 4;

/// Notes the close-on-exec flag of a fresh socket, which applies when the socket is connected.
fn note_close_on_exec(fd: c_int, on: bool) {
    let fresh = socket::of(fd).filter(|socket| socket.word.kind() == Kind::Fresh);
    match fresh {
        Some(socket) if on => {
            socket.mark(status::CLOSE_ON_EXEC);
        }
        Some(socket) => socket.unmark(status::CLOSE_ON_EXEC),
        None => {}
    }
}

/// `close_range`.
///
/// # Safety
/// As the C function.
unsafe fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if first > last || flags & !(UNSHARE | ONLY_MARK) != 0 {
            return real::close_range(first, last, flags);
        }
        let only_mark = flags & ONLY_MARK != 0;
        // Closing may make descriptors of the library: they are listed afterwards.
        let mut own = within(first, last, false);
        if only_mark {
            own.iter().for_each(|fd| note_close_on_exec(*fd, true));
        } else {
            own.drain(..).for_each(|fd| {
                let _ = close(fd);
            });
        }
        // Between the library's own descriptors the kernel closes or marks all.
        let mut start = first;
        for fd in within(first, last, true) {
            let number = c_uint::try_from(fd).unwrap_or(start);
            if number > start && real::close_range(start, number - 1, flags) < 0 {
                return -1;
            }
            start = number + 1;
        }
        if start <= last {
            real::close_range(start, last, flags)
        } else {
            0
        }
    }
}

hook! {
    fn close(fd: c_int) -> c_int {
        match close_ours(fd) {
            None => real::close(fd),
            Some(Ok(())) => 0,
            Some(Err(error)) => real::fail(error),
        }
    }

    fn __close(fd: c_int) -> c_int {
        close(fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & UNSHARE == 0 {
            return close_all(first, last, flags);
        }
        // A helper thread would keep the former table, and with it all its descriptors open.
        copying::without_helpers(|| close_all(first, last, flags))
    }

    fn closefrom(first: c_int) {
        let _ = close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0);
    }

    fn dup(fd: c_int) -> c_int {
        if table::get(fd).kind() == Kind::Internal {
            return real::fail(libc::EBADF);
        }
        if let Err(error) = before_duplicate(fd) {
            return real::fail(error);
        }
        let made = real::dup(fd);
        if made >= 0 {
            duplicated(fd, made);
        }
        made
    }

    fn dup2(from: c_int, to: c_int) -> c_int {
        replace(from, to, || real::dup2(from, to))
    }

    fn __dup2(from: c_int, to: c_int) -> c_int {
        dup2(from, to)
    }

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        if from == to || flags & !libc::O_CLOEXEC != 0 {
            return real::dup3(from, to, flags);
        }
        replace(from, to, || real::dup3(from, to, flags))
    }

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        control(fd, command, argument, plain_fcntl)
    }

    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl(fd, command, argument)
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        control(fd, command, argument, plain_fcntl64)
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        let word = table::get(fd);
        if word == Word::FOREIGN {
            return datagrams::after_ioctl(fd, request, argument, real::ioctl(fd, request, argument));
        }
        if matches!(request, libc::FIOCLEX | libc::FIONCLEX) {
            note_close_on_exec(fd, request == libc::FIOCLEX);
            return real::ioctl(fd, request, argument);
        }
        let value: *mut c_int = core::ptr::with_exposed_provenance_mut(argument);
        if request == libc::FIONBIO {
            let on = match user::read(value) {
                Ok(value) => value != 0,
                Err(error) => return real::fail(error),
            };
            let marked = is_marked(fd, word);
            let result =
                if marked || word.kind() == Kind::Fresh { 0 } else { real::ioctl(fd, request, argument) };
            if result == 0 {
                if marked && let Some(socket) = socket::of(fd) {
                    flags::set_nonblocking(&socket, fd, on);
                }
                set_nonblocking(fd, on);
            }
            return result;
        }
        if word.kind() == Kind::Fresh
            && matches!(request, FIOSETOWN | SIOCSPGRP | FIOGETOWN | SIOCGPGRP)
            && let Some(socket) = socket::of_word(word)
            && let Some(result) = signal_owner::with_fresh_owner(&socket, |file| real::ioctl(file, request, argument))
        {
            return result;
        }
        if matches!(request, libc::FIOASYNC | FIOSETOWN | SIOCSPGRP) {
            deferred::announce(fd);
            if word.kind() == Kind::Fresh
                && let Err(error) = connection::to_kernel(fd, Reason::Option)
            {
                return real::fail(error);
            }
            let result = real::ioctl(fd, request, argument);
            if result == 0 && request != libc::FIOASYNC {
                lane(fd).inspect(Lane::enable_urgent_signals);
            } else if result == 0 && let Ok(on) = user::read(value) {
                set_asynchronous(fd, on != 0);
            }
            return result;
        }
        let asks = matches!(
            request,
            libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD | SIOCGSTAMP | SIOCGSTAMPNS | SIOCATMARK
        );
        // A deferred connection has no bytes, and is not announced by a question.
        let silent = asks && deferred::at(fd).is_some();
        let known = if asks && !silent { lane(fd) } else { None };
        if known.is_none() && !silent {
            return real::ioctl(fd, request, argument);
        }
        let answer = match (request, known) {
            // No option asked for timestamps before the bytes came.
            (SIOCGSTAMP | SIOCGSTAMPNS, _) => return real::fail(libc::ENOENT),
            (_, None) => 0,
            (libc::FIONREAD, Some(lane)) => lane.unread_count(),
            (SIOCATMARK, Some(lane)) => u64::from(lane.is_at_mark()),
            (_, Some(lane)) => lane.unacknowledged(),
        };
        match user::write(value, c_int::try_from(answer).unwrap_or(c_int::MAX)) {
            Ok(()) => 0,
            Err(error) => real::fail(error),
        }
    }

    fn fork() -> libc::pid_t {
        let made = real::fork();
        let error = real::errno();
        forking::after_fork(made);
        if made < 0 { real::fail(error) } else { made }
    }
}
