//! A program under a supervisor: this program is executed once more, with the library in it, and becomes the supervisor.

use crate::arguments::Supervise;
use crate::executable::{self, Obstacle};
use crate::executing::{self, FAILED, Host};
use crate::library;
use crate::show::complain;
use netchannel_supervisor::{End, Options, exit_code};
use std::ffi::{OsString, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether a supervisor gives connections to a program that the library cannot enter for this reason.
pub const fn helps(obstacle: Obstacle) -> bool {
    matches!(
        obstacle,
        Obstacle::Static | Obstacle::OtherLinker | Obstacle::Go
    )
}

/// Becomes the supervisor of a program that has this environment, in which the library is. Returns only where that fails.
pub fn execute(program: &[OsString], environment: &[(OsString, OsString)], host: Host) -> c_int {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => {
            complain(&format!(
                "cannot tell where this program lies ({error}); is /proc mounted?"
            ));
            return FAILED;
        }
    };
    let mut words = vec![this.into_os_string(), OsString::from("supervise")];
    if host == Host::Tenant {
        words.push(OsString::from("--tenant"));
    }
    let obstacle = program.first().and_then(|name| executable::obstacle(name));
    if obstacle == Some(Obstacle::OtherLinker) {
        words.push(OsString::from("--bare"));
    }
    words.push(OsString::from("--"));
    words.extend(program.iter().cloned());
    executing::execute(&words, environment)
}

/// Runs the command.
pub fn supervise(arguments: &Supervise) -> c_int {
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    if arguments.bare {
        leave_out(&mut environment);
    }
    let options = Options {
        program: arguments.program.clone(),
        environment,
        is_tenant: arguments.is_tenant,
    };
    match netchannel_supervisor::run(&options) {
        Ok(End::Status(status)) => exit_code(status).map_or(FAILED, c_int::from),
        Ok(End::NotExecuted(error)) => match options.program.first() {
            Some(name) => executing::not_executed(name, &error),
            None => FAILED,
        },
        Err(error) => {
            complain(&format!("there can be no supervisor ({error}); not run"));
            FAILED
        }
    }
}

/// Takes the library out of what is preloaded: another dynamic linker than glibc's fails over it.
fn leave_out(environment: &mut Vec<(OsString, OsString)>) {
    let Some(place) = environment
        .iter()
        .position(|(name, _)| name == "LD_PRELOAD")
    else {
        return;
    };
    let (_, value) = environment.remove(place);
    let names = value.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let left: Vec<&[u8]> = names
        .filter(|name| !name.ends_with(library::NAME.as_bytes()) && !name.is_empty())
        .collect();
    if !left.is_empty() {
        let left = OsString::from_vec(left.join(&b':'));
        environment.push((OsString::from("LD_PRELOAD"), left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_library_is_left_out() {
        let left = |value: &str| {
            let mut environment = vec![("A".into(), "b".into())];
            environment.push(("LD_PRELOAD".into(), value.into()));
            leave_out(&mut environment);
            environment.into_iter().nth(1).map(|(_, value)| value)
        };
        assert_eq!(left("/x/libnetchannel.so"), None);
        let others = left("/a.so:/x/libnetchannel.so /b.so");
        assert_eq!(others, Some("/a.so:/b.so".into()));
    }
}
