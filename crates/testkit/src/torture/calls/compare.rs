//! Compares two runs of a program. Numbers that the system chooses are replaced by their order of appearance, and
//! values that are not promised are left out.

use std::collections::BTreeSet;

use super::difference::Difference;
use super::program::Program;
use super::rules::{self, Rule, Scope};

/// The observations of a run: a text for each step.
pub type Seen = Vec<String>;

/// Numbers ports in the order in which they appear.
pub fn normal(seen: Vec<String>) -> Seen {
    let mut known: Vec<String> = Vec::new();
    seen.into_iter()
        .map(|line| {
            let mut text = String::new();
            let mut rest = line.as_str();
            while let Some((before, after)) = rest.split_once("port(") {
                text.push_str(before);
                let Some((port, behind)) = after.split_once(')') else {
                    break;
                };
                let place = known
                    .iter()
                    .position(|other| other == port)
                    .unwrap_or_else(|| {
                        known.push(port.to_owned());
                        known.len() - 1
                    });
                text.push_str(&format!("p{place}"));
                rest = behind;
            }
            text.push_str(rest);
            text
        })
        .collect()
}

/// The result of a comparison.
pub struct Comparison {
    pub difference: Option<Difference>,
    /// Rules that excused differences before it.
    pub excused: Vec<&'static Rule>,
    /// Steps that were compared.
    pub judged: usize,
    /// Steps in which runs over kernel TCP differ.
    pub unsteady: usize,
    /// Whether the comparison took more than one run of each.
    pub again: bool,
}

/// Compares all runs over kernel TCP with all others, step by step.
pub fn compare(program: &Program, kernel: &[Seen], others: &[Seen]) -> Comparison {
    let mut comparison = Comparison {
        difference: None,
        excused: Vec::new(),
        judged: 0,
        unsteady: 0,
        again: kernel.len() > 1,
    };
    let at = |runs: &[Seen], place: usize| -> BTreeSet<String> {
        runs.iter()
            .map(|seen| seen.get(place).cloned().unwrap_or_default())
            .collect()
    };
    for place in 0..program.steps.len() {
        let (expected, got) = (at(kernel, place), at(others, place));
        // How many bytes fit differs from run to run, and so does all that follows.
        if expected
            .iter()
            .chain(&got)
            .any(|text| text.contains(" part"))
        {
            return comparison;
        }
        if expected.len() > 1 {
            comparison.unsteady += 1;
            continue;
        }
        comparison.judged += 1;
        let Some(new) = got.iter().find(|text| !expected.contains(*text)) else {
            continue;
        };
        let Some(old) = expected.first() else {
            continue;
        };
        let difference = Difference {
            place,
            kernel: old.clone(),
            other: new.clone(),
            always: got.is_disjoint(&expected),
            seldom: 2 * others
                .iter()
                .filter(|seen| seen.get(place).is_some_and(|text| !expected.contains(text)))
                .count()
                < others.len(),
        };
        match rules::find(program, &difference) {
            None => {
                comparison.difference = Some(difference);
                return comparison;
            }
            Some(rule) => {
                comparison.excused.push(rule);
                if rule.scope == Scope::Rest {
                    return comparison;
                }
            }
        }
    }
    comparison
}

/// A key that is equal for all similar differences: the call, its option, and the observed texts without numbers.
pub fn signature(program: &Program, difference: &Difference) -> String {
    let Some(step) = program.steps.get(difference.place) else {
        return String::new();
    };
    let text = step.to_string();
    let option = super::words::OPTIONS.iter().find(|option| {
        text.contains(&format!(" {},", option.name)) || text.contains(&format!(" {})", option.name))
    });
    let option = option.map_or("", |option| option.name);
    let command = text
        .split('{')
        .nth(1)
        .and_then(|rest| rest.split([',', '}']).next());
    let command = command
        .filter(|_| matches!(step.form.name, "fcntl" | "ioctl"))
        .unwrap_or("");
    let (kernel, other) = (shape(&difference.kernel), shape(&difference.other));
    format!("{}{option}{command}: {kernel} / {other}", step.form.name)
}

/// A text with every number replaced by one sign.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for word in text.split(' ').take(3) {
        let (name, value) = word
            .split_once('=')
            .map_or(("", word), |(name, _)| (name, "="));
        let is_number = value.starts_with(|sign: char| sign.is_ascii_digit()) && value != "0";
        let value = if is_number { "n" } else { value };
        shape.push_str(name);
        shape.push_str(value);
        shape.push(' ');
    }
    shape.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn ports_are_told_by_order() {
        let lines = ["0 port(7) port(9)", "port(9)", "none"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(normal(lines), ["0 p0 p1", "p1", "none"]);
    }
}
