//! `netchannel config`: netchannel.toml is checked, and read again.

use crate::arguments::{Check, Config, ConfigCommand};
use crate::ask;
use crate::show::print;
use netchannel_configuration::{Configuration, EXAMPLE, Problems};
use netchannel_control::configuration::Problem;
use serde::Serialize;
use std::ffi::c_int;

/// The output of `check --json`.
#[derive(Serialize)]
struct Checked {
    file: String,
    valid: bool,
    problems: Vec<Problem>,
}

/// Runs the command.
pub fn config(arguments: &Config) -> c_int {
    match &arguments.command {
        ConfigCommand::Check(check) => checked(check),
        ConfigCommand::Reload(asking) => ask::reload(asking),
        ConfigCommand::Example => print(EXAMPLE),
    }
}

fn checked(arguments: &Check) -> c_int {
    let file = arguments.file.display();
    let result = Configuration::load(&arguments.file);
    let code = c_int::from(result.is_err());
    if arguments.json {
        let answer = Checked {
            file: file.to_string(),
            valid: result.is_ok(),
            problems: result.err().map_or_else(Vec::new, |error| error.problems),
        };
        let text = serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n";
        return print(&text).max(code);
    }
    match result {
        Ok(configuration) => {
            let peers = match configuration.peers.len() {
                0 => ", and names no peer: connections with other hosts go over kernel TCP",
                _ => "",
            };
            return print(&format!(
                "{file} is valid{peers}. Effective configuration:\n\n{configuration}"
            ));
        }
        Err(problems) => report(&problems),
    }
    code
}

/// Tells of problems on standard error, each on a line of its own as compilers do.
pub fn report(problems: &Problems) {
    use std::io::Write;
    // An error means that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{problems}");
}
