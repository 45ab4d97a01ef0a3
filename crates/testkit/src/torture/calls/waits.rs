//! How long each step of a program may sleep until it counts as waiting. The time is short where only another step can
//! end the wait.

use std::time::Duration;

use super::form::Kind;
use super::memory::{at, first};
use super::program::{Program, Step};
use super::settings::RunSettings;

/// Calls that wait only for other actors, and for no request that the library sends to the daemon.
const FOR_OTHERS: &[&str] = &[
    "accept",
    "accept4",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "poll",
    "ppoll",
    "preadv2",
    "pselect",
    "pwritev2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "select",
    "send",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "splice",
    "write",
    "writev",
];

/// The patience for each step.
pub fn patience(program: &Program, settings: RunSettings) -> Vec<Duration> {
    let mut limited = false;
    let steps = program.steps.iter().map(|step| {
        limited |= step.form.name == "setsockopt" && {
            let text = step.to_string();
            text.contains("SO_RCVTIMEO") || text.contains("SO_SNDTIMEO")
        };
        let for_others = FOR_OTHERS.contains(&step.form.name)
            && !limited
            && !has_time(step)
            && !has_descriptors(step);
        if for_others {
            settings.haste
        } else {
            settings.patience
        }
    });
    steps.collect()
}

/// Whether it is a call for a message with descriptors, of which the library asks the daemon.
fn has_descriptors(step: &Step) -> bool {
    let mut arguments = step.form.arguments.iter().zip(&step.arguments);
    arguments.any(|(kind, argument)| {
        matches!(kind, Kind::MessageIn | Kind::MessageOut) && at(argument, 1) == 1
    })
}

/// Whether the call has a time-out.
fn has_time(step: &Step) -> bool {
    let mut arguments = step.form.arguments.iter().zip(&step.arguments);
    arguments.any(|(kind, argument)| match kind {
        Kind::Milliseconds => first(argument) > 0,
        // Neither infinite nor zero.
        Kind::Timeval | Kind::Timespec => !matches!(first(argument), 0 | 1),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Program, RunSettings, patience};

    #[test]
    fn who_waits_for_a_time_is_given_it() {
        let text = "1 @0 recv(v1, good, 10, 0)\n2 @0 poll({v1,POLLIN}, 10)\n3 @0 poll({v1,POLLIN}, -1)\n\
                    4 @0 connect(v1, {of,v1,4,0})\n5 @0 sendmsg(v1, {1,1,0,v1}, 0)\n6 @0 sendmsg(v1, {1,0,0,v1}, 0)\n\
                    7 @0 setsockopt(v1, SO_RCVTIMEO, {time,0,10000,0})\n8 @0 recv(v1, good, 10, 0)";
        let program = Program::read(text).unwrap();
        let settings = RunSettings {
            patience: Duration::from_millis(30),
            haste: Duration::from_millis(3),
            settling: Duration::ZERO,
            fresh: false,
        };
        let milliseconds = patience(&program, settings);
        let milliseconds: Vec<_> = milliseconds.iter().map(Duration::as_millis).collect();
        assert_eq!(milliseconds, [3, 30, 3, 30, 30, 3, 30, 30]);
    }
}
