//! `netchannel profile` without the rest of NetChannel.
//!
//! cargo run --release -p netchannel-profile --example profile -- ARGUMENTS...

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Line {
    #[command(flatten)]
    arguments: netchannel_profile::Arguments,
}

fn main() -> ExitCode {
    match Line::parse().arguments.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("profile: {error}");
            ExitCode::FAILURE
        }
    }
}
