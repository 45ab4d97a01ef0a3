//! The program `netchannel`: reads its arguments and calls what does the work.
//!
//! Never: logic worth testing beyond arguments, start-up and presentation.
//!
//! ```text
//!  netchannel run -- PROGRAM --(daemon there? library there?)--> exec PROGRAM
//!  netchannel run --static=plain -- PROGRAM --> supervisor --> PROGRAM
//!  netchannel daemon          --> engine
//!  netchannel status | ss | peers | ...  --> control --> daemon
//!  netchannel config check    --> configuration
//!  netchannel profile         --> profile
//! ```

mod arguments;
mod ask;
mod bench;
mod config;
mod containers;
mod daemon;
mod doctor;
mod elf;
mod executable;
mod executing;
mod generate;
mod guest;
mod help;
mod hosts;
mod library;
mod log;
mod privileges;
mod profile;
mod refusal;
mod run;
mod show;
mod socket;
mod stack;
mod supervise;
mod tenants;
mod top;

use arguments::{Arguments, Command};
use clap::Parser;
use std::ffi::c_int;

/// The subcommand that is the launcher of stack processes.
pub(crate) const LAUNCHER: &str = "stack-launcher";

/// Executes the command line. Returns the exit code.
#[must_use]
pub fn execute() -> c_int {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // An error means that the terminal is closed.
            let _ = error.print();
            // A code of `run` that a program could have ended with would say nothing.
            let is_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
            return if is_run && error.use_stderr() {
                executing::FAILED
            } else {
                error.exit_code()
            };
        }
    };
    match arguments.command {
        Command::Run(options) => run::run(&options),
        Command::Daemon(options) => daemon::daemon(&options),
        Command::Status(mut options) => {
            let tenant = options.tenant.take();
            match tenants::with_scope(&mut options.asking, tenant) {
                Ok(()) => ask::status(&options),
                Err(code) => code,
            }
        }
        Command::Stop(options) => ask::stop(&options),
        Command::Ss(mut options) => {
            let tenant = options.tenant.take();
            match tenants::with_scope(&mut options.asking, tenant) {
                Ok(()) => ask::sockets(&options),
                Err(code) => code,
            }
        }
        Command::Top(mut options) => {
            let tenant = options.tenant.take();
            match tenants::with_scope(&mut options.asking, tenant) {
                Ok(()) => top::top(&options),
                Err(code) => code,
            }
        }
        Command::Peers(options) => hosts::peers(&options),
        Command::Channels(options) => hosts::channels(&options),
        Command::Stack(options) => stack::stack(&options.kind),
        Command::StackLauncher => stack::launch(),
        Command::Tenants(options) => tenants::tenants(&options),
        Command::Guest(options) => guest::guest(&options),
        Command::Set(options) => hosts::set(&options),
        Command::Config(options) => config::config(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Profile(options) => profile::profile(&options),
        Command::BenchWorker(options) => bench::bench_worker(options),
        Command::Supervise(options) => supervise::supervise(&options),
        Command::Completions(options) => generate::completions_of(options.shell),
        Command::Generate(options) => generate::generate(&options),
    }
}
