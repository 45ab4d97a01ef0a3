//! The program `netchannel`: reads its arguments and calls what does the work.
//!
//! Never: logic worth testing beyond arguments, start-up and presentation.
//!
//! ```text
//!  netchannel run -- PROGRAM --(daemon there? library there?)--> exec PROGRAM
//!  netchannel daemon          --> engine
//!  netchannel status | ss     --> control --> daemon
//! ```
#![no_main]

mod arguments;
mod daemon;
mod executable;
mod library;
mod log;
mod run;

use arguments::{Arguments, Command};
use clap::Parser;
use std::ffi::{c_char, c_int};

/// The entry point. It stands in for that of the standard library, which would change how SIGPIPE
/// is handled: a program started by `run` must not be able to tell.
// SAFETY: this program has no other symbol of that name.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
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
