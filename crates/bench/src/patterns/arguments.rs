//! The command line of `netchannel bench patterns`.

use super::cell::{Optimisations, Path, Pattern, Work};
use super::lab::LabOptions;
use crate::error::BenchError;
use crate::hosts::Made;
use crate::options::WorkerCommand;
use crate::output::Shown;
use crate::repetitions::{BetweenHosts, Often, Repeated};
use clap::Args;
use std::path::PathBuf;

/// Examples and exit codes, below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench patterns
  netchannel bench patterns incast all-to-all --flows 1,8 --pairs 5
  netchannel bench patterns single --optimisations none,tso-gro,jumbo,pinned
  netchannel bench patterns single --loss 0,0.00015,0.0015,0.015
  netchannel bench patterns rpc --delay 1ms --flows 1,16
  netchannel bench patterns rpc --size 4096 --profile --json
  netchannel bench patterns single --buffer 400KiB,3MiB

Patterns and ladder are those of the study 'Understanding Host Network Stack Overheads'; a program stands for what it runs on a
core. Ctrl-C ends it with what was done by then; no namespace, program or eBPF stays behind. docs/benchmarks.md explains more.

Exit codes:
  0  every run gave figures of what it was made for    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct PatternsArguments {
    /// Patterns to run; all of them when none is named
    #[arg(value_enum)]
    pub patterns: Vec<Pattern>,

    /// Numbers of flows, one row for each
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "4",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub flows: Vec<u16>,

    /// Bytes of each write, or of each request of `rpc`: such as 4096 or 64KiB [default: 128KiB; 4KiB,16KiB,64KiB for rpc]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    pub size: Vec<usize>,

    /// What is done for TCP, each with all before it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "pinned",
        value_name = "WHICH"
    )]
    pub optimisations: Vec<Optimisations>,

    /// Parts of the packets to the receivers that are lost, such as 0.0015; packets are of 1500 bytes then, and pass singly
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = part)]
    pub loss: Vec<f64>,

    /// How much later packets come to the receivers, such as 500us or 5ms; what lets them go on takes processor time there
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = milliseconds)]
    pub delay: Vec<f64>,

    /// Bytes to which TCP's buffers may grow, of programs and of channels [default: 4MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    pub buffer: Vec<usize>,

    /// Measure where the time goes, too: one more run of each, under `netchannel profile`
    #[arg(long)]
    pub profile: bool,

    /// How often.
    #[command(flatten)]
    pub repeated: Repeated<BetweenHosts>,

    /// What the hosts are made of.
    #[command(flatten)]
    pub made: Made,

    /// How the report is shown.
    #[command(flatten)]
    pub shown: Shown,
}

fn size(text: &str) -> Result<usize, String> {
    let units = [("KiB", 10), ("MiB", 20), ("", 0)];
    let unit = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let number = unit.and_then(|(number, shift)| {
        let number: usize = number.trim().parse().ok()?;
        number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
    });
    number.ok_or_else(|| "a number of bytes such as 4096, 64KiB or 3MiB is needed".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..1.0).contains(part));
    part.ok_or_else(|| "a part from 0 up to 1 is needed, such as 0.0015".to_owned())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0)];
    let unit = units
        .into_iter()
        .find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)));
    let time = unit.and_then(|(number, of)| Some(number.trim().parse::<f64>().ok()? * of));
    let time = time.filter(|time| (0.0..=10_000.0).contains(time));
    time.ok_or_else(|| "a time of at most 10 s is needed, such as 500us or 5ms".to_owned())
}

impl PatternsArguments {
    /// What the hosts are made with.
    pub fn lab(&self, netchannel: PathBuf, worker: WorkerCommand) -> LabOptions {
        LabOptions {
            seconds: self.repeated.seconds,
            cores: self.made.cores.of_hosts(),
            congestion_control: self.made.congestion_control.clone(),
            of_channels: self.made.channels_congestion_control.clone(),
            netchannel,
            worker,
        }
    }

    /// How often runs are made.
    pub fn often(&self) -> Often {
        Often {
            seconds: self.repeated.seconds,
            pairs: self.repeated.pairs,
            most: self.repeated.pairs,
            profile: self.profile,
            progress: !self.shown.quiet,
        }
    }

    /// Every row.
    pub fn works(&self) -> Result<Vec<Work>, BenchError> {
        let all = <Pattern as clap::ValueEnum>::value_variants();
        let named = if self.patterns.is_empty() {
            all
        } else {
            &self.patterns
        };
        let mut works: Vec<Work> = Vec::new();
        for path in self.paths() {
            for &pattern in named {
                let sizes = if self.size.is_empty() {
                    pattern.sizes()
                } else {
                    &self.size
                };
                for &size in sizes {
                    if !pattern.takes(size) {
                        return Err(BenchError::Options(format!(
                            "{} takes no size of {size} bytes: rpc takes 64, 4096, 16384, 32768 and 65536, all others what divides \
                             131072",
                            pattern.name()
                        )));
                    }
                    for &flows in &self.flows {
                        let work = Work {
                            pattern,
                            flows: if pattern.has_flows() { flows.into() } else { 1 },
                            size,
                            path: path.clone(),
                        };
                        if !works.contains(&work) {
                            works.push(work);
                        }
                    }
                }
            }
        }
        Ok(works)
    }

    fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        for &optimisations in &self.optimisations {
            for loss in some(&self.loss) {
                for delay_ms in some(&self.delay) {
                    for buffer in some(&self.buffer) {
                        paths.push(Path {
                            optimisations,
                            loss,
                            delay_ms,
                            buffer,
                            congestion_control: None,
                        });
                    }
                }
            }
        }
        paths
    }
}

/// All values; where there is none, once without.
fn some<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() {
        return vec![None];
    }
    values.iter().copied().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: PatternsArguments,
    }

    fn works(words: &[&str]) -> Result<Vec<Work>, BenchError> {
        let words = std::iter::once("patterns").chain(words.iter().copied());
        Program::try_parse_from(words).unwrap().arguments.works()
    }

    #[test]
    fn rows_are_every_combination_once() {
        let all = works(&[]).unwrap();
        assert_eq!(all.len(), 7 + 3);
        let ladder = works(&["single", "--flows", "1,8", "--optimisations", "none,pinned"]);
        assert_eq!(ladder.unwrap().len(), 2);
        let lossy = works(&["incast", "--flows", "1,8", "--loss", "0,0.015"]).unwrap();
        assert_eq!(lossy.len(), 4);
        assert!(lossy.iter().all(|work| work.path.packet() == 1500));
        let late = works(&["rpc", "--size", "4096", "--delay", "0ms,500us"]).unwrap();
        let delays: Vec<_> = late.iter().map(|work| work.path.delay_ms).collect();
        assert_eq!(delays, [Some(0.0), Some(0.5)]);
    }

    #[test]
    fn sizes_and_parts_are_read_as_people_write_them() {
        assert_eq!(size("400KiB"), Ok(409_600));
        assert_eq!(size("3MiB"), Ok(3 << 20));
        assert!(size("0").is_err() && size("3 apples").is_err());
        assert!(part("1.5").is_err() && part("0.015").is_ok());
        assert_eq!(milliseconds("2s"), Ok(2000.0));
        assert!(milliseconds("5").is_err() && milliseconds("-1ms").is_err());
        assert!(milliseconds("nans").is_err() && milliseconds("11s").is_err());
        assert!(works(&["rpc", "--size", "5000"]).is_err());
    }
}
