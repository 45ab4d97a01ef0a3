//! Experiments between two hosts, which are network namespaces of this machine.
//!
//! ```text
//!   host b (servers, daemon)  [veth0]========[veth0]  host a (clients, daemon)
//!         kernel TCP:    server <------- TCP -------> client
//!         NetChannel:    server - daemon <- channels -> daemon - client
//! ```

mod arguments;
pub mod congestion;
mod options;

pub use arguments::{Cores, HostsArguments, Made};
pub use options::{HostsExperiment, HostsOptions};

use crate::case::Case;
use crate::ends::Ends;
use crate::error::{BenchError, RunError};
use crate::experiment::{builtin, isolation, redis};
use crate::interrupt;
use crate::options::Transport;
use crate::plan::{Figures, Run};
use crate::report::{Collector, Place, Report};
use crate::session::{NetChannel, Session};
use netchannel_namespaces::{
    BUFFER, Configuration, Host, Hosts, Offload, daemon_arguments, gain_rights, write_key,
};
use options::CHANNELS;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long two daemons may take to connect.
const MEETING: Duration = Duration::from_secs(5);
/// Between two looks whether they have.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs the experiments; progress goes to stderr. Must be called while the process has only one thread.
pub fn run(options: &HostsOptions) -> Result<Report, BenchError> {
    let plan = options.plan();
    plan.check()?;
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(options.cores)?;
    let asked = options.congestion_control.as_deref();
    let congestion_control = congestion::set(&hosts, asked)?;
    let directory = crate::temporary_directory()?;
    let bench = Bench {
        options,
        hosts: &hosts,
        of_channels: options
            .of_channels
            .as_deref()
            .unwrap_or(&congestion_control),
        directory: directory.path(),
    };
    let [server, client] = bench.sessions(0, None)?;
    let mut collector = Collector::new(&plan);
    let problem = [&server, &client]
        .iter()
        .find_map(|session| session.netchannel_problem().map(str::to_owned));
    if let Some(problem) = problem
        && options.transports.contains(&Transport::Netchannel)
    {
        collector.absent_everywhere(Transport::Netchannel, &problem);
    }
    let ends = Ends::on_two_hosts(&server, &client, hosts.b.address());
    bench.wait_for_channels(&ends)?;
    plan.carry_out(&mut collector, |place, transport| {
        bench.run(options.experiments[place], &ends, transport)
    })?;
    let place = Place::TwoHosts {
        packet: Some(1500),
        processors: [hosts.a.processors().to_vec(), hosts.b.processors().to_vec()],
        of_channels: bench.of_channels.to_owned(),
        congestion_control: congestion_control.clone(),
        buffer: BUFFER,
    };
    Ok(collector.report(&plan, place))
}

/// The state that all runs share.
struct Bench<'a> {
    options: &'a HostsOptions,
    hosts: &'a Hosts,
    of_channels: &'a str,
    directory: &'a Path,
}

impl<'a> Bench<'a> {
    /// The servers' host and the clients', with daemons that know each other.
    fn sessions(&self, setup: u16, channels: Option<u16>) -> Result<[Session<'a>; 2], BenchError> {
        let Hosts { a, b, .. } = self.hosts;
        let folders = [b, a].map(|host| self.directory.join(format!("{setup}{}", host.name())));
        for folder in &folders {
            fs::create_dir_all(folder).map_err(BenchError::Directory)?;
        }
        write_key([&folders[0], &folders[1]]).map_err(BenchError::Directory)?;
        let configuration = Configuration {
            setup,
            channels,
            congestion_control: Some(self.of_channels),
            two_cables: false,
            more: "",
        };
        let session = |host: &Host, other: &Host, folder: &Path| {
            let netchannel = self.daemon(host, other, folder, configuration);
            Session::on(
                host,
                self.options.seconds,
                folder,
                &self.options.worker,
                netchannel,
            )
        };
        Ok([session(b, a, &folders[0]), session(a, b, &folders[1])])
    }

