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
pub mod idle;
mod meeting;
pub mod multiplexing;
mod served;
pub mod switch;

pub use arguments::{HELP, TenantsArguments, TenantsExperiment};

use crate::case::Case;
use crate::ends::Ends;
use crate::error::{BenchError, RunError};
use crate::experiment::{builtin, http};
use crate::hosts::congestion;
use crate::interrupt;
use crate::options::{Transport, WorkerCommand};
use crate::plan::{Figures, Plan, Run};
use crate::report::{Collector, Place, Report};
use crate::session::{NetChannel, Session};
use crate::user_mode::published_port;
use meeting::Meeting;
use netchannel_namespaces::{BUFFER, Cores, Host, Hosts, gain_rights};
use served::serve;
use std::fs;
use std::path::{Path, PathBuf};

/// The tenant's name.
const NAME: &str = "bench";
/// The address that it has.
const ADDRESS: &str = "10.88.0.2";

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
    many_ports(&hosts.b)?;
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
            (experiment, Some(meeting))
                if transport == Transport::Netchannel && experiment.is_between_tenants() =>
            {
                meeting.run(experiment.cases())
            }
            (TenantsExperiment::Congestion, _) => with_bbr(&hosts, &congestion_control, || {
                one(TenantsExperiment::Congestion, &both, transport)
            }),
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
    let port = published_port(Transport::Netchannel).unwrap_or_default();
    let table = format!(
        "[host]\nname = \"a\"\n[[tenants]]\nname = \"{NAME}\"\naddresses = [\"{ADDRESS}\"]\nreach = [\"0.0.0.0/0\"]\n\
         publish = [\"{port}:{port}\"]\ncongestion-control = \"{congestion_control}\"\n"
    );
    let served = serve(&options.netchannel, Some(host), folder, &table)?;
    let tenants = served.ask(&["tenants"]);
    let is_served = tenants.is_some_and(|all| all[0]["name"] == NAME);
    if !is_served {
        return Err("the daemon serves no tenant".to_owned());
    }
    Ok(served.of_tenant(NAME))
}

/// What a kernel has that was not asked what suits a tenant.
const BBR: &str = "bbr";

/// Runs where the hosts' kernel has BBR as default, which does not change that of the stack.
fn with_bbr(hosts: &Hosts, own: &str, run: impl FnOnce() -> Run) -> Run {
    let known = hosts.a.setting("ipv4/tcp_available_congestion_control");
    let is_there = known.is_ok_and(|known| known.split_whitespace().any(|one| one == BBR));
    if !is_there || own == BBR {
        let reason = if is_there {
            "the stack's congestion control is BBR, too"
        } else {
            "the kernel has no BBR (modprobe tcp_bbr)"
        };
        return Run::from(Err(RunError::NotApplicable(reason.to_owned())));
    }
    let set = |name| {
        let set = hosts.congestion_control(name);
        set.map_err(|error| RunError::Wrong(error.to_string()))
    };
    if let Err(error) = set(BBR) {
        return Run::from(Err(error));
    }
    let done = run();
    match set(own) {
        Ok(()) => done,
        Err(error) => Run::from(Err(error)),
    }
}

/// Lets a host make many connections one after the other: addresses in TIME_WAIT are used again.
fn many_ports(host: &Host) -> Result<(), BenchError> {
    for (name, value) in [
        ("ipv4/tcp_tw_reuse", "1"),
        ("ipv4/ip_local_port_range", "10000 65535"),
    ] {
        host.set(name, value).map_err(BenchError::Directory)?;
    }
    Ok(())
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
        Case::Meet
        | Case::MeetDirectly
        | Case::Colocated
        | Case::ColocatedDirectly
        | Case::Congestion8
        | Case::Overhead1Gbit
        | Case::Overhead2Gbit
        | Case::Overhead4Gbit
        | Case::Overhead8Gbit => builtin::streams(out, transport, case),
        Case::Latency1
        | Case::Latency1000
        | Case::Overhead2k
        | Case::Overhead4k
        | Case::Overhead8k
        | Case::Overhead12k => builtin::requests(into, transport, case),
        _ => builtin::stream(out, transport, case),
    }
}
