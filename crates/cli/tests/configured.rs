//! A daemon with a configuration: started, told to read it again, asked about its peers.

mod place;

use place::{Place, eventually, said};

/// One peer that nobody answers for, so that nothing depends on the network.
const ORDER: &str = "[host]\nname = \"alpha\"\n\n[[peers]]\nname = \"beta\"\naddresses = [\"127.0.0.9:1\"]\n\
                     prefixes = [\"10.0.0.0/24\"]\nkey-file = \"beta.key\"\n";

#[test]
fn a_daemon_does_not_start_with_mistakes() {
    let place = Place::configured("[hosts]\n[times]\ndial = 1\n");
    for words in [
        &["daemon", "--config", "netchannel.toml"][..],
        &["daemon", "--background", "--config", "netchannel.toml"],
    ] {
        let output = place.ask(words);
        assert_eq!(output.status.code(), Some(1));
        let told = said(&output);
        assert_eq!(told.lines().count(), 3, "{told}");
        assert!(told.contains("netchannel.toml:3:8: times.dial"), "{told}");
        assert!(told.contains("netchannel.toml has 2 problems"), "{told}");
    }
}

#[test]
fn a_configuration_is_read_again_when_asked() {
    let place = Place::configured(ORDER);
    let _daemon = place.logging(&["--config", "netchannel.toml"]);
    let told = place.text(&["config", "reload"]);
    assert!(told.contains("it says what it said before"), "{told}");
    place.write(&ORDER.replace("10.0.0.0/24", "10.0.1.0/24"));
    let told = place.text(&["config", "reload"]);
    assert!(told.contains("peer beta has changed: prefixes"), "{told}");
    place.write(&ORDER.replace("10.0.0.0/24", "10.0.1.0/99"));
    let output = place.ask(&["config", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    assert!(
        told.contains("netchannel.toml:7:13: peers.beta.prefixes: "),
        "{told}"
    );
    assert!(told.contains("and nothing has changed"), "{told}");
    let output = place.ask(&["config", "reload", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["problems"][0]["line"], 7);
}

#[test]
fn a_configuration_is_read_again_on_sighup() {
    let place = Place::configured(ORDER);
    let daemon = place.logging(&["--config", "netchannel.toml"]);
    place.write(&ORDER.replace("alpha", "omega"));
    daemon.signal("-HUP");
    eventually(|| place.log().contains("host.name has changed"));
    place.write("[host]\nnam = 1\n");
    daemon.signal("-HUP");
    eventually(|| {
        place
            .log()
            .contains("netchannel.toml:2:1: host.nam: there is no key")
    });
    assert!(place.ask(&["status"]).status.success());
}

#[test]
fn without_a_configuration_sighup_ends_and_nothing_is_read_again() {
    let place = Place::configured(ORDER);
    let mut daemon = place.logging(&[]);
    let output = place.ask(&["config", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("no peers are configured: see netchannel config --help"));
    daemon.signal("-HUP");
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

const TENANT: &str = "[[tenants]]\nname = \"web\"\naddresses = \"10.88.0.2\"\n";

#[test]
fn the_first_stack_may_come_with_a_reload() {
    let place = Place::configured(TENANT);
    let _daemon = place.logging(&["--config", "netchannel.toml"]);
    let stack = || place.json(&["tenants", "--json"])[0]["stack"].clone();
    assert_eq!(stack(), "kernel");
    place.write(&format!(
        "[[stacks]]\nname = \"egress\"\n{TENANT}stack = \"egress\"\n"
    ));
    place.text(&["config", "reload"]);
    eventually(|| stack() == "egress");
    // What needs rights that the daemon has given up is told at once, with what to do, and the rest goes on.
    place.write(&format!(
        "[[stacks]]\nname = \"egress\"\n[[stacks]]\nname = \"far\"\nnamespace = \"nowhere\"\n\
         [[stacks]]\nname = \"late\"\n{TENANT}stack = \"late\"\n"
    ));
    let told = place.ask(&["config", "reload"]);
    let told = said(&told) + &String::from_utf8_lossy(&told.stdout);
    assert!(
        told.contains(
            "stack far is not started: it has a namespace, and the daemon began without [[stacks]]"
        ) && told.contains("start the daemon again, or write start = \"manual\""),
        "{told}"
    );
    assert_eq!(told.matches("is not started").count(), 1, "{told}");
    eventually(|| stack() == "late");
}

#[test]
fn a_daemon_in_the_background_keeps_its_configuration() {
    let place = Place::configured(ORDER);
    let output = place.ask(&["daemon", "--background", "--config", "netchannel.toml"]);
    assert!(output.status.success(), "{}", said(&output));
    let told = place.text(&["config", "reload"]);
    assert!(told.contains("netchannel.toml was read again"), "{told}");
    place.text(&["status", "--shutdown"]);
}

const NO_PEERS: &str = "no peers are configured: see netchannel config --help";

#[test]
fn without_peers_every_command_says_so() {
    let place = Place::configured(ORDER);
    let _daemon = place.logging(&[]);
    for words in [["peers"], ["channels"]] {
        assert_eq!(place.text(&words).trim_end(), NO_PEERS);
    }
    for words in [["peers", "--json"], ["channels", "--json"]] {
        assert_eq!(place.json(&words), serde_json::json!([]));
    }
    for words in [
        &["set", "scheduler", "sticky"][..],
        &["peers", "--peer", "beta"],
    ] {
        let output = place.ask(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(said(&output).contains(NO_PEERS), "{}", said(&output));
    }
}

#[test]
fn who_copies_is_set_without_peers_too() {
    let place = Place::configured(ORDER);
    let _daemon = place.logging(&[]);
    let text = place.text(&["set", "scheduler"]);
    assert!(
        text.contains("copy     configuration  copy-least-loaded"),
        "{text}"
    );
    let text = place.text(&["set", "scheduler", "copy-local"]);
    assert!(text.contains("copy     set   copy-local"), "{text}");
}

#[test]
fn a_name_that_there_is_not_is_no_fault_of_the_daemon() {
    let place = Place::configured(ORDER);
    let output = place.ask(&["set", "scheduler", "nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(
        text.contains("there is no policy \"nosuch\"") && !text.contains("daemon"),
        "{text}"
    );
}

#[test]
fn peers_are_listed_as_configured() {
    let place = Place::configured(ORDER);
    let _daemon = place.logging(&["--config", "netchannel.toml"]);
    let text = place.text(&["peers"]);
    let line = text.lines().nth(1).unwrap();
    assert!(
        text.starts_with("PEER") && line.starts_with("beta"),
        "{text}"
    );
    assert!(line.contains("127.0.0.9:1"), "{text}");
    let json = place.json(&["peers", "--json"]);
    assert_eq!(json[0]["name"], "beta");
    assert_eq!(json[0]["prefixes"][0], "10.0.0.0/24");
    assert_eq!(json[0]["throughput"]["most"], 4);
    let text = place.text(&["channels"]);
    assert_eq!(text, "no channel is up: netchannel peers says why\n");
    let output = place.ask(&["channels", "--peer", "gamma"]);
    assert!(said(&output).contains("there is no peer \"gamma\"; there are beta"));
}

#[test]
fn a_policy_is_set_until_the_file_is_read_again() {
    let place = Place::configured(ORDER);
    let _daemon = place.logging(&["--config", "netchannel.toml"]);
    let text = place.text(&["set", "scheduler"]);
    assert!(
        text.contains("channel    configuration  round-robin"),
        "{text}"
    );
    let text = place.text(&["set", "scheduler", "shortest-queue", "congested-last=off"]);
    assert!(
        text.contains("channel    set            shortest-queue threshold=2MiB congested-last=off"),
        "{text}"
    );
    let output = place.ask(&["set", "scheduler", "shortest-queue", "threshold=1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("threshold=1 is not 4KiB to 1GiB"),
        "{}",
        said(&output)
    );
    let told = place.text(&["config", "reload"]);
    assert!(told.contains("scheduler.channel has changed"), "{told}");
    let json = place.json(&["set", "scheduler", "--json"]);
    assert_eq!(json[0]["set"], false);
    let list = place.text(&["set", "scheduler", "--list"]);
    assert!(list.contains("quantum=64KiB"), "{list}");
}

/// An address that nobody else has at the moment.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn fetch(address: &str, request: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn metrics_are_served_where_the_file_says_and_nowhere_else() {
    let (first, second) = (free_address(), free_address());
    let place = Place::configured(&format!("{ORDER}[metrics]\nlisten = \"{first}\"\n"));
    let _daemon = place.logging(&["--config", "netchannel.toml"]);
    let text = fetch(&first, METRICS).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "# TYPE netchannel_programs gauge",
        "netchannel_programs 0",
        "netchannel_peer_up{peer=\"beta\"} 0",
        "netchannel_reloads_total{result=\"taken\"} 0",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in {text}"
        );
    }
    let text = fetch(&first, "GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(text.starts_with("HTTP/1.1 404"), "{text}");
    // Elsewhere after a reload; an address that is taken changes nothing.
    place.write(&format!("{ORDER}[metrics]\nlisten = \"{second}\"\n"));
    place.text(&["config", "reload"]);
    assert!(
        fetch(&second, METRICS)
            .unwrap()
            .contains("result=\"taken\"} 1")
    );
    assert!(fetch(&first, METRICS).is_err());
    let taken = std::net::TcpListener::bind(&first).unwrap();
    place.write(&format!("{ORDER}[metrics]\nlisten = \"{first}\"\n"));
    let output = place.ask(&["config", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("name another address under metrics.listen"));
    assert!(
        fetch(&second, METRICS)
            .unwrap()
            .contains("result=\"refused\"} 1")
    );
    drop(taken);
    place.write(ORDER);
    place.text(&["config", "reload"]);
    assert!(fetch(&second, METRICS).is_err());
}

#[test]
fn a_daemon_does_not_start_where_metrics_can_not_be_served() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let place = Place::configured(&format!("{ORDER}[metrics]\nlisten = \"{address}\"\n"));
    let output = place.ask(&["daemon", "--config", "netchannel.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("metrics cannot be served at"),
        "{}",
        said(&output)
    );
}
