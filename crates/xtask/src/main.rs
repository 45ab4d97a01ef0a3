//! `cargo xtask`: the commands of developers of NetChannel.
//!
//! It builds, tests, shows and installs. For that it starts other programs (`cargo`, the scripts of `tests/programs`,
//! `netchannel`) and reads their output. It never holds product logic, never talks to a daemon itself, and is a
//! dependency of nothing.
//!
//! ```text
//!   cargo xtask test ──> plan (steps by name) ──> runner (one child each, log file, time limit) ──> report
//!   cargo xtask demo ──> cargo build ──> netchannel bench ... ──> table, picture, what next
//! ```

#![forbid(unsafe_code)]

mod demo;
mod deny;
mod docs;
mod fuzz;
mod guides;
mod install;
mod license_expression;
mod package;
mod picture;
mod plan;
mod plants;
mod process;
mod report;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use pico_args::Arguments;

const HELP: &str = "\
Developer commands of NetChannel

Usage: cargo xtask COMMAND [OPTIONS]

  demo                     build everything, compare with TCP on this host, draw a picture
  test [OPTIONS] [NAME]... run everything there is to test; with NAMEs, the steps whose name holds one of them
      --quick              leave out what takes long: loom, torture, conformance, CPython, real programs
      --all                and the real programs that take longer than what they find is worth every time
      --list               say which steps there are, and run nothing
      --no-install         as root: do not install missing test programs with apt-get
  fuzz [SECONDS]           run each fuzz target for SECONDS (default 60); needs nightly and cargo-fuzz
  plants [--cases N] [--seed N] [NAME]...
                           plant the defects of tests/plants, one at a time, and say which of them `torture calls` finds
  deny [--built-in]        licences and sources of all dependencies (cargo-deny too, where it is installed)
  install [--prefix DIR]   build and install the program, the library, man pages and completions
                           (default: /usr/local as root, ~/.local otherwise)
  package [--test]         a Debian package of the release build; with --test: installed below a root of its own, upgraded under
                           programs that run, removed and purged (as root)
  picture                  docs/results.svg, the picture of README, from docs/measurements.csv
  guides                   follow docs/transports.md and docs/scheduling.md to the letter, in a copy: a transport and a policy
                           of one's own, in use between two daemons
  docs [--open]            build the documentation, warnings denied

Examples:
  cargo xtask demo
  cargo xtask test --quick
  cargo xtask test programs/redis
  cargo xtask install --prefix /opt/netchannel

Exit codes: 0 all well, 1 something failed, 2 usage error.";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_env();
    if arguments.contains(["-h", "--help"]) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let command = match parse(arguments) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("cargo xtask: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match dispatch(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line.
enum Command {
    Demo,
    Test(test::Options),
    Fuzz { seconds: u32 },
    Plants(plants::Options),
    Deny { built_in: bool },
    Install { prefix: Option<std::path::PathBuf> },
    Docs { open: bool },
    Guides,
    Package { test: bool },
    Picture,
}

fn parse(mut arguments: Arguments) -> Result<Command> {
    let Some(name) = arguments.subcommand()? else {
        bail!("which command?");
    };
    let command = match name.as_str() {
        "demo" => Command::Demo,
        "test" => Command::Test(test::Options {
            quick: arguments.contains("--quick"),
            all: arguments.contains("--all"),
            list: arguments.contains("--list"),
            install: !arguments.contains("--no-install"),
            names: std::iter::from_fn(|| arguments.opt_free_from_str::<String>().transpose())
                .collect::<Result<_, _>>()?,
        }),
        "fuzz" => Command::Fuzz {
            seconds: arguments.opt_free_from_str()?.unwrap_or(60),
        },
        "plants" => Command::Plants(plants::Options {
            cases: arguments.opt_value_from_str("--cases")?.unwrap_or(50_000),
            seed: arguments.opt_value_from_str("--seed")?.unwrap_or(20_400),
            names: std::iter::from_fn(|| arguments.opt_free_from_str::<String>().transpose())
                .collect::<Result<_, _>>()?,
        }),
        "deny" => Command::Deny {
            built_in: arguments.contains("--built-in"),
        },
        "install" => Command::Install {
            prefix: arguments.opt_value_from_str("--prefix")?,
        },
        "guides" => Command::Guides,
        "picture" => Command::Picture,
        "package" => Command::Package {
            test: arguments.contains("--test"),
        },
        "docs" => Command::Docs {
            open: arguments.contains("--open"),
        },
        other => bail!("there is no command '{other}'"),
    };
    if let Some(rest) = arguments.finish().first() {
        bail!("unexpected argument '{}'", rest.to_string_lossy());
    }
    if let Command::Test(options) = &command
        && let Some(option) = options.names.iter().find(|name| name.starts_with('-'))
    {
        bail!("there is no option '{option}'");
    }
    Ok(command)
}

/// Runs one command; false means that it ran and what it checks is not well.
fn dispatch(command: Command) -> Result<bool> {
    let workspace = workspace::Workspace::find()?;
    match command {
        Command::Demo => demo::run(&workspace),
        Command::Test(options) => test::run(&workspace, &options),
        Command::Fuzz { seconds } => fuzz::run(&workspace, seconds),
        Command::Plants(options) => plants::run(&workspace, &options),
        Command::Deny { built_in: true } => deny::built_in(&workspace),
        Command::Deny { built_in: false } => deny::run(&workspace),
        Command::Install { prefix } => install::run(&workspace, prefix.as_deref()),
        Command::Docs { open } => docs::run(&workspace, open),
        Command::Guides => guides::run(&workspace),
        Command::Picture => picture::run(&workspace),
        Command::Package { test: false } => package::run(&workspace),
        Command::Package { test: true } => package::test(&workspace),
    }
}
