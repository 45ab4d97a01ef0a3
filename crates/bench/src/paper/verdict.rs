//! The verdict on a figure, computed from the spread of the pairs.

use super::figure::{Figure, Way};
use crate::patterns::compared::{Direction, Spread};
use serde::{Deserialize, Serialize};

/// The verdict on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every pair has the direction of the paper.
    SameDirection,
    /// Every pair has the opposite direction.
    Differs,
    /// The pairs do not agree.
    WithinNoise,
    /// A number of another machine.
    NotComparable,
    /// Not measured yet.
    NotMeasured,
    /// A requirement is missing here.
    NotMeasurable,
    /// NetChannel does not have it yet.
    NotBuiltYet,
    /// The measurement failed.
    Failed,
}

impl Verdict {
    /// As people read it.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::SameDirection => "same direction",
            Verdict::Differs => "differs",
            Verdict::WithinNoise => "within noise",
            Verdict::NotComparable => "not comparable",
            Verdict::NotMeasured => "not measured yet",
            Verdict::NotMeasurable => "not measurable here",
            Verdict::NotBuiltYet => "not built yet",
            Verdict::Failed => "failed",
        }
    }

    /// The verdict on a ratio; for a share, relative to the paper's value.
    pub fn of(figure: &Figure, spread: Spread) -> Self {
        if let Some(tolerance) = figure.same {
            return same(spread, tolerance);
        }
        let expected = match (figure.ratio, figure.direction) {
            (Some(ratio), _) if ratio < 1.0 => Direction::Below,
            (None, Some(Way::Less)) => Direction::Below,
            _ => Direction::Above,
        };
        match spread.direction() {
            Direction::WithinNoise => Verdict::WithinNoise,
            found if found == expected => Verdict::SameDirection,
            _ => Verdict::Differs,
        }
    }
}

/// A spread completely around one is no difference; a spread completely beyond is one.
fn same(spread: Spread, tolerance: f64) -> Verdict {
    let Spread { low, high, .. } = spread;
    let (least, most) = (1.0 - tolerance, 1.0 + tolerance);
    if low == high {
        Verdict::WithinNoise
    } else if low >= least && high <= most {
        Verdict::SameDirection
    } else if high < least || low > most {
        Verdict::Differs
    } else {
        Verdict::WithinNoise
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::all;
    use super::*;

    fn verdict(name: &str, values: &[f64]) -> Verdict {
        let figures = all().unwrap();
        let figure = figures.iter().find(|figure| figure.name == name).unwrap();
        Verdict::of(figure, Spread::of(values).unwrap())
    }

    #[test]
    fn verdicts_follow_from_the_pairs_alone() {
        assert_eq!(
            verdict("netchannel-4", &[5.0, 60.0]),
            Verdict::SameDirection
        );
        assert_eq!(verdict("netchannel-4", &[0.5, 0.7]), Verdict::Differs);
        assert_eq!(verdict("netchannel-4", &[0.9, 4.0]), Verdict::WithinNoise);
        assert_eq!(
            verdict("netchannel-6d", &[0.1, 0.2]),
            Verdict::SameDirection
        );
        assert_eq!(verdict("study-copy", &[1.1, 1.2]), Verdict::SameDirection);
        assert_eq!(verdict("study-13", &[0.9, 1.1]), Verdict::SameDirection);
        assert_eq!(verdict("study-13", &[0.5, 0.6]), Verdict::Differs);
        assert_eq!(verdict("study-13", &[0.5, 1.0]), Verdict::WithinNoise);
    }
}
