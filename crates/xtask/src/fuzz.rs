//! `cargo xtask fuzz`: every fuzz target, each for the same time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::report::{Report, Verdict};
use crate::workspace::{Workspace, find_program};

/// Runs all targets of all fuzz folders; true when none found a fault.
pub fn run(workspace: &Workspace, seconds: u32) -> Result<bool> {
    let folders = fuzz_folders(workspace);
    let mut targets = Vec::new();
    for folder in &folders {
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))
            .with_context(|| format!("cannot read {}/Cargo.toml", folder.display()))?;
        targets.extend(binaries(&manifest).map(|target| (folder.clone(), target)));
    }
    let mut report = Report::new(targets.len());
    let why_not = why_not();
    for (folder, target) in targets {
        let name = format!("fuzz {target}");
        report.begin(&name);
        let begun = Instant::now();
        let verdict = match &why_not {
            Some(reason) => Verdict::Skipped(reason.clone()),
            None => {
                println!();
                fuzz(workspace, &folder, &target, seconds)?
            }
        };
        report.end(
            &name,
            verdict,
            begun.elapsed().max(Duration::from_millis(1)),
            &folder,
        );
    }
    Ok(report.close())
}

fn fuzz(workspace: &Workspace, folder: &PathBuf, target: &str, seconds: u32) -> Result<Verdict> {
    let status = Command::new("rustup")
        .args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir"])
        .arg(folder)
        .args([target, "--", &format!("-max_total_time={seconds}")])
        .current_dir(&workspace.root)
        .status()
        .context("cannot run rustup")?;
    Ok(match status.success() {
        true => Verdict::Passed,
        false => Verdict::Failed("it found an input; see above".to_owned()),
    })
}

/// What this machine lacks for fuzzing.
fn why_not() -> Option<String> {
    if find_program("cargo-fuzz").is_none() {
        return Some(
            "cargo-fuzz is not installed (`cargo install cargo-fuzz --locked`)".to_owned(),
        );
    }
    let nightly = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .output();
    match nightly.is_ok_and(|output| output.status.success()) {
        true => None,
        false => Some("no nightly toolchain (`rustup toolchain install nightly`)".to_owned()),
    }
}

/// The folders `fuzz` of the checkout and of its crates.
fn fuzz_folders(workspace: &Workspace) -> Vec<PathBuf> {
    let crates = fs::read_dir(workspace.root.join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<PathBuf> = crates
        .map(|entry| entry.path())
        .chain([workspace.root.clone()])
        .map(|folder| folder.join("fuzz"))
        .filter(|folder| folder.join("Cargo.toml").is_file())
        .collect();
    folders.sort();
    folders
}

/// The names of the tables `[[bin]]` of a manifest: with cargo-fuzz, each is a target.
fn binaries(manifest: &str) -> impl Iterator<Item = String> {
    manifest.split("[[bin]]").skip(1).filter_map(|table| {
        let name = table
            .lines()
            .find_map(|line| line.trim().strip_prefix("name"))?;
        Some(name.trim_matches([' ', '=', '"']).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::binaries;

    #[test]
    fn reads_the_targets_of_a_manifest() {
        let manifest = "[package]\nname = \"x\"\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n\n[[bin]]\nname=\"b\"\n";
        assert_eq!(binaries(manifest).collect::<Vec<_>>(), ["a", "b"]);
    }
}
