//! Metrics for Prometheus. They are served by the daemon's own loop at one address, and only if the configuration names
//! it. Nothing is counted for them alone: existing counters are written down for each request.
//!
//! ```text
//!  GET /metrics --> http --> status, sockets, totals (from copies of regions), Hosts (from the parts) --> families --> text
//! ```

mod families;
mod hosts;
mod http;
mod snapshot;
mod tenants;
mod text;

pub use families::write;
pub use http::{Fetch, Fetches, Step};
pub use snapshot::MetricsSnapshot;

use crate::view::{Counted, Counts};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// How long a count is used again: a client that fetches without pause causes at most one count a second.
const FRESH: Duration = Duration::from_secs(1);

/// The address at which metrics are served, and the connections to it.
#[derive(Debug)]
pub struct Metrics {
    /// The listening socket.
    pub listener: TcpListener,
    /// The connections.
    pub fetches: Fetches,
    /// The running count, for all connections that wait.
    pub counts: Option<Box<Counts>>,
    /// The last count and its time.
    last: Option<(Instant, Counted)>,
    address: SocketAddr,
}

impl Metrics {
    /// Listens at an address.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub fn listen(address: SocketAddr) -> Result<Self, String> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error: std::io::Error| {
            format!(
                "metrics cannot be served at {address} ({error}); name another address under metrics.listen"
            )
        })?;
        Ok(Self {
            listener,
            fetches: Fetches::default(),
            counts: None,
            last: None,
            address,
        })
    }

    /// The configured address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The last count, if it is recent enough.
    #[must_use]
    pub fn recent(&self, now: Instant) -> Option<&Counted> {
        let (since, counted) = self.last.as_ref()?;
        (now.duration_since(*since) < FRESH).then_some(counted)
    }

    /// Stores a count.
    pub fn keep(&mut self, counted: Counted, now: Instant) {
        self.last = Some((now, counted));
    }

    /// Closes overdue connections. Returns the time of the next call.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        self.fetches.expire(now)
    }
}
