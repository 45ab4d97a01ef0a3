//! The present configuration, and its change.

use netchannel_configuration::{Change, Configuration, Problems};
use netchannel_control::hosts::{ChannelCount, Hosts, NO_PEERS, Peer, Policy, SchedulerView};
use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Registry, Settings};
use std::sync::Arc;

/// The present configuration, and settings that commands have changed.
#[derive(Clone, Debug)]
pub struct Configured {
    current: Arc<Configuration>,
    /// The policies in the file.
    file_policies: Settings,
}

impl Configured {
    /// A configuration that was just read.
    #[must_use]
    pub fn new(configuration: Configuration) -> Self {
        Self {
            file_policies: configuration.scheduler.clone(),
            current: Arc::new(configuration),
        }
    }

    /// The present configuration.
    #[must_use]
    pub const fn current(&self) -> &Arc<Configuration> {
        &self.current
    }

    /// Reads the file again. Returns what it would change; nothing has changed yet.
    ///
    /// # Errors
    /// All mistakes in the file.
    pub fn read_again(&self) -> Result<(Self, Vec<Change>), Problems> {
        let read = Configuration::load(&self.current.file)?;
        let changes = self.current.changes_to(&read);
        Ok((Self::new(read), changes))
    }

    /// A copy with another policy.
    ///
    /// # Errors
    /// One sentence: the policy does not exist, or contradicts a peer's section.
    pub fn with_policy(&self, text: &str) -> Result<Self, String> {
        let setting = Registry::builtin()
            .parse(text)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            current: Arc::new(self.current.with_policy(setting)?),
            file_policies: self.file_policies.clone(),
        })
    }

    /// Adds the part of the configuration to a view of other hosts.
    pub fn show(&self, hosts: &mut Hosts) {
        let configuration = &self.current;
        hosts.configuration = Some(configuration.file.display().to_string());
        hosts.host.clone_from(&configuration.host.name);
        hosts.listen = strings(&configuration.host.listen);
        for peer in &configuration.peers {
            let count = |bounds: netchannel_configuration::Bounds| ChannelCount {
                up: 0,
                least: u64::from(bounds.least),
                most: u64::from(bounds.most),
            };
            hosts.peers.push(Peer {
                name: peer.name.clone(),
                reason: "not tried yet".to_owned(),
                addresses: strings(&peer.addresses),
                prefixes: strings(&peer.prefixes),
                latency: count(peer.channels.latency),
                throughput: count(peer.channels.throughput),
                ..Peer::default()
            });
        }
        hosts.scheduler.policies = self.policies();
    }

    fn policies(&self) -> Vec<Policy> {
        let policy = |kind: Kind| {
            let setting = self.current.scheduler.get(kind);
            Policy {
                kind: kind.name().to_owned(),
                setting: setting.to_string(),
                set: setting != self.file_policies.get(kind),
            }
        };
        Kind::ALL.map(policy).to_vec()
    }
}

/// The answer to commands about other hosts of a daemon without a configuration.
pub fn refusal() -> String {
    format!("{NO_PEERS} (the daemon was started without --config)")
}

/// The policies only.
#[must_use]
pub fn scheduler(configured: &Configured) -> SchedulerView {
    SchedulerView {
        policies: configured.policies(),
        ..SchedulerView::default()
    }
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_configuration::EXAMPLE;
    use std::path::Path;

    fn configured(folder: &Path) -> Configured {
        use std::os::unix::fs::PermissionsExt;
        let key = folder.join("beta.key");
        std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
        let file = folder.join("netchannel.toml");
        std::fs::write(&file, EXAMPLE).unwrap();
        Configured::new(Configuration::load(&file).unwrap())
    }

    #[test]
    fn peers_are_shown_before_anything_is_known_of_them() {
        let place = tempfile::tempdir().unwrap();
        let mut hosts = Hosts::default();
        configured(place.path()).show(&mut hosts);
        assert_eq!(hosts.host, "alpha");
        assert_eq!(hosts.peers.len(), 1);
        assert_eq!(hosts.peers[0].prefixes, ["10.0.0.2/32"]);
        assert_eq!(hosts.peers[0].throughput.most, 4);
        assert_eq!(hosts.scheduler.policies.len(), 5);
    }

    #[test]
    fn what_was_set_is_told_apart_and_lasts_until_the_file_is_read_again() {
        let place = tempfile::tempdir().unwrap();
        let before = configured(place.path());
        let set = before.with_policy("sticky").unwrap();
        let shown = scheduler(&set);
        assert!(shown.policies[0].set && shown.policies[0].setting.starts_with("sticky"));
        assert!(!shown.policies[1].set);
        let (again, changes) = set.read_again().unwrap();
        assert_eq!(changes, [Change::Scheduler(Kind::Channel)]);
        assert!(!scheduler(&again).policies[0].set);
        let error = before.with_policy("stickyy").unwrap_err();
        assert!(error.contains("there are channel: round-robin"), "{error}");
    }

    #[test]
    fn a_file_with_mistakes_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let before = configured(place.path());
        std::fs::write(place.path().join("netchannel.toml"), "[hosts]\n").unwrap();
        let problems = before.read_again().unwrap_err();
        assert_eq!(problems.problems.len(), 1);
    }
}
