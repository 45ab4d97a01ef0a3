//! Becoming a program, and the exit codes where that fails.

use crate::show::complain;
use std::ffi::{CString, OsStr, OsString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// NetChannel's own failure, or `--require` could not be met.
pub const FAILED: c_int = 125;
/// The program cannot be executed.
pub const NOT_EXECUTABLE: c_int = 126;
/// The program does not exist.
pub const NOT_FOUND: c_int = 127;
/// Becomes the program. Returns only where it cannot be executed.
pub fn execute(program: &[OsString], environment: &[(OsString, OsString)]) -> c_int {
    let Some(name) = program.first() else {
        return FAILED;
    };
    let string = |bytes: &OsStr| CString::new(bytes.as_bytes());
    let arguments: Result<Vec<CString>, _> = program.iter().map(|one| string(one)).collect();
    let environment: Result<Vec<CString>, _> = environment
        .iter()
        .map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            string(&pair)
        })
        .collect();
    let (Ok(arguments), Ok(environment), Ok(file)) = (arguments, environment, string(name)) else {
        complain("an argument has a zero byte");
        return FAILED;
    };
    let Err(errno) = nix::unistd::execvpe(&file, &arguments, &environment);
    not_executed(name, &io::Error::from(errno))
}

/// Says that a program can not be executed, and returns the exit code.
pub fn not_executed(name: &OsStr, error: &io::Error) -> c_int {
    complain(&format!(
        "cannot execute {} ({error})",
        Path::new(name).display()
    ));
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}
