//! One mistake at a time: where it is, what is said.

use super::{DIGITS, Place};

/// A peer that is in order, on lines 1 to 4.
const BETA: &str =
    "[[peers]]\nname = \"beta\"\nkey-file = \"beta.key\"\naddresses = \"10.0.0.2\"\n";

/// Exactly one problem, which is this.
#[track_caller]
fn one(place: &Place, text: &str, wanted: &str) {
    let wrong = place.wrong(text);
    assert_eq!(wrong, format!("{wanted}\nnetchannel.toml has 1 problem"));
}

#[test]
fn what_is_no_toml() {
    let place = Place::new();
    let wrong = place.wrong("[host]\nname = alpha\n");
    assert!(
        wrong.starts_with("netchannel.toml:2:8: this is not TOML: "),
        "{wrong}"
    );
    let twice = place.wrong("[host]\n[host]\n");
    assert!(twice.starts_with("netchannel.toml:2:"), "{twice}");
}

#[test]
fn keys_that_are_not_known() {
    let place = Place::new();
    one(
        &place,
        &format!("{BETA}adresses = \"10.0.0.3\"\n"),
        "netchannel.toml:5:1: peers.beta.adresses: there is no key \"adresses\" here: is \"addresses\" meant? \
         (name, addresses, prefixes, key-file, channels)",
    );
    one(
        &place,
        "[times]\npatience = \"1s\"\n",
        "netchannel.toml:2:1: times.patience: there is no key \"patience\" here: remove it; there are dial, handshake, \
         silence, retry-least, retry-most, unreachable, connect",
    );
    one(
        &place,
        "[hosts]\n",
        "netchannel.toml:1:2: hosts: there is no key \"hosts\" here: is \"host\" meant? \
         (host, peers, scheduler, transport, times, limits, metrics, tenants, stacks)",
    );
    one(
        &place,
        &format!("{BETA}channels = {{ througput = 2 }}\n"),
        "netchannel.toml:5:14: peers.beta.channels.througput: there is no key \"througput\" here: is \"throughput\" \
         meant? (latency, throughput)",
    );
}

#[test]
fn values_of_another_type() {
    let place = Place::new();
    one(
        &place,
        "[host]\nname = 1\n",
        "netchannel.toml:2:8: host.name: this is a number, and a text in quotes is wanted",
    );
    one(
        &place,
        "[peers]\nname = \"beta\"\n",
        "netchannel.toml:1:1: peers: this is a table, and [[peers]] above each entry is wanted",
    );
    one(
        &place,
        "host = 1\n",
        "netchannel.toml:1:8: host: this is a number, and a table, [host], is wanted",
    );
    one(
        &place,
        "[times]\nsilence = 15\n",
        "netchannel.toml:2:11: times.silence: this is a number, and a time in quotes, like \"5s\" or \"200ms\" \
         (100ms to 3600s), is wanted",
    );
    one(
        &place,
        "[limits]\nhalf-open = \"64\"\n",
        "netchannel.toml:2:13: limits.half-open: this is a text, and a number, 1 to 4096, is wanted",
    );
    one(
        &place,
        "[host]\nlisten = [\"10.0.0.1\", true]\n",
        "netchannel.toml:2:23: host.listen: this is true or false, and a text in quotes is wanted",
    );
}

#[test]
fn values_out_of_bounds() {
    let place = Place::new();
    one(
        &place,
        "[limits]\nsockets-per-peer = 0\n",
        "netchannel.toml:2:20: limits.sockets-per-peer: 0 is not 1 to 1048576",
    );
    one(
        &place,
        "[limits]\nsegment = \"2MiB\"\n",
        "netchannel.toml:2:11: limits.segment: \"2MiB\" is not 4KiB to 1MiB",
    );
    one(
        &place,
        "[times]\ndial = \"1h\"\n",
        "netchannel.toml:2:8: times.dial: \"1h\" is not 10ms to 300s",
    );
    one(
        &place,
        "[times]\nretry-least = \"10s\"\nretry-most = \"5s\"\n",
        "netchannel.toml:2:15: times.retry-least: 10s is more than retry-most = 5s: exchange them",
    );
    one(
        &place,
        "[transport]\npriority = { latency = 7 }\n",
        "netchannel.toml:2:24: transport.priority.latency: 7 is not 0 to 6",
    );
    one(
        &place,
        "[transport]\ndscp = -1\n",
        "netchannel.toml:2:8: transport.dscp: -1 is not 0 to 63",
    );
    one(
        &place,
        "[transport]\ncongestion-control = \"../bbr\"\n",
        "netchannel.toml:2:22: transport.congestion-control: \"../bbr\" is not a name of a congestion control: write one \
         of those in /proc/sys/net/ipv4/tcp_available_congestion_control",
    );
}

