//! Two hosts in which cells are measured one after the other. The layers under the programs are made again where they
//! change.

use super::cell::{Cell, Optimisations, Path as Under};
use super::profiled::{Profiler, Shares};
use super::programs;
use crate::ends::Ends;
use crate::error::{BenchError, RunError};
use crate::experiment::check_netchannel;
use crate::hosts::congestion;
use crate::interrupt;
use crate::measurement::Measurement;
use crate::options::{Transport, WorkerCommand};
use crate::plan::Figures;
use crate::profile_report::tell;
use crate::report::{Place, reasons_text};
use crate::session::{NetChannel, Session};
use netchannel_namespaces::{
    BUFFER, Configuration, Cores, Delay, Host, Hosts, Loss, Offload, daemon_arguments, gain_rights,
    write_key,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long two daemons may take to connect.
const MEETING: Duration = Duration::from_secs(5);
/// Between two looks whether they have.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Ports of daemons are used in turns, since those of the last ones may still be in use.
const SETUPS: u16 = 500;
/// Segments that a device takes at a time, as it comes.
const SEGMENTS: u16 = u16::MAX;

/// The state that all cells share.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Seconds of each run.
    pub seconds: f64,
    /// Whether each host has processors of its own.
    pub cores: Cores,
    /// TCP's congestion control, where a cell does not say; none: as `bench hosts` has it.
    pub congestion_control: Option<String>,
    /// That of channels, where it is to be another.
    pub of_channels: Option<String>,
    /// The program `netchannel`.
    pub netchannel: PathBuf,
    /// How the built-in workloads are started.
    pub worker: WorkerCommand,
}

/// Figures of one run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The figures.
    pub figures: Measurement,
    /// Why kernel TCP carried it although NetChannel was asked to.
    pub fallback: Option<String>,
    /// The shares of time, where they were requested.
    pub shares: Option<Shares>,
}

/// Two hosts and what is in them.
pub struct Lab<'a> {
    // Before the hosts: daemons end while their host exists.
    current: Option<Current<'a>>,
    setup: u16,
    options: &'a LabOptions,
    directory: tempfile::TempDir,
    hosts: Hosts,
    /// The default where a cell has none.
    congestion_control: String,
}

/// The parts of a path.
struct Current<'a> {
    under: Under,
    transport: Transport,
    server: Session<'a>,
    client: Session<'a>,
    _loss: Option<Loss>,
    delay: Option<Delay>,
}

impl<'a> Lab<'a> {
    /// Makes the hosts. To be called while the process has one thread only.
    pub fn make(options: &'a LabOptions) -> Result<Self, BenchError> {
        gain_rights()?;
        let hosts = Hosts::make_with(options.cores)?;
        let asked = options.congestion_control.as_deref();
        let congestion_control = congestion::set(&hosts, asked)?;
        Ok(Lab {
            current: None,
            setup: 0,
            options,
            directory: crate::temporary_directory()?,
            hosts,
            congestion_control,
        })
    }

    /// The place of the figures.
    pub fn place(&self) -> Place {
        let Hosts { a, b, .. } = &self.hosts;
        let of_channels = self.options.of_channels.clone();
        Place::TwoHosts {
            packet: None,
            processors: [a.processors().to_vec(), b.processors().to_vec()],
            congestion_control: self.congestion_control.clone(),
            of_channels: of_channels.unwrap_or_else(|| self.congestion_control.clone()),
            buffer: BUFFER,
        }
    }

    /// Processors of each host.
    pub fn processors(&self) -> usize {
        self.hosts.a.processors().len().max(1)
    }

