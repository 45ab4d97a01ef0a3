//! `cargo xtask plants`: each patch of `tests/plants` in a copy of the checkout, the library built with it, and after how many programs
//! `torture calls` tells it from kernel TCP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// What the command line asks for.
pub struct Options {
    /// Programs that the judge may take for each.
    pub cases: u64,
    /// What they are drawn from.
    pub seed: u64,
    /// Parts of the names of the patches; none means all.
    pub names: Vec<String>,
}

/// The library need not be fast, and is built once for each patch.
const PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false"),
    ("CARGO_INCREMENTAL", "1"),
];

/// Plants each defect; true when all were found.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let folder = workspace.target.join("plants");
    let tree = folder.join("tree");
    fs::create_dir_all(&folder)?;
    if !tree.join("Cargo.toml").is_file() {
        let mut add = git(&workspace.root);
        done(
            add.args(["worktree", "add", "--detach", "--force"])
                .arg(&tree),
        )?;
    }
    let head = Command::new("git")
        .current_dir(&workspace.root)
        .args(["rev-parse", "HEAD"])
        .output()?;
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    done(git(&tree).args(["checkout", "--quiet", "--force", "--detach", &head]))?;
    let mut build = workspace.cargo();
    done(build.args([
        "build",
        "--release",
        "-p",
        "netchannel-testkit",
        "-p",
        "netchannel-cli",
    ]))?;
    let mut missed = 0;
    let patches = patches(&workspace.root.join("tests/plants"), &options.names)?;
    for patch in &patches {
        done(git(&tree).arg("apply").arg(patch))?;
        let found = plant(workspace, &folder, options);
        done(git(&tree).args(["checkout", "--quiet", "--force", "."]))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy();
        match found? {
            Some(how) => println!("found   {name}: {how}"),
            None => {
                println!("MISSED  {name}: not in {} programs", options.cases);
                missed += 1;
            }
        }
    }
    println!(
        "{} of {} planted defects were found",
        patches.len() - missed,
        patches.len()
    );
    Ok(missed == 0)
}

fn patches(folder: &Path, names: &[String]) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("can not read {}", folder.display()))?;
    let mut patches = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let wanted = names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
        if name.ends_with(".patch") && wanted {
            patches.push(path);
        }
    }
    if patches.is_empty() {
        bail!("no plant has such a name");
    }
    patches.sort();
    Ok(patches)
}

/// Builds the library of the copy and has it judged: the first case that shows it.
fn plant(workspace: &Workspace, folder: &Path, options: &Options) -> Result<Option<String>> {
    let target = folder.join("target");
    let mut build = workspace.cargo();
    build
        .current_dir(folder.join("tree"))
        .env("CARGO_TARGET_DIR", &target);
    build
        .envs(PROFILE)
        .args(["build", "--quiet", "-p", "netchannel-preload"]);
    done(&mut build)?;
    // The program takes the library that lies beside it.
    let place = folder.join("planted");
    fs::create_dir_all(&place)?;
    fs::copy(workspace.program(), place.join("netchannel"))?;
    fs::copy(
        target.join("debug/libnetchannel.so"),
        place.join("libnetchannel.so"),
    )?;
    let mut judge = Command::new(workspace.program().with_file_name("torture"));
    judge.args([
        "calls",
        "--stop",
        "1",
        "--no-shrink",
        "--cases",
        &options.cases.to_string(),
    ]);
    judge
        .args(["--seed", &options.seed.to_string(), "--netchannel"])
        .arg(place.join("netchannel"));
    let output = judge.output().context("can not start torture")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = said
        .lines()
        .find(|line| line.starts_with("case "))
        .map(str::to_owned);
    match output.status.code() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(
            first.unwrap_or_else(|| "something was lost".to_owned()),
        )),
        _ => bail!("torture calls: {}\n{said}", output.status),
    }
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    command
}

fn done(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("can not start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
