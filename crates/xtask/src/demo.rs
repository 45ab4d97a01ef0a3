//! `cargo xtask demo`: from a fresh checkout to a table and a picture, in one command.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, find_program};

/// Builds the program and the library, runs the comparison, and suggests further steps.
pub fn run(workspace: &Workspace) -> Result<bool> {
    println!("Building NetChannel (release; the first time takes a minute or two) ...");
    // Cargo shows its own progress: its output is left to the terminal.
    let built = workspace
        .cargo()
        .args([
            "build",
            "--release",
            "--package",
            "netchannel-cli",
            "--package",
        ])
        .arg("netchannel-preload")
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        return Ok(false);
    }

    let with_redis = ["redis-server", "redis-benchmark"]
        .iter()
        .all(|name| find_program(name).is_some());
    let mut experiments = vec!["stream", "pingpong", "connections"];
    if with_redis {
        experiments.push("redis");
    }
    println!(
        "\nThe same unmodified programs, in turns over kernel TCP and over NetChannel: {}\n",
        experiments.join(", ")
    );
    let picture = workspace.target.join("netchannel-demo.svg");
    let started = Instant::now();
    let compared = Command::new(workspace.program())
        .arg("bench")
        .args(&experiments)
        .arg("--plot")
        .arg(&picture)
        .current_dir(&workspace.root)
        .status()
        .context("cannot run netchannel bench")?;
    if !compared.success() {
        println!("The comparison failed. `netchannel doctor` says what this host lacks:\n");
        // The demo has failed, whatever the answer is.
        let _ = Command::new(workspace.program()).arg("doctor").status();
        return Ok(false);
    }

    let measured = started.elapsed().as_secs_f64();
    let between = between_hosts(workspace, with_redis)?;
    if between == Between::Failed {
        return Ok(false);
    }

    let program = workspace.program();
    let program = program.display();
    println!(
        "\nMeasured in {:.0} s, of which {measured:.0} s on one host.",
        started.elapsed().as_secs_f64()
    );
    println!("picture, one host:  {}", picture.display());
    if let Between::Shown(picture) = &between {
        println!("picture, two hosts: {}", picture.display());
    }
    if !with_redis {
        println!(
            "Redis is not installed: `apt-get install redis-server redis-tools` adds it to the demo."
        );
    }
    println!(
        "\nWhat to try next:\n  \
         {program} run -- PROGRAM ARGUMENTS     your own programs, both ends on this host\n  \
         {program} ss                           their connections, and which path each took\n  \
         {program} bench hosts                  all experiments between two hosts\n  \
         docs/between-hosts.md                  two hosts of your own, in five steps\n  \
         {program} doctor                       what this host could do better\n  \
         cargo xtask test                       all tests\n  \
         cargo xtask install                    put it into your PATH"
    );
    Ok(true)
}

/// The result of the comparison between two hosts.
#[derive(Debug, PartialEq, Eq)]
enum Between {
    /// It is in this picture.
    Shown(PathBuf),
    /// This system does not allow two hosts.
    NotHere,
    /// Some of it gave no figures.
    Failed,
}

/// The exit status of `netchannel bench hosts` where there can be no two hosts.
const NOT_HERE: i32 = 77;

/// The same between two hosts, which are network namespaces, over kernel TCP and over NetChannel.
fn between_hosts(workspace: &Workspace, with_redis: bool) -> Result<Between> {
    let mut experiments = vec!["stream", "messages", "isolation", "connections"];
    if with_redis {
        experiments.push("redis");
    }
    println!(
        "\nBetween two hosts (network namespaces joined by a virtual cable), with and without NetChannel: {}\n",
        experiments.join(", ")
    );
    let picture = workspace.target.join("netchannel-demo-hosts.svg");
    let status = Command::new(workspace.program())
        .args(["bench", "hosts", "--pairs", "2", "--seconds", "0.5"])
        .args(&experiments)
        .arg("--plot")
        .arg(&picture)
        .current_dir(&workspace.root)
        .status()
        .context("cannot run netchannel bench hosts")?;
    Ok(match status.code() {
        Some(0) => Between::Shown(picture),
        Some(NOT_HERE) => {
            println!(
                "Left out: two hosts need root, or a user namespace that may make network namespaces, and iproute2."
            );
            Between::NotHere
        }
        _ => {
            println!("The comparison between two hosts failed.");
            Between::Failed
        }
    })
}
