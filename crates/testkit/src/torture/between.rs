//! The two ends as programs on two hosts. Bytes are compared as on one host, and a fault between the hosts must not
//! show.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use netchannel_namespaces::Configuration;
use netchannel_testkit::far::await_announcement;
use netchannel_testkit::support::{Family, SKIPPED, tcp};
use netchannel_testkit::sys::{self, Descriptor};
use netchannel_testkit::two_hosts::{Carrier, HostsError, TwoHosts, Which};

use crate::program::{Program, this_program};
use crate::{Mode, Options, ends, step};

/// How long a program may take to end after it has done its work.
const LATEST: Duration = Duration::from_secs(30);

/// Runs every mode and family for a while, over NetChannel if a program is given, else over kernel TCP. Returns the
/// exit status.
pub fn run(options: &Options, modes: &[Mode], families: &[Family]) -> i32 {
    let hosts = match make_hosts(options) {
        Ok(hosts) => hosts,
        Err(status) => return status,
    };
    let runs = u64::try_from(modes.len() * families.len()).unwrap_or(1);
    let each = Duration::from_millis(options.seconds * 1000 / runs);
    for mode in modes {
        for family in families {
            let mut transfer = Transfer::start(&hosts, options, *mode, *family, each);
            match transfer.finish(each + LATEST) {
                Ok(text) => print!("{text}"),
                Err(text) => {
                    println!("FAIL {mode:?} {family:?}: {text}\n{}", hosts.logs());
                    return 1;
                }
            }
        }
    }
    println!("PASS between hosts: seed {}", options.seed);
    0
}

/// The server's end, as a program of its own. It prints its address.
pub fn serve(options: &Options, mode: Mode, duration: Duration) {
    let listening = listen_at(options.address, 1024);
    ends::serve(listening, options, mode, duration);
    println!("PASS served");
}

/// A listener of which the other host knows. Its address is printed.
pub fn listen_at(address: SocketAddr, backlog: libc::c_int) -> Descriptor {
    let listening = tcp(Family::of(address));
    step::keep_urgent_bytes(listening);
    sys::bind(listening, address).expect("bind");
    sys::listen(listening, backlog).expect("listen");
    await_announcement();
    let name = sys::getsockname(listening).expect("getsockname");
    println!("ready {name}");
    listening
}

/// Makes two hosts. Returns the exit status if they cannot be made.
pub fn make_hosts(options: &Options) -> Result<TwoHosts, i32> {
    match options.tenant {
        None => make_hosts_with(options, &Configuration::default()),
        Some(tenant) => made(TwoHosts::make_with_tenant(
            options.netchannel.as_deref(),
            tenant == Tenant::OverChannels,
        )),
    }
}

/// As [`make_hosts`], with more configuration of the daemons.
pub fn make_hosts_with(
    options: &Options,
    configuration: &Configuration<'_>,
) -> Result<TwoHosts, i32> {
    made(TwoHosts::make_with(
        options.netchannel.as_deref(),
        configuration,
    ))
}

fn made(made: Result<TwoHosts, HostsError>) -> Result<TwoHosts, i32> {
    made.map_err(|absent| match absent {
        HostsError::Unsupported(text) => {
            println!("skipped: {text}");
            SKIPPED
        }
        HostsError::Failed(text) => {
            eprintln!("{text}");
            1
        }
    })
}

/// The transport of a run's connections.
pub fn carrier(options: &Options) -> Carrier {
    match (&options.netchannel, options.tenant) {
        (None, _) => Carrier::Kernel,
        (Some(_), None) => Carrier::NetChannel,
        (Some(_), Some(Tenant::OverChannels)) => Carrier::TenantOverChannels,
        (Some(_), Some(_)) => Carrier::Tenant,
    }
}

/// What a tenant of host a does, where one end is a tenant's program. Kernel TCP is at the other end of the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant {
    /// It connects.
    Out,
    /// It listens at published ports.
    In,
    /// It connects over channels to NetChannel.
    OverChannels,
}

impl Tenant {
    /// The tenant of a word of the command line.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "out" => Some(Self::Out),
            "in" => Some(Self::In),
            "channels" => Some(Self::OverChannels),
            _ => None,
        }
    }
}

/// Where the two ends of a run are, and what carries its connections.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub carrier: Carrier,
    pub server: Which,
    pub client: Which,
}

impl Places {
    /// The places that the options name.
    pub fn of(options: &Options) -> Self {
        let (server, client) = match options.tenant {
            Some(Tenant::In) => (Which::A, Which::B),
            _ => (Which::B, Which::A),
        };
        Self {
            carrier: carrier(options),
            server,
            client,
        }
    }
}

/// A host's address of a family.
pub fn address_of(hosts: &TwoHosts, which: Which, family: Family) -> IpAddr {
    let host = hosts.host(which);
    match family {
        Family::V4 => IpAddr::V4(host.v4(0)),
        Family::V6 => IpAddr::V6(host.v6(0)),
    }
}

/// Connections from host a to host b that are opened, compared and closed for a while.
pub struct Transfer {
    server: Program,
    client: Program,
}

impl Transfer {
    /// Starts both ends.
    ///
    /// # Panics
    /// If the programs cannot be started.
    pub fn start(
        hosts: &TwoHosts,
        options: &Options,
        mode: Mode,
        family: Family,
        duration: Duration,
    ) -> Self {
        let words = |command: &mut Command, address: SocketAddr| {
            command
                .args(["--mode", mode.name(), "--address", &address.to_string()])
                .args(["--seed", &options.seed.to_string()])
                .args(["--milliseconds", &duration.as_millis().to_string()])
                .args(["--connections", &options.connections.to_string()])
                .args(["--threads", &options.threads.to_string()])
                .args(["--patience", &options.patience.as_secs().to_string()]);
        };
        let places = Places::of(options);
        let address = SocketAddr::new(address_of(hosts, places.server, family), 0);
        let mut command = hosts.command(&this_program(), places.server, places.carrier);
        command.arg("serve");
        words(&mut command, address);
        let mut server = Program::start(command);
        let line = server.line();
        let address: SocketAddr = match line.strip_prefix("ready ").map(str::parse) {
            Some(Ok(address)) => address,
            _ => panic!("the server says {line:?}: {}", server.rest()),
        };
        let mut command = hosts.command(&this_program(), places.client, places.carrier);
        command.arg("drive");
        words(&mut command, address);
        Self {
            server,
            client: Program::start(command),
        }
    }

    /// Whether both programs still run.
    pub fn is_running(&mut self) -> bool {
        self.client.is_running() && self.server.is_running()
    }

    /// Waits for the end of both programs, which must report success. Returns the client's output.
    pub fn finish(&mut self, limit: Duration) -> Result<String, String> {
        let end = Instant::now() + limit;
        let client = self.client.end(end);
        let server = self
            .server
            .end(if client.is_ok() { end } else { Instant::now() });
        match (client, server) {
            (Ok(text), Ok(_)) => Ok(text),
            (client, server) => Err(format!("client: {client:?}\nserver: {server:?}")),
        }
    }
}
