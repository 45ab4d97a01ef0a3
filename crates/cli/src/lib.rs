//! The program `netchannel`: reads its arguments and calls what does the work.
//!
//! Never: logic worth testing beyond arguments, start-up and presentation.
//!
//! ```text
//!  netchannel run -- PROGRAM --(daemon there? library there?)--> exec PROGRAM
//!  netchannel daemon          --> engine
//!  netchannel status | ss     --> control --> daemon
//! ```

mod arguments;
mod daemon;
mod executable;
mod library;
mod log;
mod run;

use arguments::{Arguments, Command};
use clap::Parser;
use std::ffi::c_int;

/// Does what the command line says. Returns the exit code.
#[must_use]
pub fn execute() -> c_int {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be said where the terminal is gone.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match arguments.command {
        Command::Run(options) => run::run(&options),
        Command::Daemon(options) => daemon::daemon(&options),
    }
}
