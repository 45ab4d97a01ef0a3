//! Flags of a socket's file: those that a socket has no use for, which are kept all the same, and what the file of a listener says
//! instead of them, to whichever process gets a descriptor of it.
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

/// On the file of a listener: the program takes it for blocking.
const BLOCKING: c_int = libc::O_APPEND;
/// On the file of a listener: the program has set `O_APPEND`. A file of another user takes this mark from nobody.
const APPENDING: c_int = libc::O_NOATIME;
/// What is kept for the program's eyes only.
const IDLE: c_int = libc::O_APPEND | libc::O_NOATIME;
/// All that is said otherwise on a listener's file.
const MEANT: c_int = IDLE | libc::O_NONBLOCK;

/// Notes what the program has set.
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

/// Flags that the program has set on a socket, of those that are noted.
pub fn of(socket: &Socket) -> c_int {
    let flag = |bit, flag| if socket.has(bit) { flag } else { 0 };
    flag(status::NONBLOCKING, libc::O_NONBLOCK)
        | flag(status::APPENDS, libc::O_APPEND)
        | flag(status::NO_ACCESS_TIME, libc::O_NOATIME)
}

/// Whether any was set that is for the program's eyes only.
pub fn are_idle_set(socket: &Socket) -> bool {
    socket.has(status::APPENDS | status::NO_ACCESS_TIME)
}

fn read(fd: i32) -> Option<c_int> {
    c_int::try_from(sys::fcntl(fd, libc::F_GETFL, 0).ok()?).ok()
}

/// Sets them on a file, without the one that only its owner may set where he is another user.
fn write(fd: i32, flags: c_int) {
    if sys::fcntl(fd, libc::F_SETFL, sys::int(flags)) == Err(libc::EPERM) {
        let _ = sys::fcntl(fd, libc::F_SETFL, sys::int(flags & !libc::O_NOATIME));
    }
}

/// Whether the file is that of a listener which blocks, as some process of ours has noted.
pub fn says_that_it_blocks(fd: i32) -> bool {
    const NOTED: c_int = BLOCKING | libc::O_NONBLOCK;
    read(fd).is_some_and(|flags| flags & NOTED == NOTED)
}

/// Puts on the kernel's file what the program has set.
pub fn put_on(socket: &Socket, fd: i32) {
    if let Some(flags) = read(fd) {
        write(fd, flags & !MEANT | of(socket));
    }
}

/// The same on an anchor, which may be another user's file, and serves no other connection then.
pub fn put_on_anchor(socket: &Socket, fd: i32) {
    socket.mark(status::SHARED);
    if let Some(flags) = read(fd) {
        write(fd, flags & !MEANT | of(socket) & !libc::O_NOATIME);
    }
}

/// A socket begins to listen under the eyes of this process, or is found listening (`known` if what the program has set was noted before).
/// Its file says from now on what is meant, and the kernel never blocks on it.
pub fn begin(socket: &Socket, fd: i32, known: bool) {
    let Some(flags) = read(fd) else { return };
    let appends = socket.has(status::APPENDS);
    if !known {
        note(socket, meant(flags));
    } else if flags & libc::O_NONBLOCK != 0
        && (flags & BLOCKING == 0 || appends && flags & APPENDING == 0)
    {
        // By a process that shares no more than the file.
        socket.mark(status::NONBLOCKING);
    }
    put_marks(socket, fd);
}

/// The marks of a listener, as the program has set its flags.
pub fn put_marks(socket: &Socket, fd: i32) {
    if let Some(flags) = read(fd) {
        write(fd, flags & !MEANT | marks(of(socket)));
    }
}

/// What a listener's file says where the program means `flags`.
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
    flags & !MEANT | libc::O_NONBLOCK | blocking | appends
}

/// The program's flags, where the file of a listener says `flags`; of one without marks they are the same.
const fn meant(flags: c_int) -> c_int {
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
    flags & !MEANT | nonblocking | appends
}

/// Whether another process may have made it a listener since.
pub fn may_be_marked(socket: &Socket) -> bool {
    socket.has(status::BOUND) && !socket.has(status::KERNEL_CONNECTED)
}

/// The program's flags of a listener that another process has marked, and that this one has not used yet. `None` of any other socket.
pub fn of_unused(fd: i32) -> Option<c_int> {
    let flags = read(fd)?;
    let marked = flags & libc::O_NONBLOCK != 0 && flags & (BLOCKING | APPENDING) != 0;
    (marked && is_listening(fd)).then(|| meant(flags))
}

/// What the program is shown of a file of which it has set `own`.
pub const fn shown(file: c_int, own: c_int) -> c_int {
    file & !MEANT | own
}

/// A listener that is the kernel's alone from now on: its file says what it says.
pub fn end(fd: i32, flags: c_int) {
    if let Some(now) = read(fd) {
        write(fd, now & !MEANT | flags & MEANT);
    }
}

#[cfg(test)]
mod tests {
    use super::{MEANT, marks, meant};

    #[test]
    fn what_a_file_says_is_understood() {
        for nonblocking in [0, libc::O_NONBLOCK] {
            for append in [0, libc::O_APPEND] {
                let flags = libc::O_RDWR | nonblocking | append;
                assert_eq!(meant(marks(flags)), flags);
                assert_ne!(marks(flags) & libc::O_NONBLOCK, 0);
            }
        }
        // Of another process that knows nothing of this.
        for flags in [0, libc::O_NONBLOCK, libc::O_APPEND] {
            assert_eq!(meant(flags) & MEANT, flags);
        }
    }
}
