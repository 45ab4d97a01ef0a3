//! `netchannel bench` and the workloads it starts.

use crate::arguments::{Bench, Worker};
use netchannel_bench::{Launcher, WorkerCommand, exit_status, worker};
use std::ffi::c_int;

/// `netchannel bench`.
pub fn bench(arguments: &Bench) -> c_int {
    let found = std::env::current_exe().and_then(|program| {
        let worker = WorkerCommand::this_program()?;
        Ok((program, worker))
    });
    match found {
        Ok((program, worker)) => {
            let launcher = Launcher {
                netchannel: program,
                socket: arguments.socket.clone(),
            };
            c_int::from(exit_status(&arguments.what.execute(launcher, worker)))
        }
        Err(error) => {
            let sentence =
                format!("cannot tell where this program lies ({error}); is /proc mounted?");
            crate::show::complain(&sentence);
            1
        }
    }
}

/// `netchannel bench-worker`.
pub fn bench_worker(arguments: Worker) -> c_int {
    c_int::from(worker::main(arguments.arguments))
}
