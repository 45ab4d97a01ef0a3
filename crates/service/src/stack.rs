//! A stack module, as CoreEngine and the daemon's loop know it: the other end of the lanes that the infrastructure
//! serves.
//!
//! ```text
//!  CoreEngine --Command--> StackHandle ---> threads of the module (service::worker)
//!       +--StackRequest- Stack <--doorbells------+       on the daemon's thread: never waits, never on the way of a byte
//! ```

use crate::addresses::to_socket_address;
use crate::anchor::Count;
use crate::core_engine::{Command, Engine, ListenerChange};
use crate::link::Parts;
use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_control::hosts::Hosts;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A position in the list of connections: the number of a peer's start, and a place among its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The number of the start.
    pub start: u32,
    /// The first place that was not visited.
    pub place: u32,
}

/// A connection with a program of another host.
#[derive(Clone, Debug)]
pub struct RemoteConnection {
    /// The link of its socket on this host.
    pub link: u64,
    /// The slot in that link.
    pub slot: u32,
    /// The other host's name.
    pub host: Arc<str>,
    /// The class in which it is served.
    pub class: &'static str,
    /// What decided the class.
    pub source: &'static str,
    /// The channels that it used lately, in the form that commands show.
    pub channels: String,
}

/// The handle by which CoreEngine sends commands to a stack module.
pub trait StackHandle: Debug {
    /// Sends a command. Does not wait until it is executed.
    fn send(&self, command: Command);

    /// Descriptors that the module holds, besides a few for each link.
    fn descriptors(&self) -> usize;
}

/// Whose the connections of a link are, where no program of this host makes them: a tenant's.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The tenant's name.
    pub tenant: String,
    /// The addresses that its programs have.
    pub addresses: Vec<IpAddr>,
    /// The anchors that the module holds for it.
    pub count: Arc<Count>,
}

impl Origin {
    /// Whether a client's address is the tenant's.
    #[must_use]
    pub fn has(&self, client: &Address) -> bool {
        let client = to_socket_address(&client.unmapped());
        client.is_some_and(|at| at.port() != 0 && self.addresses.contains(&at.ip()))
    }
}

/// The user of a link between two stack modules, whose connections are those of a tenant: no user of the host has this number.
pub const OF_TENANT: u32 = u32::MAX;

/// The way of tenants' connections into a stack module of the host's, and back, from any thread.
pub trait Crossing: Debug + Send + Sync {
    /// Takes the server's end of a link of a tenant's stack. Whose it is, is said here and never over the link.
    fn serve(&self, parts: Parts, origin: Arc<Origin>);

    /// Clients of the module come in at these addresses of the host from now on, and at no others of the tenant's; by links whose servers'
    /// ends the entrance takes.
    fn publish(&self, tenant: &str, at: Vec<SocketAddr>, entrance: Arc<dyn Entrance>);
}

/// The way of connections of a stack module of the host's into a tenant's stack, from any thread.
pub trait Entrance: Debug + Send + Sync {
    /// Takes the server's end of a link, of user [`OF_TENANT`]. What is said over it of clients is believed.
    fn enter(&self, parts: Parts);
}

/// A stack module. When it is dropped, all its connections end.
pub trait Stack: Debug {
    /// The name of the module.
    fn name(&self) -> &'static str;

    /// The handle for CoreEngine.
    fn handle(&self) -> Rc<dyn StackHandle>;

    /// The way of tenants' connections into the module, if it takes them.
    fn crossing(&self) -> Option<Arc<dyn Crossing>> {
        None
    }

    /// Whether connections between programs of this host go through the module.
    fn routes_all(&self) -> bool {
        false
    }

    /// Descriptors that are readable when the module has work for the daemon's thread.
    fn doorbells(&self) -> Vec<BorrowedFd<'_>>;

    /// One of its [`Self::doorbells`] rings.
    fn on_doorbell(&mut self, which: usize, engine: &mut dyn Engine, now: Instant);

    /// Does the work that is due. It is called in every pass of the daemon's loop, and costs nothing where nothing
    /// happened.
    fn on_loop_pass(&mut self, _engine: &mut dyn Engine, _now: Instant) {}

    /// The latest time of the next call.
    fn deadline(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// A listener of this host was added or removed.
    fn on_listener(&mut self, _news: ListenerChange) {}

    /// The addresses of this host besides loopback.
    fn on_addresses(&mut self, _addresses: &[Address]) {}

    /// Adds the module's data to entries that it finds or makes ([`Hosts::peer_mut`] and others), in any order with
    /// other modules. The entries of peers exist already, with the data of the configuration. The module must not wait.
    fn show(&self, _hosts: &mut Hosts) {}

    /// Lists the connections whose other end is on another host: about `most` of them from `from` on, and where the
    /// next ones may follow. The first call passes the default cursor.
    fn remote_connections(
        &self,
        _from: Cursor,
        _most: usize,
    ) -> (Vec<RemoteConnection>, Option<Cursor>) {
        (Vec::new(), None)
    }

    /// The name of the stack that leads a connection of a tenant's program to `peer`, by the flags of its lane, and of the other host if that is
    /// known. `None` where this module serves no tenant.
    fn name_of_way(&self, _peer: &Address, _flags: u32) -> Option<(&'static str, Option<String>)> {
        None
    }

    /// The number of connections with other hosts.
    fn connections(&self) -> u64 {
        0
    }

    /// Applies another configuration. What did not change goes on. Returns a sentence for each setting that can not be
    /// applied, such as an address that is in use.
    fn configure(&mut self, _configuration: &Arc<Configuration>) -> Vec<String> {
        Vec::new()
    }
}
