//! The places of the two ends of an experiment: one host, or two.

use crate::cpu;
use crate::error::RunError;
use crate::interrupt;
use crate::kernel_tcp;
use crate::measurement::{Cpu, Sides};
use crate::options::Transport;
use crate::process::Process;
use crate::session::Session;
use crate::user_mode::{self, published_port};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// How long the other host may take to learn of a listener.
const HEARD: Duration = Duration::from_secs(2);
/// Pause between two looks whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The sockets or the daemon had ended before the reason could be asked for.
pub const NO_REASON: &str = "the daemon gives no reason";

/// A server's side and a client's.
pub struct Ends<'a> {
    /// The session in which servers are started.
    pub server: &'a Session<'a>,
    /// The session in which clients are started; the same one on one host.
    pub client: &'a Session<'a>,
    /// The address of servers over kernel TCP, and over NetChannel unless they are a tenant's.
    pub address: IpAddr,
    /// The address of servers that are a tenant's, over NetChannel.
    tenant_address: Option<IpAddr>,
    /// Clients are a tenant's: their side has no kernel TCP that could carry anything, and the servers' has nothing else.
    is_tenant: bool,
    /// Servers have no network of their own, and are reached at a port of their host.
    pub is_published: bool,
    /// Why kernel TCP carried what NetChannel should have; on one host that is an error instead.
    fallbacks: Option<RefCell<BTreeSet<String>>>,
}

impl<'a> Ends<'a> {
    /// Both ends on this host.
    pub fn here(session: &'a Session<'a>) -> Self {
        Ends {
            server: session,
            client: session,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            tenant_address: None,
            is_tenant: false,
            is_published: false,
            fallbacks: None,
        }
    }

    /// One end on each host.
    pub fn on_two_hosts(server: &'a Session<'a>, client: &'a Session<'a>, address: IpAddr) -> Self {
        Ends {
            server,
            client,
            address,
            tenant_address: None,
            is_tenant: false,
            is_published: false,
            fallbacks: Some(RefCell::default()),
        }
    }

    /// Servers outside, clients of a tenant.
    pub fn with_tenant(server: &'a Session<'a>, client: &'a Session<'a>, address: IpAddr) -> Self {
        Ends {
            is_tenant: true,
            ..Ends::on_two_hosts(server, client, address)
        }
    }

    /// Servers of a tenant, at `tenant_address`, and clients of one.
    pub fn of_tenants(
        (server, client): (&'a Session<'a>, &'a Session<'a>),
        address: IpAddr,
        tenant_address: IpAddr,
    ) -> Self {
        Ends {
            tenant_address: Some(tenant_address),
            ..Ends::with_tenant(server, client, address)
        }
    }

    /// Servers of a tenant, behind a published port of the host at `address`, and clients outside.
    pub fn published(server: &'a Session<'a>, client: &'a Session<'a>, address: IpAddr) -> Self {
        Ends {
            is_published: true,
            ..Ends::with_tenant(server, client, address)
        }
    }

    /// Where clients find servers.
    pub fn address(&self, transport: Transport) -> IpAddr {
        let of_tenant = self
            .tenant_address
            .filter(|_| transport == Transport::Netchannel);
        of_tenant.unwrap_or(self.address)
    }

    /// Where servers listen: a tenant's namespace does not have the tenant's address, and what is published has its port.
    pub fn listening_address(&self, transport: Transport) -> SocketAddr {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        match published_port(transport).filter(|_| self.is_published) {
            Some(port) => SocketAddr::new(any, port),
            None if self.tenant_address.is_some() && transport == Transport::Netchannel => {
                SocketAddr::new(any, 0)
            }
            None => SocketAddr::new(self.address, 0),
        }
    }

    /// Seconds of each run.
    pub fn seconds(&self) -> f64 {
        self.client.seconds
    }

    /// The time limit of a run.
    pub fn run_limit(&self) -> Duration {
        self.client.run_limit()
    }

    /// Whether there are two hosts.
    fn are_two_hosts(&self) -> bool {
        self.fallbacks.is_some()
    }

    /// A port that is free now, for servers that can not choose one themselves.
    pub fn free_port(&self) -> Result<u16, RunError> {
        let address = self.address;
        let bind = || TcpListener::bind((address, 0));
        let listener = self.server.within(bind)?.map_err(RunError::Files)?;
        Ok(listener.local_addr().map_err(RunError::Files)?.port())
    }

