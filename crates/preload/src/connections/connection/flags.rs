//! Flags of a socket's file: those that have no effect on a socket, which are kept all the same, and the marks on the
//! file of a listener that tell other processes with a descriptor of it what the program has set.
//!
//! ```text
//!  file of a listener   to the kernel         the program has asked for
//!  O_NONBLOCK           it never blocks       -
//!  O_APPEND             -                     a listener that blocks
//!  O_NOATIME            -                     O_APPEND
//! ```

use libc::c_int;

use super::is_listening;
use crate::ground::sys;
use crate::sockets::socket::{Socket, status};

/// On the file of a listener: the program has it blocking.
const BLOCKING: c_int = libc::O_APPEND;
/// On the file of a listener: the program has set `O_APPEND`. Only the owner of a file can set this mark.
const APPENDING: c_int = libc::O_NOATIME;
/// Flags without effect on a socket.
const UNUSED: c_int = libc::O_APPEND | libc::O_NOATIME;
/// All flags that have another meaning on a listener's file.
const MARKED: c_int = UNUSED | libc::O_NONBLOCK;

/// Notes the flags that the program has set.
pub fn note(socket: &Socket, flags: c_int) {
    for (flag, bit) in [
        (libc::O_NONBLOCK, status::NONBLOCKING),
        (libc::O_APPEND, status::APPENDS),
        (libc::O_NOATIME, status::NO_ACCESS_TIME),
    ] {
        if flags & flag != 0 {
            socket.mark(bit);
        } else {
            socket.unmark(bit);
        }
    }
}

/// The noted flags that the program has set on a socket.
pub fn of(socket: &Socket) -> c_int {
    let flag = |bit, flag| if socket.has(bit) { flag } else { 0 };
    flag(status::NONBLOCKING, libc::O_NONBLOCK)
        | flag(status::APPENDS, libc::O_APPEND)
        | flag(status::NO_ACCESS_TIME, libc::O_NOATIME)
}

/// Whether a flag without effect was set.
pub fn has_unused(socket: &Socket) -> bool {
    socket.has(status::APPENDS | status::NO_ACCESS_TIME)
}

fn read(fd: i32) -> Option<c_int> {
    c_int::try_from(sys::fcntl(fd, libc::F_GETFL, 0).ok()?).ok()
}

/// Sets flags on a file, without the one that only the owner may set where the owner is another user.
fn write(fd: i32, flags: c_int) {
    if sys::fcntl(fd, libc::F_SETFL, sys::int(flags)) == Err(libc::EPERM) {
        let _ = sys::fcntl(fd, libc::F_SETFL, sys::int(flags & !libc::O_NOATIME));
    }
}

/// Whether the file belongs to a blocking listener, as some process with the library has marked it.
pub fn is_marked_blocking(fd: i32) -> bool {
    const NOTED: c_int = BLOCKING | libc::O_NONBLOCK;
    read(fd).is_some_and(|flags| flags & NOTED == NOTED)
}

/// Sets the program's flags on the kernel's file.
pub fn apply(socket: &Socket, fd: i32) {
    if let Some(flags) = read(fd) {
        write(fd, flags & !MARKED | of(socket));
    }
}

/// Sets the program's flags on a file of the library's own, which has no others.
pub fn set(socket: &Socket, fd: i32) {
    write(fd, of(socket));
}

/// Sets the program's flags on an anchor, which may be another user's file, and is not pooled afterwards.
pub fn apply_to_anchor(socket: &Socket, fd: i32) {
    socket.mark(status::SHARED);
    if let Some(flags) = read(fd) {
        write(fd, flags & !MARKED | of(socket) & !libc::O_NOATIME);
    }
}

/// Called when a socket begins to listen, or is found listening (`known` if the program's flags were noted before). Its
/// file carries marks from now on, and never blocks in the kernel.
pub fn begin_listening(socket: &Socket, fd: i32, known: bool) {
    let Some(flags) = read(fd) else { return };
    let appends = socket.has(status::APPENDS);
    if !known {
        note(socket, program_flags(flags));
    } else if flags & libc::O_NONBLOCK != 0
        && (flags & BLOCKING == 0 || appends && flags & APPENDING == 0)
    {
        // Set by a process that shares only the file.
        socket.mark(status::NONBLOCKING);
    }
    apply_marks(socket, fd);
}

