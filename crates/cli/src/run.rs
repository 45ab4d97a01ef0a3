//! `netchannel run`: makes everything ready, and becomes the program.

use crate::arguments::{ClassChoice, Run, StaticChoice};
use crate::daemon::start_detached;
use crate::executable::{self, Obstacle};
use crate::executing::{FAILED, Host, execute, preload, set};
use crate::library;
use crate::refusal;
use crate::show::complain;
use crate::socket::socket_path;
use crate::supervise;
use netchannel_control::client::ClientError;
use netchannel_control::path::{PathError, SOCKET_VARIABLE, network_namespace, prepare_directory};
use netchannel_control::types::{Request, Response};
use netchannel_daemon::slice;
use std::ffi::{OsString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon that `run` started ends after this many seconds without a program.
const IDLE_EXIT: u64 = 30;
/// How long a daemon may take to identify itself, and to begin or end where another command started it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command. Returns only where the program cannot be executed.
pub fn run(arguments: &Run) -> c_int {
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let supervised = match prepare(arguments, &mut environment) {
        Ok(supervised) => supervised,
        Err(sentence) if arguments.require => {
            complain(&format!("{sentence}; not run, as --require was given"));
            return FAILED;
        }
        Err(sentence) => {
            complain(&format!("{sentence}; running over kernel TCP"));
            None
        }
    };
    if matches!(arguments.class, Some(ClassChoice::Latency)) {
        // A kernel without slices runs it as any other.
        let _ = slice::set(slice::LATENCY);
    }
    if arguments.refuse_rings
        && let Err(error) = refusal::refuse_rings()
    {
        complain(&format!(
            "rings of io_uring cannot be refused ({error}); not run"
        ));
        return FAILED;
    }
    if let Some(host) = supervised {
        return supervise::execute(&arguments.program, &environment, host);
    }
    execute(&arguments.program, &environment)
}

/// Makes the program use NetChannel, or returns a sentence why it can not. Whose it is, where it gets a supervisor.
fn prepare(
    arguments: &Run,
    environment: &mut Vec<(OsString, OsString)>,
) -> Result<Option<Host>, String> {
    let library = library::find().map_err(|error| error.to_string())?;
    let socket = socket_path(arguments.socket.as_deref()).map_err(|error| error.to_string())?;
    let served = ensure_daemon(&socket, arguments.no_daemon);
    let program = arguments.program.first().map(OsString::as_os_str);
    let obstacle = program.and_then(executable::obstacle);
    let choice = arguments.static_programs.unwrap_or(match served {
        Ok(Host::Tenant) => StaticChoice::Plain,
        _ => StaticChoice::Off,
    });
    let is_supervised = choice == StaticChoice::Plain;
    // Where another user's daemon serves, the program gets no library, which would only report the same.
    let is_strange = matches!(served, Err(Unserved::Distrusted(_)));
    if (obstacle != Some(Obstacle::OtherLinker) || is_supervised) && !is_strange {
        // Set even where the program itself cannot load it: its children may.
        preload(environment, &library);
        set(environment, SOCKET_VARIABLE, socket.into_os_string());
        if let Some(class) = arguments.class {
            let name = match class {
                ClassChoice::Latency => "latency",
                ClassChoice::Throughput => "throughput",
            };
            set(
                environment,
                netchannel_abi::class::VARIABLE,
                OsString::from(name),
            );
        }
        if let Some(count) = arguments.copy_workers {
            let name = netchannel_abi::copying::VARIABLE;
            set(environment, name, OsString::from(count.to_string()));
        }
        if arguments.require {
            set(environment, "NETCHANNEL_REQUIRE", OsString::from("1"));
        }
        allow_sanitizers(environment);
    }
    let host = served.map_err(|why| why.to_string())?;
    match (obstacle, program) {
        (Some(obstacle), _) if is_supervised && supervise::helps(obstacle) => Ok(Some(host)),
        (Some(obstacle), Some(program)) => {
            Err(format!("{} {obstacle}", Path::new(program).display()))
        }
        _ => Ok(is_supervised.then_some(host)),
    }
}

/// Why no daemon serves the program.
#[derive(Debug, thiserror::Error)]
enum Unserved {
    /// Another user's daemon serves there, or could.
    #[error("{0}")]
    Distrusted(String),
    /// Another reason.
    #[error("{0}")]
    Other(String),
}

impl From<ClientError> for Unserved {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Distrusted(..) => Self::Distrusted(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<PathError> for Unserved {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Distrusted(..) => Self::Distrusted(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Sees that a daemon of this version serves at `socket`.
fn ensure_daemon(socket: &Path, no_daemon: bool) -> Result<Host, Unserved> {
    let hello = || netchannel_control::request(socket, Request::Hello, PATIENCE);
    let deadline = Instant::now() + PATIENCE;
    let mut answer = hello();
    // A daemon that another command started may not serve yet, or end already. It has the lock then and does not answer.
    while !no_daemon
        && answer.as_ref().is_err_and(ClientError::is_without_daemon)
        && Instant::now() < deadline
    {
        prepare_directory(socket)?;
        start_detached(socket, IDLE_EXIT).map_err(|error| Unserved::Other(error.to_string()))?;
        answer = hello();
    }
    let shown = socket.display();
    // Programs of a tenant may attach, and not ask.
    if matches!(answer, Err(ClientError::Denied(_))) && can_attach(socket) {
        return Ok(Host::Tenant);
    }
    match answer? {
        Response::Hello(hello) if hello.layout == netchannel_abi::LAYOUT_HASH => {
            if hello.is_tenant {
                return Ok(Host::Tenant);
            }
            let own = network_namespace().unwrap_or(hello.network_namespace);
            if own == hello.network_namespace {
                return Ok(Host::Own);
            }
            Err(Unserved::Other(format!(
                "the daemon at {shown} is of another network namespace; name another --socket PATH"
            )))
        }
        _ => Err(Unserved::Other(format!(
            "the daemon at {shown} is of another version than this program; restart it"
        ))),
    }
}

fn can_attach(socket: &Path) -> bool {
    rustix::fs::access(socket, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The dynamic address sanitizer ends a program, or a child of one, that has another library before its own. Both work
/// in that order all the same.
fn allow_sanitizers(environment: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "ASAN_OPTIONS";
    const OPTION: &str = "verify_asan_link_order";
    let known = environment.iter().find(|(name, _)| name == NAME);
    let mut value = known.map_or_else(Vec::new, |(_, value)| value.clone().into_vec());
    if value
        .windows(OPTION.len())
        .any(|part| part == OPTION.as_bytes())
    {
        return;
    }
    if !value.is_empty() {
        value.push(b':');
    }
    value.extend_from_slice(OPTION.as_bytes());
    value.extend_from_slice(b"=0");
    set(environment, NAME, OsString::from_vec(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preloaded(before: Option<&str>) -> OsString {
        let mut environment = Vec::new();
        if let Some(before) = before {
            set(&mut environment, "LD_PRELOAD", OsString::from(before));
        }
        preload(&mut environment, Path::new("/x/libnetchannel.so"));
        assert_eq!(environment.len(), 1);
        environment.remove(0).1
    }

    #[test]
    fn options_of_the_sanitizer_stay() {
        let asked = |before: &str| {
            let mut environment = vec![("ASAN_OPTIONS".into(), before.into())];
            allow_sanitizers(&mut environment);
            environment.remove(0).1.into_string().unwrap()
        };
        assert_eq!(asked(""), "verify_asan_link_order=0");
        assert_eq!(
            asked("detect_leaks=0"),
            "detect_leaks=0:verify_asan_link_order=0"
        );
        assert_eq!(
            asked("verify_asan_link_order=1"),
            "verify_asan_link_order=1"
        );
    }

    #[test]
    fn what_is_preloaded_already_stays() {
        assert_eq!(preloaded(None), "/x/libnetchannel.so");
        assert_eq!(preloaded(Some("/a.so")), "/a.so:/x/libnetchannel.so");
        let twice = "/x/libnetchannel.so:/a.so";
        assert_eq!(preloaded(Some(twice)), twice);
    }
}