    /// Makes one run of a cell, with a profile where that is wanted.
    pub fn measure(&mut self, cell: &Cell, profile: bool) -> Result<Measured, RunError> {
        let Cell { work, transport } = cell;
        let pinned = work.path.optimisations == Optimisations::Pinned;
        let (options, directory) = (self.options, self.directory.path().to_owned());
        let processors = [&self.hosts.a, &self.hosts.b].map(|host| host.processors().to_vec());
        let mut profiler = Profiler::new(
            &options.netchannel,
            &directory,
            options.seconds,
            processors.each_ref().map(Vec::as_slice),
        );
        let ends = self.ends(&work.path, *transport)?;
        let wanted = profile.then_some(&mut profiler);
        let figures = programs::run(&ends, *transport, work, pinned, wanted)?;
        tell("Gbit/s", &figures);
        let fallback = reasons_text(&ends.take_fallbacks());
        let delay = self.current.as_ref().and_then(|one| one.delay.as_ref());
        if delay.is_some_and(|delay| !delay.holds()) {
            return Err(wrong("packets were not delayed any more".to_owned()));
        }
        Ok(Measured {
            figures,
            fallback,
            shares: profile.then_some(profiler.shares),
        })
    }

    /// Makes one run of real programs, and takes one of its cases.
    pub fn program(
        &mut self,
        case: &str,
        transport: Transport,
        run: fn(&Ends<'_>, Transport) -> Figures,
    ) -> Result<Measured, RunError> {
        let ends = self.ends(&Under::default(), transport)?;
        let figures = run(&ends, transport)?;
        for (of, figures) in &figures {
            tell(of.unit(), figures);
        }
        let found = figures.into_iter().find(|(of, _)| of.name() == case);
        let (_, figures) =
            found.ok_or_else(|| RunError::Wrong(format!("there is no case {case}")))?;
        Ok(Measured {
            figures,
            fallback: reasons_text(&ends.take_fallbacks()),
            shares: None,
        })
    }

    /// The two hosts with this under their programs.
    fn ends(&mut self, under: &Under, transport: Transport) -> Result<Ends<'_>, RunError> {
        let fits =
            |current: &Current<'_>| current.under == *under && current.transport == transport;
        if !self.current.as_ref().is_some_and(fits) {
            self.prepare(under, transport)?;
        }
        match &self.current {
            Some(Current { server, client, .. }) => {
                Ok(Ends::on_two_hosts(server, client, self.hosts.b.address()))
            }
            None => Err(RunError::Wrong("the hosts are not prepared".to_owned())),
        }
    }

    fn prepare(&mut self, under: &Under, transport: Transport) -> Result<(), RunError> {
        self.current = None;
        self.devices(under).map_err(wrong)?;
        let congestion_control = under.congestion_control.as_deref();
        let congestion_control = congestion_control
            .unwrap_or(&self.congestion_control)
            .to_owned();
        self.hosts
            .congestion_control(&congestion_control)
            .map_err(|error| RunError::Wrong(error.to_string()))?;
        let buffer = under.buffer.unwrap_or(BUFFER);
        self.hosts.buffers(buffer).map_err(RunError::Files)?;
        let loss = under.loss.map(|part| self.hosts.lose(part));
        let loss = loss.transpose().map_err(no_loss)?;
        let delay = under.delay_ms.map(|time| {
            let time = Duration::from_secs_f64(time / 1000.0);
            self.hosts.delay(time)
        });
        let delay = delay.transpose().map_err(no_delay)?;
        let of_channels = self.options.of_channels.as_deref();
        let [server, client] =
            self.sessions(transport, of_channels.unwrap_or(&congestion_control))?;
        let current = Current {
            under: under.clone(),
            transport,
            server,
            client,
            _loss: loss,
            delay,
        };
        if transport == Transport::Netchannel {
            for session in [&current.server, &current.client] {
                if let Some(problem) = session.netchannel_problem() {
                    return Err(RunError::Wrong(problem.to_owned()));
                }
            }
            meet(&Ends::on_two_hosts(
                &current.server,
                &current.client,
                self.hosts.b.address(),
            ))?;
        }
        self.current = Some(current);
        Ok(())
    }

