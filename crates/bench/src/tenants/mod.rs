//! Experiments of a tenant: a program without a network of its own, whose stack is the operator's (NetKernel, section 7).
//!
//! ```text
//!   host b (servers)   [veth0]========[veth0]   host a (clients)
//!         kernel TCP:    server <------- TCP -------> client
//!         NetChannel:    server <------- TCP -------> stack of the daemon = lanes = client, in a namespace without a network
//! ```
//!
//! What comes from outside is the other way: a server in the tenant, behind a published port of host a, and its clients on host b.
//!
//! Both hosts have processors of their own, and both ways take the same congestion control. That the client has no other way is
//! what proves that the stack carried its bytes.

mod arguments;
pub mod caps;
pub mod fairness;

pub use arguments::{HELP, TenantsArguments, TenantsExperiment};

use crate::case::Case;
use crate::ends::Ends;
use crate::error::BenchError;
use crate::experiment::{builtin, http};
use crate::hosts::congestion;
use crate::interrupt;
use crate::options::{Transport, WorkerCommand};
use crate::plan::{Figures, Plan, Run};
use crate::report::{Collector, Place, Report};
use crate::session::{NetChannel, Session};
use crate::user_mode::published_port;
use netchannel_namespaces::{BUFFER, Cores, Host, Hosts, gain_rights};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// The tenant's name.
const NAME: &str = "bench";
/// The address that it has.
const ADDRESS: &str = "10.88.0.2";
/// The tenant that it meets.
const MET: &str = "met";
/// The address of that.
const MET_ADDRESS: &str = "10.88.0.3";
/// A cap that is looked at, and never reached.
const MET_CAP: &str = "rate-in = \"400Gbit/s\"\n";

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantsOptions {
    /// Which runs there are.
    pub plan: Plan,
    /// Which experiments, in the order of the plan.
    pub experiments: Vec<TenantsExperiment>,
    /// TCP's congestion control, of programs and of the stack; none: what channels take by themselves.
    pub congestion_control: Option<String>,
    /// Whether each host has processors of its own.
    pub cores: Cores,
    /// The program `netchannel`.
    pub netchannel: PathBuf,
    /// How the built-in workloads are started.
    pub worker: WorkerCommand,
}

/// Runs the experiments; progress goes to stderr. To be called while the process has one thread only.
pub fn run(options: &TenantsOptions) -> Result<Report, BenchError> {
    let plan = &options.plan;
    plan.check()?;
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(options.cores)?;
    let congestion_control = congestion::set(&hosts, options.congestion_control.as_deref())?;
    let directory = crate::temporary_directory()?;
    let folders = ["server", "client"].map(|name| directory.path().join(name));
    for folder in &folders {
        fs::create_dir_all(folder).map_err(BenchError::Directory)?;
    }
    let (seconds, worker) = (plan.seconds, &options.worker);
    let server = Session::outside(&hosts.b, seconds, &folders[0], worker);
    let netchannel = daemon(options, &hosts.a, &folders[1], &congestion_control);
    let client = Session::on(&hosts.a, seconds, &folders[1], worker, netchannel);
    let mut collector = Collector::new(plan);
    if let Some(problem) = client.netchannel_problem() {
        collector.absent_everywhere(Transport::Netchannel, problem);
    }
    let inside = client.netchannel().map(|daemon| daemon.beside(NAME));
    let inside = inside.ok_or_else(|| "the daemon is missing".to_owned());
    let inside = Session::on(&hosts.a, seconds, &folders[1], worker, inside).published();
    let both = Both {
        out: Ends::with_tenant(&server, &client, hosts.b.address()),
        into: Ends::published(&inside, &server, hosts.a.address()),
    };
    let meeting = Meeting::start(options, &hosts, directory.path())?;
    plan.carry_out(&mut collector, |place, transport| {
        match (options.experiments[place], &meeting) {
            (TenantsExperiment::Meet, Some(meeting)) if transport == Transport::Netchannel => {
                meeting.run()
            }
            (experiment, _) => one(experiment, &both, transport),
        }
    })?;
    let place = Place::Tenant {
        processors: [hosts.a.processors().to_vec(), hosts.b.processors().to_vec()],
        congestion_control,
        buffer: BUFFER,
    };
    Ok(collector.report(plan, place))
}

