//! A random program as data: a list of steps, each a call of one actor. A program can be printed, parsed and shortened.

use std::fmt;

use super::form::{self, Form, Kind};
use super::words::{self, Words};

/// An argument: a number, or several.
pub type Argument = Vec<i64>;

/// Descriptors below this number are variables. Larger ones are literal numbers.
pub const VARIABLES: i64 = 1000;
/// Added to a step's number for the second descriptor that the step makes.
pub const SECOND: i64 = 500;
/// The highest number of steps of a program, and the highest number of one step.
pub const MOST_STEPS: usize = 250;
/// The highest number of actors: processes and threads.
pub const MOST_ACTORS: usize = 8;

/// A call of one actor.
#[derive(Clone)]
pub struct Step {
    /// The step's own number, which stays when other steps are removed. The descriptor that the step makes is stored in
    /// the variable of this number.
    pub number: i64,
    pub actor: usize,
    pub form: &'static Form,
    /// Whether the call is made by `syscall`.
    pub by_number: bool,
    pub arguments: Vec<Argument>,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Steps, one after the other.
#[derive(Clone, Default, PartialEq)]
pub struct Program {
    pub steps: Vec<Step>,
}

/// A descriptor argument that is a literal number and no variable.
#[must_use]
pub fn literal(number: i64) -> i64 {
    VARIABLES + 1 + number
}

/// The number of a literal descriptor, or `None` for a variable.
#[must_use]
pub fn literal_of(value: i64) -> Option<i64> {
    (value >= VARIABLES).then(|| value - VARIABLES - 1)
}

fn name_of(words: Words, value: i64) -> Option<&'static str> {
    words
        .iter()
        .find(|(_, number)| *number == value)
        .map(|(name, _)| *name)
}

fn bits_of(words: Words, value: i64) -> String {
    let mut rest = value;
    let mut names = Vec::new();
    for (name, number) in words {
        if *number != 0 && rest & number == *number {
            names.push((*name).to_owned());
            rest &= !number;
        }
    }
    if rest != 0 || names.is_empty() {
        names.push(rest.to_string());
    }
    names.join("|")
}

fn variable(value: i64) -> String {
    match literal_of(value) {
        Some(number) => format!("#{number}"),
        None if value >= SECOND => format!("w{}", value - SECOND),
        None => format!("v{value}"),
    }
}

/// The words for the first number of an argument, by its kind.
#[must_use]
pub fn words_of(kind: Kind) -> Option<Words> {
    Some(match kind {
        Kind::One(words) => words,
        Kind::In | Kind::Out => words::PLACES,
        Kind::To => words::ADDRESSES,
        Kind::From | Kind::Answer => words::ROOMS,
        Kind::Timeval | Kind::Timespec => words::TIMES,
        Kind::Mask | Kind::MaskPair => words::MASKS,
        Kind::Value => words::VALUES,
        Kind::Command => words::FCNTL,
        Kind::Request => words::IOCTL,
        _ => return None,
    })
}

/// Whether a number within an argument is a descriptor.
#[must_use]
pub fn is_descriptor(kind: Kind, place: usize) -> bool {
    match kind {
        Kind::Fd => true,
        Kind::MessageIn | Kind::MessageOut => place == 3,
        Kind::To => place == 1,
        Kind::Polls => place.is_multiple_of(2),
        Kind::Sets => place.is_multiple_of(2) && place > 0,
        _ => false,
    }
}

/// The words of an argument that is a set of bits.
#[must_use]
pub fn bits(kind: Kind, place: usize) -> Option<Words> {
    match kind {
        Kind::Flags(words) => Some(words),
        Kind::Event if place == 0 => Some(words::EPOLL_EVENTS),
        Kind::Polls if place % 2 == 1 => Some(words::POLL_EVENTS),
        _ => None,
    }
}

fn shown(kind: Kind, place: usize, value: i64) -> String {
    if is_descriptor(kind, place) {
        return variable(value);
    }
    if let Some(words) = bits(kind, place) {
        return bits_of(words, value);
    }
    if kind == Kind::Choice {
        let option = usize::try_from(value)
            .ok()
            .and_then(|index| words::OPTIONS.get(index));
        return option.map_or_else(|| value.to_string(), |option| option.name.to_owned());
    }
    let name = words_of(kind)
        .filter(|_| place == 0)
        .and_then(|words| name_of(words, value));
    name.map_or_else(|| value.to_string(), str::to_owned)
}

