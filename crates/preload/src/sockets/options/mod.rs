//! Socket options: recorded, answered as TCP answers them, and set again when the socket becomes a kernel socket.

mod answers;
mod carried;
mod entry_options;
mod inherited;

use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use libc::{c_int, c_void, socklen_t};
use netchannel_abi::address::INET6;
use netchannel_abi::link::side_flags;

use crate::sockets::lane::{Lane, note_cork, publish_inline};
use netchannel_abi::reason::Reason;

use crate::descriptors::table::Kind;
use crate::descriptors::{limits, user};
use crate::ground::{real, sys};
use crate::sockets::socket::{FLAGS, MOST_BYTES, Record, flag_bit, is_on, set_flag};
use crate::sockets::socket::{Socket, status};
use crate::sockets::{ancillary, class};

use answers::{CLOSED, ESTABLISHED, state};
pub use answers::{get, take_error};
pub use carried::{announce_at_start, publish_first_words};
pub use inherited::{InheritedOptions, note_bound, record_received};

/// Turns a fresh socket into the kernel's, for this reason. Registered by the module that makes connections.
#[expect(clippy::type_complexity, reason = "it stands here alone")]
pub static MATERIALISE: OnceLock<fn(c_int, &Socket, Reason) -> Result<(), c_int>> = OnceLock::new();

/// Turns a fresh socket into the kernel's.
///
/// # Errors
/// As [`MATERIALISE`] says.
pub fn materialise(fd: c_int, socket: &Socket, reason: Reason) -> Result<(), c_int> {
    MATERIALISE.get().map_or(Err(libc::ENOTSUP), |materialise| {
        materialise(fd, socket, reason)
    })
}

/// Sets the recorded options on a kernel socket.
pub fn replay(socket: &Socket, fd: c_int) {
    let set = socket.entry.flags.load(Ordering::Relaxed);
    for (bit, (level, name)) in FLAGS.into_iter().enumerate() {
        if set >> bit & 1 == 1 {
            let mut record = Record {
                level,
                name,
                length: 4,
                value: [0; 16],
            };
            record.value[0] = u8::from(set >> (bit + 16) & 1 == 1);
            let _ = set_raw(fd, &record);
        }
    }
    for (level, name) in ancillary::set_options(socket) {
        let mut record = Record {
            level,
            name,
            length: 4,
            value: [0; 16],
        };
        record.value[0] = 1;
        let _ = set_raw(fd, &record);
    }
    entry_options::replay(socket, fd);
    if socket.has_options() {
        socket.with_options(|records| {
            for record in records.iter() {
                let _ = set_raw(fd, record);
            }
        });
    }
}

fn set_raw(fd: c_int, record: &Record) -> Result<(), c_int> {
    // SAFETY: the value is a local of at least `length` bytes.
    unsafe {
        sys::raw(
            libc::SYS_setsockopt,
            [
                sys::int(fd),
                sys::int(record.level),
                sys::int(record.name),
                record.value.as_ptr().addr(),
                record.length as usize,
                0,
            ],
        )
    }
    .map(|_| ())
}

fn get_raw(fd: c_int, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize, c_int> {
    let mut length = socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the buffer is ours, and `length` says its size.
    unsafe {
        sys::raw(
            libc::SYS_getsockopt,
            [
                sys::int(fd),
                sys::int(level),
                sys::int(name),
                value.as_mut_ptr().addr(),
                (&raw mut length).addr(),
                0,
            ],
        )?;
    }
    Ok(length as usize)
}

/// Runs `ask` with a temporary kernel TCP socket that has the recorded options, and so TCP's answers.
fn with_scratch<R>(socket: &Socket, ask: impl FnOnce(c_int) -> R) -> Result<R, c_int> {
    let six = if socket.word.kind() == Kind::Fresh {
        socket.local.family.load(Ordering::Relaxed) == libc::AF_INET6
    } else {
        socket.entry.local.load().family == INET6
    };
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let fd = limits::stream_socket(family)?;
    replay(socket, fd);
    let answer = ask(fd);
    sys::close(fd);
    Ok(answer)
}

/// Whether only the kernel can do what the option asks for.
fn needs_kernel(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_BINDTODEVICE
                | libc::SO_ATTACH_FILTER
                | libc::SO_ATTACH_BPF
                | libc::SO_MARK
                | libc::SO_ZEROCOPY
                | libc::SO_TIMESTAMPING
                | libc::SO_TXTIME
        ),
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_ULP | libc::TCP_REPAIR | libc::TCP_MD5SIG | libc::TCP_FASTOPEN_CONNECT
        ),
        _ => false,
    }
}

