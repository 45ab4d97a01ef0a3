//! Metrics for Prometheus: served at one address, only if the configuration names it, by the daemon's own loop. Nothing is
//! counted for them: what is counted anyway is written down when somebody asks.
//!
//! ```text
//!  GET /metrics --> http --> status, sockets, totals (from copies of regions), Hosts (from the parts) --> families --> text
//! ```

mod families;
mod hosts;
mod http;
mod snapshot;
mod text;

pub use families::write;
pub use http::{Fetch, Fetches, Step};
pub use snapshot::MetricsSnapshot;

use crate::view::{Counted, Counts};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// How long what was counted is told again: whoever fetches without pause costs no more than one count a second.
const FRESH: Duration = Duration::from_secs(1);

/// The address at which metrics are served, and who fetches them.
#[derive(Debug)]
pub struct Metrics {
    /// Where others connect.
    pub listener: TcpListener,
    /// Who is connected.
    pub fetches: Fetches,
    /// The count that is going on, for all who wait.
    pub counts: Option<Box<Counts>>,
    /// What was counted last, and when.
    last: Option<(Instant, Counted)>,
    address: SocketAddr,
}

impl Metrics {
    /// Listens at an address.
    ///
    /// # Errors
    /// Why it can not, in a sentence.
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

    /// The address that was named.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was counted recently enough.
    #[must_use]
    pub fn recent(&self, now: Instant) -> Option<&Counted> {
        let (since, counted) = self.last.as_ref()?;
        (now.duration_since(*since) < FRESH).then_some(counted)
    }

    /// Keeps what was counted.
    pub fn keep(&mut self, counted: Counted, now: Instant) {
        self.last = Some((now, counted));
    }

    /// Drops who is overdue; returns when to come again.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        self.fetches.expire(now)
    }
}
