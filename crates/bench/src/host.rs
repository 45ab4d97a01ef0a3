//! The machine the figures are from.

use serde::Serialize;
use std::fs;
use std::thread;

/// The data of a host that are needed to compare figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
}

impl Host {
    /// This machine.
    pub fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Host {
            kernel: or_unknown(kernel.trim()),
            processor: or_unknown(processor_name(&cpuinfo)),
            processors: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let plural = if self.processors == 1 { "" } else { "s" };
        let Host {
            kernel,
            processor,
            processors,
        } = self;
        format!("Linux {kernel}, {processors} CPU{plural} ({processor})")
    }
}

fn processor_name(cpuinfo: &str) -> &str {
    let named = cpuinfo.lines().find(|line| line.starts_with("model name"));
    named
        .and_then(|line| line.split_once(':'))
        .map_or("", |(_, name)| name.trim())
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() {
        "unknown".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_name_is_found() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some CPU @ 3 GHz\nflags : a\n";
        assert_eq!(processor_name(cpuinfo), "Some CPU @ 3 GHz");
        assert_eq!(processor_name("CPU implementer : 0x41"), "");
    }

    #[test]
    fn the_line_names_all_three() {
        let host = Host {
            kernel: "6.1".into(),
            processor: "Some CPU".into(),
            processors: 2,
        };
        assert_eq!(host.line(), "Linux 6.1, 2 CPUs (Some CPU)");
    }
}
