//! Published ports of tenants as listeners of this host: announced to peers like those of programs, with links to the tenants' stacks
//! instead of programs.
//!
//! ```text
//!  tenant's thread --Crossing::publish--> Published --number--> peers (announced), CoreEngine's numbers
//!  worker asks for a link to a number --> client's end: the worker; server's end --Entrance::enter--> the tenant's stack
//! ```

use netchannel_abi::address::Address;
use netchannel_service::addresses;
use netchannel_service::core_engine::{AcceptMode, Engine, OwnListener};
use netchannel_service::link::Parts;
use netchannel_service::stack::{Entrance, OF_TENANT};
use rustix::io::Errno;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a tenant says of its ports.
#[derive(Debug)]
pub struct Ports {
    /// The tenant's name.
    pub tenant: String,
    /// All addresses at which clients come in.
    pub at: Vec<SocketAddr>,
    /// The way to its stack.
    pub entrance: Arc<dyn Entrance>,
}

/// A port that is open.
#[derive(Debug)]
struct Port {
    tenant: String,
    at: SocketAddr,
    entrance: Arc<dyn Entrance>,
}

/// The ports of all tenants, by the number of the listener that each is to peers.
#[derive(Debug, Default)]
pub struct Published(HashMap<u32, Port>);

/// What has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Listeners that are there no more.
    pub removed: Vec<u32>,
    /// New ones.
    pub added: Vec<(u32, OwnListener)>,
}

impl Published {
    /// The ports of a tenant are these from now on. New ones get a number of `next`.
    pub fn set(&mut self, ports: &Ports, mut next: impl FnMut() -> u32) -> Changes {
        let mut changes = Changes::default();
        self.0.retain(|number, one| {
            let stays = one.tenant != ports.tenant || ports.at.contains(&one.at);
            if !stays {
                changes.removed.push(*number);
            }
            stays
        });
        for at in &ports.at {
            let mut known = self.0.values();
            if known.any(|one| one.tenant == ports.tenant && one.at == *at) {
                continue;
            }
            let number = next();
            let port = Port {
                tenant: ports.tenant.clone(),
                at: *at,
                entrance: Arc::clone(&ports.entrance),
            };
            changes.added.push((number, port.listener()));
            self.0.insert(number, port);
        }
        changes
    }

    /// A worker asks for a link to a listener, for a connection to this address. `None` where it is no tenant's.
    ///
    /// # Errors
    /// Of the answer: when the link can not be made.
    pub fn link(
        &self,
        number: u32,
        engine: &mut dyn Engine,
    ) -> Option<Result<(Parts, AcceptMode), Errno>> {
        let port = self.0.get(&number)?;
        Some(engine.own_link().map(|[mut client, mut server]| {
            (client.user, server.user) = (Some(OF_TENANT), Some(OF_TENANT));
            port.entrance.enter(server);
            // The tenant's stack says by itself when there is no room.
            let mode = AcceptMode {
                backlog: usize::MAX,
                address: Some(port.address()),
                ..AcceptMode::default()
            };
            (client, mode)
        }))
    }
}

impl Port {
    const fn listener(&self) -> OwnListener {
        OwnListener {
            address: self.address(),
            v6_only: self.at.is_ipv6(),
            defers: 0,
        }
    }

    const fn address(&self) -> Address {
        addresses::from_socket_address(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Entrance for Nowhere {
        fn enter(&self, _: Parts) {}
    }

    #[test]
    fn ports_of_tenants_come_and_go() {
        let mut published = Published::default();
        let mut last = 6;
        let mut set = |tenant: &str, at: &[&str]| {
            let ports = Ports {
                tenant: tenant.to_owned(),
                at: at.iter().map(|at| at.parse().unwrap()).collect(),
                entrance: Arc::new(Nowhere),
            };
            let changes = published.set(&ports, || {
                last += 1;
                last
            });
            let added = changes.added.iter().map(|(number, _)| *number);
            (changes.removed.clone(), added.collect::<Vec<_>>())
        };
        assert_eq!(set("a", &["10.0.0.1:80"]), (vec![], vec![7]));
        assert_eq!(set("b", &["10.0.0.1:81"]), (vec![], vec![8]));
        // What stays keeps its number.
        let both = ["10.0.0.1:80", "[2001:db8::1]:80"];
        assert_eq!(set("a", &both), (vec![], vec![9]));
        assert_eq!(set("a", &both[1..]), (vec![7], vec![]));
        assert_eq!(set("b", &[]), (vec![8], vec![]));
    }
}
