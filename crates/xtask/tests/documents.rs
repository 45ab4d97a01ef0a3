//! Documents name files and functions that there are, and ARCHITECTURE.md stays a page that one reads.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

/// Names of Rust in code marks: `` `send_locked` ``.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word
            .chars()
            .all(|sign| sign.is_alphanumeric() || sign == '_')
}

/// A page's references: a file, and the names that follow it in the same sentence, separated by commas or "and".
fn references(page: &str) -> Vec<(String, String)> {
    let text = page.replace('\n', " ");
    let mut found = Vec::new();
    let mut file: Option<String> = None;
    // Outside of code marks and inside of them by turns.
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 0 {
            let joins = matches!(part.trim(), "," | "and" | ", and");
            let ends = part.contains(['.', ';', ':', '(', ')']);
            if !joins && (ends || part.trim().len() > 80) {
                file = None;
            }
        } else if part.starts_with("crates/") && part.ends_with(".rs") {
            file = Some(part.to_owned());
        } else if let Some(file) = file.as_ref().filter(|_| is_name(part)) {
            found.push((file.clone(), part.to_owned()));
        }
    }
    found
}

#[test]
fn the_tour_leads_to_functions_that_there_are() {
    let page = fs::read_to_string(root().join("docs/tour.md")).unwrap();
    let references = references(&page);
    assert!(references.len() >= 20, "{references:#?}");
    for (file, name) in references {
        let source = fs::read_to_string(root().join(&file))
            .unwrap_or_else(|_| panic!("docs/tour.md names {file}, which is not there"));
        let made = ["fn ", "enum ", "struct ", "trait "].iter().any(|word| {
            let wanted = format!("{word}{name}");
            let mut places = source.match_indices(&wanted);
            places.any(|(at, found)| {
                let behind = source[at + found.len()..].chars().next();
                behind.is_none_or(|sign| !sign.is_alphanumeric() && sign != '_')
            })
        });
        assert!(
            made,
            "docs/tour.md names `{name}` in {file}, which has none"
        );
    }
}

#[test]
fn files_of_the_tour_are_all_checked() {
    let page = fs::read_to_string(root().join("docs/tour.md")).unwrap();
    for part in page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|part| part.starts_with("crates/"))
    {
        assert!(
            root().join(part).exists(),
            "docs/tour.md names {part}, which is not there"
        );
    }
}

#[test]
fn the_map_is_one_that_is_read() {
    let lines = fs::read_to_string(root().join("ARCHITECTURE.md"))
        .unwrap()
        .lines()
        .count();
    assert!(
        lines <= 250,
        "ARCHITECTURE.md has {lines} lines: what is true of one module belongs there"
    );
}

/// Links between documents lead to files.
#[test]
fn links_lead_somewhere() {
    let mut pages = vec![
        "README.md",
        "ARCHITECTURE.md",
        "SPECIFICATION.md",
        "CONTRIBUTING.md",
    ]
    .into_iter()
    .map(|name| root().join(name))
    .collect::<Vec<_>>();
    let docs = fs::read_dir(root().join("docs")).unwrap();
    pages.extend(
        docs.map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.contains(' ') {
                continue;
            }
            let path = page.parent().unwrap().join(file);
            assert!(path.exists(), "{} links to {target}", page.display());
        }
    }
}
