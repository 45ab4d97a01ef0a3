//! A policy's name with checked values, and one for each kind.

use core::fmt;
use core::str::FromStr;

use super::{Description, Kind, Registry, Unit, Values};

/// A mistake in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// No name.
    Empty,
    /// No policy has that name.
    UnknownPolicy {
        /// The name.
        name: String,
        /// The known ones.
        known: String,
    },
    /// The policy has no such parameter.
    UnknownParameter {
        /// The policy.
        policy: &'static str,
        /// The name.
        name: String,
        /// The known ones.
        known: String,
    },
    /// The value cannot be read, or is out of bounds.
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The text.
        value: String,
        /// The valid values.
        range: String,
    },
    /// Values that do not go together.
    Inconsistent {
        /// The policy.
        policy: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A parameter without `=`.
    NoValue(String),
    /// A policy of one kind where another is wanted.
    WrongKind {
        /// The policy.
        policy: &'static str,
        /// The actual kind.
        is: Kind,
        /// The expected kind.
        wanted: Kind,
    },
    /// No kind has that name.
    UnknownKind(String),
    /// There is a policy of that name.
    NameTaken(String),
}

impl fmt::Display for SettingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => formatter.write_str("a policy is wanted"),
            Self::UnknownPolicy { name, known } => {
                write!(formatter, "there is no policy {name:?}; there are {known}")
            }
            Self::UnknownParameter {
                policy,
                name,
                known,
            } if known.is_empty() => {
                write!(formatter, "{policy} has no parameters, not {name:?}")
            }
            Self::UnknownParameter {
                policy,
                name,
                known,
            } => write!(
                formatter,
                "{policy} has no parameter {name:?}; it has {known}"
            ),
            Self::BadValue {
                policy,
                parameter,
                value,
                range,
            } => write!(formatter, "{policy}: {parameter}={value} is not {range}"),
            Self::Inconsistent { policy, why } => write!(formatter, "{policy}: {why}"),
            Self::NoValue(word) => write!(formatter, "{word:?} is not parameter=value"),
            Self::WrongKind { policy, is, wanted } => write!(
                formatter,
                "{policy} is a policy for {is}, and one for {wanted} is wanted"
            ),
            Self::UnknownKind(name) => {
                let names = Kind::ALL.map(Kind::name).join(", ");
                write!(
                    formatter,
                    "there is no policy for {name:?}; there are {names}"
                )
            }
            Self::NameTaken(name) => write!(formatter, "there is a policy {name:?} already"),
        }
    }
}

impl std::error::Error for SettingError {}

pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t', ',', ':'])
        .filter(|word| !word.is_empty())
}

/// A policy and the values of its parameters, each within its bounds.
///
/// Reads from and prints as `round-robin threshold=2MiB stay=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    kind: Kind,
    description: &'static Description,
    values: Vec<u64>,
}

impl Setting {
    /// Every parameter at its default.
    pub(super) fn new(kind: Kind, description: &'static Description) -> Self {
        let parameters = description.parameters.iter();
        Self {
            kind,
            description,
            values: parameters.map(|parameter| parameter.default).collect(),
        }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The policy.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.description.name
    }

    /// The policy, with all that can be set.
    #[must_use]
    pub fn description(&self) -> &'static Description {
        self.description
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        Values {
            description: self.description,
            values: &self.values,
        }
    }

    /// Changes one parameter: `stay=6`.
    ///
    /// # Errors
    ///
    /// A sentence with the mistake and the valid values.
    pub fn set(&mut self, assignment: &str) -> Result<(), SettingError> {
        let (name, text) = assignment
            .split_once('=')
            .ok_or_else(|| SettingError::NoValue(assignment.to_owned()))?;
        let policy = self.description.name;
        let parameters = self.description.parameters;
        let Some(index) = parameters.iter().position(|entry| entry.name == name) else {
            let known: Vec<&str> = parameters.iter().map(|entry| entry.name).collect();
            return Err(SettingError::UnknownParameter {
                policy,
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        let parameter = &parameters[index];
        match parameter.unit.parse(text) {
            Some(value) if (parameter.least..=parameter.most).contains(&value) => {
                self.values[index] = value;
                Ok(())
            }
            _ => Err(SettingError::BadValue {
                policy,
                parameter: parameter.name,
                value: text.to_owned(),
                range: parameter.range(),
            }),
        }
    }

    /// Checks that the values go together; [`Registry::parse`] has done so.
    ///
    /// # Errors
    ///
    /// A sentence with the mistake.
    pub fn check(&self) -> Result<(), SettingError> {
        (self.description.check)(&self.values()).map_err(|why| SettingError::Inconsistent {
            policy: self.name(),
            why,
        })
    }

    pub(super) fn wrong_kind(&self, wanted: Kind, is: Kind) -> SettingError {
        SettingError::WrongKind {
            policy: self.name(),
            is,
            wanted,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        for (parameter, value) in self.description.parameters.iter().zip(&self.values) {
            let unit: Unit = parameter.unit;
            write!(formatter, " {}={}", parameter.name, unit.show(*value))?;
        }
        Ok(())
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    /// A policy of [`Registry::builtin`].
    fn from_str(text: &str) -> Result<Self, SettingError> {
        Registry::builtin().parse(text)
    }
}

/// One policy of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    settings: Vec<Setting>,
}

impl Default for Settings {
    /// The defaults of [`Registry::builtin`].
    fn default() -> Self {
        Self::of(&Registry::builtin())
    }
}

impl Settings {
    /// The defaults of a registry.
    #[must_use]
    pub fn of(registry: &Registry) -> Self {
        let kinds = Kind::ALL.iter();
        Self {
            settings: kinds
                .filter_map(|kind| registry.default_of(*kind))
                .collect(),
        }
    }

    /// The policy of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> &Setting {
        // In the order of the kinds, one each: a registry begins with the built-in ones.
        &self.settings[kind as usize]
    }

    /// Puts a policy in the place of the one of its kind.
    pub fn set(&mut self, setting: Setting) {
        let index = setting.kind as usize;
        self.settings[index] = setting;
    }

    /// Reads one entry of the configuration: under a kind's name, a policy of that kind.
    ///
    /// # Errors
    ///
    /// A sentence with the mistake and a list of the policies.
    pub fn set_entry(
        &mut self,
        registry: &Registry,
        kind: &str,
        text: &str,
    ) -> Result<(), SettingError> {
        let wanted = Kind::ALL.into_iter().find(|entry| entry.name() == kind);
        let wanted = wanted.ok_or_else(|| SettingError::UnknownKind(kind.to_owned()))?;
        let setting = registry.parse(text)?;
        if setting.kind != wanted {
            return Err(setting.wrong_kind(wanted, setting.kind));
        }
        self.set(setting);
        Ok(())
    }

    /// All settings, in the order of [`Kind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }
}

impl fmt::Display for Settings {
    /// A line each: `channel = "round-robin threshold=2MiB stay=1"`, as in `netchannel.toml`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in &self.settings {
            writeln!(formatter, "{} = \"{setting}\"", setting.kind)?;
        }
        Ok(())
    }
}