    fn daemon(
        &self,
        host: &Host,
        other: &Host,
        folder: &Path,
        configuration: Configuration<'_>,
    ) -> Result<NetChannel, String> {
        if !self.options.transports.contains(&Transport::Netchannel) {
            return Err("not asked for".to_owned());
        }
        let netchannel = &self.options.netchannel;
        let text = |error: io::Error| error.to_string();
        let file = configuration.write(folder, host, other).map_err(text)?;
        let arguments = daemon_arguments(netchannel, &file)?;
        let socket = folder.join("daemon.sock");
        NetChannel::start_daemon(netchannel, &socket, folder, Some(host), &arguments)
    }

    /// Waits until a connection uses channels. If none ever does, the runs will report the reason.
    fn wait_for_channels(&self, ends: &Ends<'_>) -> Result<(), BenchError> {
        let deadline = Instant::now() + MEETING;
        let is_there = ends.server.netchannel().is_some() && ends.client.netchannel().is_some();
        while is_there && Instant::now() < deadline {
            let tried = builtin::check_netchannel(ends);
            if matches!(tried, Err(RunError::Interrupted)) || interrupt::requested() {
                return Err(BenchError::Interrupted);
            }
            if ends.take_fallbacks().is_empty() {
                break;
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn run(&self, experiment: HostsExperiment, ends: &Ends<'_>, transport: Transport) -> Run {
        if experiment == HostsExperiment::Channels {
            return self.channels(ends, transport);
        }
        let mut all = Vec::new();
        for case in experiment.cases(self.options.channels) {
            match self.case(case, ends, transport) {
                Ok(figures) => all.extend(figures),
                Err(error) => return Err(error).into(),
            }
            // Its cases are measured in one run.
            if experiment == HostsExperiment::Redis {
                break;
            }
        }
        Run {
            figures: Ok(all),
            fallbacks: ends.take_fallbacks(),
        }
    }

    fn case(&self, case: Case, ends: &Ends<'_>, transport: Transport) -> Figures {
        match case {
            Case::Stream | Case::Messages64 | Case::Messages4k => {
                builtin::stream(ends, transport, case)
            }
            Case::Pingpong | Case::Pingpong4k => builtin::pingpong(ends, transport, case),
            Case::Isolation1 | Case::Isolation8 => isolation::run(ends, transport, case),
            Case::Connections => builtin::connections(ends, transport),
            Case::RedisSet | Case::RedisGet => redis::run(ends, transport),
            _ => self.in_packets(|| builtin::stream(ends, transport, case)),
        }
    }

    /// A run without segmentation offload.
    fn in_packets(&self, run: impl FnOnce() -> Figures) -> Figures {
        let set = |offload| self.hosts.offload(offload).map_err(RunError::Files);
        set(Offload::Packets)?;
        let figures = run();
        set(Offload::Segments)?;
        figures
    }

    /// The same work over an increasing number of channels, for which the daemons are restarted; kernel TCP does it
    /// once.
    fn channels(&self, ends: &Ends<'_>, transport: Transport) -> Run {
        let cases = HostsExperiment::Channels.cases(self.options.channels);
        if transport == Transport::Tcp {
            let once = self.case(Case::Channels1, ends, transport);
            let figures = once.map(|figures| {
                let measured = figures.first().map(|(_, measured)| *measured);
                cases
                    .into_iter()
                    .zip(measured.into_iter().cycle())
                    .collect()
            });
            return Run::from(figures);
        }
        let mut all = Vec::new();
        let mut fallbacks = BTreeSet::new();
        for (case, count) in CHANNELS
            .into_iter()
            .filter(|(case, _)| cases.contains(case))
        {
            match self.over_channels(case, count) {
                Ok(Run {
                    figures: Ok(figures),
                    fallbacks: reasons,
                }) => {
                    all.extend(figures);
                    fallbacks.extend(reasons);
                }
                Ok(run) => return run,
                Err(BenchError::Interrupted) => return Err(RunError::Interrupted).into(),
                Err(error) => return Err(RunError::Wrong(error.to_string())).into(),
            }
        }
        Run {
            figures: Ok(all),
            fallbacks,
        }
    }

    fn over_channels(&self, case: Case, count: u16) -> Result<Run, BenchError> {
        let [server, client] = self.sessions(count, Some(count))?;
        let ends = Ends::on_two_hosts(&server, &client, self.hosts.b.address());
        self.wait_for_channels(&ends)?;
        let figures = self.case(case, &ends, Transport::Netchannel);
        Ok(Run {
            figures,
            fallbacks: ends.take_fallbacks(),
        })
    }
}
