//! Paths: the checkout, and the target directory into which this program was built.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The checkout and its target directory.
pub struct Workspace {
    /// The folder of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// Cargo's directory for build results.
    pub target: PathBuf,
}

impl Workspace {
    /// Finds both. The target directory comes from this program's own path, `<target>/debug/netchannel-xtask`, so that
    /// every way of configuring it is honoured.
    pub fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("crates/xtask is not two levels below the workspace")?;
        let executable = env::current_exe().context("cannot find the path of this program")?;
        let target = executable
            .ancestors()
            .nth(2)
            .context("this program does not lie in a target directory")?;
        Ok(Self {
            root: root.to_path_buf(),
            target: target.to_path_buf(),
        })
    }

    /// A `cargo` that runs in the checkout and builds into the same target directory as this program.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The program `netchannel` of the release build.
    pub fn program(&self) -> PathBuf {
        self.target.join("release/netchannel")
    }

    /// The library of the release build.
    pub fn library(&self) -> PathBuf {
        self.target.join("release/libnetchannel.so")
    }

    /// The supervisor for containers of the release build.
    pub fn supervisor(&self) -> PathBuf {
        self.target.join("release/netchannel-supervisor")
    }

    /// The real-program tests.
    pub fn programs(&self) -> PathBuf {
        self.root.join("tests/programs")
    }
}

/// Whether this process runs as root. The owner of /proc/self is the effective user.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// The path of a program in PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| {
            candidate
                .metadata()
                .is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_checkout_and_a_shell() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.root.join("deny.toml").is_file());
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }
}