/// `setsockopt` of a fresh or virtual socket.
///
/// # Errors
/// Those of TCP.
///
/// # Safety
/// `value` points at `length` readable bytes.
pub unsafe fn set(
    socket: &Socket,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Result<(), c_int> {
    let size = usize::try_from(length.cast_signed()).map_err(|_| libc::EINVAL)?;
    // Whether the kernel takes the option, and whether its value has no more bytes than are recorded, whatever `length`
    // says.
    let as_kernel = || {
        with_scratch(socket, |scratch| {
            // SAFETY: the caller's promise.
            let set = || unsafe { real::setsockopt(scratch, level, name, value, length) };
            if real::uninterrupted(set) < 0 {
                return Err(real::errno());
            }
            let got = get_raw(scratch, level, name, &mut [0; 2 * MOST_BYTES]);
            Ok(got.is_ok_and(|bytes| bytes <= MOST_BYTES))
        })
    };
    let is_connected = matches!(socket.word.kind(), Kind::Virtual | Kind::Deferred);
    // Of these TCP reads a number, whatever `length` says.
    if size > MOST_BYTES
        && is_connected
        // SAFETY: the caller's promise.
        && let Ok(number) = unsafe { read(level, name, value, 4) }
        && let Some(result) = set_connected(socket, fd, &number)
    {
        return result;
    }
    let opens_fast = level == libc::IPPROTO_TCP && name == libc::TCP_FASTOPEN_CONNECT;
    let fresh = socket.word.kind() == Kind::Fresh;
    let by_kernel = needs_kernel(level, name) && (fresh || !opens_fast);
    let mut length = length;
    if by_kernel || size > MOST_BYTES {
        let is_short = (!by_kernel || !fresh) && as_kernel()??;
        if fresh && !is_short {
            let reason = Reason::Option;
            materialise(fd, socket, reason)?;
            // SAFETY: the caller's promise.
            let set = || unsafe { real::setsockopt(fd, level, name, value, length) };
            let done = real::uninterrupted(set);
            return if done < 0 { Err(real::errno()) } else { Ok(()) };
        }
        length = length.min(16);
        if by_kernel && is_short {
            // A connected socket can not become the kernel's: the option is recorded, and has no effect.
            // SAFETY: the caller's promise.
            remember(socket, unsafe { read(level, name, value, length)? });
        }
        if by_kernel || !is_short {
            return Ok(());
        }
    }
    // SAFETY: the caller's promise.
    let Ok(record) = (unsafe { read(level, name, value, length) }) else {
        // The kernel knows which of several errors it returns. IPv6 takes a missing value as 0.
        as_kernel()??;
        let none = Record {
            level,
            name,
            length: 4,
            value: [0; MOST_BYTES],
        };
        if socket.word.kind() == Kind::Virtual
            && let Some(result) = set_connected(socket, fd, &none)
        {
            return result;
        }
        return remember(socket, none).ok_or(libc::EAGAIN);
    };
    if size >= 4
        && let Some(bit) = flag_bit(level, name)
    {
        set_flag(socket, bit, as_int(&record) != 0);
        if name == libc::SO_OOBINLINE {
            publish_inline(socket, fd);
        } else if carried::is_carried(level, name) {
            carried::publish(socket, fd);
        } else if matches!(name, libc::TCP_CORK | libc::TCP_NODELAY) && level == libc::IPPROTO_TCP {
            note_cork(socket, fd, name, as_int(&record) != 0);
        }
        return Ok(());
    }
    if is_connected && let Some(result) = set_connected(socket, fd, &record) {
        return result;
    }
    let is_any_taken = size >= 4 && (level, name) == (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    if !is_any_taken {
        match with_scratch(socket, |scratch| set_raw(scratch, &record)) {
            // At a hard limit there may be no number to ask the kernel with: the option is taken as it is.
            Err(libc::EMFILE) => {}
            answered => answered??,
        }
    }
    if size >= 4 && ancillary::note(socket, level, name, as_int(&record) != 0) {
        return Ok(());
    }
    apply(socket, fd, &record);
    remember(socket, record).ok_or(libc::EAGAIN)?;
    if carried::is_carried(level, name) {
        carried::publish(socket, fd);
    }
    if may_make_room(level, name)
        && socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        lane.note_room();
    }
    Ok(())
}

/// Whether TCP tells writers after an option that they may go on. Watchers of a listener are told, too.
pub fn may_make_room(level: c_int, name: c_int) -> bool {
    (level, name) == (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
        || level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE)
}

/// Reads an option of the program, of at most 16 bytes.
///
/// # Safety
/// `value` points at `length` readable bytes.
unsafe fn read(
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Result<Record, c_int> {
    let mut record = Record {
        level,
        name,
        length,
        value: [0; 16],
    };
    // SAFETY: the caller's promise, and the length fits, as the caller has seen.
    unsafe { user::copy_bytes(record.value.as_mut_ptr(), value.cast(), length as usize)? };
    Ok(record)
}

/// Records an option that the kernel has taken, for the socket's later kinds.
///
/// # Safety
/// `value` points at `length` readable bytes.
pub unsafe fn note(
    socket: &Socket,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) {
    let size = length as usize;
    if value.is_null() || size > 16 {
        return;
    }
    // SAFETY: the caller's promise.
    let Ok(record) = (unsafe { read(level, name, value, length) }) else {
        return;
    };
    if let Some(bit) = flag_bit(level, name).filter(|_| size >= 4) {
        return set_flag(socket, bit, as_int(&record) != 0);
    }
    if size >= 4 && ancillary::note(socket, level, name, as_int(&record) != 0) {
        return;
    }
    apply(socket, fd, &record);
    remember(socket, record);
}

/// Whether TCP refuses an option, or takes it, as its connection stands.
pub fn depends_on_connection(level: c_int, name: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_WINDOW_CLAMP
        ),
        libc::IPPROTO_IPV6 => matches!(name, libc::IPV6_V6ONLY | libc::IPV6_ADDRFORM),
        _ => false,
    }
}

