//! `cargo xtask install`: the program, the library, man pages and completions, below one prefix.
//!
//! ```text
//!   PREFIX/bin/netchannel
//!   PREFIX/lib/netchannel/libnetchannel.so, netchannel-supervisor
//!   PREFIX/share/man/man1/netchannel*.1, man5/netchannel.toml.5
//!   PREFIX/share/bash-completion/completions/netchannel, zsh/site-functions/_netchannel, fish/vendor_completions.d/...
//!   PREFIX/lib/systemd/system/netchannel.service    as root
//!   PREFIX/lib/systemd/system/netchannel-stack@.service
//! ```

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, is_root};

/// A shell, and where below the prefix it looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/netchannel"),
    ("zsh", "share/zsh/site-functions/_netchannel"),
    ("fish", "share/fish/vendor_completions.d/netchannel.fish"),
];

/// The program as `dist/netchannel.service` names it.
const UNIT_PROGRAM: &str = "/usr/local/bin/netchannel";

/// Builds and installs.
pub fn run(workspace: &Workspace, prefix: Option<&Path>) -> Result<bool> {
    let prefix = match prefix {
        Some(prefix) => env::current_dir()
            .context("no current folder")?
            .join(prefix),
        None => default_prefix()?,
    };
    if !build(workspace)? {
        return Ok(false);
    }
    files(workspace, &prefix)?;
    for (shell, path) in COMPLETIONS {
        install_completion(workspace, shell, &prefix.join(path))?;
    }
    if is_root() {
        install_units(workspace, &prefix)?;
    }
    let folder = prefix.join("bin");
    let in_path = env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|entry| entry == folder));
    if !in_path {
        println!("{} is not in your PATH", folder.display());
    }
    Ok(true)
}

/// Builds what is installed; false where that fails.
pub fn build(workspace: &Workspace) -> Result<bool> {
    let built = workspace
        .cargo()
        .args([
            "build",
            "--release",
            "--package",
            "netchannel-cli",
            "--package",
            "netchannel-supervisor",
            "--package",
        ])
        .arg("netchannel-preload")
        .status()
        .context("cannot run cargo")?;
    Ok(built.success())
}

/// The files that have the same paths below every prefix: the program, the library, the supervisor of containers, man pages.
pub fn files(workspace: &Workspace, prefix: &Path) -> Result<()> {
    place(&workspace.program(), &prefix.join("bin/netchannel"), 0o755)?;
    place(
        &workspace.library(),
        &prefix.join("lib/netchannel/libnetchannel.so"),
        0o644,
    )?;
    place(
        &workspace.supervisor(),
        &prefix.join("lib/netchannel/netchannel-supervisor"),
        0o755,
    )?;
    install_manual(workspace, prefix)
}

/// The units of root's daemon and of stacks.
pub const UNITS: [&str; 2] = ["netchannel.service", "netchannel-stack@.service"];

/// The units, which systemd finds below `/usr/local` and `/usr`. Nothing is started.
fn install_units(workspace: &Workspace, prefix: &Path) -> Result<()> {
    for name in UNITS {
        let source = workspace.root.join("dist").join(name);
        let unit = fs::read_to_string(&source);
        let unit = unit.with_context(|| format!("cannot read {}", source.display()))?;
        let path = prefix.join("lib/systemd/system").join(name);
        make_folder_of(&path)?;
        fs::write(&path, unit_for(&unit, prefix)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("installed {}", path.display());
    }
    Ok(())
}

/// The unit with the program of this prefix.
pub fn unit_for(unit: &str, prefix: &Path) -> Result<String> {
    let program = prefix.join("bin/netchannel");
    let program = program.to_str().context("the prefix is no text")?;
    if program.contains(|letter: char| letter.is_whitespace() || "%$\"'\\".contains(letter)) {
        bail!("a unit cannot name {program}; take another prefix");
    }
    Ok(unit.replace(UNIT_PROGRAM, program))
}

fn default_prefix() -> Result<PathBuf> {
    if is_root() {
        return Ok(PathBuf::from("/usr/local"));
    }
    let home = env::var_os("HOME").context("HOME is not set; say --prefix DIR")?;
    Ok(PathBuf::from(home).join(".local"))
}

/// Copies next to the destination and renames: a running program keeps its file, and no process loads half a library.
pub fn place(source: &Path, destination: &Path, mode: u32) -> Result<()> {
    make_folder_of(destination)?;
    let beside = destination.with_extension("new");
    let copied = fs::copy(source, &beside)
        .and_then(|_| fs::set_permissions(&beside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&beside, destination));
    copied.with_context(|| format!("cannot install {}", destination.display()))?;
    println!("installed {}", destination.display());
    Ok(())
}

/// Makes the folder in which a file is to lie.
pub fn make_folder_of(file: &Path) -> Result<()> {
    let folder = file.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn install_manual(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let scratch = workspace.target.join("manual");
    // Pages of commands that no longer exist must not be installed.
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let made = Command::new(workspace.program())
        .args(["generate", "man"])
        .arg(&scratch)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        bail!("netchannel generate man failed");
    }
    for entry in fs::read_dir(&scratch).context("no manual pages")?.flatten() {
        let section = entry.path().extension().map_or_else(
            || "1".to_owned(),
            |extension| extension.to_string_lossy().into_owned(),
        );
        let folder = prefix.join(format!("share/man/man{section}"));
        place(&entry.path(), &folder.join(entry.file_name()), 0o644)?;
    }
    Ok(())
}

/// Completions for a shell, into a file.
pub fn install_completion(workspace: &Workspace, shell: &str, path: &Path) -> Result<()> {
    let output = Command::new(workspace.program())
        .args(["generate", "completions", shell])
        .output()
        .context("cannot run netchannel")?;
    if !output.status.success() {
        bail!("netchannel generate completions {shell} failed");
    }
    make_folder_of(path)?;
    fs::write(path, output.stdout).with_context(|| format!("cannot write {}", path.display()))?;
    println!("installed {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_the_program_that_was_installed() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let unit = fs::read_to_string(workspace.join("dist/netchannel.service")).unwrap();
        let made = unit_for(&unit, Path::new("/opt/nc")).unwrap();
        assert!(made.contains("ExecStart=/opt/nc/bin/netchannel daemon"));
        assert!(!made.contains("/usr/local"));
        assert!(unit_for(&unit, Path::new("/opt/my nc")).is_err());
    }
}
