//! `cargo xtask docs`: the documentation of all crates, private items included, warnings denied.

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Builds the documentation and opens it in a browser if asked to.
pub fn run(workspace: &Workspace, open: bool) -> Result<bool> {
    let mut command = workspace.cargo();
    command.args([
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    if open {
        command.arg("--open");
    }
    let status = command
        .env("RUSTDOCFLAGS", "-D warnings")
        .status()
        .context("cannot run cargo doc")?;
    if status.success() {
        println!("{}", workspace.target.join("doc").display());
    }
    Ok(status.success())
}
