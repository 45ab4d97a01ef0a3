//! `[[tenants]]`: what is read, shown and compared, and each mistake.

use super::Place;
use crate::Configuration;

const WEB: &str = "[[tenants]]\nname = \"web\"\naddresses = [\"10.88.0.2\", \"fd00:88::2\"]\n";

fn web(more: &str) -> String {
    format!("{WEB}{more}\n")
}

#[test]
fn a_table_is_read_shown_and_read_again() {
    let place = Place::new();
    let text = web(
        "socket = \"web.sock\"\nuser = 1000\nmode = \"0660\"\nreach = [\"10.0.0.0/8\", \"[::]/0:443\"]\n\
         publish = [\"8080:80\", \"[::1]:8443:443\"]\nrate-in = \"1Gbit/s\"\nrate-out = \"1MB/s burst=64KiB\"\n\
         congestion-control = \"cubic\"\nconnections = 7",
    );
    let read: Configuration = place.parse(&text).unwrap();
    let tenant = read.tenant("web").unwrap();
    assert_eq!(tenant.socket, Some(place.file().with_file_name("web.sock")));
    assert_eq!(
        (tenant.user, tenant.mode, tenant.connections),
        (Some(1000), 0o660, 7)
    );
    assert_eq!(tenant.rate_in.unwrap().per_second(), 125_000_000);
    assert_eq!(tenant.publish[0].to_string(), "0.0.0.0:8080:80");
    let again = place.parse(&read.to_string()).unwrap();
    assert_eq!(again.tenants, read.tenants);
    assert!(read.changes_to(&again).is_empty());
}

#[test]
fn what_changes_is_told() {
    let place = Place::new();
    let changes = |from: &str, to: &str| {
        let (from, to) = (place.parse(from).unwrap(), place.parse(to).unwrap());
        let changes = from.changes_to(&to);
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(changes("", WEB), ["tenant web is new"]);
    assert_eq!(changes(WEB, ""), ["tenant web is gone"]);
    assert_eq!(
        changes(WEB, &web("connections = 3")),
        ["tenant web has changed"]
    );
}

#[test]
fn each_mistake_says_what_to_do() {
    let place = Place::new();
    let other = "[[tenants]]\nname = \"db\"\naddresses = \"10.88.0.3\"\n";
    for (text, wanted) in [
        (
            "[[tenants]]\naddresses = \"10.88.0.2\"\n".to_owned(),
            "a tenant needs a name",
        ),
        (
            "[[tenants]]\nname = \"web\"\n".to_owned(),
            "add addresses = [\"10.88.0.2\"]",
        ),
        (format!("{WEB}{WEB}"), "another tenant has this name"),
        (
            web("adresses = 1"),
            "there is no key \"adresses\" here: is \"addresses\" meant?",
        ),
        (web("mode = \"0777\""), "is not one of 0600, 0660, 0666"),
        (web("user = \"web\""), "a number"),
        (web("reach = \"10.0.0.0\""), "is no destination"),
        (
            web("reach = \"10.0.0.1/8\""),
            "has bits beyond its length: write 10.0.0.0/8",
        ),
        (web("publish = \"80\""), "is no port to publish"),
        (
            web("publish = [\"8080:80\", \"127.0.0.1:8080:81\"]"),
            "is published twice",
        ),
        (
            format!("{other}publish = \"[::]:80:80\"\n"),
            "has no address of that family",
        ),
        (
            format!(
                "{}{other}publish = \"8080:80\"\n",
                web("publish = \"8080:80\"")
            ),
            "tenant web publishes 0.0.0.0:8080 already",
        ),
        (
            format!(
                "[host]\nlisten = \"10.0.0.1:8080\"\n{}",
                web("publish = \"8080:80\"")
            ),
            "is where other hosts dial",
        ),
        (
            format!(
                "[metrics]\nlisten = \"127.0.0.1:8080\"\n{}",
                web("publish = \"8080:80\"")
            ),
            "metrics are served at",
        ),
        (web("rate-in = \"fast\""), "is not a rate in bytes"),
        (web("connections = 0"), "0 is not 1 to 1048576"),
        (
            web("addresses = \"127.0.0.1\"").replacen(
                "addresses = [\"10.88.0.2\", \"fd00:88::2\"]\n",
                "",
                1,
            ),
            "is no address that a host has",
        ),
        (
            web("socket = \"a\"") + other + "socket = \"a\"\n",
            "tenant web has this socket",
        ),
    ] {
        let wrong = place.wrong(&text);
        assert!(wrong.contains(wanted), "{wanted}:\n{wrong}");
        assert!(wrong.ends_with("has 1 problem"), "{wrong}");
    }
}

#[test]
fn resolvers_of_tenants() {
    let place = Place::new();
    for (text, meant) in [
        ("10.0.0.53", "10.0.0.53:53"),
        ("127.0.0.53:5353", "127.0.0.53:5353"),
        ("fd00::53", "[fd00::53]:53"),
        ("[fd00::53]:54", "[fd00::53]:54"),
    ] {
        let read = place.parse(&web(&format!("resolver = \"{text}\"")));
        let shown = read.unwrap().to_string();
        assert!(
            shown.contains(&format!("\nresolver = \"{meant}\"\n")),
            "{shown}"
        );
        place.parse(&shown).unwrap();
    }
    for (text, wrong) in [
        (
            "dns.example",
            "is not an address: write that of a DNS server, like 10.0.0.53 or [fd00::53]:53",
        ),
        (
            "0.0.0.0",
            "is no address that a server has: write one like 10.0.0.53",
        ),
        ("10.0.0.53:0", "has no port: leave it out for port 53"),
    ] {
        let told = place.wrong(&web(&format!("resolver = \"{text}\"")));
        let wanted = format!("netchannel.toml:4:12: tenants.web.resolver: \"{text}\" {wrong}");
        assert_eq!(told, format!("{wanted}\nnetchannel.toml has 1 problem"));
    }
}