fn read(kind: Kind, place: usize, text: &str) -> Option<i64> {
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    if is_descriptor(kind, place) {
        let (letter, rest) = text.split_at_checked(1)?;
        let number: i64 = rest.parse().ok()?;
        return match letter {
            "#" => Some(literal(number)),
            "v" => Some(number),
            "w" => Some(number + SECOND),
            _ => None,
        };
    }
    if let Some(words) = bits(kind, place) {
        return text.split('|').try_fold(0, |sum, word| {
            let known = words.iter().find(|(name, _)| *name == word);
            known
                .map(|(_, number)| *number)
                .or_else(|| word.parse().ok())
                .map(|bit| sum | bit)
        });
    }
    if kind == Kind::Choice {
        let index = words::OPTIONS
            .iter()
            .position(|option| option.name == text)?;
        return i64::try_from(index).ok();
    }
    words_of(kind)?
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, number)| *number)
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.by_number { "#" } else { "" };
        write!(
            formatter,
            "{} @{} {}{mark}(",
            self.number, self.actor, self.form.name
        )?;
        for (index, (argument, kind)) in self.arguments.iter().zip(self.form.arguments).enumerate()
        {
            let words = argument
                .iter()
                .enumerate()
                .map(|(place, value)| shown(*kind, place, *value));
            let text = words.collect::<Vec<_>>().join(",");
            let comma = if index == 0 { "" } else { ", " };
            if argument.len() == 1 {
                write!(formatter, "{comma}{text}")?;
            } else {
                write!(formatter, "{comma}{{{text}}}")?;
            }
        }
        formatter.write_str(")")
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps
            .iter()
            .try_for_each(|step| writeln!(formatter, "{step}"))
    }
}

fn read_step(line: &str) -> Option<Step> {
    let (number, rest) = line.split_once(" @")?;
    let (actor, rest) = rest.split_once(' ')?;
    let (name, rest) = rest.split_once('(')?;
    let form = form::find(name.trim_end_matches('#'))?;
    let mut rest = rest.trim().strip_suffix(')')?;
    let mut arguments = Vec::new();
    for kind in form.arguments {
        rest = rest.trim_start_matches([',', ' ']);
        let text = if let Some(inner) = rest.strip_prefix('{') {
            let (inner, after) = inner.split_once('}')?;
            rest = after;
            inner
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            word
        };
        let words = text.split(',').filter(|word| !word.is_empty()).enumerate();
        arguments.push(
            words
                .map(|(place, word)| read(*kind, place, word.trim()))
                .collect::<Option<_>>()?,
        );
    }
    Some(Step {
        number: number
            .trim()
            .parse()
            .ok()
            .filter(|number| (0..SECOND).contains(number))?,
        actor: actor.parse().ok().filter(|actor| *actor < MOST_ACTORS)?,
        form,
        by_number: name.ends_with('#'),
        arguments,
    })
}

impl Program {
    /// Parses a printed program. Empty lines and lines that begin with `#` are skipped. The error is the line that is
    /// not understood.
    pub fn read(text: &str) -> Result<Self, String> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let steps = lines.map(|line| read_step(line).ok_or_else(|| line.to_owned()));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        if steps.len() > MOST_STEPS {
            return Err(format!("more than {MOST_STEPS} steps"));
        }
        Ok(Self { steps })
    }
}

#[cfg(test)]
mod tests {
    use super::Program;
    use crate::calls::generate::program;

    #[test]
    fn what_is_printed_can_be_read_again() {
        for number in 0..500 {
            let drawn = program(7, number, number % 2 == 1);
            let read = Program::read(&drawn.to_string()).expect("it is understood");
            assert!(read == drawn, "{drawn}");
        }
    }

    #[test]
    fn a_case_is_its_seed_and_number() {
        assert!(program(7, 3, false) == program(7, 3, false));
        assert!(program(7, 3, false) != program(7, 4, false));
        assert!(program(7, 3, false) != program(8, 3, false));
        assert!(program(7, 3, true) != program(7, 4, true));
    }
}
