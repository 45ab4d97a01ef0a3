//! `docs/configuration.md` against what is read.

use super::{DIGITS, Place};

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

/// What stands between "```toml" and "```".
fn examples() -> impl Iterator<Item = &'static str> {
    let blocks = DOCUMENT.split("```toml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap())
}

#[test]
fn its_examples_are_in_order() {
    let place = Place::new();
    place.key("alpha-beta.key", DIGITS, 0o600);
    assert!(examples().count() >= 3);
    for example in examples() {
        place.parse(example).unwrap();
    }
}

#[test]
fn it_names_every_key_with_its_default() {
    let place = Place::new();
    let configuration = place.parse(crate::EXAMPLE).unwrap().to_string();
    let rows: Vec<&str> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let mut section = String::new();
    let mut seen = 0;
    for line in configuration.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            let heading = format!("### `{line}`");
            assert!(DOCUMENT.contains(&heading), "{heading}");
            continue;
        }
        let Some((key, value)) = line.split_once(" = ") else {
            continue;
        };
        if section == "scheduler" {
            assert!(DOCUMENT.contains(&format!("`{key}`")), "{key}");
            continue;
        }
        let row = rows.iter().find(|row| {
            let keys = row.split('|').nth(1).unwrap_or_default();
            keys.contains(&format!("`{key}`"))
        });
        let row = row.unwrap_or_else(|| panic!("{section}.{key} is not in the document"));
        if matches!(section.as_str(), "times" | "limits") {
            let value = value.trim_matches('"');
            let default = row.split('|').nth(2).unwrap().trim();
            assert_eq!(default, value, "{section}.{key}");
        }
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}
