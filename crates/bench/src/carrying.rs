//! Carrying a plan out: its runs in turns, collected.

use crate::error::{BenchError, RunError};
use crate::interrupt;
use crate::options::Transport;
use crate::plan::{Plan, Run};
use crate::progress::Progress;
use crate::report::Collector;

impl Plan {
    /// Makes every run and collects its results. `run` gets the experiment's index in the plan.
    pub fn carry_out(
        &self,
        collector: &mut Collector,
        mut run: impl FnMut(usize, Transport) -> Run,
    ) -> Result<(), BenchError> {
        let mut progress = Progress::new(self);
        for (place, experiment) in self.experiments.iter().enumerate() {
            for pair in 0..self.pairs {
                for transport in order(&self.transports, pair) {
                    if interrupt::requested() {
                        return Err(BenchError::Interrupted);
                    }
                    if collector.is_given_up(experiment.name, transport) {
                        progress.skip();
                        continue;
                    }
                    progress.begin(experiment.name, transport, pair);
                    let run = run(place, transport);
                    if matches!(run.figures, Err(RunError::Interrupted)) || interrupt::requested() {
                        return Err(BenchError::Interrupted);
                    }
                    progress.end(&run);
                    collector.add(experiment.name, transport, run);
                }
            }
        }
        Ok(())
    }
}

/// Every other pair runs in the reverse order, so that a drift of the machine favours no transport.
fn order(transports: &[Transport], pair: usize) -> Vec<Transport> {
    let mut order = transports.to_vec();
    if pair % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_alternates() {
        assert_eq!(order(&Transport::ALL, 0), Transport::ALL);
        let reversed = [Transport::Netchannel, Transport::Unix, Transport::Tcp];
        assert_eq!(order(&Transport::ALL, 1), reversed);
        assert_eq!(order(&Transport::ALL, 2), Transport::ALL);
    }
}
