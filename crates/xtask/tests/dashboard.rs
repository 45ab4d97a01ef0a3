//! The dashboard of `dist/grafana.json` asks for metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

const DASHBOARD: &str = include_str!("../../../dist/grafana.json");
const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    words
        .filter(|word| word.starts_with("netchannel_"))
        .collect()
}

#[test]
fn every_panel_asks_for_a_metric_of_the_page() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 10);
    let known = names(PAGE);
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let asked = names(expression);
            assert!(!asked.is_empty(), "{expression}");
            for name in asked {
                assert!(
                    known.contains(name),
                    "docs/metrics.md has no {name}, and dist/grafana.json asks for it"
                );
            }
        }
    }
}
