//! The calls that programs are made of. Each has the kinds of its arguments, by which they are drawn, printed, parsed,
//! built and read back.

use super::words::{self, Words};

/// The kind of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A descriptor: a variable, or a number.
    Fd,
    /// One of some numbers.
    One(Words),
    /// Some of some bits.
    Flags(Words),
    /// A number, and the values that are drawn.
    Number(&'static [i64]),
    /// The length of the buffer before it.
    Size,
    /// A buffer whose bytes are sent, or which is filled: its place.
    In,
    Out,
    /// A vector of buffers: its shape. Two arguments: the vector and its count.
    VectorIn,
    VectorOut,
    /// A message: shape of its vector, of its control data, of its address, and a descriptor.
    MessageIn,
    MessageOut,
    /// Several messages with one buffer each: how many, size. Two arguments.
    MessagesIn,
    MessagesOut,
    /// An address and its length. Two arguments.
    To,
    /// Room for an address and for its length. Two arguments.
    From,
    /// Level and name. Two arguments.
    Choice,
    /// The value of an option and its length. Two arguments.
    Value,
    /// Room for a value and for its length. Two arguments.
    Answer,
    /// Entries for `poll` and their count. Two arguments.
    Polls,
    /// The number of descriptors and three sets. Four arguments.
    Sets,
    /// Times: seconds and microseconds, or nanoseconds.
    Timeval,
    Timespec,
    /// Milliseconds.
    Milliseconds,
    /// One event to wait for: events.
    Event,
    /// Room for events and how many. Two arguments.
    Events,
    /// A mask of signals. One argument for the C library, two by number.
    Mask,
    /// The same, as `pselect6` takes it.
    MaskPair,
    /// Request and argument of `ioctl`. Two arguments.
    Request,
    /// Command and argument of `fcntl`. Two arguments.
    Command,
    /// Room for two descriptors.
    Pair,
    /// An offset that is null, or points at a number.
    Offset,
    /// Another actor.
    Actor,
    /// Room for a limit.
    Limit,
}

/// A call.
pub struct Form {
    /// The C name, or a word of our own.
    pub name: &'static str,
    /// Its number for `syscall`.
    pub number: Option<i64>,
    pub arguments: &'static [Kind],
    /// Whether the result is a new descriptor.
    pub makes: bool,
    /// Whether the C library has the call. Otherwise an actor does it itself.
    pub library: bool,
}

impl Form {
    /// Whether the bytes that a call with these arguments receives stay in the buffer of the socket.
    pub fn peeks(&self, arguments: &[Vec<i64>]) -> bool {
        let flags = Kind::Flags(words::RECEIVE_FLAGS);
        let mut pairs = self.arguments.iter().zip(arguments);
        pairs.any(|(kind, argument)| *kind == flags && argument[0] & i64::from(libc::MSG_PEEK) != 0)
    }
}

use Kind::*;