#[test]
fn addresses_that_are_none() {
    let place = Place::new();
    one(
        &place,
        "[host]\nlisten = [\"10.0.0.1:7117\", \"alpha:7117\"]\n",
        "netchannel.toml:2:28: host.listen: \"alpha:7117\" is not an address: write one like 10.0.0.2:7117 or \
         [fd00::2]:7117 (names are not looked up)",
    );
    one(
        &place,
        "[metrics]\nlisten = \"127.0.0.1:0\"\n",
        "netchannel.toml:2:10: metrics.listen: \"127.0.0.1:0\" has port 0: write the port, usually 9117",
    );
    one(
        &place,
        &BETA.replace("10.0.0.2", "0.0.0.0"),
        "netchannel.toml:4:13: peers.beta.addresses: 0.0.0.0:7117 is no host's address: write one that the peer has",
    );
    one(
        &place,
        &format!("host = {{ listen = \"10.0.0.2\" }}\n{BETA}"),
        "netchannel.toml:5:13: peers.beta.addresses: 10.0.0.2:7117 is where this host itself listens: write the peer's",
    );
    one(
        &place,
        &BETA.replace("\"10.0.0.2\"", "[\"10.0.0.2\", \"10.0.0.2:7117\"]"),
        "netchannel.toml:4:26: peers.beta.addresses: 10.0.0.2:7117 is named twice: remove one",
    );
    one(
        &place,
        &BETA.replace("10.0.0.2", "224.0.0.1"),
        "netchannel.toml:4:13: peers.beta.addresses: \"224.0.0.1\" is a multicast address: write that of one host",
    );
}

#[test]
fn prefixes_that_are_none_or_another_peers() {
    let place = Place::new();
    one(
        &place,
        &format!("{BETA}prefixes = [\"10.0.0.0/24\", \"10.0.1.300/24\"]\n"),
        "netchannel.toml:5:28: peers.beta.prefixes: \"10.0.1.300/24\" is not a prefix: write an address and how many of \
         its bits count, like 10.1.0.0/16 or fd00::/64",
    );
    one(
        &place,
        &format!("{BETA}prefixes = \"10.0.0.1/24\"\n"),
        "netchannel.toml:5:12: peers.beta.prefixes: \"10.0.0.1/24\" has bits beyond its length: write 10.0.0.0/24",
    );
    one(
        &place,
        &format!("{BETA}prefixes = []\n"),
        "netchannel.toml:1:1: peers.beta.prefixes: no prefix is named, so no connection could go there: name one, or \
         remove the key to have the peer's addresses",
    );
    let gamma = BETA.replace("beta\"", "gamma\"").replace("0.2\"", "0.3\"");
    one(
        &place,
        &format!(
            "{BETA}prefixes = \"10.0.0.0/16\"\n{gamma}prefixes = [\"10.1.0.0/16\", \"10.0.3.0/24\"]\n"
        ),
        "netchannel.toml:10:28: peers.gamma.prefixes: 10.0.3.0/24 overlaps 10.0.0.0/16 of peer beta (line 5), and an \
         address must belong to one peer: narrow one of them",
    );
}