/// The operator's daemon, which serves the tenant.
fn daemon(
    options: &TenantsOptions,
    host: &Host,
    folder: &Path,
    congestion_control: &str,
) -> Result<NetChannel, String> {
    let text = |error: io::Error| error.to_string();
    let file = folder.join("netchannel.toml");
    let port = published_port(Transport::Netchannel).unwrap_or_default();
    let table = format!(
        "[host]\nname = \"a\"\n[[tenants]]\nname = \"{NAME}\"\naddresses = [\"{ADDRESS}\"]\nreach = [\"0.0.0.0/0\"]\n\
         publish = [\"{port}:{port}\"]\ncongestion-control = \"{congestion_control}\"\n"
    );
    fs::write(&file, table).map_err(text)?;
    let arguments = ["--config".into(), file.into_os_string()];
    let socket = folder.join("daemon.sock");
    let program = &options.netchannel;
    let served = NetChannel::start_daemon(program, &socket, folder, Some(host), &arguments)?;
    let tenants = served.ask(&["tenants"]);
    let is_served = tenants.is_some_and(|all| all[0]["name"] == NAME);
    if !is_served {
        return Err("the daemon serves no tenant".to_owned());
    }
    Ok(served.of_tenant(NAME))
}

/// What [`TenantsExperiment::Meet`] needs: a daemon that serves both tenants.
struct Meeting<'a> {
    /// Clients, servers of another tenant, servers of the same.
    sessions: [Session<'a>; 3],
    address: IpAddr,
}

impl<'a> Meeting<'a> {
    /// `None` where it is not asked for.
    fn start(
        options: &'a TenantsOptions,
        hosts: &Hosts,
        directory: &Path,
    ) -> Result<Option<Self>, BenchError> {
        if !options.experiments.contains(&TenantsExperiment::Meet) {
            return Ok(None);
        }
        let folder = directory.join("meet");
        fs::create_dir_all(&folder).map_err(BenchError::Directory)?;
        let file = folder.join("netchannel.toml");
        let table = |name: &str, address: &str, meets: &str, more: &str| {
            format!(
                "[[tenants]]\nname = \"{name}\"\naddresses = [\"{address}\"]\nmeets = [\"{meets}\"]\n{more}"
            )
        };
        let tables = "[host]\nname = \"a\"\n".to_owned()
            + &table(NAME, ADDRESS, MET, "")
            + &table(MET, MET_ADDRESS, NAME, MET_CAP);
        fs::write(&file, tables).map_err(BenchError::Directory)?;
        let daemon = NetChannel::start_daemon(
            &options.netchannel,
            &folder.join("daemon.sock"),
            &folder,
            None,
            &["--config".into(), file.into_os_string()],
        );
        let beside = |name: &str| match &daemon {
            Ok(daemon) => Ok(daemon.beside(name).uncounted()),
            Err(problem) => Err(problem.clone()),
        };
        let (met, own) = (beside(MET), beside(NAME));
        let daemon = daemon.map(|daemon| daemon.of_tenant(NAME));
        let session = |host: &Host, netchannel| {
            Session::on(
                host,
                options.plan.seconds,
                &folder,
                &options.worker,
                netchannel,
            )
        };
        Ok(Some(Meeting {
            sessions: [
                session(&hosts.a, daemon),
                session(&hosts.b, met),
                session(&hosts.b, own),
            ],
            address: hosts.b.address(),
        }))
    }

    fn run(&self) -> Run {
        let [client, met, own] = &self.sessions;
        let met_address = MET_ADDRESS.parse().unwrap_or(self.address);
        let mut all = Vec::new();
        for (case, server, address) in [
            (Case::Meet, met, met_address),
            (Case::MeetDirectly, own, IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ] {
            let ends = Ends::of_tenants((server, client), self.address, address);
            match builtin::streams(&ends, Transport::Netchannel, case) {
                Ok(figures) => all.extend(figures),
                Err(error) => return Run::from(Err(error)),
            }
        }
        Run::from(Ok(all))
    }
}

/// The ends of either direction.
struct Both<'a> {
    /// Clients of the tenant, servers outside.
    out: Ends<'a>,
    /// Servers of the tenant, clients outside.
    into: Ends<'a>,
}

fn one(experiment: TenantsExperiment, both: &Both<'_>, transport: Transport) -> Run {
    if experiment == TenantsExperiment::Http {
        return Run::from(http::run(&both.into, transport));
    }
    let mut all = Vec::new();
    for case in experiment.cases() {
        match figures(*case, both, transport) {
            Ok(figures) => all.extend(figures),
            Err(error) => return Run::from(Err(error)),
        }
    }
    Run::from(Ok(all))
}

fn figures(case: Case, Both { out, into }: &Both<'_>, transport: Transport) -> Figures {
    match case {
        Case::StreamIn => builtin::stream(into, transport, case),
        Case::Pingpong | Case::Pingpong4k => builtin::pingpong(out, transport, case),
        Case::Connections => builtin::connections(out, transport),
        Case::Meet | Case::MeetDirectly => builtin::streams(out, transport, case),
        _ => builtin::stream(out, transport, case),
    }
}
