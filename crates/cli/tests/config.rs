//! `netchannel config`: what `check` says, to the letter.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_netchannel");

fn golden(name: &str) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.join("tests/golden").join(name)
}

/// A folder with the file of that name, and two keys.
fn place(file: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::copy(golden(file), place.path().join("netchannel.toml")).unwrap();
    for (name, mode) in [("good.key", 0o600), ("open.key", 0o644)] {
        let key = place.path().join(name);
        std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        std::fs::set_permissions(key, PermissionsExt::from_mode(mode)).unwrap();
    }
    place
}

fn config(place: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("config").args(words).current_dir(place);
    command.output().unwrap()
}

/// Compares with a golden file, or writes it where `UPDATE_GOLDEN` is set.
#[track_caller]
fn is_golden(name: &str, place: &Path, said: &[u8]) {
    let said = String::from_utf8(said.to_vec()).unwrap();
    let folder = std::fs::canonicalize(place).unwrap();
    let said = said.replace(folder.to_str().unwrap(), "FOLDER");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden(name), &said).unwrap();
    }
    let wanted = std::fs::read_to_string(golden(name)).unwrap();
    assert_eq!(said, wanted, "set UPDATE_GOLDEN=1 to take it over");
}

#[test]
fn every_mistake_is_told_with_its_line() {
    let place = place("mistakes.toml");
    let output = config(place.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    is_golden("mistakes.txt", place.path(), &output.stderr);
}

#[test]
fn a_file_in_order_is_shown_with_all_defaults() {
    let place = place("order.toml");
    let output = config(place.path(), &["check", "netchannel.toml"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    is_golden("order.txt", place.path(), &output.stdout);
}

#[test]
fn json_says_the_same() {
    let place = place("mistakes.toml");
    let output = config(place.path(), &["check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["valid"], false);
    let problems = answer["problems"].as_array().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.is_empty(), "{text}");
    assert_eq!(problems[0]["line"], 3);
    assert_eq!(problems[0]["key"], "host.listen");
    let golden = std::fs::read_to_string(golden("mistakes.txt")).unwrap();
    assert_eq!(problems.len() + 1, golden.lines().count());
}

#[test]
fn the_example_is_a_beginning() {
    let place = place("order.toml");
    let output = config(place.path(), &["example"]);
    std::fs::write(place.path().join("netchannel.toml"), output.stdout).unwrap();
    let keys = ["good.key", "beta.key"].map(|name| place.path().join(name));
    std::fs::rename(&keys[0], &keys[1]).unwrap();
    assert!(config(place.path(), &["check"]).status.success());
}

#[test]
fn no_file_is_told_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let output = config(place.path(), &["check"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("`netchannel config example` shows"), "{text}");
}

#[test]
fn what_this_host_cannot_do_is_a_mistake() {
    let place = place("order.toml");
    let file = place.path().join("netchannel.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let said = |text: String| {
        std::fs::write(&file, text).unwrap();
        let output = config(place.path(), &["check"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let unknown = said(text.replace("reno", "no-such"));
    assert!(
        unknown.contains("this kernel has no congestion control \"no-such\""),
        "{unknown}"
    );
    let same = said(text.replace("127.0.0.1:9117", "0.0.0.0:7117"));
    assert!(
        same.contains("metrics.listen: 0.0.0.0:7117 is where other hosts dial"),
        "{same}"
    );
    let transport = said(text.replace("[transport]", "[transport]\nname = \"pigeon\""));
    assert!(
        transport.contains("there is no transport \"pigeon\": write one of tcp"),
        "{transport}"
    );
}

#[test]
fn a_file_without_peers_and_the_port_of_metrics_are_told_of() {
    let place = place("order.toml");
    let file = place.path().join("netchannel.toml");
    std::fs::write(&file, "[metrics]\nlisten = \"127.0.0.1\"\n").unwrap();
    let output = config(place.path(), &["check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("is valid, and names no peer"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:9117\""), "{text}");
}

#[test]
fn a_full_disk_is_told_of() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(PROGRAM);
    let output = command
        .args(["config", "example"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("standard output cannot be written (No space left on device)"),
        "{text}"
    );
}