/// Sets an option for which [`depends_on_connection`]. `None` for others, and where the kernel shall find the error.
fn set_connected(socket: &Socket, fd: c_int, record: &Record) -> Option<Result<(), c_int>> {
    if !depends_on_connection(record.level, record.name) {
        return None;
    }
    let over = state(socket, fd) == CLOSED;
    match (record.level, record.name) {
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT) if !over => {
            Some(Err(libc::EINVAL))
        }
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)
            if !over && record.length >= 4 && as_int(record) == 0 =>
        {
            Some(Err(libc::EINVAL))
        }
        // The socket has a port.
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
            if socket.entry.local.load().family == INET6
                && (!over || socket.has(status::PORT_NAMED)) =>
        {
            Some(Err(libc::EINVAL))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM)
            if record.length >= 4 && as_int(record) == libc::AF_INET =>
        {
            let entry = socket.entry;
            let (local, peer) = (entry.local.load(), entry.peer.load());
            if local.family != INET6 {
                return None;
            }
            if state(socket, fd) != ESTABLISHED {
                return Some(Err(libc::ENOTCONN));
            }
            if peer.unmapped().family == INET6 {
                return Some(Err(libc::EADDRNOTAVAIL));
            }
            entry.local.store(&local.unmapped());
            entry.peer.store(&peer.unmapped());
            Some(Ok(()))
        }
        _ => None,
    }
}

fn remember(socket: &Socket, record: Record) -> Option<()> {
    socket.with_options(|records| {
        // In their order: one option may set another one, too, as IP_TOS sets SO_PRIORITY. A lingering that is switched
        // off keeps its time.
        let is_off = |record: &Record| {
            (record.level, record.name) == (libc::SOL_SOCKET, libc::SO_LINGER)
                && as_int(record) == 0
        };
        records.retain(|old| {
            (old.level, old.name) != (record.level, record.name) || is_off(&record) && !is_off(old)
        });
        records.push(record);
    })
}

