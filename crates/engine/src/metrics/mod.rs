//! Metrics for Prometheus: served at one address, only if the configuration names it, by the daemon's own loop. Nothing is
//! counted for them: what is counted anyway is written down when somebody asks.
//!
//! ```text
//!  GET /metrics --> http --> status, sockets, totals (from copies of regions), Hosts (from the parts) --> families --> text
//! ```

mod families;
mod hosts;
mod http;
mod text;

pub use families::{Seen, write};
pub use http::{Fetch, Fetches, Step};

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

/// The address at which metrics are served, and who fetches them.
#[derive(Debug)]
pub struct Metrics {
    /// Where others connect.
    pub listener: TcpListener,
    /// Who is connected.
    pub fetches: Fetches,
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
            address,
        })
    }

    /// The address that was named.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops who is overdue; returns when to come again.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        self.fetches.expire(now)
    }
}
