//! `cargo xtask plants`: applies each patch of `tests/plants` to a copy of the checkout, builds the library with it,
//! and counts the programs until `torture calls` distinguishes it from kernel TCP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The options of the command line.
pub struct Options {
    /// Programs that the judge may take for each.
    pub cases: u64,
    /// The seed of the programs.
    pub seed: u64,
    /// Parts of the names of the patches; none means all.
    pub names: Vec<String>,
}

/// The library need not be fast, and is built once for each patch.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false"),
    // A symbol is weak only where it is declared so, in assembly.
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1"),
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
        "netchannel-preload",
        "-p",
        "netchannel-testkit",
        "-p",
        "netchannel-cli",
    ]))?;
    // Copies, so that the release build may change meanwhile.
    let sound = folder.join("sound");
    fs::create_dir_all(&sound)?;
    for name in ["netchannel", "libnetchannel.so", "torture"] {
        fs::copy(workspace.program().with_file_name(name), sound.join(name))?;
    }
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
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
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

/// Builds the library of the copy and has it judged: the first case that shows it, and does not show without the defect.
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
    // The program uses the library in its own directory.
    let place = folder.join("planted");
    fs::create_dir_all(&place)?;
    let planted = place.join("netchannel");
    let sound = folder.join("sound/netchannel");
    fs::copy(&sound, &planted)?;
    fs::copy(
        target.join("debug/libnetchannel.so"),
        place.join("libnetchannel.so"),
    )?;
    let torture = folder.join("sound/torture");
    let mut first = 0;
    while first < options.cases {
        let cases = options.cases - first;
        let Some(said) = judge(&torture, &planted, options.seed, first, cases)? else {
            return Ok(None);
        };
        let Some(number) = number_of(&said) else {
            return Ok(Some(said));
        };
        if judge(&torture, &sound, options.seed, number, 1)?.is_none() {
            return Ok(Some(said));
        }
        first = number + 1;
    }
    Ok(None)
}

/// The number of a case in a message of the judge.
fn number_of(said: &str) -> Option<u64> {
    let rest = said.strip_prefix("case ")?;
    rest.split(':').next()?.parse().ok()
}

/// The first message of the judge about some cases of a program, if any.
fn judge(
    torture: &Path,
    program: &Path,
    seed: u64,
    first: u64,
    cases: u64,
) -> Result<Option<String>> {
    let mut judge = Command::new(torture);
    judge.args(["calls", "--stop", "1", "--no-shrink"]);
    for (word, number) in [("--seed", seed), ("--first", first), ("--cases", cases)] {
        judge.args([word, &number.to_string()]);
    }
    let output = judge
        .arg("--netchannel")
        .arg(program)
        .output()
        .context("cannot start torture")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Several are judged at a time, and a later one may be through first.
    let lines = said.lines().filter(|line| line.starts_with("case "));
    let line = lines.min_by_key(|line| number_of(line));
    match output.status.code() {
        Some(0) => Ok(None),
        // What could not be run shows nothing.
        Some(1) if !said.contains("does not answer") => {
            Ok(Some(line.unwrap_or("something was left").to_owned()))
        }
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
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
