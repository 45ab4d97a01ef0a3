//! Options of sockets: recorded, answered as TCP answers them, and set again when the socket turns
//! into a kernel socket.

use core::sync::atomic::Ordering;

use libc::{c_int, c_void, socklen_t};
use netchannel_abi::link::side_flags;

use crate::lane::Lane;
use crate::socket::{Socket, status};
use crate::table::Kind;
use crate::{class, limits, real, sys, user};

/// One option as the program set it.
#[derive(Clone, Copy)]
pub struct Record {
    /// Level.
    pub level: c_int,
    /// Name.
    pub name: c_int,
    /// Bytes of the value.
    pub length: u32,
    /// The value.
    pub value: [u8; 16],
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
    if !socket.has_options() {
        return;
    }
    socket.with_options(|records| {
        for record in records.iter() {
            let _ = set_raw(fd, record);
        }
    });
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

/// A kernel TCP socket that carries the recorded options, to ask what TCP would answer.
fn with_scratch<R>(socket: &Socket, ask: impl FnOnce(c_int) -> R) -> Result<R, c_int> {
    let six = socket.entry.local.load().family == netchannel_abi::address::INET6
        || socket.local.family.load(Ordering::Relaxed) == libc::AF_INET6;
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let fd = limits::make(|| sys::socket(family, kind, 0))?;
    replay(socket, fd);
    let answer = ask(fd);
    sys::close(fd);
    Ok(answer)
}

/// Options that the accepted socket has from its listener.
pub fn inherit(listener: &Socket, socket: &Socket) {
    let (from, to) = (listener.entry, socket.entry);
    to.linger
        .store(from.linger.load(Ordering::Relaxed), Ordering::Relaxed);
    to.receive_timeout.store(
        from.receive_timeout.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    to.send_timeout
        .store(from.send_timeout.load(Ordering::Relaxed), Ordering::Relaxed);
    let limit = from.transmit.limit.load(Ordering::Relaxed);
    to.transmit.limit.store(limit, Ordering::Relaxed);
    to.hints
        .store(from.hints.load(Ordering::Relaxed), Ordering::Relaxed);
    to.flags
        .store(from.flags.load(Ordering::Relaxed), Ordering::Relaxed);
    to.low_water
        .store(from.low_water.load(Ordering::Relaxed), Ordering::Relaxed);
    if listener.has_options() {
        let records = listener
            .with_options(|records| records.clone())
            .unwrap_or_default();
        socket.with_options(|own| own.extend_from_slice(&records));
    }
}

/// Whether an option asks for what only the kernel does.
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
/// What TCP would say.
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
    if needs_kernel(level, name) || size > 16 {
        if socket.word.kind() == Kind::Fresh {
            let reason = netchannel_abi::reason::Reason::Option;
            crate::connection::materialise(fd, socket, reason)?;
            // SAFETY: the caller's promise.
            let done = unsafe { real::setsockopt(fd, level, name, value, length) };
            return if done < 0 { Err(real::errno()) } else { Ok(()) };
        }
        // A connected virtual socket can not change its nature; TCP checks, nothing happens.
        let asked = with_scratch(socket, |scratch| {
            // SAFETY: the caller's promise.
            let done = unsafe { real::setsockopt(scratch, level, name, value, length) };
            if done < 0 { Err(real::errno()) } else { Ok(()) }
        })?;
        return asked;
    }
    let mut record = Record {
        level,
        name,
        length: u32::try_from(size).unwrap_or(0),
        value: [0; 16],
    };
    // SAFETY: the caller's promise.
    unsafe { user::put(record.value.as_mut_ptr(), value.cast(), size)? };
    if size >= 4
        && let Some(bit) = flag_bit(level, name)
    {
        set_flag(socket, bit, as_int(&record) != 0);
        return Ok(());
    }
    with_scratch(socket, |scratch| set_raw(scratch, &record))??;
    apply(socket, fd, &record);
    remember(socket, record).ok_or(libc::EAGAIN)
}

/// Remembers an option the kernel has taken, for what comes of the socket later.
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
    let mut record = Record {
        level,
        name,
        length,
        value: [0; 16],
    };
    // SAFETY: the caller's promise.
    if unsafe { user::put(record.value.as_mut_ptr(), value.cast(), size) }.is_err() {
        return;
    }
    if let Some(bit) = flag_bit(level, name).filter(|_| size >= 4) {
        return set_flag(socket, bit, as_int(&record) != 0);
    }
    apply(socket, fd, &record);
    remember(socket, record);
}

fn remember(socket: &Socket, record: Record) -> Option<()> {
    socket.with_options(|records| {
        let same = |old: &&mut Record| old.level == record.level && old.name == record.name;
        match records.iter_mut().find(same) {
            Some(old) => *old = record,
            None => records.push(record),
        }
    })
}

/// Options that are on or off and that any int satisfies: they need no question to the kernel, and
/// lie in the shared entry.
const FLAGS: [(c_int, c_int); 6] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
];

fn flag_bit(level: c_int, name: c_int) -> Option<usize> {
    FLAGS.iter().position(|flag| *flag == (level, name))
}

fn set_flag(socket: &Socket, bit: usize, on: bool) {
    let (known, value) = (1 << bit, 1 << (bit + 16));
    if on {
        socket.entry.flags.fetch_or(known | value, Ordering::AcqRel);
    } else {
        socket.entry.flags.fetch_or(known, Ordering::AcqRel);
        socket.entry.flags.fetch_and(!value, Ordering::AcqRel);
    }
}

