//! What can be said on the command line.

mod guest;

pub use guest::{GUEST_MEMORY, Guest, GuestCommand, GuestHost, GuestInside, HostEnd};

use crate::help;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use netchannel_scheduler::registry::Kind;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "netchannel",
    version,
    about = "TCP between unmodified programs: memory to memory on one host, over shared channels between hosts",
    after_help = help::PROGRAM,
    max_term_width = 100
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its TCP connections over NetChannel: shared memory on this host, channels to peers
    #[command(after_help = help::RUN)]
    Run(Run),
    /// Serve the programs of this host and keep channels to its peers, in the foreground
    #[command(after_help = help::DAEMON)]
    Daemon(Daemon),
    /// Show the status of the daemon and of the programs attached to it
    #[command(after_help = help::STATUS)]
    Status(Status),
    /// Ask the daemon to end; connections between programs of this host go on
    #[command(after_help = help::STOP)]
    Stop(Asking),
    /// List every socket of every program, the path it takes and why
    #[command(after_help = help::SS)]
    Ss(Ss),
    /// Show programs, peers, channels and sockets as they move, until q is pressed
    #[command(after_help = help::TOP)]
    Top(Top),
    /// List the other hosts that are configured, and how they are reached
    #[command(after_help = help::PEERS)]
    Peers(Hosts),
    /// List the channels to other hosts
    #[command(after_help = help::CHANNELS)]
    Channels(Hosts),
    /// List the tenants that are configured, or run a program as one, without a network of its own
    #[command(after_help = help::TENANTS)]
    Tenants(Tenants),
    /// Run a stack of tenants as a process of its own
    #[command(after_help = help::STACK)]
    Stack(Stack),
    /// The launcher of a daemon, at its standard input
    #[command(name = crate::LAUNCHER, hide = true)]
    StackLauncher,
    /// Make a virtual machine a tenant, over memory that it shares with the host
    #[command(after_help = help::GUEST)]
    Guest(Guest),
    /// Change what the daemon does while it runs
    #[command(after_help = help::SET)]
    Set(Set),
    /// Check or reload netchannel.toml, which names the peers of this host
    #[command(after_help = help::CONFIG)]
    Config(Config),
    /// Look for what this host lacks, and say how to fix it
    #[command(after_help = help::DOCTOR)]
    Doctor(Asking),
    /// Measure kernel TCP, AF_UNIX and NetChannel in one run
    #[command(after_help = help::BENCH, args_conflicts_with_subcommands = true)]
    Bench(Bench),
    /// Show which part of the network stack takes the processor, for any program or the whole host
    #[command(after_help = help::PROFILE, args_conflicts_with_subcommands = true)]
    Profile(netchannel_profile::Arguments),
    /// The workloads of `bench`
    #[command(name = netchannel_bench::WORKER_SUBCOMMAND, hide = true)]
    BenchWorker(Worker),
    /// A program under the supervisor of `run --static`
    #[command(hide = true)]
    Supervise(Supervise),
    /// Print completions for a shell: bash, zsh or fish
    #[command(after_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Write man pages or completions
    #[command(hide = true)]
    Generate(Generate),
}

/// `netchannel run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Attach socket of the daemon [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Fail rather than run over kernel TCP where NetChannel cannot be used
    #[arg(long)]
    pub require: bool,
    /// Do not start a daemon where none serves
    #[arg(long)]
    pub no_daemon: bool,
    /// The class of the program's connections to other hosts. What the program says of a socket itself
    /// goes before that
    #[arg(long, value_enum, value_name = "CLASS")]
    pub class: Option<ClassChoice>,
    /// Threads of the program that help to copy its large sends and receives, whatever the daemon's policy says; 0 for
    /// none [default: as the policy says, none on fewer than four processors]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=8))]
    pub copy_workers: Option<u32>,
    /// Let nobody make a ring of io_uring, not even by system calls that no library sees. An ordinary user's program, and
    /// what it starts, then gains no rights by executing files such as sudo
    #[arg(long)]
    pub refuse_rings: bool,
    /// What programs get that the library cannot enter: static ones, Go, musl. With `plain` an ordinary user's program,
    /// and what it starts, gains no rights by executing files such as sudo [default: plain in a tenant, else off]
    #[arg(long = "static", value_enum, value_name = "WAY")]
    pub static_programs: Option<StaticChoice>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// What programs get that the library cannot enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StaticChoice {
    /// Kernel TCP; nothing in a tenant
    Off,
    /// Connections by a supervisor of their system calls
    Plain,
}

