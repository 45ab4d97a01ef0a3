//! The filter: which system calls of the program are held back and shown to the supervisor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use netchannel_abi::supervision::MARK;

/// The architecture of native calls, and the bit of numbers of programs with short pointers.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else {
    0xc000_003e
};
const SHORT_POINTERS: u32 = 0x4000_0000;

/// Where the kernel's `seccomp_data` has what is looked at.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const fn low(argument: u32) -> u32 {
    16 + 8 * argument
}
const fn high(argument: u32) -> u32 {
    20 + 8 * argument
}

/// The calls on descriptors that are held back, whatever the descriptor: what it is only the supervisor can find out.
pub const ON_DESCRIPTORS: [libc::c_long; 10] = [
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Calls that name service over datagrams needs: these where an address goes with them, and `recvmsg`.
const WITH_ADDRESS: [libc::c_long; 2] = [libc::SYS_sendto, libc::SYS_recvfrom];

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const LEAP: u32 = libc::BPF_JMP | libc::BPF_JA;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A step before its jumps are counted: what holds leads on, what does not leads to the named end, or the other way
/// round.
enum Step {
    Plain(u32, u32),
    /// Goes on where it is equal, else to the end.
    Require(u32, End),
    /// Leaves to the end where it is equal, else goes on.
    Leave(u32, End),
    /// Leaves to the end where it is at least as much.
    LeaveFrom(u32, End),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The kernel makes the call.
    Allow,
    /// The supervisor is asked, unless the call is marked.
    Ask,
    /// The steps for `socket`.
    Socket,
    /// The steps for calls that may have an address.
    Address,
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// The steps of the filter, also for name service over datagrams.
#[must_use]
pub fn steps(with_names: bool) -> Vec<libc::sock_filter> {
    use Step::{Leave, LeaveFrom, Plain, Require};
    let mut first = vec![
        Plain(LOAD, MACHINE),
        Require(ARCHITECTURE, End::Allow),
        Plain(LOAD, NUMBER),
        LeaveFrom(SHORT_POINTERS, End::Allow),
        Leave(number(libc::SYS_socket), End::Socket),
    ];
    if with_names {
        first.extend(WITH_ADDRESS.map(|call| Leave(number(call), End::Address)));
        first.push(Leave(number(libc::SYS_recvmsg), End::Ask));
    }
    let (last, others) = ON_DESCRIPTORS.split_last().unwrap_or((&-1, &[]));
    first.extend(others.iter().map(|call| Leave(number(*call), End::Ask)));
    first.push(Require(number(*last), End::Allow));
    let inet = libc::AF_INET.unsigned_abs();
    let socket = [
        Plain(LOAD, low(1)),
        // Without the flags.
        Plain(AND, 0xf),
        Require(libc::SOCK_STREAM.unsigned_abs(), End::Allow),
        Plain(LOAD, low(0)),
        Leave(inet, End::Ask),
        Require(libc::AF_INET6.unsigned_abs(), End::Allow),
        Plain(LEAP, 4),
    ];
    let address = [
        Plain(LOAD, low(4)),
        Require(0, End::Ask),
        Plain(LOAD, high(4)),
        Leave(0, End::Allow),
    ];
    // Halves of the mark are compared as such.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let mark = (MARK as u32, (MARK >> 32) as u32);
    let count = |steps: usize| u8::try_from(steps).unwrap_or(u8::MAX);
    // Behind the first steps: a leap over those of socket, these, then the question and the two ends.
    let socket_at = first.len() + 1;
    let address_at = socket_at + socket.len();
    let ask_at = address_at + address.len();
    let allow_at = ask_at + 5;
    let place = |end: End| match end {
        End::Allow => allow_at,
        End::Ask => ask_at,
        End::Socket => socket_at,
        End::Address => address_at,
    };
    let mut made: Vec<libc::sock_filter> = Vec::new();
    let mut add = |code: u32, k: u32, jt: u8, jf: u8| {
        let code = u16::try_from(code).unwrap_or(0);
        made.push(libc::sock_filter { code, jt, jf, k });
        made.len()
    };
    let mut at = 0;
    let others = u32::try_from(socket.len() + address.len()).unwrap_or(0);
    let leap = [Plain(LEAP, others)];
    let all = first.into_iter().chain(leap).chain(socket).chain(address);
    for step in all {
        let beyond = |end: End| count(place(end) - at - 1);
        at = match step {
            Plain(code, k) => add(code, k, 0, 0),
            Require(k, end) => add(EQUAL, k, 0, beyond(end)),
            Leave(k, end) => add(EQUAL, k, beyond(end), 0),
            LeaveFrom(k, end) => add(AT_LEAST, k, beyond(end), 0),
        };
    }
    add(LOAD, low(5), 0, 0);
    add(EQUAL, mark.0, 0, 2);
    add(LOAD, high(5), 0, 0);
    add(EQUAL, mark.1, 1, 0);
    add(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
    add(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    made
}

/// Sets the filter for this thread and all that it will start. The descriptor at which the calls are asked about, or `None`
/// where there is one already: the kernel allows one in a chain of filters, and that of a supervisor around this serves.
///
/// # Errors
/// The kernel's refusal.
pub fn set(with_names: bool) -> io::Result<Option<OwnedFd>> {
    match try_to_set(with_names) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: no pointers.
            let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            if given_up != 0 {
                return Err(io::Error::last_os_error());
            }
            try_to_set(with_names)
        }
        result => result,
    }
}

fn try_to_set(with_names: bool) -> io::Result<Option<OwnedFd>> {
    let mut steps = steps(with_names);
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).unwrap_or(0),
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the steps, whose count is told.
    let made = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match libc::c_int::try_from(made) {
        // SAFETY: the kernel made the descriptor for us.
        Ok(fd) if fd >= 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EBUSY) => Ok(None),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call; `None` where a step leads nowhere.
    fn verdict(names: bool, machine: u32, call: u32, arguments: [u64; 6]) -> Option<u32> {
        let word = |at: u32| match at {
            NUMBER => Some(call),
            MACHINE => Some(machine),
            _ => {
                let half = at.checked_sub(16)? / 4;
                let argument = arguments.get((half / 2) as usize)?;
                u32::try_from(argument >> (32 * (half % 2)) & 0xffff_ffff).ok()
            }
        };
        let steps = steps(names);
        let (mut at, mut value) = (0, 0);
        loop {
            let step = steps.get(at)?;
            at += 1;
            let leap = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match u32::from(step.code) {
                LOAD => value = word(step.k)?,
                AND => value &= step.k,
                EQUAL => at += leap(value == step.k),
                AT_LEAST => at += leap(value >= step.k),
                RETURN => return Some(step.k),
                _ => at += step.k as usize,
            }
        }
    }

    fn native(call: libc::c_long, arguments: [u64; 6]) -> u32 {
        verdict(false, ARCHITECTURE, number(call), arguments).unwrap()
    }

    const ASKED: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

    #[test]
    fn streams_of_the_internet_are_asked_about() {
        let socket = |family: i32, kind: i32| {
            let arguments = [family, kind, 0, 0, 0, 0].map(|one| u64::from(one.unsigned_abs()));
            native(libc::SYS_socket, arguments)
        };
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        assert_eq!(socket(libc::AF_INET, kind), ASKED);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_STREAM), ASKED);
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_STREAM), ALLOWED);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW), ALLOWED);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_DGRAM), ALLOWED);
    }

    #[test]
    fn calls_on_descriptors_are_asked_about() {
        for call in ON_DESCRIPTORS {
            assert_eq!(native(call, [3, 1, 2, 3, 4, 5]), ASKED, "{call}");
        }
        for call in [libc::SYS_read, libc::SYS_sendmsg, libc::SYS_close] {
            assert_eq!(native(call, [3; 6]), ALLOWED, "{call}");
        }
    }

    #[test]
    fn datagrams_are_asked_about_where_they_have_an_address() {
        let of = |names: bool, call: libc::c_long, address: u64| {
            let arguments = [3, 1, 2, 0, address, 16];
            verdict(names, ARCHITECTURE, number(call), arguments).unwrap()
        };
        for call in WITH_ADDRESS {
            assert_eq!(of(true, call, 0), ALLOWED);
            assert_eq!(of(true, call, 8), ASKED);
            assert_eq!(of(true, call, 8 << 32), ASKED);
            assert_eq!(of(false, call, 8), ALLOWED);
        }
        assert_eq!(of(true, libc::SYS_recvmsg, 0), ASKED);
        assert_eq!(of(false, libc::SYS_recvmsg, 0), ALLOWED);
        for (call, arguments) in [
            (libc::SYS_socket, [2, 1, 0, 0, 0, 0]),
            (libc::SYS_connect, [1; 6]),
        ] {
            let asked = verdict(true, ARCHITECTURE, number(call), arguments);
            assert_eq!(asked, Some(ASKED));
        }
    }

    #[test]
    fn marked_calls_are_the_kernels() {
        assert_eq!(native(libc::SYS_connect, [3, 0, 0, 0, 0, MARK]), ALLOWED);
        let stream = [2, 1, 0, 0, 0, MARK];
        assert_eq!(native(libc::SYS_socket, stream), ALLOWED);
        for other in [MARK + 1, MARK ^ 1 << 40, 0] {
            assert_eq!(native(libc::SYS_connect, [3, 0, 0, 0, 0, other]), ASKED);
        }
    }

    #[test]
    fn calls_of_other_machines_are_left_alone() {
        let connect = number(libc::SYS_connect);
        assert_eq!(verdict(false, 0x4000_0003, connect, [0; 6]), Some(ALLOWED));
        let short = connect | SHORT_POINTERS;
        assert_eq!(verdict(false, ARCHITECTURE, short, [0; 6]), Some(ALLOWED));
    }
}