fn flag(socket: &Socket, level: c_int, name: c_int) -> Option<i32> {
    let bit = flag_bit(level, name)?;
    let flags = socket.entry.flags.load(Ordering::Relaxed);
    (flags >> bit & 1 == 1).then(|| i32::from(flags >> (bit + 16) & 1 == 1))
}

fn as_int(record: &Record) -> i32 {
    let [a, b, c, d, ..] = record.value;
    i32::from_ne_bytes([a, b, c, d])
}

/// Lets an option act on the virtual socket itself.
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
                u32::try_from(seconds).unwrap_or(0).saturating_add(1)
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
            let bytes = u32::try_from(as_int(record)).unwrap_or(1).max(1);
            entry.low_water.store(bytes, Ordering::Relaxed);
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

/// Whether a listener hands out only connections that have sent something: that stays the
/// kernel's work.
pub fn defers_accept(fd: c_int) -> bool {
    sys::option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT).is_ok_and(|seconds| seconds > 0)
}

/// Tells the peer what an end without a word would mean.
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

/// `getsockopt` of a fresh or virtual socket.
///
/// # Errors
/// What TCP would say.
///
/// # Safety
/// `value` points at `*length` writable bytes.
pub unsafe fn get(
    socket: &Socket,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<(), c_int> {
    let mut buffer = [0u8; 512];
    // SAFETY: the caller's pointer.
    let room = unsafe { user::read(length)? };
    let room = usize::try_from(room.cast_signed()).map_err(|_| libc::EINVAL)?;
    let room = room.min(buffer.len());
    let known = match flag(socket, level, name) {
        None if socket.has(status::HANDED) => answer_handed(fd, level, name),
        None if socket.word.kind() == Kind::Virtual => answer_virtual(socket, fd, level, name),
        known => known,
    };
    let size = if level == libc::SOL_SOCKET && name == libc::SO_COOKIE {
        let cookie = sys::cookie(fd)?;
        buffer[..8].copy_from_slice(&cookie.to_ne_bytes());
        if room < 8 {
            return Err(libc::EINVAL);
        }
        8
    } else if let Some(number) = known {
        buffer[..4].copy_from_slice(&number.to_ne_bytes());
        4.min(room)
    } else {
        let got = with_scratch(socket, |scratch| {
            get_raw(scratch, level, name, &mut buffer[..room])
        })?;
        got?
    };
    if (socket.word.kind() == Kind::Virtual || socket.has(status::HANDED))
        && level == libc::IPPROTO_TCP
        && name == libc::TCP_INFO
        && size > 0
    {
        // TCP_ESTABLISHED, or CLOSE_WAIT once the other has ended.
        describe_connection(&mut buffer);
        buffer[0] = state(socket, fd);
    }
    // SAFETY: the caller's buffer has room for `size` bytes.
    unsafe {
        user::put(value.cast(), buffer.as_ptr(), size)?;
        user::write(length, socklen_t::try_from(size).unwrap_or(0))
    }
}

/// What loopback TCP would say of its segments.
const MAXIMUM_SEGMENT: i32 = 65483;

/// The fields of `tcp_info` that a program may look at, as a loopback connection has them.
fn describe_connection(info: &mut [u8; 512]) {
    let mut put = |offset: usize, value: u32| {
        info[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    };
    let segment = MAXIMUM_SEGMENT.cast_unsigned();
    put(8, 201_000); // rto, microseconds
    put(16, segment); // snd_mss
    put(20, segment); // rcv_mss
    put(60, 65535); // pmtu
    put(68, 20); // rtt, microseconds
    put(72, 10); // rttvar
    put(80, 10); // snd_cwnd
    put(84, segment); // advmss
}

fn state(socket: &Socket, fd: c_int) -> u8 {
    if socket.has(status::HANDED) {
        return 1;
    }
    let Some(lane) = Lane::of(*socket, fd) else {
        return 7;
    };
    if lane.is_connecting() {
        // TCP_SYN_SENT.
        return 2;
    }
    let ended = lane.peer_flags() & side_flags::FIN != 0;
    if socket.has(status::RESET | status::PEER_GONE) || lane.peer_flags() & side_flags::RESET != 0 {
        return 7;
    }
    match (socket.has(status::SHUT_WRITE), ended) {
        (false, false) => 1,
        (true, false) => 5,
        (false, true) => 8,
        (true, true) => 7,
    }
}

/// What the local socket knows itself.
fn answer_handed(fd: c_int, level: c_int, name: c_int) -> Option<i32> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => sys::option(fd, level, name).ok(),
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => Some(sys::processor()),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Some(MAXIMUM_SEGMENT),
        _ => None,
    }
}

fn answer_virtual(socket: &Socket, fd: c_int, level: c_int, name: c_int) -> Option<i32> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => Some(take_error(socket, fd)),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Some(MAXIMUM_SEGMENT),
        // What comes is brought by whoever asks for it.
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => Some(sys::processor()),
        _ => None,
    }
}

/// `SO_ERROR`: the pending error, once.
pub fn take_error(socket: &Socket, fd: c_int) -> i32 {
    let lane = Lane::of(*socket, fd);
    if lane.as_ref().is_none_or(|lane| !lane.is_connecting()) {
        socket.unmark(status::CONNECTING);
    }
    let pending = socket.entry.error.swap(0, Ordering::AcqRel);
    if pending != 0 {
        return pending;
    }
    let reset = lane
        .as_ref()
        .is_some_and(|lane| lane.peer_flags() & side_flags::RESET != 0)
        && socket.mark(status::RESET) == 0;
    match lane {
        Some(lane) if reset => lane.reset_error(),
        _ => 0,
    }
}
