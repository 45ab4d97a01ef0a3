//! Options that an accepted socket inherits from its listener, and those of a listener that was itself inherited or
//! received.

use core::sync::atomic::Ordering;

use libc::c_int;

use super::{apply, get_raw, is_only_v6, remember};
use crate::descriptors::limits;
use crate::ground::sys;
use crate::sockets::ancillary;
use crate::sockets::socket::{MOST_BYTES, Record, flag_bit, set_flag};
use crate::sockets::socket::{Socket, status};

/// Options that an accepted socket inherits from its listener.
pub struct InheritedOptions {
    linger: u32,
    receive_timeout: u64,
    send_timeout: u64,
    limit: u64,
    hints: u32,
    flags: u32,
    low_water: u32,
    peek_offset: Option<i32>,
    records: Vec<Record>,
}

impl InheritedOptions {
    /// The present options of a listener.
    pub fn of(listener: &Socket) -> Self {
        let from = listener.entry;
        let offset = || from.peek_offset.load(Ordering::Relaxed);
        let records = || listener.with_options(|records| records.clone());
        let any = listener.has_options();
        Self {
            linger: from.linger.load(Ordering::Relaxed),
            receive_timeout: from.receive_timeout.load(Ordering::Relaxed),
            send_timeout: from.send_timeout.load(Ordering::Relaxed),
            limit: from.transmit.limit.load(Ordering::Relaxed),
            hints: from.hints.load(Ordering::Relaxed),
            flags: from.flags.load(Ordering::Relaxed),
            low_water: from.low_water.load(Ordering::Relaxed),
            peek_offset: listener.has(status::PEEK_OFFSET).then(offset),
            records: any.then(records).flatten().unwrap_or_default(),
        }
    }

    /// Sets them on an accepted socket.
    pub fn apply(&self, socket: &Socket) {
        let to = socket.entry;
        to.linger.store(self.linger, Ordering::Relaxed);
        to.receive_timeout
            .store(self.receive_timeout, Ordering::Relaxed);
        to.send_timeout.store(self.send_timeout, Ordering::Relaxed);
        to.transmit.limit.store(self.limit, Ordering::Relaxed);
        to.hints.store(self.hints, Ordering::Relaxed);
        to.flags.store(self.flags, Ordering::Relaxed);
        to.low_water.store(self.low_water, Ordering::Relaxed);
        if let Some(offset) = self.peek_offset {
            to.peek_offset.store(offset, Ordering::Relaxed);
            socket.mark(status::PEEK_OFFSET);
        }
        if self.records.is_empty() {
            return;
        }
        let inherited = self.records.iter().filter(|record| is_inherited(record));
        let sets_priority = self.records.iter().any(Record::sets_priority);
        socket.with_options(|own| {
            own.extend(inherited);
            own.extend(sets_priority.then_some(NO_PRIORITY));
        });
    }
}

impl Record {
    /// Whether the kernel derives a priority from it, which is not inherited.
    const fn sets_priority(&self) -> bool {
        matches!(
            (self.level, self.name),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::SOL_SOCKET, libc::SO_PRIORITY)
        )
    }
}

/// `SO_PRIORITY` of 0.
const NO_PRIORITY: Record = Record {
    level: libc::SOL_SOCKET,
    name: libc::SO_PRIORITY,
    length: 4,
    value: [0; MOST_BYTES],
};

/// Whether TCP passes an option of a listener on. It keeps the queue for data in SYN segments, the deferral of accepts,
/// and the priority of its own packets.
const fn is_inherited(record: &Record) -> bool {
    !matches!(
        (record.level, record.name),
        (
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN | libc::TCP_DEFER_ACCEPT
        ) | (libc::SOL_SOCKET, libc::SO_PRIORITY)
    )
}

/// Options that TCP passes on from a listener.
const INHERITED_OPTIONS: [(c_int, c_int); 49] = [
    (libc::SOL_SOCKET, libc::SO_DEBUG),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_INQ),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_MINTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
];

/// Records the options that another image or process has set on a received listener.
pub fn record_received(socket: &Socket, fd: c_int) {
    let Ok(domain) = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) else {
        return;
    };
    let Ok(fresh) = limits::stream_socket(domain) else {
        return;
    };
    for (level, name) in INHERITED_OPTIONS {
        let (mut value, mut usual) = ([0; 16], [0; 16]);
        let length = get_raw(fd, level, name, &mut value).unwrap_or(0);
        let _ = get_raw(fresh, level, name, &mut usual);
        if value == usual {
            continue;
        }
        if let Some(bit) = flag_bit(level, name) {
            set_flag(socket, bit, true);
            continue;
        }
        let record = Record {
            level,
            name,
            length: u32::try_from(length).unwrap_or(0),
            value,
        };
        if ancillary::note(socket, level, name, true) {
            continue;
        }
        apply(socket, fd, &record);
        remember(socket, record);
    }
    sys::close(fresh);
}

/// Records what the kernel has decided for a bound socket at `fd`, and what its accepted sockets inherit: one with an
/// IPv6 address has no IPv4.
pub fn note_bound(socket: &Socket, fd: c_int) {
    if is_only_v6(fd) {
        let mut value = [0; 16];
        value[0] = 1;
        remember(
            socket,
            Record {
                level: libc::IPPROTO_IPV6,
                name: libc::IPV6_V6ONLY,
                length: 4,
                value,
            },
        );
    }
}