/// `netchannel supervise`.
#[derive(Debug, Args)]
pub struct Supervise {
    /// The program is a tenant's
    #[arg(long = "tenant")]
    pub is_tenant: bool,
    /// The program's environment is without the library
    #[arg(long)]
    pub bare: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

/// Classes to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassChoice {
    /// Short messages, which must not wait
    Latency,
    /// Bulk data
    Throughput,
}

/// `netchannel daemon`.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Attach socket to serve at [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The file netchannel.toml with this host's peers; without it only programs of this host are served
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End after this many seconds without a program
    #[arg(long, value_name = "SECONDS")]
    pub idle_exit: Option<u64>,
    /// Append the log to this file rather than to standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log this much: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
    /// Return as soon as it serves, and leave it in the background
    #[arg(long)]
    pub background: bool,
    /// Say on standard output when it serves, and leave the session
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Lead connections between programs of this host through the daemon, as those with other hosts: for tests
    #[arg(long)]
    pub relay: bool,
    /// Sizes and quotas.
    #[command(flatten)]
    pub limits: Quotas,
}

/// Sizes and quotas of a daemon.
#[derive(Clone, Copy, Debug, Args)]
pub struct Quotas {
    /// Sockets of one program
    #[arg(long, value_name = "COUNT", default_value_t = 65536,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub sockets_per_program: u32,
    /// Connections of a link between two programs
    #[arg(long, value_name = "COUNT", default_value_t = 16384,
        value_parser = clap::value_parser!(u16).range(1..=16384))]
    pub slots: u16,
    /// Mebibytes of each of the two arenas of a link, a multiple of 4; they cost memory only as
    /// they are used
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = arena)]
    pub arena: u16,
    /// Links that one program may have made
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub links_per_program: u32,
    /// Listeners that one program may hold
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub listeners_per_program: u32,
}

fn arena(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(size) if (4..=16384).contains(&size) && size % 4 == 0 => Ok(size),
        _ => Err("a multiple of 4 from 4 to 16384 is needed".to_owned()),
    }
}

/// Whom to ask, and how to show the answer.
#[derive(Debug, Args)]
pub struct Asking {
    /// Attach socket of the daemon [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `netchannel status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Programs of this tenant, instead of those of the host
    #[arg(long, value_name = "NAME", conflicts_with = "shutdown")]
    pub tenant: Option<String>,
    /// Ask the daemon to end; programs go on, new connections over kernel TCP
    #[arg(long)]
    pub shutdown: bool,
}

/// `netchannel ss`.
#[derive(Debug, Args)]
pub struct Ss {
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Programs of this tenant, instead of those of the host
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Only sockets of programs with this name or process identifier
    #[arg(long, value_name = "NAME|PID")]
    pub program: Option<String>,
    /// Only listeners
    #[arg(long)]
    pub listening: bool,
    /// Only sockets that take this path
    #[arg(long, value_enum)]
    pub path: Option<PathChoice>,
}

/// Paths to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathChoice {
    /// Memory to memory
    Virtual,
    /// Over channels to another host
    Channel,
    /// Kernel TCP
    Kernel,
    /// Listeners
    Listener,
    /// Neither bound nor connected
    Fresh,
}

/// `netchannel config`.
#[derive(Debug, Args)]
pub struct Config {
    /// What to do with it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Tell everything that is wrong with a file, or print the effective configuration
    Check(Check),
    /// Let the daemon read its file again; if anything is wrong with it, nothing changes
    Reload(Asking),
    /// Print an annotated file to begin with
    Example,
}

/// `netchannel config check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The file
    #[arg(default_value = "netchannel.toml")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `netchannel top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Programs of this tenant, instead of those of the host
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Print one page and end; --json, or an output that is no terminal, does so too
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.1 to 3600 are needed".to_owned()),
    }
}

/// `netchannel peers` and `netchannel channels`.
#[derive(Debug, Args)]
pub struct Hosts {
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Only of this peer
    #[arg(long, value_name = "NAME")]
    pub peer: Option<String>,
}

/// `netchannel tenants`.
#[derive(Debug, Args)]
pub struct Tenants {
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<TenantsCommand>,
}

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantsCommand {
    /// Run a program as a tenant: podman, docker and nerdctl get the options that a container needs, others the environment
    Run(TenantProgram),
}