/// Takes over whether another process with the file of a listener has it blocking.
pub fn follow(socket: &Socket, fd: i32) {
    let now = read(fd).map(|flags| program_flags(flags) & libc::O_NONBLOCK);
    match now {
        Some(0) => socket.unmark(status::NONBLOCKING),
        Some(_) => {
            socket.mark(status::NONBLOCKING);
        }
        None => {}
    }
}

/// Sets whether a listener blocks, in its file before here: who follows the file finds the newer one.
pub fn set_nonblocking(socket: &Socket, fd: i32, on: bool) {
    let nonblocking = if on { libc::O_NONBLOCK } else { 0 };
    mark(fd, of(socket) & !libc::O_NONBLOCK | nonblocking);
}

/// Sets the marks of a listener according to the program's flags.
pub fn apply_marks(socket: &Socket, fd: i32) {
    mark(fd, of(socket));
}

fn mark(fd: i32, flags: c_int) {
    if let Some(now) = read(fd) {
        write(fd, now & !MARKED | marks(flags));
    }
}

/// The flags of a listener's file for the program's `flags`.
pub const fn marks(flags: c_int) -> c_int {
    let blocking = if flags & libc::O_NONBLOCK == 0 {
        BLOCKING
    } else {
        0
    };
    let appends = if flags & libc::O_APPEND == 0 {
        0
    } else {
        APPENDING
    };
    flags & !MARKED | libc::O_NONBLOCK | blocking | appends
}

/// The program's flags, where the file of a listener has `flags`; without marks they are the same.
const fn program_flags(flags: c_int) -> c_int {
    if flags & libc::O_NONBLOCK == 0 {
        return flags;
    }
    let nonblocking = if flags & BLOCKING == 0 {
        libc::O_NONBLOCK
    } else {
        0
    };
    let appends = if flags & APPENDING == 0 {
        0
    } else {
        libc::O_APPEND
    };
    flags & !MARKED | nonblocking | appends
}

/// Whether another process may have made it a listener since.
pub fn may_be_marked(socket: &Socket) -> bool {
    socket.has(status::BOUND | status::SHARED) && !socket.has(status::KERNEL_CONNECTED)
}

/// The program's flags of a listener that another process has marked, and that this one has not used yet. `None` for
/// any other socket.
pub fn of_marked(fd: i32) -> Option<c_int> {
    let flags = read(fd)?;
    let marked = flags & libc::O_NONBLOCK != 0 && flags & (BLOCKING | APPENDING) != 0;
    (marked && is_listening(fd)).then(|| program_flags(flags))
}

/// The flags shown to the program, where the file of a listener has `file` and this process has set `own`.
pub const fn shown(file: c_int, own: c_int) -> c_int {
    file & !MARKED | own & UNUSED | program_flags(file) & libc::O_NONBLOCK
}

/// Runs `call` while the file of a listener has the program's `flags`, and no marks.
#[cold]
pub fn with_shown<R>(fd: i32, flags: c_int, call: impl FnOnce() -> R) -> R {
    end_listening(fd, flags);
    let result = call();
    mark(fd, flags);
    result
}

/// Removes the marks: the listener is the kernel's alone from now on.
pub fn end_listening(fd: i32, flags: c_int) {
    if let Some(now) = read(fd) {
        write(fd, now & !MARKED | flags & MARKED);
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKED, marks, program_flags};

    #[test]
    fn what_a_file_says_is_understood() {
        for nonblocking in [0, libc::O_NONBLOCK] {
            for append in [0, libc::O_APPEND] {
                let flags = libc::O_RDWR | nonblocking | append;
                assert_eq!(program_flags(marks(flags)), flags);
                assert_ne!(marks(flags) & libc::O_NONBLOCK, 0);
            }
        }
        // Set by a process without the library.
        for flags in [0, libc::O_NONBLOCK, libc::O_APPEND] {
            assert_eq!(program_flags(flags) & MARKED, flags);
        }
    }
}
