//! The launcher: a small process that starts and ends stack processes for its daemon, which has given up the rights for that. It does
//! nothing else, and ends with the daemon.

use netchannel_stack_process::endpoint::Endpoint;
use netchannel_stack_process::launch::{Launch, LaunchEnd, OfLauncher, ToLauncher};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

/// The program itself, also where its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Starts the launcher of this daemon, as long as it has its rights. Returns the daemon's end.
///
/// # Errors
/// A sentence.
pub fn start_launcher() -> Result<OwnedFd, String> {
    let (own, other) = Endpoint::pair().map_err(|errno| errno.to_string())?;
    let mut command = Command::new(PROGRAM);
    command.arg0("netchannel").arg(crate::LAUNCHER);
    command.env_remove("LD_PRELOAD").stdin(Stdio::from(other));
    // It is waited for by nobody: it ends with this process.
    command.spawn().map_err(|error| error.to_string())?;
    Ok(own)
}

/// A stack that was started.
struct Started {
    number: u64,
    child: Child,
    end: Option<OwnedFd>,
}

/// Serves the daemon at standard input. Returns the exit code.
pub fn launch() -> c_int {
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return 1;
    };
    // The daemon's terminal sends its signals to both; the launcher ends after the daemon.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let ignored = std::sync::Arc::default();
        let _ = signal_hook::flag::register(signal.as_raw(), ignored);
    }
    let mut daemon = LaunchEnd::new(socket);
    let mut all: Vec<Started> = Vec::new();
    loop {
        loop {
            match daemon.receive() {
                Ok(Some(ToLauncher::Start(launch))) => match start(&launch) {
                    Ok(started) => all.push(started),
                    Err(error) => {
                        let how = format!("before it began ({error})");
                        let _ = daemon.send(&OfLauncher::Ended(launch.start, how));
                    }
                },
                Ok(Some(ToLauncher::End(number))) => {
                    all.iter_mut()
                        .filter(|one| one.number == number)
                        .for_each(end);
                    all.retain(|one| one.number != number);
                }
                Ok(None) => break,
                Err(_) => {
                    all.iter_mut().for_each(end);
                    return 0;
                }
            }
        }
        all.retain_mut(|one| match one.child.try_wait() {
            Ok(Some(status)) => {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("with status {code}"),
                    (None, signal) => format!("by signal {}", signal.unwrap_or_default()),
                };
                let _ = daemon.send(&OfLauncher::Ended(one.number, how));
                false
            }
            _ => true,
        });
        let mut watched = vec![PollFd::new(&daemon, PollFlags::IN)];
        let ends = all.iter().filter_map(|one| one.end.as_ref());
        watched.extend(ends.map(|end| PollFd::new(end, PollFlags::IN)));
        // A signal ends the wait, and nothing else.
        let _ = poll(&mut watched, None);
    }
}

fn start(launch: &Launch) -> std::io::Result<Started> {
    let mut command = Command::new(PROGRAM);
    command.arg0("netchannel").args(["stack", &launch.kind]);
    command.arg("--name").arg(&launch.name);
    command.arg("--socket").arg(&launch.socket);
    if let Some(namespace) = &launch.namespace {
        command.arg("--namespace").arg(namespace);
    }
    if let Some(user) = launch.user {
        command.arg("--user").arg(user.to_string());
    }
    if !launch.processors.is_empty() {
        command.arg("--processors").arg(&launch.processors);
    }
    if let Some(memory) = launch.memory {
        command.arg("--memory").arg(memory.to_string());
    }
    let child = command.stdin(Stdio::null()).spawn()?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let end = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
    Ok(Started {
        number: launch.start,
        child,
        end,
    })
}

fn end(one: &mut Started) {
    // It may have ended by itself.
    let _ = one.child.kill();
    let _ = one.child.wait();
}
