//! What a reload is told to change.

use super::{DIGITS, Place};
use crate::EXAMPLE;

fn changes(place: &Place, from: &str, to: &str) -> Vec<String> {
    let (from, to) = (place.parse(from).unwrap(), place.parse(to).unwrap());
    let changes = from.changes_to(&to);
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_the_same_is_not_told() {
    let place = Place::new();
    assert!(changes(&place, EXAMPLE, EXAMPLE).is_empty());
}

#[test]
fn each_change_is_a_sentence() {
    let place = Place::new();
    for (from, to, wanted) in [
        ("\"alpha\"", "\"omega\"", "host.name has changed"),
        ("10.0.0.1:7117", "10.0.0.1:7118", "host.listen has changed"),
        (
            "10.0.0.2/32",
            "10.0.2.0/24",
            "peer beta has changed: prefixes",
        ),
        (
            " latency = 1,",
            " latency = 2,",
            "peer beta has changed: channels",
        ),
        (
            "\"round-robin\"",
            "\"sticky\"",
            "scheduler.channel has changed",
        ),
        (
            "\"cubic\"",
            "\"bbr\"",
            "transport has changed, for channels made from now on",
        ),
        ("\"15s\"", "\"20s\"", "times have changed"),
        ("1048576", "1000", "limits have changed"),
        ("9117", "9118", "metrics.listen has changed"),
    ] {
        assert!(EXAMPLE.contains(from), "{from}");
        let changed = EXAMPLE.replace(from, to);
        assert_eq!(changes(&place, EXAMPLE, &changed), [wanted]);
    }
    let renamed = EXAMPLE.replace("name = \"beta\"", "name = \"gamma\"");
    let told = changes(&place, EXAMPLE, &renamed);
    assert_eq!(told, ["peer beta is gone", "peer gamma is new"]);
}

#[test]
fn another_key_in_the_same_file_is_a_change() {
    let place = Place::new();
    let before = place.parse(EXAMPLE).unwrap();
    place.key("beta.key", &DIGITS.replace("00", "07"), 0o600);
    let after = place.parse(EXAMPLE).unwrap();
    let told: Vec<String> = before
        .changes_to(&after)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(told, ["peer beta has changed: key"]);
}
