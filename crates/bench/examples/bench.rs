//! `netchannel bench` without the command line program: the workloads are this program itself.
//!
//! ```text
//! cargo run --release -p netchannel-bench --example bench -- [--netchannel PATH] ARGUMENTS...
//! ```

use clap::Parser;
use netchannel_bench::{Arguments, Launcher, WorkerCommand, exit_code, worker};
use std::path::PathBuf;
use std::process::ExitCode;

const WORKER: &str = "bench-worker";

/// Kernel TCP, AF_UNIX and NetChannel in one run
#[derive(Parser)]
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
    if words.next_if(|word| word == WORKER).is_some() {
        return worker::main(words);
    }
    let program = Program::parse();
    let own = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("can not find this program's own path: {error}");
            return ExitCode::FAILURE;
        }
    };
    let launcher = Launcher {
        netchannel: program.netchannel,
        socket: program.socket,
    };
    let worker = WorkerCommand {
        program: own,
        arguments: vec![WORKER.into()],
    };
    exit_code(&program.arguments.execute(launcher, worker))
}
