//! The daemon's resource usage, and whether it returns to its former value when the hostile programs have ended.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_control::types::{Program, Request, Response, Socket, Status};

use netchannel_testkit::daemon::daemon_status;

use super::place::HONEST;

/// Memory in bytes that the daemon may keep of what hostile programs made it use.
const MORE_MEMORY: u64 = 64 << 20;
/// Percent of a processor that the daemon may use more than before.
const MORE_PROCESSOR: u64 = 30;
/// How long the return may take.
const LATEST: Duration = Duration::from_secs(25);

/// The usage at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of private memory.
    pub memory: u64,
    /// The number of open descriptors.
    pub descriptors: u64,
    /// The number of threads.
    pub threads: u64,
    /// Percent of a processor, over the last second.
    pub processor: u64,
}

impl Usage {
    /// Measures a process for a second.
    pub fn of(process: u32) -> Self {
        let start = Instant::now();
        let before = ticks(process);
        thread::sleep(Duration::from_secs(1));
        let spent = ticks(process).saturating_sub(before);
        // A tick is a hundredth of a second.
        let hundredths = u64::try_from(start.elapsed().as_millis() / 10).unwrap_or(1);
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        Self {
            memory: field("RssAnon:") * 1024,
            descriptors: descriptors as u64,
            threads: field("Threads:"),
            processor: spent * 100 / hundredths.max(1),
        }
    }

    /// The values that are too high, compared with before.
    fn excess(&self, before: &Self) -> Option<String> {
        let memory = self.memory > before.memory + MORE_MEMORY;
        let descriptors = self.descriptors > before.descriptors * 2 + 64;
        let threads = self.threads > before.threads + 4;
        let processor = self.processor > before.processor + MORE_PROCESSOR;
        let kinds = [
            (memory, "memory"),
            (descriptors, "descriptors"),
            (threads, "threads"),
            (processor, "processor"),
        ];
        let kinds: Vec<&str> = kinds
            .into_iter()
            .filter_map(|(is, name)| is.then_some(name))
            .collect();
        (!kinds.is_empty()).then(|| kinds.join(", "))
    }

    /// The usage as one line.
    pub fn line(&self) -> String {
        format!(
            "{:.1} MB, {} descriptors, {} threads, {} % of a processor",
            self.memory as f64 / 1e6,
            self.descriptors,
            self.threads,
            self.processor
        )
    }
}

fn ticks(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The fields after the name, which is in parentheses and may hold any characters.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let of = |at: usize| {
        fields
            .get(at)
            .and_then(|one| one.parse::<u64>().ok())
            .unwrap_or(0)
    };
    of(11) + of(12)
}

/// Waits until the daemon's usage is about the same as before.
pub fn await_return(process: u32, before: &Usage) -> Result<Usage, String> {
    let start = Instant::now();
    loop {
        let now = Usage::of(process);
        let Some(excess) = now.excess(before) else {
            return Ok(now);
        };
        if start.elapsed() > LATEST {
            return Err(format!(
                "the daemon does not go back after the hostile user has gone ({excess}): before {}; now {}",
                before.line(),
                now.line()
            ));
        }
    }
}

/// Sockets that limits of the daemon moved to kernel TCP, by program and reason.
pub struct Refused(Vec<(u32, String, u64)>);

impl Refused {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of refused sockets.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(.., count)| count).sum()
    }

    /// Text for an engineer who looks for the cause.
    pub fn shown(&self) -> String {
        let line = |(process, reason, count): &(u32, String, u64)| {
            format!("process {process} was refused {count} times: {reason}")
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Sockets of running honest programs that were refused resources within the common limits.
pub fn refusals(socket: &Path) -> Result<Refused, String> {
    let status = daemon_status(socket)?;
    let honest = |program: &Program| HONEST.iter().any(|user| user.0 == program.user);
    Ok(refused(&status, honest))
}

/// As [`refusals`], for selected programs.
pub fn refused(status: &Status, which: impl Fn(&Program) -> bool) -> Refused {
    let bounds = ["quota", "no-port", "no-entry"];
    let mut found = Vec::new();
    for program in status.programs.iter().filter(|program| which(program)) {
        for fallback in &program.fallbacks {
            if fallback.count > 0 && bounds.contains(&fallback.reason.as_str()) {
                found.push((program.process, fallback.reason.clone(), fallback.count));
            }
        }
    }
    Refused(found)
}

/// The sockets of a process as the daemon shows them, and those at their other ends.
pub fn sockets(socket: &Path, process: u32) -> String {
    let answer = netchannel_control::request(socket, Request::Sockets, Duration::from_secs(20));
    let all = match answer {
        Ok(Response::Sockets(all)) => all.list,
        Ok(_) => return "another answer than was asked for\n".to_owned(),
        Err(error) => return format!("{error}\n"),
    };
    let own: Vec<_> = all.iter().filter(|one| one.process == process).collect();
    let is_shown = |one: &&Socket| {
        let other = |own: &&&Socket| own.local == one.peer && own.peer == one.local;
        one.process == process || own.iter().any(|own| other(&own))
    };
    let lines = all.iter().filter(is_shown).map(|one| format!("{one:?}\n"));
    lines.collect()
}
