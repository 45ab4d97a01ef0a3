//! Shortens a program that shows a difference, as long as it still shows the same difference.

use super::compare::signature;
use super::difference::Difference;
use super::judge::Pair;
use super::program::{Program, Step, bits, words_of};

/// The highest number of tries of one shrinking.
const MOST_TRIES: usize = 400;

/// A program that is being shortened.
pub struct Shrinker<'a> {
    pub pair: &'a mut Pair,
    signature: String,
    tries: usize,
}

impl<'a> Shrinker<'a> {
    pub fn new(pair: &'a mut Pair, program: &Program, difference: &Difference) -> Self {
        Self {
            pair,
            signature: signature(program, difference),
            tries: 0,
        }
    }

    /// Whether a program still shows the difference.
    fn shows(&mut self, program: &Program) -> bool {
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return false;
        }
        let seen = self.pair.run_once(program);
        seen.is_ok_and(|(comparison, _)| {
            comparison
                .difference
                .is_some_and(|other| signature(program, &other) == self.signature)
        })
    }

    /// The shortest program that was found.
    pub fn shrink(&mut self, program: &Program, difference: &Difference) -> Program {
        let mut best = program.clone();
        self.try_one(&mut best, |program| {
            program.steps.truncate(difference.place + 1)
        });
        let mut size = best.steps.len() / 2;
        while size > 0 {
            let mut end = best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                self.try_one(&mut best, |program| {
                    program.steps.drain(start..end.min(program.steps.len()));
                });
                end = start;
            }
            size /= 2;
        }
        for actor in (1..super::program::MOST_ACTORS).rev() {
            self.try_one(&mut best, |program| merge(program, actor));
        }
        for place in (0..best.steps.len()).rev() {
            self.simplify(&mut best, place);
        }
        for place in (0..best.steps.len()).rev() {
            self.try_one(&mut best, |program| {
                program.steps.remove(place);
            });
        }
        best
    }

    fn try_one(&mut self, best: &mut Program, change: impl FnOnce(&mut Program)) {
        let mut other = best.clone();
        change(&mut other);
        if other != *best && !other.steps.is_empty() && self.shows(&other) {
            *best = other;
        }
    }

    fn simplify(&mut self, best: &mut Program, place: usize) {
        self.try_one(best, |program| program.steps[place].by_number = false);
        let kinds = best.steps[place].form.arguments;
        for (index, kind) in kinds.iter().enumerate() {
            let length = best.steps[place].arguments.get(index).map_or(0, Vec::len);
            if matches!(kind, super::form::Kind::Polls) && length > 2 {
                self.try_one(best, |program| {
                    program.steps[place].arguments[index].truncate(2)
                });
            }
            for spot in 0..length {
                let Some(value) = best.steps[place].arguments[index].get(spot).copied() else {
                    break;
                };
                if let Some(words) = bits(*kind, spot) {
                    for (_, bit) in words.iter().filter(|(_, bit)| value & bit == *bit) {
                        self.try_one(best, |program| {
                            program.steps[place].arguments[index][spot] &= !bit
                        });
                    }
                } else if matches!(kind, super::form::Kind::Size) {
                    for size in [1, 10, 100].into_iter().filter(|size| *size < value) {
                        self.try_one(best, |program| {
                            program.steps[place].arguments[index][spot] = size
                        });
                    }
                } else if spot > 0 || words_of(*kind).is_some() {
                    let is_name = super::program::is_descriptor(*kind, spot)
                        || matches!(kind, super::form::Kind::One(_));
                    if value != 0 && !is_name {
                        self.try_one(best, |program| {
                            program.steps[place].arguments[index][spot] = 0
                        });
                    }
                }
            }
        }
    }
}

/// Gives the steps of another actor to the first one.
fn merge(program: &mut Program, actor: usize) {
    let makes = |step: &Step| {
        matches!(step.form.name, "fork" | "thread")
            && step
                .arguments
                .first()
                .and_then(|argument| argument.first())
                .copied()
                == i64::try_from(actor).ok()
    };
    program.steps.retain(|step| !makes(step));
    for step in program.steps.iter_mut().filter(|step| step.actor == actor) {
        step.actor = 0;
    }
}