#[test]
fn peers_that_can_not_be_told_apart() {
    let place = Place::new();
    one(
        &place,
        &format!("{BETA}{}", BETA.replace("10.0.0.2", "10.0.0.3")),
        "netchannel.toml:6:8: peers.beta.name: \"beta\" is the name of another peer too (line 2): give each its own",
    );
    one(
        &place,
        &format!(
            "{BETA}{}",
            BETA.replace("beta\"", "gamma\"")
                .replace("0.2\"", "0.2:7118\"")
        ),
        "netchannel.toml:8:13: peers.gamma.addresses: 10.0.0.2 is an address of peer beta (line 4) too, and a channel \
         from there must be one peer's: remove it from one",
    );
    one(
        &place,
        &format!("host = {{ name = \"beta\" }}\n{BETA}"),
        "netchannel.toml:3:8: peers.beta.name: \"beta\" is the name of this host itself: give the peer its own, or set \
         host.name",
    );
    one(
        &place,
        &BETA.replace("\"beta\"", "\"be ta\""),
        "netchannel.toml:2:8: peers[0].name: \"be ta\" is not a name: write 1 to 64 letters, digits, dots, hyphens or \
         underscores",
    );
}

#[test]
fn peers_that_lack_something() {
    let place = Place::new();
    one(
        &place,
        &BETA.replace("name = \"beta\"\n", ""),
        "netchannel.toml:1:1: peers[0]: the peer has no name: add name = \"...\"",
    );
    one(
        &place,
        &BETA.replace("key-file = \"beta.key\"\n", ""),
        "netchannel.toml:1:1: peers.beta: the peer has no key: make one with \
         `(umask 077; openssl rand -hex 32 > peer.key)`, copy it to the peer, and add key-file = \"peer.key\" on both",
    );
    let silent = BETA.replace("addresses = \"10.0.0.2\"\n", "prefixes = \"10.0.0.2/32\"\n");
    one(
        &place,
        &silent,
        "netchannel.toml:1:1: peers.beta: neither can this host dial the peer nor the peer this host: add addresses \
         here, or host.listen",
    );
    place
        .parse(&format!("host = {{ listen = \"10.0.0.1\" }}\n{silent}"))
        .unwrap();
    let nowhere = BETA.replace("addresses = \"10.0.0.2\"\n", "");
    one(
        &place,
        &format!("host = {{ listen = \"10.0.0.1\" }}\n{nowhere}"),
        "netchannel.toml:2:1: peers.beta: the peer has neither addresses nor prefixes, so no connection could go there: \
         add prefixes",
    );
}

#[test]
fn key_files_that_are_no_secret_or_no_key() {
    let place = Place::new();
    let at = "netchannel.toml:3:12: peers.beta.key-file:";
    let with = |name: &str| BETA.replace("beta.key", name);
    one(
        &place,
        &with("none.key"),
        &format!(
            "{at} the key file none.key cannot be read (No such file or directory); \
             `(umask 077; openssl rand -hex 32 > none.key)` makes one, for both hosts"
        ),
    );
    place.key("open.key", DIGITS, 0o640);
    one(
        &place,
        &with("open.key"),
        &format!(
            "{at} others may use the key file open.key (its mode is 0640): `chmod 600 open.key`, and make a new key if \
             they may have read it"
        ),
    );
    place.key("short.key", &DIGITS[..32], 0o600);
    one(
        &place,
        &with("short.key"),
        &format!("{at} short.key: the key has 32 hexadecimal digits, and must have at least 64"),
    );
    place.key("empty.key", "\n", 0o600);
    one(
        &place,
        &with("empty.key"),
        &format!("{at} empty.key: the key file is empty; `openssl rand -hex 32` makes a key"),
    );
    place.key("long.key", &"x".repeat(9000), 0o600);
    one(
        &place,
        &with("long.key"),
        &format!("{at} long.key: 4097 bytes are more than a key file has (at most 4096)"),
    );
    let wrong = place.wrong(&with("."));
    assert!(
        wrong.contains("is not a file; name the key file"),
        "{wrong}"
    );
}

#[test]
fn a_pipe_for_a_key_does_not_hold_anybody_up() {
    let place = Place::new();
    let pipe = place.file().with_file_name("pipe.key");
    let made = std::process::Command::new("mkfifo")
        .arg("-m600")
        .arg(&pipe)
        .status();
    assert!(made.unwrap().success());
    let wrong = place.wrong(&BETA.replace("beta.key", "pipe.key"));
    assert!(wrong.contains("pipe.key is not a file"), "{wrong}");
}

