//! The changes of a configuration that is read again.

use core::fmt;

use netchannel_scheduler::registry::Kind;

use crate::types::{Configuration, Peer};

/// A change. Everything else goes on as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This host's name.
    Name,
    /// Where this host listens.
    Listen,
    /// There is a new peer of this name.
    PeerAdded(String),
    /// The peer of this name was removed.
    PeerRemoved(String),
    /// The values under these keys of a peer's section have changed.
    PeerChanged(String, Vec<&'static str>),
    /// There is a new tenant of this name.
    TenantAdded(String),
    /// The tenant of this name was removed.
    TenantRemoved(String),
    /// A tenant's section has changed; of its connections only the caps change.
    TenantChanged(String),
    /// There is a new stack of this name.
    StackAdded(String),
    /// The stack of this name was removed.
    StackRemoved(String),
    /// A stack's section has changed; it is started again, unless only its fairness or congestion control has changed.
    StackChanged(String),
    /// The policy of a kind.
    Scheduler(Kind),
    /// The transport of channels; applies to the next start of the daemon.
    Carrier,
    /// `[transport]`; for channels that are made from now on.
    Transport,
    /// `[times]`.
    Times,
    /// `[limits]`.
    Limits,
    /// Where metrics are served.
    Metrics,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => formatter.write_str("host.name has changed"),
            Self::Listen => formatter.write_str("host.listen has changed"),
            Self::PeerAdded(name) => write!(formatter, "peer {name} is new"),
            Self::PeerRemoved(name) => write!(formatter, "peer {name} is gone"),
            Self::PeerChanged(name, keys) => {
                write!(formatter, "peer {name} has changed: {}", keys.join(", "))
            }
            Self::TenantAdded(name) => write!(formatter, "tenant {name} is new"),
            Self::TenantRemoved(name) => write!(formatter, "tenant {name} is gone"),
            Self::TenantChanged(name) => write!(formatter, "tenant {name} has changed"),
            Self::StackAdded(name) => write!(formatter, "stack {name} is new"),
            Self::StackRemoved(name) => write!(formatter, "stack {name} is gone"),
            Self::StackChanged(name) => write!(formatter, "stack {name} has changed"),
            Self::Scheduler(kind) => write!(formatter, "scheduler.{kind} has changed"),
            Self::Carrier => {
                formatter.write_str("transport.name has changed, for the next start of the daemon")
            }
            Self::Transport => {
                formatter.write_str("transport has changed, for channels made from now on")
            }
            Self::Times => formatter.write_str("times have changed"),
            Self::Limits => formatter.write_str("limits have changed"),
            Self::Metrics => formatter.write_str("metrics.listen has changed"),
        }
    }
}

impl Configuration {
    /// The changes from this configuration to `new`.
    #[must_use]
    pub fn changes_to(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut note = |changed: bool, change: Change| {
            if changed {
                changes.push(change);
            }
        };
        note(self.host.name != new.host.name, Change::Name);
        note(self.host.listen != new.host.listen, Change::Listen);
        for peer in &self.peers {
            match new.peer(&peer.name) {
                None => note(true, Change::PeerRemoved(peer.name.clone())),
                Some(now) => {
                    let keys = changed_keys(peer, now);
                    let change = Change::PeerChanged(peer.name.clone(), keys.clone());
                    note(!keys.is_empty(), change);
                }
            }
        }
        for peer in &new.peers {
            let is_new = self.peer(&peer.name).is_none();
            note(is_new, Change::PeerAdded(peer.name.clone()));
        }
        for tenant in &self.tenants {
            let name = || tenant.name.clone();
            match new.tenant(&tenant.name) {
                None => note(true, Change::TenantRemoved(name())),
                Some(now) => note(tenant != now, Change::TenantChanged(name())),
            }
        }
        for tenant in &new.tenants {
            let is_new = self.tenant(&tenant.name).is_none();
            note(is_new, Change::TenantAdded(tenant.name.clone()));
        }
        for stack in &self.stacks {
            let name = || stack.name.clone();
            match new.stack(&stack.name) {
                None => note(true, Change::StackRemoved(name())),
                Some(now) => note(stack != now, Change::StackChanged(name())),
            }
        }
        for stack in &new.stacks {
            let is_new = self.stack(&stack.name).is_none();
            note(is_new, Change::StackAdded(stack.name.clone()));
        }
        for kind in Kind::ALL {
            let changed = self.scheduler.get(kind) != new.scheduler.get(kind);
            note(changed, Change::Scheduler(kind));
        }
        note(self.carrier != new.carrier, Change::Carrier);
        note(self.transport != new.transport, Change::Transport);
        note(self.times != new.times, Change::Times);
        note(self.limits != new.limits, Change::Limits);
        note(self.metrics != new.metrics, Change::Metrics);
        changes
    }
}

fn changed_keys(old: &Peer, new: &Peer) -> Vec<&'static str> {
    let compared = [
        ("addresses", old.addresses == new.addresses),
        ("prefixes", old.prefixes == new.prefixes),
        ("key", old.key.is_same(&new.key)),
        ("channels", old.asked == new.asked),
    ];
    let changed = compared.iter().filter(|(_, same)| !same);
    changed.map(|(key, _)| *key).collect()
}
