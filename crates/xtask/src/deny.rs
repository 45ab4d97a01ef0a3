//! Licences and sources of all dependencies.
//!
//! `cargo deny` where it is installed. Otherwise the same two checks are done here: whether every crate's licence is
//! allowed (the list in deny.toml), and whether every crate comes from crates.io or this checkout.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::license_expression::is_allowed;
use crate::workspace::{Workspace, find_program};

/// The checks of `cargo deny`. The advisory database needs a network, so a missing one must not fail a test run.
pub const OFFLINE_CHECKS: [&str; 3] = ["licenses", "sources", "bans"];

/// Runs `cargo deny` where it is installed, and the built-in check in any case.
pub fn run(workspace: &Workspace) -> Result<bool> {
    let mut all_well = built_in(workspace)?;
    if find_program("cargo-deny").is_none() {
        println!("skipped: cargo-deny (not installed: `cargo install cargo-deny --locked`)");
        return Ok(all_well);
    }
    for checks in [&OFFLINE_CHECKS[..], &["advisories"]] {
        let status = workspace
            .cargo()
            .args(["deny", "check"])
            .args(checks)
            .status();
        all_well &= status.context("cannot run cargo deny")?.success();
    }
    Ok(all_well)
}

/// The check that needs nothing but cargo. Prints what it finds; true when all is well.
pub fn built_in(workspace: &Workspace) -> Result<bool> {
    let text =
        fs::read_to_string(workspace.root.join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = allowed_licences(&text)?;
    let output = workspace
        .cargo()
        .args([
            "tree",
            "--workspace",
            "--all-features",
            "--edges",
            "normal,build,dev",
            "--target",
        ])
        .args([
            "all",
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p}|{l}",
        ])
        .output()
        .context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!(
            "cargo tree failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let listing = String::from_utf8(output.stdout).context("cargo tree did not print UTF-8")?;
    let packages: BTreeSet<&str> = listing.lines().filter(|line| !line.is_empty()).collect();
    let root = workspace.root.to_string_lossy();
    let faults: Vec<String> = packages
        .iter()
        .filter_map(|line| fault(line, &allowed, &root))
        .collect();
    for fault in &faults {
        println!("{fault}");
    }
    println!(
        "{} crates looked at, {} not allowed",
        packages.len(),
        faults.len()
    );
    Ok(faults.is_empty())
}

/// The mistake in one line `name vVERSION (SOURCE)|LICENCE` of cargo tree, if any. Crates of crates.io have no source
/// there, those of a checkout have its path, all others an address.
fn fault(line: &str, allowed: &[String], root: &str) -> Option<String> {
    let (package, licence) = line.rsplit_once('|')?;
    let source = package.replace("(proc-macro)", "");
    let source = source
        .split_once(" (")
        .map(|(_, source)| source.trim_end().trim_end_matches(')'));
    match source {
        Some(source) if !source.starts_with(root) => Some(format!(
            "{package}: comes neither from crates.io nor from this checkout"
        )),
        _ if licence.is_empty() => Some(format!("{package}: says no licence")),
        _ if !is_allowed(licence, allowed) => Some(format!(
            "{package}: deny.toml does not allow the licence {licence}"
        )),
        _ => None,
    }
}

/// The list `allow = [...]` of the table `[licenses]`.
fn allowed_licences(text: &str) -> Result<Vec<String>> {
    let list = text
        .split_once("\n[licenses]")
        .and_then(|(_, table)| table.split_once("\nallow = ["))
        .and_then(|(_, list)| list.split_once(']'))
        .map(|(list, _)| list)
        .context("deny.toml has no list `allow` in its table [licenses]")?;
    Ok(list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_list_of_deny_toml() {
        let text = include_str!("../../../deny.toml");
        let allowed = allowed_licences(text).unwrap();
        assert!(
            allowed.len() > 5 && allowed.contains(&"Apache-2.0".to_owned()),
            "{allowed:?}"
        );
        assert!(
            !allowed.iter().any(|licence| licence.contains("GPL")),
            "{allowed:?}"
        );
        assert!(allowed_licences("[licenses]\n").is_err());
    }

    #[test]
    fn names_what_is_not_allowed() {
        let allowed = ["MIT".to_owned()];
        let check = |line| fault(line, &allowed, "/checkout");
        assert_eq!(check("libc v0.2.1|MIT OR Apache-2.0"), None);
        assert_eq!(check("serde_derive v1.0.0 (proc-macro)|MIT"), None);
        assert_eq!(
            check("netchannel-abi v0.1.0 (/checkout/crates/abi)|MIT"),
            None
        );
        assert!(check("gpl v1.0.0|GPL-3.0").is_some());
        assert!(check("nothing v1.0.0|").is_some());
        assert!(check("fork v1.0.0 (https://example.org/fork#1234)|MIT").is_some());
        assert!(check("macro v1.0.0 (proc-macro) (https://example.org/fork#1234)|MIT").is_some());
        assert!(check("other v1.0.0 (/elsewhere)|MIT").is_some());
    }
}