#[test]
fn bounds_of_channels() {
    let place = Place::new();
    one(
        &place,
        &format!("{BETA}channels = {{ throughput = {{ least = 4, most = 2 }} }}\n"),
        "netchannel.toml:5:37: peers.beta.channels.throughput.least: 4 is more than most = 2: exchange them",
    );
    one(
        &place,
        &format!("{BETA}channels = {{ latency = 33 }}\n"),
        "netchannel.toml:5:24: peers.beta.channels.latency: 33 is not 1 to 32",
    );
    one(
        &place,
        &format!("{BETA}channels = {{ throughput = {{ least = 8 }} }}\n"),
        "netchannel.toml:5:12: peers.beta.channels.throughput: least = 8 contradicts most = 4 of scheduler.scale \
         (hysteresis): set both here",
    );
    one(
        &place,
        &format!(
            "{BETA}channels = {{ latency = {{ most = 1 }} }}\n[scheduler]\nscale = \"hysteresis latency-least=2 latency-most=3\"\n"
        ),
        "netchannel.toml:5:12: peers.beta.channels.latency: most = 1 contradicts least = 2 of scheduler.scale \
         (hysteresis): set both here",
    );
}

#[test]
fn policies_that_are_none() {
    let place = Place::new();
    let wrong = place.wrong("[scheduler]\nchannel = \"roundrobin\"\n");
    let wanted = "netchannel.toml:2:11: scheduler.channel: there is no policy \"roundrobin\"; there are channel: round-robin, ";
    assert!(wrong.starts_with(wanted), "{wrong}");
    one(
        &place,
        "[scheduler]\nchannel = \"round-robin stay=0\"\n",
        "netchannel.toml:2:11: scheduler.channel: round-robin: stay=0 is not 1 to 1024",
    );
    one(
        &place,
        "[scheduler]\nchannel = \"round-robin stays=1\"\n",
        "netchannel.toml:2:11: scheduler.channel: round-robin has no parameter \"stays\"; it has threshold, stay",
    );
    one(
        &place,
        "[scheduler]\norder = \"sticky\"\n",
        "netchannel.toml:2:9: scheduler.order: sticky is a policy for channel, and one for order is wanted",
    );
    let wrong = place.wrong("[scheduler]\nchanel = \"sticky\"\n");
    assert!(wrong.contains("is \"channel\" meant?"), "{wrong}");
}

#[test]
fn metrics_without_an_address() {
    let place = Place::new();
    one(
        &place,
        "[metrics]\n",
        "netchannel.toml:1:1: metrics: no address is named: add listen = \"127.0.0.1:9117\", or remove the table",
    );
    one(
        &place,
        "[metrics]\nlisten = [\"127.0.0.1:9117\", \"[::1]:9117\"]\n",
        "netchannel.toml:2:29: metrics.listen: metrics are served at one address: remove the others",
    );
}

#[test]
fn everything_is_told_at_once() {
    let place = Place::new();
    let text = format!("[host]\nnam = \"a\"\n{BETA}prefixes = \"x\"\n[times]\ndial = \"0s\"\n");
    let wrong = place.wrong(&text);
    let lines: Vec<&str> = wrong.lines().collect();
    assert_eq!(lines.len(), 4, "{wrong}");
    assert!(lines[0].starts_with("netchannel.toml:2:1: host.nam"));
    assert!(lines[1].starts_with("netchannel.toml:7:12: peers.beta.prefixes"));
    assert!(lines[2].starts_with("netchannel.toml:9:8: times.dial"));
    assert_eq!(lines[3], "netchannel.toml has 3 problems");
}

#[test]
fn files_that_can_not_be_used() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let load = || {
        crate::Configuration::load(&place.file())
            .unwrap_err()
            .to_string()
    };
    assert!(load().contains("cannot be read"), "{}", load());
    assert!(load().contains("`netchannel config example` shows what to write"));
    std::fs::write(place.file(), BETA).unwrap();
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o666)).unwrap();
    assert!(load().contains("anybody may write"), "{}", load());
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(crate::Configuration::load(&place.file()).is_ok());
    std::fs::write(place.file(), [0xff, 0xfe]).unwrap();
    assert!(load().contains("is not text in UTF-8"), "{}", load());
    std::fs::write(place.file(), vec![b'#'; 2 << 20]).unwrap();
    assert!(
        load().contains("more than a configuration has"),
        "{}",
        load()
    );
}
