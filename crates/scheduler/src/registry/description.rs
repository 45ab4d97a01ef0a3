//! The description of a policy: name, parameters, bounds; and its values.

use core::fmt;

use crate::unit::Unit;

/// A policy.
#[derive(Debug)]
pub struct Description {
    /// Lower case, with hyphens; unique over all kinds.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The parameters.
    pub parameters: &'static [Parameter],
    /// Whether values that are each within bounds go together; if not, why.
    pub check: fn(&Values<'_>) -> Result<(), &'static str>,
}

impl PartialEq for Description {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameters) == (other.name, other.parameters)
    }
}

impl Eq for Description {}

/// A [`Description::check`] for parameters that have nothing to do with each other.
///
/// # Errors
///
/// None.
pub fn independent(_: &Values<'_>) -> Result<(), &'static str> {
    Ok(())
}

/// One parameter. Values are whole numbers in the smallest unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Lower case, with hyphens.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The unit of values.
    pub unit: Unit,
    /// Least value that is taken.
    pub least: u64,
    /// Most.
    pub most: u64,
    /// The default value.
    pub default: u64,
}

impl Parameter {
    /// The valid values, for people.
    #[must_use]
    pub fn range(&self) -> String {
        match self.unit {
            Unit::Word(words) => words.join(" or "),
            unit => format!("{} to {}", unit.show(self.least), unit.show(self.most)),
        }
    }
}

impl fmt::Display for Description {
    /// Name, summary and parameters, a line each.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.summary)?;
        for parameter in self.parameters {
            write!(
                formatter,
                "\n  {}={} ({}): {}",
                parameter.name,
                parameter.unit.show(parameter.default),
                parameter.range(),
                parameter.summary
            )?;
        }
        Ok(())
    }
}

/// The values of a policy's parameters, each within its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    pub(super) description: &'static Description,
    pub(super) values: &'a [u64],
}

impl Values<'_> {
    /// The value of a parameter; 0 if the policy has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let parameters = self.description.parameters.iter();
        let mut both = parameters.zip(self.values);
        both.find(|(parameter, _)| parameter.name == name)
            .map_or(0, |(_, value)| *value)
    }

    /// The same, for parameters whose bounds are within 32 bits.
    #[must_use]
    pub fn get_u32(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).unwrap_or(u32::MAX)
    }

    /// The same, for parameters whose bounds are within 16 bits.
    #[must_use]
    pub fn get_u16(&self, name: &str) -> u16 {
        u16::try_from(self.get(name)).unwrap_or(u16::MAX)
    }

    /// The same, for parameters whose bounds are within 8 bits.
    #[must_use]
    pub fn get_u8(&self, name: &str) -> u8 {
        u8::try_from(self.get(name)).unwrap_or(u8::MAX)
    }

    /// Whether a parameter is not 0, or not the first of its words.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) != 0
    }
}
