//! Programs connect: within what the tenant may reach.

use crate::connection::State;
use crate::meeting::Otherwise;
use crate::served::{Served, TenantNumber};
use crate::worker::KernelWorker;
use netchannel_abi::address::Address;
use netchannel_configuration::{Tenant, Way};
use netchannel_service::addresses;
use netchannel_service::cells::Key;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::stack::OF_TENANT;
use netchannel_stack_process::counters::Counter;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The port of DNS.
pub(crate) const DNS: u16 = 53;

impl KernelWorker {
    /// A program has made a connection over a link: the kernel makes it.
    pub(crate) fn dial(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let number = self.tenant_of_link(key);
        if end.user() == Some(OF_TENANT) {
            return self.enter((number, key), &end, opened);
        }
        let Some(served) = self.tenants.get(number) else {
            return;
        };
        if served.meets_at(&opened) {
            return self.meet((number, key), &end, opened);
        }
        if let Some(wanted) = served.own_listener(&opened, end.user()) {
            let lane = Lane::accepted(&end, opened.loan).of_daemon();
            return match wanted {
                Ok(wanted) => self.meet_own((number, key), lane, wanted),
                Err(errno) => lane.refuse(errno.raw_os_error().unsigned_abs()),
            };
        }
        let permitted = served.permitted(opened.listener, &opened.server);
        let lane = Lane::accepted(&end, opened.loan).of_daemon();
        let begun = permitted.and_then(|(to, way)| {
            let dscp = lane.hints().dscp;
            if way == Way::Channels {
                return Ok(Begun::Over(Otherwise { to, dscp }));
            }
            self.begin_connect(number, Otherwise { to, dscp })
                .map(Begun::Socket)
        });
        match begun {
            Ok(Begun::Over(otherwise)) => {
                self.cross((number, key), lane, opened.client.port, otherwise);
            }
            Ok(Begun::Socket(socket)) => self.take_up((number, key), lane, socket),
            Err(errno) => lane.refuse(errno.raw_os_error().unsigned_abs()),
        }
    }

    /// The kernel begins to connect for a tenant.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn begin_connect(
        &self,
        tenant: TenantNumber,
        Otherwise { to, dscp }: Otherwise,
    ) -> Result<OwnedFd, Errno> {
        let served = self.tenants.get(tenant).ok_or(Errno::NETUNREACH)?;
        begin_connect(&served.tenant, &self.kernels_congestion_control, to, dscp)
    }

    fn take_up(&mut self, (tenant, key): (TenantNumber, Key), mut lane: Lane, socket: OwnedFd) {
        let shortage = Errno::NOBUFS.raw_os_error().unsigned_abs();
        let Some(ticket) = self.add(tenant, State::Changing, socket) else {
            return lane.refuse(shortage);
        };
        let number = ticket.number;
        if !self.watch_lane(number, key, &mut lane) {
            lane.refuse(shortage);
            return self.remove(number);
        }
        if let Some(connection) = self.table.at_mut(number) {
            connection.state = State::Connecting(lane);
        }
        // An event tells when the other host has answered, also where it has by now.
        if let Some(served) = self.tenants.get(tenant) {
            served.counters.add(Counter::Dialed, 1);
        }
    }
}

/// How a connection was begun.
enum Begun {
    /// With this socket.
    Socket(OwnedFd),
    /// It is to go over channels, and otherwise there.
    Over(Otherwise),
}

impl Served {
    /// Where a connection goes, and by which way. What the tenant may reach is asked first.
    ///
    /// # Errors
    /// Why it goes nowhere.
    fn permitted(&self, listener: u32, server: &Address) -> Result<(SocketAddr, Way), Errno> {
        if Some(listener) != self.gateway {
            return Err(Errno::CONNREFUSED);
        }
        let to = addresses::to_socket_address(&server.unmapped());
        let to = to.ok_or(Errno::AFNOSUPPORT)?;
        match self.tenant.address_like(to.ip()) {
            // Its own address, at which nobody listens: else the program had found the listener.
            Some(own) if own == to.ip() => return self.served_by_operator(to.port()),
            Some(_) => {}
            None => return Err(Errno::NETUNREACH),
        }
        let way = self.tenant.way_to(to.ip());
        let refusal = match way {
            _ if !self.tenant.may_reach(to) => Some(Errno::ACCESS),
            Way::None => Some(Errno::NETUNREACH),
            Way::Kernel | Way::Channels => None,
        };
        if let Some(refusal) = refusal {
            // Whom a program asks over datagrams it may ask again, where an answer did not fit into one.
            if to.port() == DNS && self.tenant.resolver.is_some() {
                return self.served_by_operator(DNS);
            }
            self.counters.add(Counter::Denied, 1);
            return Err(refusal);
        }
        self.within_limit((to, way))
    }

    /// What the operator serves at a port of the tenant's own address: names, whatever the tenant may reach.
    fn served_by_operator(&self, port: u16) -> Result<(SocketAddr, Way), Errno> {
        match self.tenant.resolver {
            Some(resolver) if port == DNS => self.within_limit((resolver, Way::Kernel)),
            _ => Err(Errno::CONNREFUSED),
        }
    }

    pub(crate) fn within_limit<T>(&self, to: T) -> Result<T, Errno> {
        if self.is_full() {
            self.counters.add(Counter::OverLimit, 1);
            // As where no port is left.
            return Err(Errno::ADDRNOTAVAIL);
        }
        Ok(to)
    }
}

fn begin_connect(
    tenant: &Tenant,
    kernels: &str,
    to: SocketAddr,
    dscp: u8,
) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    prepare(&socket, tenant, kernels);
    if dscp != 0 {
        let octet = (dscp & 63) << 2;
        // Of the kernel's two options, one fits the socket.
        let _ = sockopt::set_ip_tos(&socket, octet);
        let _ = sockopt::set_ipv6_tclass(&socket, octet.into());
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Gives a new socket what every socket of the tenant has, and the kernel's do not have by themselves.
pub fn prepare(socket: &OwnedFd, tenant: &Tenant, kernels: &str) {
    let wanted = tenant.congestion_control.as_deref();
    if let Some(name) = wanted.filter(|name| *name != kernels) {
        choose_congestion_control(socket, tenant, name);
    }
}

/// Gives a socket another congestion control, now or while it is in use.
pub fn choose_congestion_control(socket: &OwnedFd, tenant: &Tenant, name: &str) {
    if let Err(errno) = sockopt::set_tcp_congestion(socket, name) {
        tracing::debug!("tenant {}: no {name} ({errno})", tenant.name);
    }
}
