//! Times and sizes of a virtual socket.

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Times (nanoseconds) and sizes (bytes), from the configuration and the program's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The usual size of a segment. A Window is due when two segments, or a quarter of the capacity if that is less,
    /// have arrived or were read.
    pub segment: u32,
    /// The longest time that bytes stay unacknowledged, or an opened window unannounced, unless the peer asks. TCP
    /// waits for 40 ms.
    pub acknowledge_delay: u64,
    /// The silence before the first probe. It doubles each time.
    pub probe_interval: u64,
    /// The limit of that interval.
    pub probe_interval_most: u64,
    /// The longest wait for an answer to Open.
    pub connect_timeout: u64,
    /// The longest silence of a peer that owes an answer. Linux gives up after 15 retransmissions, about 924 seconds.
    pub response_timeout: u64,
    /// TCP_USER_TIMEOUT: the longest time that bytes may wait for acknowledgement or a window, even if the peer is
    /// alive.
    pub user_timeout: Option<u64>,
    /// SO_KEEPALIVE with its times.
    pub keep_alive: Option<KeepAlive>,
    /// How long a connection that its program has closed waits for progress, and then for the peer's end (tcp_fin_timeout).
    pub orphan_timeout: u64,
}

/// When a silent peer is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence before the first probe (TCP_KEEPIDLE), in nanoseconds.
    pub idle: u64,
    /// The time between probes (TCP_KEEPINTVL), in nanoseconds.
    pub interval: u64,
    /// Unanswered probes before the connection is given up (TCP_KEEPCNT).
    pub count: u8,
}

impl Default for Settings {
    /// The values of Linux TCP where it has them.
    fn default() -> Self {
        Self {
            segment: 64 << 10,
            acknowledge_delay: 10 * MILLISECOND,
            probe_interval: 200 * MILLISECOND,
            probe_interval_most: 30 * SECOND,
            connect_timeout: 127 * SECOND,
            response_timeout: 924 * SECOND,
            user_timeout: None,
            keep_alive: None,
            orphan_timeout: 60 * SECOND,
        }
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            idle: 7200 * SECOND,
            interval: 75 * SECOND,
            count: 9,
        }
    }
}
