//! `netchannel profile`.

use netchannel_profile::{Arguments, Error};
use std::ffi::c_int;

/// Runs the command.
pub fn profile(arguments: &Arguments) -> c_int {
    match arguments.execute() {
        Ok(()) => 0,
        Err(error) => {
            crate::show::complain(&error.to_string());
            match error {
                Error::Options(_) => 2,
                _ => 1,
            }
        }
    }
}
