//! A program is executed with an environment of its own, in the place of this one.

use crate::show::complain;
use std::ffi::{CString, OsStr, OsString, c_int};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// NetChannel's own failure, or `--require` could not be met.
pub const FAILED: c_int = 125;
/// The program cannot be executed.
pub const NOT_EXECUTABLE: c_int = 126;
/// The program does not exist.
pub const NOT_FOUND: c_int = 127;
/// Whose programs a daemon serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Those of its host.
    Own,
    /// Those of a tenant, from whatever network namespace.
    Tenant,
}

/// Sets a variable.
pub fn set(environment: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    environment.retain(|(known, _)| known != name);
    environment.push((OsString::from(name), value));
}

/// Appends the library to what is preloaded already.
pub fn preload(environment: &mut Vec<(OsString, OsString)>, library: &Path) {
    let before = environment
        .iter()
        .find(|(name, _)| name == "LD_PRELOAD")
        .map(|(_, value)| value.clone())
        .unwrap_or_default();
    let mut value = before.into_vec();
    let ours = library.as_os_str().as_bytes();
    let mut names = value.split(|byte| matches!(byte, b':' | b' '));
    if names.any(|name| name == ours) {
        return;
    }
    if !value.is_empty() {
        value.push(b':');
    }
    value.extend_from_slice(ours);
    set(environment, "LD_PRELOAD", OsString::from_vec(value));
}

/// Executes a program. Returns the exit code where that fails.
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
