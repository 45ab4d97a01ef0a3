//! The network of the runners, in which no acknowledgement is delayed, and the daemon of the program under test.
//!
//! How long TCP holds bytes back until an acknowledgement comes, which may take 40 ms, is not promised. With immediate
//! acknowledgements kernel TCP delivers at once, as NetChannel does, so that comparisons need no excuse.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netchannel_namespaces::{Configuration, Cores, Error, Hosts, gain_rights};
use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::{Transport, command};
use netchannel_testkit::two_hosts::{HostsError, daemons};

use super::network::{self, Addresses, Network};
use super::rules;

/// A network, and the daemons that serve in it. Dropping the value ends both.
pub struct Place {
    // First, so that the daemons end while their hosts exist. One on each host, where programs run between two.
    daemons: Mutex<Vec<PrivateDaemon>>,
    netchannel: Option<PathBuf>,
    hosts: Option<Hosts>,
    between: bool,
}

impl Place {
    /// Makes the network, with a daemon of a program if one is given, which gets more arguments. For programs that run
    /// between two hosts, makes two hosts and two daemons. The process must have only one thread when it calls this.
    pub fn make(
        netchannel: Option<PathBuf>,
        words: &[&str],
        between: bool,
    ) -> Result<Self, HostsError> {
        let hosts = match network() {
            Ok(hosts) => Some(hosts),
            Err(error @ (Error::NotAllowed(_) | Error::NoIproute)) if !between => {
                eprintln!("acknowledgements are put off: {error}");
                rules::PUT_OFF.store(true, Ordering::Relaxed);
                None
            }
            Err(error) => return Err(error.into()),
        };
        let daemons = match (&netchannel, &hosts) {
            (None, _) => Vec::new(),
            (Some(program), Some(hosts)) if between => {
                let configuration = Configuration {
                    channels: Some(1),
                    ..Configuration::default()
                };
                daemons(program, hosts, &configuration)?.into()
            }
            (Some(program), hosts) => {
                let host = hosts.as_ref().map(|hosts| &hosts.a);
                let words = words.iter().map(Into::into).collect();
                vec![PrivateDaemon::start_on(program, host, |_| Ok(words))?]
            }
        };
        // The daemons open their own descriptors in their first moments.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Self {
            daemons: Mutex::new(daemons),
            netchannel,
            hosts,
            between,
        })
    }

    /// The command for a program over kernel TCP, and the same on the other host, where there is one.
    pub fn over_kernel(&self, program: &Path) -> [Option<Command>; 2] {
        [0, 1].map(|which| self.enter(which, Command::new(program)))
    }

    /// As [`Self::over_kernel`], over the transport under test.
    pub fn over_other(&self, program: &Path) -> [Option<Command>; 2] {
        [0, 1].map(|which| {
            let daemons = self.daemons();
            let daemon = daemons.get(which).or_else(|| daemons.first());
            let transport = match (&self.netchannel, daemon) {
                (Some(program), Some(daemon)) => Transport::NetChannel {
                    program: program.clone(),
                    socket: daemon.socket(),
                },
                _ => Transport::Kernel,
            };
            self.enter(which, command(program, &transport))
        })
    }

    fn enter(&self, which: usize, mut command: Command) -> Option<Command> {
        if which > 0 && !self.between {
            return None;
        }
        if let Some(hosts) = &self.hosts {
            let (host, other) = match which {
                0 => (&hosts.a, &hosts.b),
                _ => (&hosts.b, &hosts.a),
            };
            host.enter(&mut command);
            if self.between {
                let network = Network {
                    own: Addresses::of(host),
                    other: Addresses::of(other),
                };
                command.env(network::VARIABLE, network.text());
            }
        }
        Some(command)
    }

    fn daemons(&self) -> MutexGuard<'_, Vec<PrivateDaemon>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many descriptors the daemons have open.
    pub fn descriptors(&self) -> usize {
        self.daemons().iter().map(PrivateDaemon::descriptors).sum()
    }

    /// Kills a daemon, and restarts it a little later.
    pub fn restart(&self) {
        if let Some(daemon) = self.daemons().first_mut() {
            daemon.kill();
            std::thread::sleep(Duration::from_millis(50));
            let _ = daemon.start_again();
        }
    }

    /// The range of ports that the kernel assigns.
    pub fn kernel_ports(&self) -> Option<(u32, u32)> {
        let name = "ipv4/ip_local_port_range";
        let text = match &self.hosts {
            Some(hosts) => hosts.a.setting(name),
            None => std::fs::read_to_string(format!("/proc/sys/net/{name}")),
        };
        let text = text.ok()?;
        let mut range = text.split_whitespace().map(str::parse);
        Some((range.next()?.ok()?, range.next()?.ok()?))
    }

    /// The descriptors that the daemons still hold for ended programs, if they had `before` descriptors at first.
    ///
    /// State that an image left for its next image stays for five minutes if the next image had no descriptor number to
    /// fetch it by: at most three descriptors for each.
    pub fn left_over(&self, before: usize, restarted: bool) -> Option<String> {
        let ended = |daemon: &mut PrivateDaemon| {
            (!daemon.is_running()).then(|| format!("a daemon has ended:\n{}", daemon.log()))
        };
        if let Some(text) = self.daemons().iter_mut().find_map(ended) {
            return Some(text);
        }
        let start = Instant::now();
        while self.descriptors() > before && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let now = self.descriptors();
        let daemons = self.daemons();
        let deposits = daemons.iter().map(PrivateDaemon::deposits);
        let deposits = match deposits.sum::<Result<u64, String>>() {
            Ok(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Err(error) => return Some(error),
        };
        let left = deposits.saturating_mul(3);
        if now > before && now <= before + left {
            eprintln!(
                "kept by open: {} descriptors of what nobody could fetch",
                now - before
            );
            return None;
        }
        let names = daemons.iter().map(PrivateDaemon::descriptor_names);
        (now > before && !restarted).then(|| {
            format!(
                "the daemon keeps {} descriptors of programs that are gone, of:\n{}",
                now - before,
                names.flatten().collect::<Vec<_>>().join("\n")
            )
        })
    }
}

fn network() -> Result<Hosts, Error> {
    gain_rights()?;
    let hosts = Hosts::make_with(Cores::Shared)?;
    hosts.acknowledge_at_once()?;
    hosts.blackhole_other_addresses()?;
    Ok(hosts)
}
