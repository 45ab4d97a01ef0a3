//! `netchannel-supervisor`: the first process of a tenant's container, which runs the image's program under a supervisor.
//!
//! ```text
//!  podman run --init --init-path=.../nc.sock.lib/netchannel-supervisor IMAGE
//!    --> netchannel-supervisor -- PROGRAM ARGUMENTS...    with the host's C library, at /run/.netchannel, and libnetchannel.so
//!          '--> PROGRAM, of whatever C library
//! ```
//!
//! It never looks into the image, and needs nothing there but what is mounted at its folder and the tenant's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use netchannel_supervisor::{End, Options, exit_code, run};

/// NetChannel's own failure.
const FAILED: u8 = 125;
/// The program cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The program does not exist.
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1).peekable();
    // Makers of containers put it before the program.
    words.next_if(|word| word == "--");
    let options = Options {
        program: words.collect::<Vec<OsString>>(),
        environment: env::vars_os().collect(),
        is_tenant: true,
    };
    let Some(name) = options.program.first() else {
        eprintln!("netchannel-supervisor: name the program that it is to run, and its arguments");
        return ExitCode::from(FAILED);
    };
    ExitCode::from(match run(&options) {
        Ok(End::Status(status)) => exit_code(status).unwrap_or(FAILED),
        Ok(End::NotExecuted(error)) => not_executed(name, &error),
        Err(error) => {
            eprintln!("netchannel-supervisor: there can be no supervisor ({error}); not run");
            FAILED
        }
    })
}

fn not_executed(name: &OsStr, error: &Error) -> u8 {
    let name = Path::new(name).display();
    eprintln!("netchannel-supervisor: cannot execute {name} ({error})");
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}