/// `netchannel tenants run`.
#[derive(Debug, Args)]
pub struct TenantProgram {
    /// What programs get that the library cannot enter, also within a container: static ones, Go, musl [default: plain]
    #[arg(long = "static", value_enum, value_name = "WAY")]
    pub static_programs: Option<StaticChoice>,
    /// The tenant, as the configuration names it
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `netchannel stack`.
#[derive(Debug, Args)]
pub struct Stack {
    /// What kind.
    #[command(subcommand)]
    pub kind: StackKind,
}

/// The kinds of stacks.
#[derive(Debug, Subcommand)]
pub enum StackKind {
    /// Kernel TCP on behalf of tenants
    Kernel(StackProcess),
}

/// `netchannel stack kernel`.
#[derive(Debug, Args)]
pub struct StackProcess {
    /// The stack, as the daemon's configuration names it
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// The socket at which the daemon awaits it; by default stacks/NAME/stack.sock beside the daemon's default socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// The network namespace in which it makes and takes connections, like /run/netns/wan
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub namespace: Option<PathBuf>,
    /// The number of the user as whom it runs
    #[arg(long, value_name = "USER")]
    pub user: Option<u32>,
    /// The processors on which it runs, like 0-3,6
    #[arg(long, value_name = "LIST")]
    pub processors: Option<String>,
    /// Bytes of memory that it may use, without what it shares with programs
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<u64>,
    /// The least important messages that are logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

/// `netchannel set`.
#[derive(Debug, Args)]
pub struct Set {
    /// What to change.
    #[command(subcommand)]
    pub command: SetCommand,
}

/// What can be changed.
#[derive(Debug, Subcommand)]
pub enum SetCommand {
    /// Use another policy from the next decision on; without one, show those in use
    Scheduler(Scheduler),
}

/// `netchannel set scheduler`.
#[derive(Debug, Args)]
pub struct Scheduler {
    /// A policy and its parameters, such as: shortest-queue congested-last=off
    #[arg(value_name = "POLICY", value_parser = PolicyWords)]
    pub setting: Vec<String>,
    /// List all policies with their parameters
    #[arg(long)]
    pub list: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
}

/// Words of a policy: a name, then its parameters. Any word is taken here; completions are offered the names.
#[derive(Clone, Copy, Debug)]
pub struct PolicyWords;

impl TypedValueParser for PolicyWords {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let registry = netchannel_scheduler::Registry::builtin();
        let names = Kind::ALL.into_iter().flat_map(|kind| {
            let policies = registry.of_kind(kind);
            policies
                .map(|one| PossibleValue::new(one.name).help(one.summary))
                .collect::<Vec<_>>()
        });
        Some(Box::new(names.collect::<Vec<_>>().into_iter()))
    }
}

/// `netchannel completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `netchannel bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Attach socket of a running daemon to measure with, rather than one of its own
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to measure.
    #[command(flatten)]
    pub what: netchannel_bench::Arguments,
}

/// `netchannel bench-worker`.
#[derive(Debug, Args)]
pub struct Worker {
    /// What the workload is told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// `netchannel generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// What to write
    #[arg(value_enum)]
    pub what: Generated,
    /// The folder to write into; for completions also a shell, for standard output
    pub target: PathBuf,
}

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// Man pages
    Man,
    /// Completions for bash, zsh and fish
    Completions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_of_the_program_are_left_to_it() {
        for line in [
            &["netchannel", "run", "--", "p", "--require"][..],
            &["netchannel", "run", "p", "--require"],
        ] {
            let parsed = Arguments::try_parse_from(line);
            let Command::Run(run) = parsed.unwrap().command else {
                panic!("another command");
            };
            assert!(!run.require);
            assert_eq!(run.program, ["p", "--require"]);
        }
    }

    #[test]
    fn every_command_shows_examples() {
        for command in Arguments::command().get_subcommands_mut() {
            if !command.is_hide_set() {
                let help = command.render_long_help().to_string();
                assert!(help.contains("Examples:"), "{}", command.get_name());
                assert!(help.contains("Exit codes:"), "{}", command.get_name());
            }
        }
    }

    #[test]
    fn sizes_that_make_no_link_are_refused() {
        for size in ["0", "5", "65536", "x"] {
            let line = ["netchannel", "daemon", "--arena", size];
            assert!(Arguments::try_parse_from(line).is_err(), "{size}");
        }
        assert!(Arguments::try_parse_from(["netchannel", "daemon", "--arena", "8"]).is_ok());
    }
}
