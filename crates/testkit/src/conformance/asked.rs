//! The command line of `conformance compare`.

use std::path::PathBuf;
use std::time::Duration;

use netchannel_testkit::far::Side;

use crate::registry;

/// The options of the command line.
pub struct Options {
    pub program: Option<PathBuf>,
    pub jobs: usize,
    pub limit: Duration,
    pub only: bool,
    /// Whether connections go through the daemon's relay.
    pub relay: bool,
    pub hosts: bool,
    /// The ends of connections that a program of a tenant has, where there is a tenant.
    pub tenant: Option<&'static [Side]>,
    /// The tenant's connections go over channels.
    pub over_channels: bool,
    pub within: bool,
    pub words: Vec<String>,
}

/// Parses the command line.
pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        program: None,
        jobs: 4,
        limit: Duration::from_secs(25),
        only: false,
        relay: false,
        hosts: false,
        tenant: None,
        over_channels: false,
        within: false,
        words: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &String| {
            text.parse::<u32>()
                .map_err(|_| format!("{word} needs a number, not {text}"))
        };
        match word.as_str() {
            "--netchannel" => options.program = Some(PathBuf::from(value()?)),
            "--jobs" => options.jobs = usize::try_from(number(value()?)?).unwrap_or(4),
            "--limit" => options.limit = Duration::from_secs(u64::from(number(value()?)?)),
            "--only" => options.only = true,
            "--relay" => options.relay = true,
            "--hosts" => options.hosts = true,
            "--tenant" => options.tenant = Some(&[Side::Client, Side::Server]),
            "--tenant-out" => options.tenant = Some(&[Side::Client]),
            "--tenant-in" => options.tenant = Some(&[Side::Server]),
            "--tenant-channels" => {
                options.tenant = Some(&[Side::Client]);
                options.over_channels = true;
            }
            "--within" => options.within = true,
            option if option.starts_with("--") => return Err(format!("unknown option {option}")),
            name => options.words.push(name.to_owned()),
        }
    }
    Ok(options)
}

/// The names of the cases that the words select.
pub fn names(words: &[String]) -> Vec<String> {
    registry::select(words)
        .iter()
        .map(|case| case.name.to_owned())
        .collect()
}

/// The path of this program.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"))
}
