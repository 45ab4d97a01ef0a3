//! Policies by name, from strings of the configuration or of `netchannel set scheduler`.
//!
//! ```text
//!   "round-robin stay=6 threshold=2MiB" --> Setting (name, checked values) --> Registry --> Box<dyn ChannelPolicy>
//! ```
//!
//! Names are unique over all kinds, so that a setting identifies what it changes. A program can add its own policies.

mod builtin;
mod description;
mod setting;

#[cfg(test)]
mod tests;

pub use crate::unit::Unit;
pub use description::{Description, Parameter, Values, independent};
pub use setting::{Setting, SettingError, Settings};

use core::fmt;

use crate::channel::ChannelPolicy;
use crate::copy::{CopyParameters, CopyPolicy, Pick};
use crate::order::OrderPolicy;
use crate::placement::PlacementPolicy;
use crate::scale::ScalePolicy;

/// The subject of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Which channel a segment takes.
    Channel,
    /// The next socket.
    Order,
    /// The number of channels.
    Scale,
    /// On which core a worker runs.
    Placement,
    /// The thread that copies.
    Copy,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Channel,
        Self::Order,
        Self::Scale,
        Self::Placement,
        Self::Copy,
    ];

    /// Its key in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Order => "order",
            Self::Scale => "scale",
            Self::Placement => "placement",
            Self::Copy => "copy",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Makes a policy of one kind from checked values.
#[derive(Clone, Copy)]
pub enum Maker {
    /// See [`Kind::Channel`].
    Channel(fn(&Values<'_>) -> Box<dyn ChannelPolicy>),
    /// See [`Kind::Order`].
    Order(fn(&Values<'_>) -> Box<dyn OrderPolicy>),
    /// See [`Kind::Scale`].
    Scale(fn(&Values<'_>) -> Box<dyn ScalePolicy>),
    /// See [`Kind::Placement`].
    Placement(fn(&Values<'_>) -> Box<dyn PlacementPolicy>),
    /// See [`Kind::Copy`].
    Copy(fn(&Values<'_>) -> Box<dyn CopyPolicy>),
}

impl Maker {
    /// The kind of its policies.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Channel(_) => Kind::Channel,
            Self::Order(_) => Kind::Order,
            Self::Scale(_) => Kind::Scale,
            Self::Placement(_) => Kind::Placement,
            Self::Copy(_) => Kind::Copy,
        }
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Maker({})", self.kind())
    }
}

/// All known policies.
#[derive(Clone, Debug)]
pub struct Registry {
    entries: Vec<(&'static Description, Maker)>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// The policies of this crate. The first of a kind is its default.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            entries: builtin::ENTRIES.to_vec(),
        }
    }

    /// Adds a policy.
    ///
    /// # Errors
    ///
    /// [`SettingError::NameTaken`] if a policy of any kind has that name.
    pub fn add(
        &mut self,
        description: &'static Description,
        maker: Maker,
    ) -> Result<(), SettingError> {
        if self.find(description.name).is_some() {
            return Err(SettingError::NameTaken(description.name.to_owned()));
        }
        self.entries.push((description, maker));
        Ok(())
    }

    /// Policies of one kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &'static Description> + '_ {
        self.entries
            .iter()
            .filter(move |(_, maker)| maker.kind() == kind)
            .map(|(description, _)| *description)
    }

    fn find(&self, name: &str) -> Option<(&'static Description, Maker)> {
        let mut entries = self.entries.iter();
        entries
            .find(|(description, _)| description.name == name)
            .copied()
    }

    /// The default of a kind.
    #[must_use]
    pub fn default_of(&self, kind: Kind) -> Option<Setting> {
        let description = self.of_kind(kind).next()?;
        Some(Setting::new(kind, description))
    }

    /// Reads a setting: a name, then `parameter=value`, separated by blanks, commas or colons.
    ///
    /// # Errors
    ///
    /// A sentence with the mistake and a list of the policies.
    pub fn parse(&self, text: &str) -> Result<Setting, SettingError> {
        let mut words = setting::words(text);
        let name = words.next().ok_or(SettingError::Empty)?;
        let Some((description, maker)) = self.find(name) else {
            return Err(SettingError::UnknownPolicy {
                name: name.to_owned(),
                known: self.names(),
            });
        };
        let mut setting = Setting::new(maker.kind(), description);
        for word in words {
            setting.set(word)?;
        }
        setting.check()?;
        Ok(setting)
    }

    fn names(&self) -> String {
        let lists: Vec<String> = Kind::ALL
            .iter()
            .map(|kind| {
                let names: Vec<&str> = self.of_kind(*kind).map(|entry| entry.name).collect();
                format!("{kind}: {}", names.join(", "))
            })
            .collect();
        lists.join("; ")
    }

    fn maker(&self, setting: &Setting) -> Result<Maker, SettingError> {
        match self.find(setting.name()) {
            Some((_, maker)) => Ok(maker),
            None => Err(SettingError::UnknownPolicy {
                name: setting.name().to_owned(),
                known: self.names(),
            }),
        }
    }

    /// Makes a channel policy.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn channel(&self, setting: &Setting) -> Result<Box<dyn ChannelPolicy>, SettingError> {
        match self.maker(setting)? {
            Maker::Channel(make) => Ok(make(&setting.values())),
            other => Err(setting.wrong_kind(Kind::Channel, other.kind())),
        }
    }

    /// Makes an order policy.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn order(&self, setting: &Setting) -> Result<Box<dyn OrderPolicy>, SettingError> {
        match self.maker(setting)? {
            Maker::Order(make) => Ok(make(&setting.values())),
            other => Err(setting.wrong_kind(Kind::Order, other.kind())),
        }
    }

    /// Makes a scale policy.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn scale(&self, setting: &Setting) -> Result<Box<dyn ScalePolicy>, SettingError> {
        match self.maker(setting)? {
            Maker::Scale(make) => Ok(make(&setting.values())),
            other => Err(setting.wrong_kind(Kind::Scale, other.kind())),
        }
    }

    /// Makes a placement policy.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn placement(&self, setting: &Setting) -> Result<Box<dyn PlacementPolicy>, SettingError> {
        match self.maker(setting)? {
            Maker::Placement(make) => Ok(make(&setting.values())),
            other => Err(setting.wrong_kind(Kind::Placement, other.kind())),
        }
    }

    /// Makes a copy policy.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn copy(&self, setting: &Setting) -> Result<Box<dyn CopyPolicy>, SettingError> {
        match self.maker(setting)? {
            Maker::Copy(make) => Ok(make(&setting.values())),
            other => Err(setting.wrong_kind(Kind::Copy, other.kind())),
        }
    }

    /// The parameters of a copy policy, for the library in programs, which can not ask the policy. `None` if nothing is
    /// to be split.
    ///
    /// # Errors
    ///
    /// The setting is of another kind, or of another registry.
    pub fn copy_parameters(
        &self,
        setting: &Setting,
    ) -> Result<Option<CopyParameters>, SettingError> {
        let maker = self.maker(setting)?;
        if maker.kind() != Kind::Copy {
            return Err(setting.wrong_kind(Kind::Copy, maker.kind()));
        }
        // A policy of another program has no parameters of these names.
        let parameters = builtin::copy(&setting.values(), Pick::LeastLoaded);
        Ok((parameters.part > 0).then_some(parameters))
    }
}