/// Whether the program has set IPV6_V6ONLY on a socket.
pub fn wants_only_v6(socket: &Socket) -> bool {
    let is_set = |record: &Record| {
        (record.level, record.name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
            && as_int(record) != 0
    };
    let any = socket.with_options(|records| records.iter().any(is_set));
    any == Some(true)
}

/// Whether an IPv6 socket of the kernel has IPV6_V6ONLY.
pub fn is_only_v6(fd: c_int) -> bool {
    sys::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_ok_and(|on| on != 0)
}

/// Longest time between two probes of TCP in seconds.
const LONGEST: u64 = 120;

/// For how long a client has been silent, in seconds, when TCP probes it for the `times`th time.
pub fn silence_after(times: u64) -> u64 {
    (0..times)
        .map(|time| {
            1u64.checked_shl(u32::try_from(time).unwrap_or(63))
                .map_or(LONGEST, |gap| gap.min(LONGEST))
        })
        .sum()
}

/// Whether two sockets may be bound to one port.
pub fn may_share(one: &Socket, other: &Socket) -> bool {
    [libc::SO_REUSEADDR, libc::SO_REUSEPORT]
        .into_iter()
        .any(|name| {
            let has = |socket| is_on(socket, libc::SOL_SOCKET, name);
            has(one) && has(other)
        })
}

fn as_int(record: &Record) -> i32 {
    let [a, b, c, d, ..] = record.value;
    i32::from_ne_bytes([a, b, c, d])
}

/// Applies an option to the virtual socket itself.
fn apply(socket: &Socket, fd: c_int, record: &Record) {
    class::note(socket, fd, record);
    if record.level != libc::SOL_SOCKET {
        return;
    }
    let entry = socket.entry;
    let half = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&record.value[at..at + 8]);
        i64::from_ne_bytes(eight)
    };
    let microseconds = || {
        u64::try_from(half(0))
            .unwrap_or(0)
            .saturating_mul(1_000_000)
            + u64::try_from(half(8)).unwrap_or(0)
    };
    match record.name {
        libc::SO_LINGER => {
            let seconds = i32::from_ne_bytes([
                record.value[4],
                record.value[5],
                record.value[6],
                record.value[7],
            ]);
            let on = as_int(record) != 0;
            let word = if on {
                // A negative time is a very long one.
                seconds.cast_unsigned().saturating_add(1)
            } else {
                0
            };
            entry.linger.store(word, Ordering::Relaxed);
            note_abort(socket, fd, word == 1);
        }
        libc::SO_RCVTIMEO => {
            entry
                .receive_timeout
                .store(microseconds(), Ordering::Relaxed);
        }
        libc::SO_RCVLOWAT => {
            // The kernel bounds it, and takes a negative value for the largest. At a limit there may be no number to ask
            // it with.
            let bounded = with_scratch(socket, |scratch| {
                let _ = set_raw(scratch, record);
                sys::option(scratch, record.level, record.name)
            });
            let bytes = bounded.ok().and_then(Result::ok);
            let bytes = u32::try_from(bytes.unwrap_or(as_int(record)));
            let bytes = bytes.unwrap_or(i32::MAX.cast_unsigned()).max(1);
            entry.low_water.store(bytes, Ordering::Relaxed);
        }
        libc::SO_PEEK_OFF => {
            entry.peek_offset.store(as_int(record), Ordering::Relaxed);
            socket.mark(status::PEEK_OFFSET);
        }
        libc::SO_SNDTIMEO => entry.send_timeout.store(microseconds(), Ordering::Relaxed),
        libc::SO_SNDBUF => {
            let bytes = u64::try_from(as_int(record)).unwrap_or(0).saturating_mul(2);
            entry
                .transmit
                .limit
                .store(bytes.max(4608), Ordering::Relaxed);
        }
        _ => {}
    }
}

/// How often TCP probes a silent client before a listener returns its connection: computed from the kernel's value.
pub fn defers_accept(fd: c_int) -> u64 {
    let result = sys::option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    let seconds = result.map_or(0, |seconds| u64::try_from(seconds).unwrap_or(0));
    let most = u64::from(netchannel_abi::directory::entry_flags::MOST_DEFERS);
    (0..most)
        .find(|times| silence_after(*times) >= seconds)
        .unwrap_or(most)
}

/// Publishes the meaning of a silent end to the peer.
pub fn note_abort(socket: &Socket, fd: c_int, aborts: bool) {
    if socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        let flags = &lane.own().flags;
        if aborts {
            flags.fetch_or(side_flags::ABORTS, Ordering::AcqRel);
        } else {
            flags.fetch_and(!side_flags::ABORTS, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::silence_after;

    #[test]
    fn tcp_asks_at_these_times() {
        let times = [0, 1, 2, 3, 7, 8, 255].map(silence_after);
        assert_eq!(times, [0, 1, 3, 7, 127, 247, 29_887]);
    }
}
