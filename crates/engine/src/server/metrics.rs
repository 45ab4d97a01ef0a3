//! Metrics are fetched.

use super::{Daemon, accept};
use crate::metrics::{Metrics, Seen, Step, write};
use crate::view;
use crate::watch::{Happening, Subject};
use netchannel_control::types::Path;
use std::net::SocketAddr;
use std::time::Instant;

impl Daemon {
    /// Serves metrics at this address from now on, if at any, and no longer where it did.
    ///
    /// # Errors
    /// Why it can not, in a sentence; then all is as it was.
    pub(super) fn serve_metrics(&mut self, address: Option<SocketAddr>) -> Result<(), String> {
        if self.metrics.as_ref().map(Metrics::address) == address {
            return Ok(());
        }
        let Some(address) = address else {
            self.metrics = None;
            return Ok(());
        };
        let metrics = Metrics::listen(address)?;
        let watched = self.watch.add(&metrics.listener, Subject::Metrics);
        watched.map_err(|errno| format!("metrics cannot be served at {address} ({errno})"))?;
        tracing::info!("metrics are served at http://{address}/metrics");
        self.metrics = Some(metrics);
        Ok(())
    }

    pub(super) fn accept_fetches(&mut self) {
        while let Some(metrics) = &mut self.metrics {
            let Some(socket) = accept(&metrics.listener, &mut self.spare) else {
                return;
            };
            let number = metrics.fetches.open(socket, Instant::now());
            let added = metrics
                .fetches
                .get(number)
                .map(|fetch| self.watch.add(&fetch.socket, Subject::Fetch(number)));
            if !matches!(added, Some(Ok(()))) {
                metrics.fetches.close(number);
            }
        }
    }

    pub(super) fn on_fetch(&mut self, number: u32, happening: Happening) {
        let Some(fetch) = self.fetch(number) else {
            return;
        };
        let mut step = if happening.writable {
            fetch.on_writable(Some(Instant::now()))
        } else if happening.readable {
            fetch.on_readable()
        } else {
            return;
        };
        if let Step::Metrics(with_body) = step {
            let text = write(&self.seen());
            let Some(fetch) = self.fetch(number) else {
                return;
            };
            step = fetch.answer("200 OK", &text, with_body);
        }
        let Some(metrics) = &mut self.metrics else {
            return;
        };
        match step {
            Step::Await | Step::Metrics(_) => {}
            Step::Close => metrics.fetches.close(number),
            Step::AwaitRoom => {
                let waits = metrics.fetches.get(number).is_some_and(|fetch| {
                    let subject = Subject::Fetch(number);
                    self.watch.await_room(&fetch.socket, subject).is_ok()
                });
                if !waits {
                    metrics.fetches.close(number);
                }
            }
        }
    }

    fn fetch(&mut self, number: u32) -> Option<&mut crate::metrics::Fetch> {
        self.metrics.as_mut()?.fetches.get(number)
    }

    /// How many sockets take each path.
    fn paths(&mut self) -> Vec<(Path, u64)> {
        let mut paths = view::paths(&self.core);
        let remote: u64 = self.parts().iter().map(|part| part.connections()).sum();
        // Programs see no difference: those are among the virtual ones.
        for (path, count) in &mut paths {
            if *path == Path::Virtual {
                *count = count.saturating_sub(remote);
            }
        }
        paths.insert(1, (Path::Channel, remote));
        paths
    }

    fn seen(&mut self) -> Seen {
        let [reloads, refused_reloads] = self.reloads;
        Seen {
            hosts: self.show_hosts(),
            status: self.status(None),
            sockets: self.paths(),
            users: view::users(&self.core),
            reloads,
            refused_reloads,
        }
    }
}
