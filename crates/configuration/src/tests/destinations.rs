//! `destinations` of `[[tenants]]`: what is read, shown and compared, and each mistake.

use super::Place;
use crate::{Configuration, Tenant, Way};

const PEERS: &str = "[host]\nname = \"alpha\"\nlisten = \"10.0.0.1\"\n\
    [[peers]]\nname = \"beta\"\naddresses = \"10.0.0.2\"\nprefixes = [\"10.0.0.2/32\", \"10.2.0.0/16\"]\nkey-file = \"beta.key\"\n\
    [[peers]]\nname = \"gamma\"\naddresses = \"fd00::3\"\nkey-file = \"beta.key\"\n";

fn tenant(name: &str, address: &str, reach: &str, more: &str) -> String {
    format!("[[tenants]]\nname = \"{name}\"\naddresses = {address}\nreach = {reach}\n{more}\n")
}

fn web(destinations: &str) -> String {
    let destinations = format!("destinations = {{ {destinations} }}");
    PEERS.to_owned() + &tenant("web", "\"10.88.0.2\"", "\"10.0.0.0/8\"", &destinations)
}

fn read(place: &Place, text: &str) -> Configuration {
    place.parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn way(tenant: &Tenant, address: &str) -> Way {
    tenant.way_to(address.parse().unwrap())
}

#[test]
fn the_longest_prefix_says_the_way() {
    let place = Place::new();
    let text = web(
        "\"0.0.0.0/0\" = \"none\", beta = \"channels\", \"10.2.3.0/24\" = \"kernel\", \"10.9.0.0/16\" = \"kernel\"",
    );
    let configuration = read(&place, &text);
    let web = configuration.tenant("web").unwrap();
    for (address, wanted) in [
        ("10.0.0.2", Way::Channels),
        ("::ffff:10.2.7.7", Way::Channels),
        ("10.2.3.4", Way::Kernel),
        ("10.9.0.1", Way::Kernel),
        ("10.8.0.1", Way::None),
        ("fd00::3", Way::Kernel),
    ] {
        assert_eq!(way(web, address), wanted, "{address}");
    }
    let of = |address: &str| web.destination_of(address.parse().unwrap()).unwrap();
    assert_eq!(of("10.2.7.7").peer.as_deref(), Some("beta"));
    assert_eq!(of("10.2.3.4").peer, None);
    assert!(web.uses_channels());
    // Without a table all goes by the kernel.
    let plain = Tenant::new("web", vec![[10, 88, 0, 2].into()]);
    assert!(!plain.uses_channels() && way(&plain, "10.0.0.2") == Way::Kernel);
}

#[test]
fn what_is_shown_says_the_same_and_what_changes_is_told() {
    let place = Place::new();
    let all = read(&place, &web("peers = \"channels\""));
    let web_of = |configuration: &Configuration| configuration.tenant("web").unwrap().clone();
    // Of gamma the tenant has no address of its family.
    let shown: Vec<String> = web_of(&all)
        .destinations
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown, ["10.0.0.2/32 = channels", "10.2.0.0/16 = channels"]);
    let again = read(&place, &all.to_string());
    assert_eq!(web_of(&again), web_of(&all));
    let changes = |to: &str| {
        let changes = all.changes_to(&read(&place, to));
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(changes(&web("beta = \"channels\"")), Vec::<String>::new());
    assert_eq!(changes(&web("")), ["tenant web has changed"]);
    // A peer's prefixes are those of the tenant's channels.
    let fewer = web("peers = \"channels\"").replace(", \"10.2.0.0/16\"]", "]");
    assert_eq!(
        changes(&fewer),
        ["peer beta has changed: prefixes", "tenant web has changed"]
    );
    // Of two entries for the same addresses, the more exact one holds.
    let exact = "peers = \"channels\", beta = \"none\", \"10.0.0.2/32\" = \"kernel\"";
    let exact = web_of(&read(&place, &web(exact)));
    assert_eq!(way(&exact, "10.0.0.2"), Way::Kernel);
    assert_eq!(way(&exact, "10.2.0.1"), Way::None);
}

#[test]
fn each_mistake_says_what_to_do() {
    let place = Place::new();
    let with = |address: &str, reach: &str, destinations: &str| {
        let destinations = format!("destinations = {{ {destinations} }}");
        PEERS.to_owned() + &tenant("web", address, reach, &destinations)
    };
    let other = |address: &str| {
        let more = "destinations = { beta = \"channels\" }";
        web("beta = \"channels\"") + &tenant("db", address, "\"10.0.0.0/8\"", more)
    };
    for (text, wanted) in [
        (
            web("beta = \"chanels\""),
            "\"chanels\" is no stack for a destination: write one of \"channels\", \"kernel\", \"none\"",
        ),
        (
            web("beta = \"local\""),
            "tenants that meet are named by meets",
        ),
        (
            format!(
                "[[stacks]]\nname = \"egress\"\n{}",
                web("beta = \"egress\"")
            ),
            "stack = \"egress\" says which process serves the tenant: write \"kernel\" here",
        ),
        (
            web("delta = \"channels\""),
            "\"delta\" is no destination: write a prefix like 10.1.0.0/16, the name of a peer, or peers for all of them",
        ),
        (
            web("\"10.0.0.1/8\" = \"none\""),
            "has bits beyond its length: write 10.0.0.0/8",
        ),
        (
            web("\"10.9.0.0/16\" = \"channels\""),
            "no channel leads to 10.9.0.0/16: it is not within the prefixes of one peer",
        ),
        (
            web("\"10.0.0.0/8\" = \"channels\""),
            "no channel leads to 10.0.0.0/8",
        ),
        (
            tenant(
                "web",
                "\"10.88.0.2\"",
                "\"10.0.0.0/8\"",
                "destinations = { peers = \"channels\" }",
            ),
            "there are no peers: add [[peers]], or remove this",
        ),
        (
            web("gamma = \"channels\""),
            "the tenant has no address of the family of gamma: add one to addresses",
        ),
        (
            with("\"10.88.0.2\"", "\"10.7.0.0/16\"", "beta = \"channels\""),
            "nothing of beta is within reach, so that no connection goes there: add it to reach, or remove this",
        ),
        (
            web("\"0.0.0.0/0\" = \"none\", \"0.0.0.00/0\" = \"kernel\""),
            "is not a prefix",
        ),
        (
            with(
                "\"fd88::2\"",
                "\"[fd00::]/8\"",
                "\"fd01::/16\" = \"none\", \"fd01:0::/16\" = \"kernel\"",
            ),
            "fd01::/16 is named twice: remove one",
        ),
        (
            other("\"10.88.0.2\""),
            "tenant web goes over channels with the address 10.88.0.2, too, and other hosts could not tell them apart",
        ),
        (
            with("\"10.0.0.1\"", "\"10.0.0.0/8\"", "beta = \"channels\""),
            "other hosts would take the tenant for this host, whose address 10.0.0.1 is (host.listen)",
        ),
        (
            with("\"10.2.0.9\"", "\"10.0.0.0/8\"", "beta = \"channels\""),
            "the tenant's address 10.2.0.9 is within the prefixes of peer beta: give the tenant another address",
        ),
        (web("beta = 3"), "a text in quotes"),
        (
            web("").replace("destinations = {  }", "destinations = \"channels\""),
            "a table",
        ),
    ] {
        let wrong = place.wrong(&text);
        assert!(wrong.contains(wanted), "{wanted}:\n{wrong}");
        assert!(wrong.ends_with("has 1 problem"), "{wrong}");
    }
    read(&place, &other("\"10.88.0.3\""));
    // A peer with a mistake: nothing is told that only follows from it.
    let broken = web("beta = \"channels\", \"10.2.0.0/16\" = \"channels\"")
        .replacen("beta.key", "no.key", 1);
    let wrong = place.wrong(&broken);
    assert!(wrong.ends_with("has 1 problem"), "{wrong}");
}
