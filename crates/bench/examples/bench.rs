//! `netchannel bench` without the command line program: the workloads are this program itself.
//!
//! ```text
//! cargo run --release -p netchannel-bench --example bench -- [--netchannel PATH] ARGUMENTS...
//! ```

use clap::Parser;
use netchannel_bench::{
    Arguments, Launcher, WORKER_SUBCOMMAND, WorkerCommand, exit_status, worker,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Kernel TCP, AF_UNIX and NetChannel in one run
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Program {
    /// The program `netchannel`, if there is one
    #[arg(long, default_value = "netchannel", value_name = "PATH")]
    netchannel: PathBuf,

    /// The socket of a running daemon; without it one is started
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == WORKER_SUBCOMMAND).is_some() {
        return worker::main(words).into();
    }
    let program = Program::parse();
    let worker = match WorkerCommand::this_program() {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("cannot find this program's own path: {error}");
            return ExitCode::FAILURE;
        }
    };
    let launcher = Launcher {
        netchannel: program.netchannel,
        socket: program.socket,
    };
    exit_status(&program.arguments.execute(launcher, worker)).into()
}
