//! Every mistake is told, with its line and what to do.

mod changes;
mod destinations;
mod document;
mod meetings;
mod mistakes;
mod stacks;
mod tenants;
mod trust;

use std::path::PathBuf;

use crate::{Configuration, Problems};

/// A folder with a key.
pub struct Place {
    folder: tempfile::TempDir,
}

pub const DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

impl Place {
    pub fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        place.key("beta.key", DIGITS, 0o600);
        place
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("netchannel.toml")
    }

    pub fn key(&self, name: &str, contents: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    pub fn parse(&self, text: &str) -> Result<Configuration, Problems> {
        Configuration::parse(text, &self.file())
    }

    /// What is wrong with a text, with the folder left out.
    pub fn wrong(&self, text: &str) -> String {
        let problems = self.parse(text).unwrap_err().to_string();
        let folder = format!("{}/", self.folder.path().display());
        problems.replace(&folder, "")
    }
}

#[test]
fn the_example_is_in_order() {
    let place = Place::new();
    let configuration = place.parse(crate::EXAMPLE).unwrap();
    assert_eq!(configuration.host.name, "alpha");
    let beta = configuration.peer("beta").unwrap();
    assert_eq!(beta.channels.throughput.most, 4);
    assert_eq!(beta.key_file, place.folder.path().join("beta.key"));
}

#[test]
fn nothing_said_is_a_host_without_peers() {
    let place = Place::new();
    let configuration = place.parse("").unwrap();
    assert!(configuration.peers.is_empty() && configuration.metrics.is_none());
    assert!(!configuration.host.name.is_empty());
}

#[test]
fn what_is_shown_says_the_same() {
    let place = Place::new();
    for text in [
        "",
        crate::EXAMPLE,
        "host = { name = \"a\", listen = [\"0.0.0.0\", \"[::]:1\"] }\n\
         [transport]\ndscp = { latency = 46 }\nsend-buffer = \"4MiB\"\n\
         [scheduler]\nscale = \"fixed throughput=2\"\n\
         [[peers]]\nname = \"b\"\nprefixes = [\"fd00::/64\"]\nkey-file = \"beta.key\"\n",
    ] {
        let first = place.parse(text).unwrap();
        let shown = first.to_string();
        let second = place.parse(&shown).unwrap();
        assert_eq!(second.to_string(), shown);
        // Bounds that were defaults are said now.
        let changes = first.changes_to(&second);
        assert!(
            changes.iter().all(|change| matches!(change, crate::Change::PeerChanged(_, keys) if keys == &["channels"])),
            "{changes:?}"
        );
    }
}

#[test]
fn peers_are_known_by_their_addresses_then_by_their_prefixes() {
    let place = Place::new();
    let text = "[[peers]]\nname = \"b\"\naddresses = [\"10.1.0.9\"]\nkey-file = \"beta.key\"\n\
                [[peers]]\nname = \"c\"\naddresses = [\"10.3.0.1\"]\nprefixes = [\"10.1.0.0/16\"]\nkey-file = \"beta.key\"\n";
    // An address of b lies within the prefix of c: only the prefix that b is given without being asked overlaps.
    let wrong = place.wrong(text);
    assert!(
        wrong.contains("10.1.0.0/16 overlaps 10.1.0.9/32 of peer b"),
        "{wrong}"
    );
    let text = text.replace(
        "addresses = [\"10.1.0.9\"]",
        "addresses = [\"10.1.0.9\"]\nprefixes = [\"10.9.0.0/16\"]",
    );
    let configuration = place.parse(&text).unwrap();
    let from = |address: &str| {
        let peer = configuration.peer_from(address.parse().unwrap());
        peer.map(|peer| peer.name.as_str())
    };
    assert_eq!(from("10.1.0.9"), Some("b"));
    assert_eq!(from("::ffff:10.1.0.8"), Some("c"));
    assert_eq!(from("10.9.0.8"), Some("b"));
    assert_eq!(from("10.8.0.8"), None);
    let goes = |address: &str| {
        let peer = configuration.peer_for(address.parse().unwrap());
        peer.map(|peer| peer.name.as_str())
    };
    assert_eq!(goes("10.1.0.9"), Some("c"));
}

#[test]
fn a_policy_is_changed_within_what_peers_allow() {
    let place = Place::new();
    let configuration = place.parse(crate::EXAMPLE).unwrap();
    let changed = configuration
        .with_policy("hysteresis most=8 latency-most=2".parse().unwrap())
        .unwrap();
    let beta = changed.peer("beta").unwrap();
    // Said by the peer's section, and so kept.
    assert_eq!(beta.channels.throughput.most, 4);
    assert_eq!(beta.channels.latency.most, 1);
    assert!(beta.scale.to_string().contains("most=4"), "{}", beta.scale);
    let fixed = configuration.with_policy("fixed throughput=9".parse().unwrap());
    let fixed = fixed.unwrap();
    assert_eq!(
        fixed.peers[0].scale.to_string(),
        "fixed throughput=4 latency=1"
    );
    let refused =
        configuration.with_policy("hysteresis latency-least=2 latency-most=2".parse().unwrap());
    // The peer's one channel is said, and stays.
    assert_eq!(refused.unwrap().peers[0].channels.latency.least, 1);
}
