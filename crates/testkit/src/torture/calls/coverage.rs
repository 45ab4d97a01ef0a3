//! Which calls were made with which arguments, and which never were. This tests the generator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::compare::Seen;
use super::form::CALLS;
use super::program::{Program, bits};
use super::quoted::quoted;

/// Functions that the library interposes and the generator does not draw: aliases of drawn functions, and functions
/// that start programs, use streams, or change users.
const NOT_DRAWN: &[&str] = &[
    "__close",
    "__connect",
    "__dup2",
    "__fcntl",
    "__poll",
    "__poll_chk",
    "__ppoll_chk",
    "__read",
    "__read_chk",
    "__recv",
    "__recv_chk",
    "__recvfrom_chk",
    "__select",
    "__send",
    "__sendmmsg",
    "__sigaction",
    "__socket",
    "__write",
    "closefrom",
    "fcntl64",
    "sendfile64",
    "preadv64v2",
    "pwritev64v2",
    "setrlimit64",
    "getrlimit64",
    "prlimit",
    "prlimit64",
    "fdopen",
    "fopencookie",
    "freopen",
    "freopen64",
    "vdprintf",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
    "posix_spawn_file_actions_adddup2",
    "popen",
    "system",
    "vfork",
    "pthread_cancel",
    "setuid",
    "setgid",
    "setgroups",
    "setresuid",
    "setresgid",
    "setreuid",
    "setregid",
    "seteuid",
    "setegid",
    "initgroups",
    "capset",
    "prctl",
    "setns",
    "unshare",
    "io_uring_setup",
    "signal",
    "sigset",
    "siginterrupt",
];

/// The observed uses of one call.
#[derive(Default)]
struct Call {
    by_name: u64,
    by_number: u64,
    /// How often the call succeeded, and how often it failed with each errno.
    outcomes: BTreeMap<String, u64>,
    /// Flags with which the call was made.
    flags: BTreeSet<&'static str>,
}

/// The observed uses of all calls, over kernel TCP.
#[derive(Default)]
pub struct Coverage(BTreeMap<&'static str, Call>);

impl Coverage {
    /// Adds a program's observations.
    pub fn add(&mut self, program: &Program, seen: &Seen) {
        for (step, text) in program.steps.iter().zip(seen) {
            if text == "nobody" {
                continue;
            }
            let call = self.0.entry(step.form.name).or_default();
            if step.by_number {
                call.by_number += 1;
            } else {
                call.by_name += 1;
            }
            *call.outcomes.entry(outcome(text)).or_default() += 1;
            for (argument, kind) in step.arguments.iter().zip(step.form.arguments) {
                for (place, value) in argument.iter().enumerate() {
                    let words = bits(*kind, place).unwrap_or_default();
                    call.flags.extend(
                        words
                            .iter()
                            .filter(|(_, bit)| *bit != 0 && value & bit == *bit)
                            .map(|(name, _)| name),
                    );
                }
            }
        }
    }

    pub fn join(&mut self, other: Self) {
        for (name, call) in other.0 {
            let sum = self.0.entry(name).or_default();
            sum.by_name += call.by_name;
            sum.by_number += call.by_number;
            sum.flags.extend(call.flags);
            for (outcome, times) in call.outcomes {
                *sum.outcomes.entry(outcome).or_default() += times;
            }
        }
    }

    /// Everything that was never reached.
    fn never(&self) -> Vec<String> {
        let mut never = Vec::new();
        for form in CALLS {
            let Some(call) = self.0.get(form.name) else {
                never.push(form.name.to_owned());
                continue;
            };
            if form.number.is_some() && call.by_number == 0 {
                never.push(format!("{} by number", form.name));
            }
            if !call.outcomes.contains_key("done") {
                never.push(format!("{} that succeeds", form.name));
            }
            for kind in form.arguments {
                for (name, _) in bits(*kind, 0)
                    .unwrap_or_default()
                    .iter()
                    .filter(|(_, bit)| *bit != 0)
                {
                    if !call.flags.contains(name) {
                        never.push(format!("{} with {name}", form.name));
                    }
                }
            }
        }
        never
    }

    pub fn text(&self) -> String {
        let mut text =
            String::from("calls, by name and by number, and what they answered over kernel TCP:\n");
        for (name, call) in &self.0 {
            let outcomes: Vec<String> = call
                .outcomes
                .iter()
                .map(|(outcome, times)| format!("{outcome} {times}"))
                .collect();
            let _ = writeln!(
                text,
                "  {name:14} {:7} {:7}  {}",
                call.by_name,
                call.by_number,
                outcomes.join(", ")
            );
        }
        let never = self.never();
        let _ = writeln!(text, "hooked and not drawn: {}", NOT_DRAWN.join(", "));
        let _ = write!(
            text,
            "never: {}",
            if never.is_empty() {
                "nothing".to_owned()
            } else {
                never.join(", ")
            }
        );
        text
    }

    pub fn json(&self) -> String {
        let calls: Vec<String> = self
            .0
            .iter()
            .map(|(name, call)| {
                let outcomes: Vec<String> = call
                    .outcomes
                    .iter()
                    .map(|(outcome, times)| format!("{}:{times}", quoted(outcome)))
                    .collect();
                format!(
                    "{}:{{\"by_name\":{},\"by_number\":{},\"outcomes\":{{{}}}}}",
                    quoted(name),
                    call.by_name,
                    call.by_number,
                    outcomes.join(",")
                )
            })
            .collect();
        let never: Vec<String> = self.never().iter().map(|name| quoted(name)).collect();
        format!(
            "{{\"calls\":{{{}}},\"never\":[{}],\"not_drawn\":[{}]}}",
            calls.join(","),
            never.join(","),
            NOT_DRAWN
                .iter()
                .map(|name| quoted(name))
                .collect::<Vec<_>>()
                .join(",")
        )
    }
}

/// A result as a word: the errno, or success.
fn outcome(text: &str) -> String {
    let mut words = text.split(' ');
    match words.next() {
        Some("-1") => words.next().unwrap_or("?").to_owned(),
        Some("waited") => "waits".to_owned(),
        Some("interrupted") => "interrupted".to_owned(),
        Some("dies") => "dies".to_owned(),
        _ => "done".to_owned(),
    }
}
