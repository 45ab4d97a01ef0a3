//! The connections that fetch metrics.

use super::answers::Work;
use super::{BATCH, Daemon, accept};
use crate::metrics::{Metrics, MetricsSnapshot, Step, write};
use crate::view::{Counted, Counts};
use crate::watch::{Subject, WatchEvent};
use netchannel_control::types::Path;
use netchannel_engine::turn::Turn;
use std::net::SocketAddr;
use std::time::Instant;

impl Daemon {
    /// Serves metrics at this address from now on, if at any, and stops serving them at the former one.
    ///
    /// # Errors
    /// A sentence with the reason; nothing has changed then.
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
        for _ in 0..BATCH {
            let Some(metrics) = &mut self.metrics else {
                return;
            };
            // A new connection waits until there is room: no connection is closed that has sent its request.
            if metrics.fetches.are_all_waiting() {
                return;
            }
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

    pub(super) fn on_fetch(&mut self, number: u32, event: WatchEvent) {
        let Some(fetch) = self.fetch(number) else {
            return;
        };
        let mut step = if event.writable {
            fetch.on_writable(Some(Instant::now()))
        } else if event.readable {
            fetch.on_readable()
        } else {
            return;
        };
        if let Step::Metrics(with_body) = step {
            step = self.fetch_metrics(number, with_body);
        }
        self.on_fetched(number, step);
    }

    /// Answers with a recent count, or starts a new one.
    fn fetch_metrics(&mut self, number: u32, with_body: bool) -> Step {
        let Some(metrics) = &mut self.metrics else {
            return Step::Close;
        };
        if let Some(counted) = metrics.recent(Instant::now()).cloned() {
            let text = write(&self.snapshot(counted));
            let fetch = self.fetch(number);
            return fetch.map_or(Step::Close, |one| one.answer("200 OK", &text, with_body));
        }
        let Some(fetch) = metrics.fetches.get(number) else {
            return Step::Close;
        };
        fetch.wait(with_body);
        if metrics.counts.is_none() {
            let counts = self.with_host(|host, _| Box::new(Counts::new(host)));
            if let Some(metrics) = &mut self.metrics {
                metrics.counts = Some(counts);
                self.works.push_back(Work::Metrics);
            }
        }
        Step::Await
    }

    /// Continues the count. Returns whether there was anything to do.
    pub(super) fn continue_metrics(&mut self) -> bool {
        let counts = self.metrics.as_mut().and_then(|one| one.counts.take());
        let Some(mut counts) = counts else {
            return false;
        };
        let turn = Turn::begin();
        let counted = self.with_host(|host, copies| counts.run_turn(host, copies, &turn));
        let Some(counted) = counted else {
            if let Some(metrics) = &mut self.metrics {
                metrics.counts = Some(counts);
                self.works.push_back(Work::Metrics);
            }
            return true;
        };
        let text = write(&self.snapshot(counted.clone()));
        let now = Instant::now();
        let Some(metrics) = &mut self.metrics else {
            return true;
        };
        metrics.keep(counted, now);
        for number in metrics.fetches.numbers() {
            self.answer_fetch(number, &text, now);
        }
        true
    }

    fn answer_fetch(&mut self, number: u32, text: &str, now: Instant) {
        let Some(fetch) = self.fetch(number) else {
            return;
        };
        if let Some(with_body) = fetch.take_waiting(now) {
            let step = fetch.answer("200 OK", text, with_body);
            self.on_fetched(number, step);
        }
    }

    fn on_fetched(&mut self, number: u32, step: Step) {
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

    fn snapshot(&mut self, counted: Counted) -> MetricsSnapshot {
        let [reloads, refused_reloads] = self.reloads;
        let remote: u64 = self.stacks.iter().map(|one| one.connections()).sum();
        let mut sockets = counted.paths;
        // For programs these sockets are virtual ones: they were counted there.
        for (path, count) in &mut sockets {
            if *path == Path::Virtual {
                *count = count.saturating_sub(remote);
            }
        }
        sockets.insert(1, (Path::Channel, remote));
        MetricsSnapshot {
            hosts: self.show_hosts(),
            tenants: self.tenants.show(),
            status: self.summary(None, &counted.memory),
            programs: counted.programs,
            sockets,
            users: counted.users,
            reloads,
            refused_reloads,
        }
    }
}
