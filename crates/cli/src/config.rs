//! `netchannel config`: netchannel.toml is checked, and read again.

use crate::arguments::{Check, Config, ConfigCommand};
use crate::ask;
use crate::show::print;
use netchannel_configuration::{Configuration, EXAMPLE, Problems};
use netchannel_control::configuration::Problem;
use serde::Serialize;
use std::ffi::c_int;

/// What `check --json` prints.
#[derive(Serialize)]
struct Checked {
    file: String,
    in_order: bool,
    problems: Vec<Problem>,
}

/// Runs the command.
pub fn config(arguments: &Config) -> c_int {
    match &arguments.command {
        ConfigCommand::Check(check) => checked(check),
        ConfigCommand::Reload(asking) => ask::reload(asking),
        ConfigCommand::Example => {
            print(EXAMPLE);
            0
        }
    }
}

fn checked(arguments: &Check) -> c_int {
    let file = arguments.file.display();
    let result = Configuration::load(&arguments.file);
    let code = c_int::from(result.is_err());
    if arguments.json {
        let answer = Checked {
            file: file.to_string(),
            in_order: result.is_ok(),
            problems: result.err().map_or_else(Vec::new, |error| error.problems),
        };
        print(&(serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n"));
        return code;
    }
    match result {
        Ok(configuration) => {
            print(&format!(
                "{file} is in order. With all defaults it says:\n\n{configuration}"
            ));
        }
        Err(problems) => told(&problems),
    }
    code
}

/// Tells of problems on standard error, each on a line of its own as compilers do.
pub fn told(problems: &Problems) {
    use std::io::Write;
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{problems}");
}