    fn devices(&self, under: &Under) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let single = under.optimisations == Optimisations::None;
        let offload = if single {
            Offload::Packets
        } else {
            Offload::Segments
        };
        self.hosts.offload(offload).map_err(text)?;
        let segments = if single { 1 } else { SEGMENTS };
        let made = self.hosts.packets(under.packet(), segments);
        made.map_err(|error| error.to_string())
    }

    /// The servers' host and the clients', with daemons where they are wanted.
    fn sessions(
        &mut self,
        transport: Transport,
        of_channels: &str,
    ) -> Result<[Session<'a>; 2], RunError> {
        let options = self.options;
        self.setup = (self.setup + 1) % SETUPS;
        let Hosts { a, b, .. } = &self.hosts;
        let folders = [b, a].map(|host| {
            self.directory
                .path()
                .join(format!("{}{}", self.setup, host.name()))
        });
        for folder in &folders {
            fs::create_dir_all(folder).map_err(RunError::Files)?;
        }
        write_key([&folders[0], &folders[1]]).map_err(RunError::Files)?;
        let configuration = Configuration {
            setup: self.setup,
            congestion_control: Some(of_channels),
            ..Configuration::default()
        };
        let session = |host: &Host, other: &Host, folder: &Path| {
            let netchannel = match transport {
                Transport::Netchannel => daemon(options, host, other, folder, configuration),
                _ => Err("not asked for".to_owned()),
            };
            Session::on(host, options.seconds, folder, &options.worker, netchannel)
        };
        Ok([session(b, a, &folders[0]), session(a, b, &folders[1])])
    }
}

fn no_loss(error: io::Error) -> RunError {
    RunError::NotApplicable(format!(
        "packets cannot be lost here: the kernel takes no XDP program ({error}); this needs root with CAP_BPF and CAP_NET_ADMIN"
    ))
}

fn no_delay(error: io::Error) -> RunError {
    let needed = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "this needs CAP_NET_ADMIN",
        _ => {
            "this needs a kernel with nfnetlink_queue, and nft_queue or xt_NFQUEUE with nft_compat (CONFIG_NETFILTER_NETLINK_QUEUE, \
             CONFIG_NFT_QUEUE); `modprobe -a nfnetlink_queue nft_queue` loads them where they are modules"
        }
    };
    RunError::NotApplicable(format!(
        "packets cannot be delayed here: the kernel has no queue for them ({error}); {needed}"
    ))
}

fn wrong(problem: String) -> RunError {
    RunError::Wrong(problem)
}

fn daemon(
    options: &LabOptions,
    host: &Host,
    other: &Host,
    folder: &Path,
    configuration: Configuration<'_>,
) -> Result<NetChannel, String> {
    let file = configuration
        .write(folder, host, other)
        .map_err(|error| error.to_string())?;
    let arguments = daemon_arguments(&options.netchannel, &file)?;
    let socket = folder.join("daemon.sock");
    NetChannel::start_daemon(&options.netchannel, &socket, folder, Some(host), &arguments)
}

/// Waits until a connection uses channels. If none ever does, the runs will report the reason.
fn meet(ends: &Ends<'_>) -> Result<(), RunError> {
    let deadline = Instant::now() + MEETING;
    while Instant::now() < deadline {
        if interrupt::requested() {
            return Err(RunError::Interrupted);
        }
        let tried = check_netchannel(ends);
        if matches!(tried, Err(RunError::Interrupted)) {
            return tried;
        }
        if ends.take_fallbacks().is_empty() {
            return Ok(());
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_told_with_what_mends_it() {
        let missing = no_delay(io::Error::from_raw_os_error(libc::ENOENT)).to_string();
        assert!(missing.contains("nfnetlink_queue nft_queue"), "{missing}");
        let refused = no_delay(io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(refused.contains("CAP_NET_ADMIN"), "{refused}");
        let refused = no_loss(io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(refused.contains("CAP_BPF"), "{refused}");
    }
}