macro_rules! forms {
    ($($name:ident $(#$number:ident)? ($($argument:expr),*) $(-> $makes:ident)?;)*) => {
        &[$(Form {
            name: stringify!($name),
            number: forms!(@number $($number)?),
            arguments: &[$($argument),*],
            makes: forms!(@makes $($makes)?),
            library: true,
        }),*]
    };
    (@number) => { None };
    (@number $number:ident) => { Some(libc::$number as i64) };
    (@makes) => { false };
    (@makes $makes:ident) => { true };
}

const MOST: &[i64] = &[0, 1, 5, 128, -1, 4096];
const SIZES_OF_SETS: &[i64] = &[1, 8, 0, -1];
const LIMITS: &[i64] = &[3, 8, 12, 64, 512, 1024];
const CURRENT: &[i64] = &[-1, -1, -1, 0, 7];
const OFFSETS: &[i64] = &[0, -1, 7];

/// All calls of the C library that are drawn.
pub const CALLS: &[Form] = forms! {
    socket #SYS_socket (One(words::FAMILIES), Flags(words::TYPES), One(words::PROTOCOLS)) -> fd;
    bind #SYS_bind (Fd, To);
    listen #SYS_listen (Fd, Number(MOST));
    connect #SYS_connect (Fd, To);
    accept #SYS_accept (Fd, From) -> fd;
    accept4 #SYS_accept4 (Fd, From, Flags(words::ACCEPT_FLAGS)) -> fd;
    getsockname #SYS_getsockname (Fd, From);
    getpeername #SYS_getpeername (Fd, From);
    shutdown #SYS_shutdown (Fd, One(words::HOWS));
    setsockopt #SYS_setsockopt (Fd, Choice, Value);
    getsockopt #SYS_getsockopt (Fd, Choice, Answer);
    send (Fd, In, Size, Flags(words::SEND_FLAGS));
    recv (Fd, Out, Size, Flags(words::RECEIVE_FLAGS));
    sendto #SYS_sendto (Fd, In, Size, Flags(words::SEND_FLAGS), To);
    recvfrom #SYS_recvfrom (Fd, Out, Size, Flags(words::RECEIVE_FLAGS), From);
    read #SYS_read (Fd, Out, Size);
    write #SYS_write (Fd, In, Size);
    readv #SYS_readv (Fd, VectorOut);
    writev #SYS_writev (Fd, VectorIn);
    preadv2 (Fd, VectorOut, Number(CURRENT), Flags(words::READ_FLAGS));
    pwritev2 (Fd, VectorIn, Number(CURRENT), Flags(words::READ_FLAGS));
    pread (Fd, Out, Size, Number(OFFSETS));
    pwrite (Fd, In, Size, Number(OFFSETS));
    lseek #SYS_lseek (Fd, Number(OFFSETS), Number(MOST));
    sendmsg #SYS_sendmsg (Fd, MessageIn, Flags(words::SEND_FLAGS));
    recvmsg #SYS_recvmsg (Fd, MessageOut, Flags(words::RECEIVE_FLAGS));
    sendmmsg #SYS_sendmmsg (Fd, MessagesIn, Flags(words::SEND_FLAGS));
    recvmmsg #SYS_recvmmsg (Fd, MessagesOut, Flags(words::RECEIVE_FLAGS), Timespec);
    sendfile #SYS_sendfile (Fd, Fd, Offset, Size);
    splice #SYS_splice (Fd, Offset, Fd, Offset, Size, Flags(words::SPLICE_FLAGS));
    close #SYS_close (Fd);
    dup #SYS_dup (Fd) -> fd;
    dup2 #SYS_dup2 (Fd, Fd) -> fd;
    dup3 #SYS_dup3 (Fd, Fd, Flags(words::OPEN_FLAGS)) -> fd;
    fcntl #SYS_fcntl (Fd, Command) -> fd;
    ioctl #SYS_ioctl (Fd, Request);
    close_range #SYS_close_range (Fd, Fd, Flags(words::CLOSE_RANGE));
    isfdtype (Fd, Number(&[0o140_000, 0o100_000]));
    sockatmark (Fd);
    poll #SYS_poll (Polls, Milliseconds);
    ppoll #SYS_ppoll (Polls, Timespec, Mask);
    select #SYS_select (Sets, Timeval);
    pselect #SYS_pselect6 (Sets, Timespec, MaskPair);
    epoll_create #SYS_epoll_create (Number(SIZES_OF_SETS)) -> fd;
    epoll_create1 #SYS_epoll_create1 (Flags(words::EPOLL_FLAGS)) -> fd;
    epoll_ctl #SYS_epoll_ctl (Fd, One(words::EPOLL_OPERATIONS), Fd, Event);
    epoll_wait #SYS_epoll_wait (Fd, Events, Milliseconds);
    epoll_pwait #SYS_epoll_pwait (Fd, Events, Milliseconds, Mask);
    epoll_pwait2 #SYS_epoll_pwait2 (Fd, Events, Timespec, Mask);
    socketpair #SYS_socketpair (One(words::FAMILIES), Flags(words::TYPES), One(words::PROTOCOLS), Pair);
    pipe2 #SYS_pipe2 (Pair, Flags(words::PIPE_FLAGS));
    setrlimit (One(words::LIMITS), Limit);
    getrlimit (One(words::LIMITS), Answer);
};

/// Actions that actors do themselves.
pub const ACTOR_ACTIONS: &[Form] = &[
    actor_action("fork", &[Actor]),
    actor_action("thread", &[Actor]),
    actor_action("exec", &[]),
    actor_action("exit", &[Number(&[0, 1, 7])]),
    actor_action("kill", &[Actor, One(words::SIGNALS)]),
    actor_action("end", &[Actor]),
    actor_action("reap", &[Actor]),
    actor_action("action", &[One(words::SIGNALS), One(words::ACTIONS)]),
    actor_action("numbers", &[]),
    actor_action("file", &[Size]),
    actor_action("fill", &[Fd, Number(&[0, 1, 2, 3])]),
    actor_action("drain", &[Fd, Number(&[0]), Number(&[0, 1])]),
];

const fn actor_action(name: &'static str, arguments: &'static [Kind]) -> Form {
    Form {
        name,
        number: None,
        arguments,
        makes: false,
        library: false,
    }
}

/// The values to which programs set a limit.
pub const LIMIT_VALUES: &[i64] = LIMITS;

/// The call with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Form> {
    CALLS
        .iter()
        .chain(ACTOR_ACTIONS)
        .find(|form| form.name == name)
}
