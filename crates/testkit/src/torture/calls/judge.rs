//! Runs one program over both transports and reports where they differ. Where they differ, runs it again until the
//! result is certain.

use std::time::Duration;

use super::compare::{Comparison, Seen, compare, normal};
use super::program::Program;
use super::runner::Runner;
use super::settings::RunSettings;

/// Two runners: one over kernel TCP, one over the transport under test.
pub struct Pair {
    pub kernel: Runner,
    pub other: Runner,
    pub settings: RunSettings,
}

/// How often a program with a difference is run again.
const AGAIN: usize = 3;

impl Pair {
    fn kernel(&mut self, program: &Program, settings: RunSettings) -> Result<Seen, String> {
        // Over kernel TCP nothing needs time to arrive.
        let settings = RunSettings {
            settling: Duration::ZERO,
            ..settings
        };
        self.kernel.run(program, settings).map(normal)
    }

    fn other(&mut self, program: &Program, settings: RunSettings) -> Result<Seen, String> {
        self.other.run(program, settings).map(normal)
    }

    /// Runs the program once over each transport, which is enough where the results are equal.
    pub fn run_once(&mut self, program: &Program) -> Result<(Comparison, Seen), String> {
        let kernel = self.kernel(program, self.settings)?;
        let other = self.other(program, self.settings)?;
        Ok((
            compare(program, std::slice::from_ref(&kernel), &[other]),
            kernel,
        ))
    }

    /// Runs the program as often as needed.
    pub fn judge(&mut self, program: &Program) -> Result<(Comparison, Seen), String> {
        let (first, seen) = self.run_once(program)?;
        if first.difference.is_none() {
            return Ok((first, seen));
        }
        let (mut comparison, mut kernel) = self.look(program, AGAIN)?;
        if comparison
            .difference
            .as_ref()
            .is_some_and(|difference| !difference.always)
        {
            (comparison, kernel) = self.look(program, AGAIN * 2)?;
        }
        Ok((comparison, kernel.swap_remove(0)))
    }

    /// Runs the program several times over each transport, with more patience.
    pub fn look(
        &mut self,
        program: &Program,
        times: usize,
    ) -> Result<(Comparison, Vec<Seen>), String> {
        let patience = self.settings.patience * 4;
        let patient = RunSettings {
            patience,
            haste: patience,
            settling: self.settings.settling * 4,
            ..self.settings
        };
        let mut kernel = Vec::new();
        let mut others = Vec::new();
        for _ in 0..times {
            kernel.push(self.kernel(program, patient)?);
            others.push(self.other(program, patient)?);
        }
        Ok((compare(program, &kernel, &others), kernel))
    }
}