    /// Checks which transport carries the connections of a server, which lives and has some. Between hosts kernel TCP
    /// is recorded with its reason; on one host it is an error.
    pub fn check_carrier(
        &self,
        transport: Transport,
        server: &Process,
        port: u16,
    ) -> Result<(), RunError> {
        // Looked at over every transport alike, so that none is at a disadvantage.
        let count = kernel_tcp::established(server.pid(), port);
        if transport != Transport::Netchannel || self.is_tenant || count == 0 {
            return Ok(());
        }
        let Some(fallbacks) = &self.fallbacks else {
            return Err(RunError::KernelTcp(count));
        };
        let mut reasons = self.reasons(port);
        if reasons.is_empty() {
            reasons.insert(NO_REASON.to_owned());
        }
        fallbacks.borrow_mut().extend(reasons);
        Ok(())
    }

    /// Why the clients' sockets to a port are not virtual, as their daemon has it.
    fn reasons(&self, port: u16) -> BTreeSet<String> {
        let answer = self.client.netchannel().and_then(|one| one.ask(&["ss"]));
        let sockets = answer.as_ref().and_then(|answer| answer.as_array());
        let port = format!(":{port}");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let fell_back = |socket: &&serde_json::Value| {
            text(&socket["path"]) == "kernel" && text(&socket["peer"]).ends_with(&port)
        };
        let sockets = sockets.into_iter().flatten().filter(fell_back);
        sockets.map(|socket| text(&socket["reason"])).collect()
    }

    /// Waits until the clients' host knows of a server that has just begun to listen; if it never does, the run will say why.
    pub fn await_listener(&self, transport: Transport, port: u16) -> Result<(), RunError> {
        if self.is_published {
            return self.await_published(transport, port);
        }
        if transport != Transport::Netchannel || self.is_tenant || !self.are_two_hosts() {
            return Ok(());
        }
        let deadline = Instant::now() + HEARD;
        let knows = |peers: &serde_json::Value| {
            let ports = peers[0]["ports"].as_array();
            ports.is_none_or(|ports| ports.iter().any(|one| one.as_u64() == Some(port.into())))
        };
        while Instant::now() < deadline && !interrupt::requested() {
            let answer = self.client.netchannel().and_then(|one| one.ask(&["peers"]));
            if answer.as_ref().is_none_or(knows) {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until the port is open where clients find it.
    fn await_published(&self, transport: Transport, port: u16) -> Result<(), RunError> {
        user_mode::forward(transport, self.server.directory(), port)?;
        let deadline = Instant::now() + HEARD;
        while !self.server.within(|| kernel_tcp::listens(port))? {
            if interrupt::requested() {
                return Err(RunError::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(RunError::Wrong(format!("port {port} was never open")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// The reasons noted, which are forgotten.
    pub fn take_fallbacks(&self) -> BTreeSet<String> {
        let noted = self.fallbacks.as_ref().map(RefCell::take);
        noted.unwrap_or_default()
    }
}

/// CPU time of programs and daemons from one moment on.
pub struct CpuSince<'a> {
    ends: &'a Ends<'a>,
    transport: Transport,
    begin: Used,
}

/// CPU time used until a moment.
struct Used {
    servers: Duration,
    clients: Duration,
    server_daemon: Duration,
    client_daemon: Duration,
    kernel: Duration,
}

impl<'a> CpuSince<'a> {
    /// From now on; `servers` and `clients` are those that run already.
    pub fn now(
        ends: &'a Ends<'a>,
        transport: Transport,
        servers: &[&Process],
        clients: &[&Process],
    ) -> Self {
        CpuSince {
            ends,
            transport,
            begin: used(ends, transport, servers, clients),
        }
    }

    /// Until now, of those processes (living or ended) and the daemons.
    pub fn used(&self, servers: &[&Process], clients: &[&Process]) -> Cpu {
        let end = used(self.ends, self.transport, servers, clients);
        let part =
            |of: fn(&Used) -> Duration| of(&end).saturating_sub(of(&self.begin)).as_secs_f64();
        let client = part(|used| used.clients) + part(|used| used.client_daemon);
        let server = part(|used| used.servers);
        if !self.ends.are_two_hosts() {
            // There is one daemon, which was counted already.
            return Cpu::from(client + server);
        }
        let server = server + part(|used| used.server_daemon);
        let kernel = part(|used| used.kernel);
        Cpu {
            seconds: client + server + kernel,
            sides: Some(Sides {
                client,
                server,
                kernel,
            }),
        }
    }
}

fn used(ends: &Ends<'_>, transport: Transport, servers: &[&Process], clients: &[&Process]) -> Used {
    let of = |processes: &[&Process]| processes.iter().map(|process| process.cpu()).sum();
    Used {
        servers: of(servers),
        clients: of(clients),
        server_daemon: ends.server.daemon_cpu(transport),
        client_daemon: ends.client.daemon_cpu(transport),
        kernel: cpu::of_packet_threads(),
    }
}
