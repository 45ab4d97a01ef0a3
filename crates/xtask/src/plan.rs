//! The steps of `cargo xtask test`, in the order in which a fault is cheapest to find.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, find_program};

/// One step, which is timed.
pub struct Step {
    /// Its name on the screen and for `cargo xtask test NAME`.
    pub name: String,
    /// Its action.
    pub action: Action,
    /// Its time limit.
    pub limit: Duration,
    /// Whether `--quick` leaves it out.
    pub slow: bool,
    /// Whether it is done with `--all` only, or where it is named.
    pub seldom: bool,
}

/// The action of a step.
pub enum Action {
    /// Run a child; exit code 77 means that it could not try, any other but 0 that it failed.
    Run(Box<Command>),
    /// Nothing, because something is missing.
    Skip(String),
}

/// Scripts of tests/programs that are no tests.
const NO_TESTS: [&str; 3] = ["common.sh", "acceptance.sh", "servers.sh"];

/// Steps that take long and seldom find anything.
const SELDOM: [&str; 6] = [
    "apache",
    "guest",
    "gunicorn",
    "haproxy",
    "tenants_runtimes",
    "uwsgi",
];

const MINUTE: u64 = 60;

/// All steps.
pub fn steps(workspace: &Workspace) -> Result<Vec<Step>> {
    let mut steps = vec![
        quick("format", 1, cargo(workspace, &["fmt", "--all", "--check"])),
        quick(
            "licences",
            2,
            this_program(workspace, &["deny", "--built-in"])?,
        ),
        cargo_deny(workspace),
        quick("clippy", 10, {
            let arguments = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ];
            cargo(workspace, &arguments)
        }),
        quick("documentation", 10, {
            let mut command = cargo(workspace, &["doc", "--workspace", "--no-deps"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            command
        }),
        quick(
            "release build",
            15,
            cargo(workspace, &["build", "--release", "--workspace"]),
        ),
        quick("unit and integration tests", 15, {
            let arguments = [
                "--workspace",
                "--exclude",
                "netchannel-testkit",
                "--no-fail-fast",
            ];
            cargo_test(workspace, &arguments)
        }),
        quick("test kit", 5, {
            cargo_test(
                workspace,
                &["--package", "netchannel-testkit", "--lib", "--bins"],
            )
        }),
        slow("conformance", 15, {
            cargo_test(
                workspace,
                &[
                    "--package",
                    "netchannel-testkit",
                    "--test",
                    "*",
                    "--no-fail-fast",
                    "--",
                    // Messages about unsteady cases are shown even if they pass.
                    "--show-output",
                ],
            )
        }),
        slow("guides", 15, this_program(workspace, &["guides"])?),
        slow(
            "package",
            5,
            this_program(workspace, &["package", "--test"])?,
        ),
        slow("loom models", 15, loom(workspace)),
        address_sanitizer(workspace)?,
        two_hosts(
            workspace,
            "bytes",
            "torture",
            &["between", "--seconds", "8", "--seed", "20264"],
        ),
        between(workspace, "servers", &["--mode", "servers"]),
        between(workspace, "out of a tenant", &["--tenant", "out"]),
        between(
            workspace,
            "servers of a tenant",
            // What SPECIFICATION 16.15 keeps of a listener that is handed on.
            &[
                "--mode", "servers", "--tenant", "in", "--except", "HandedOn",
            ],
        ),
        two_hosts(
            workspace,
            "faults",
            "torture",
            &["faults", "--seed", "20265"],
        ),
        two_hosts(
            workspace,
            "outages",
            "torture",
            &["hosts", "--seed", "20266", "--only", "_1_s"],
        ),
        users(workspace),
        calls(workspace),
        two_hosts(
            workspace,
            "conformance",
            "conformance",
            &["compare", "--hosts", "--only", "--jobs", "8"],
        ),
        tenants(workspace, "conformance", "--tenant", &TENANT_CASES),
        Step {
            seldom: true,
            ..tenants(workspace, "conformance in full", "--tenant", &[])
        },
        tenants(workspace, "over channels", CHANNELS, &CHANNEL_CASES),
        Step {
            seldom: true,
            ..tenants(workspace, "over channels in full", CHANNELS, &[])
        },
    ];
    for script in scripts(&workspace.programs())? {
        let name = script
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut command = Command::new("bash");
        command.arg(&script).current_dir(workspace.programs());
        with_release_build(&mut command, workspace);
        if name == "hosts" {
            // With one end only it is kernel TCP, which the other scripts try on one host.
            command.env("NETCHANNEL_MODES", "both");
        }
        let minutes = match name.as_str() {
            "cpython" => 20,
            // The first run builds them; an emulated machine boots.
            "guest" | "libuv" | "liburing" => 10,
            _ => 4,
        };
        steps.push(Step {
            seldom: SELDOM.contains(&name.as_str()),
            ..slow(&format!("programs/{name}"), minutes, command)
        });
    }
    Ok(steps)
}

fn quick(name: &str, minutes: u64, command: Command) -> Step {
    Step {
        name: name.to_owned(),
        action: Action::Run(Box::new(command)),
        limit: Duration::from_secs(minutes * MINUTE),
        slow: false,
        seldom: false,
    }
}

fn slow(name: &str, minutes: u64, command: Command) -> Step {
    Step {
        slow: true,
        ..quick(name, minutes, command)
    }
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = workspace.cargo();
    command.args(arguments);
    command
}

/// Tests that start `netchannel` take the release build, which people use.
fn cargo_test(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = cargo(workspace, &["test"]);
    command.args(arguments);
    with_release_build(&mut command, workspace);
    command
}

/// Says where the programs under test are.
fn with_release_build(command: &mut Command, workspace: &Workspace) {
    command
        .env("NETCHANNEL_PROGRAM", workspace.program())
        .env("NETCHANNEL_LIBRARY", workspace.library());
}

/// A program of the test kit between two hosts: network namespaces of its own, for which it needs root or user
/// namespaces. It reports where it has neither.
fn two_hosts(workspace: &Workspace, name: &str, program: &str, arguments: &[&str]) -> Step {
    let mut command = Command::new(workspace.program().with_file_name(program));
    command
        .args(arguments)
        .arg("--netchannel")
        .arg(workspace.program())
        .current_dir(&workspace.root);
    with_release_build(&mut command, workspace);
    slow(&format!("two hosts: {name}"), 4, command)
}

/// The cases that are about what a stack has to carry: ends, errors, urgent bytes, options, listeners.
const TENANT_CASES: [&str; 7] = [
    "corner_10_",
    "corner_14_reset",
    "held_until",
    "listeners_close",
    "streams_random",
    "urgent_",
    "corner_04_reuseport",
];

/// The tenant's connections go over channels.
const CHANNELS: &str = "--tenant-channels";
const CHANNEL_CASES: [&str; 4] = ["corner_10_", "held_", "streams_random", "urgent_"];

/// Cases of the conformance suite with one end as a program of a tenant; all, where none are named.
fn tenants(workspace: &Workspace, name: &str, way: &str, cases: &[&str]) -> Step {
    let arguments = ["compare", way, "--only", "--jobs", "6"];
    let arguments = [&arguments[..], cases].concat();
    let step = two_hosts(workspace, name, "conformance", &arguments);
    Step {
        name: format!("tenants: {name}"),
        limit: Duration::from_secs(10 * MINUTE),
        ..step
    }
}

/// Bytes or servers between two hosts for some seconds.
fn between(workspace: &Workspace, name: &str, how: &[&str]) -> Step {
    let arguments = ["between", "--seconds", "8", "--seed", "20272"];
    let arguments = [&arguments[..], how].concat();
    two_hosts(workspace, name, "torture", &arguments)
}

/// Several users under root's daemon, one of them hostile. It reports where it is not root.
fn users(workspace: &Workspace) -> Step {
    let mut command = Command::new(workspace.program().with_file_name("torture"));
    command
        .args(["users", "--seconds", "120", "--netchannel"])
        .arg(workspace.program())
        .current_dir(&workspace.root);
    slow("users", 6, command)
}

/// Random programs over kernel TCP and over NetChannel; a drawn number of them, always the same.
fn calls(workspace: &Workspace) -> Step {
    let mut command = Command::new(workspace.program().with_file_name("torture"));
    command
        .args([
            "calls",
            "--cases",
            "2000",
            "--seed",
            "20400",
            "--netchannel",
        ])
        .arg(workspace.program())
        .current_dir(&workspace.root);
    slow("calls", 5, command)
}

/// Another command of this program, in a child so that its output is logged like any other.
fn this_program(workspace: &Workspace, words: &[&str]) -> Result<Command> {
    let this = env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(this);
    command.args(words).current_dir(&workspace.root);
    Ok(command)
}

fn cargo_deny(workspace: &Workspace) -> Step {
    let mut arguments = vec!["deny", "check"];
    arguments.extend(crate::deny::OFFLINE_CHECKS);
    let mut step = quick("cargo-deny", 5, cargo(workspace, &arguments));
    if find_program("cargo-deny").is_none() {
        let reason = "not installed (`cargo install cargo-deny --locked`)";
        step.action = Action::Skip(reason.to_owned());
    }
    step
}

/// The models swap atomics for loom's, so they need a build of their own.
fn loom(workspace: &Workspace) -> Command {
    let arguments = ["test", "--package", "netchannel-ring", "--release", "--lib"];
    let mut command = cargo(workspace, &arguments);
    command
        .env("CARGO_TARGET_DIR", workspace.target.join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// The target for which the sanitizer is known to work; it must be named.
const SANITIZED: &str = "x86_64-unknown-linux-gnu";

/// Tests that cannot be run under it: they have threads of which the C library, and so the sanitizer, knows nothing.
const NOT_SANITIZED: [&str; 1] = ["split"];

/// The tests of code that maps other processes' memory, with every access checked. The sanitizer needs nightly.
fn address_sanitizer(workspace: &Workspace) -> Result<Step> {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "test", "--target", SANITIZED])
        .args([
            "--package",
            "netchannel-shm",
            "--package",
            "netchannel-service",
            "--package",
            "netchannel-stack-local",
            "--package",
            "netchannel-stack-kernel",
            "--package",
            "netchannel-stack-channels",
            "--package",
            "netchannel-engine",
            "--package",
            "netchannel-daemon",
        ])
        .arg("--lib")
        .current_dir(&workspace.root)
        .env(
            "CARGO_TARGET_DIR",
            workspace.target.join("address-sanitizer"),
        )
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // Faults of the copy that survives a bad pointer are part of the test, and memory that lives until the end is
        // no leak.
        .env(
            "ASAN_OPTIONS",
            "handle_segv=0:handle_sigbus=0:detect_leaks=0",
        )
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    for package in ["shm", "daemon"] {
        let folder = workspace.root.join("crates").join(package).join("tests");
        for name in files(&folder, "rs")?
            .iter()
            .filter_map(|file| file.file_stem())
        {
            if !NOT_SANITIZED.iter().any(|one| name == *one) {
                command.arg("--test").arg(name);
            }
        }
    }
    let mut step = slow("address sanitizer", 20, command);
    let nightly = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        let reason = "no nightly toolchain (`rustup toolchain install nightly`)";
        step.action = Action::Skip(reason.to_owned());
    }
    Ok(step)
}

/// The scripts that are tests, by name; CPython's suites, which take longest, last.
fn scripts(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut scripts = files(folder, "sh")?;
    scripts.retain(|path| !NO_TESTS.iter().any(|name| path.ends_with(name)));
    scripts.sort_by_key(|path| (path.ends_with("cpython.sh"), path.clone()));
    Ok(scripts)
}

/// The files of a folder whose names end so, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|one| one == extension))
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_scripts_and_leaves_out_helpers() {
        let workspace = Workspace::find().unwrap();
        let scripts = scripts(&workspace.programs()).unwrap();
        assert!(
            scripts.iter().any(|path| path.ends_with("redis.sh")),
            "{scripts:?}"
        );
        assert!(scripts.last().unwrap().ends_with("cpython.sh"));
        assert!(!scripts.iter().any(|path| path.ends_with("common.sh")));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = steps(&Workspace::find().unwrap())
            .unwrap()
            .into_iter()
            .map(|step| step.name)
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
