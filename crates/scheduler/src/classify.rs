//! The class of a socket: by the most specific hint, or else by its observed traffic.

use crate::view::Class;

/// The hints about a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The class that the configuration enforces for all sockets of the tenant.
    pub enforced: Option<Class>,
    /// `setsockopt(SO_APP_TYPE)` (paper, section 4).
    pub option: Option<Class>,
    /// `setsockopt(SO_PRIORITY)`, 0 if never set.
    pub priority: u32,
    /// The upper six bits of `IP_TOS` or `IPV6_TCLASS`, 0 if never set.
    pub dscp: u8,
    /// `netchannel run --class`.
    pub run: Option<Class>,
    /// The tenant's, in the configuration.
    pub tenant: Option<Class>,
    /// The class that an [`crate::Observer`] found.
    pub observed: Option<Class>,
}

/// The source of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration, for this tenant.
    Enforced,
    /// `SO_APP_TYPE`.
    Option,
    /// `SO_PRIORITY`.
    Priority,
    /// `IP_TOS` or `IPV6_TCLASS`.
    Dscp,
    /// `netchannel run --class`.
    Run,
    /// The tenant.
    Tenant,
    /// The traffic.
    Observed,
    /// There is no hint: throughput, as in the paper, so that only known sockets are L.
    Default,
}

impl core::fmt::Display for Source {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.pad(match self {
            Self::Enforced => "enforced",
            Self::Option => "SO_APP_TYPE",
            Self::Priority => "SO_PRIORITY",
            Self::Dscp => "DSCP",
            Self::Run => "run --class",
            Self::Tenant => "tenant",
            Self::Observed => "observed",
            Self::Default => "default",
        })
    }
}

/// The class, and what decided it.
#[must_use]
pub fn classify(hints: &Hints) -> (Class, Source) {
    let hints = [
        (hints.enforced, Source::Enforced),
        (hints.option, Source::Option),
        (of_priority(hints.priority), Source::Priority),
        (of_dscp(hints.dscp), Source::Dscp),
        (hints.run, Source::Run),
        (hints.tenant, Source::Tenant),
        (hints.observed, Source::Observed),
    ];
    hints
        .iter()
        .find_map(|(class, source)| class.map(|class| (class, *source)))
        .unwrap_or((Class::Throughput, Source::Default))
}

/// The class of a socket priority. 0 selects none; 1 and 2 are the kernel's filler and bulk (`TC_PRIO_FILLER`,
/// `TC_PRIO_BULK`); others ask for precedence, as in the published module.
#[must_use]
pub const fn of_priority(priority: u32) -> Option<Class> {
    match priority {
        0 => None,
        1 | 2 => Some(Class::Throughput),
        _ => Some(Class::Latency),
    }
}

/// The class of a code point (RFC 4594, RFC 8622, and the older bits of RFC 1349 that programs still set).
#[must_use]
pub const fn of_dscp(dscp: u8) -> Option<Class> {
    match dscp {
        // Low delay (RFC 1349); AF2x low-latency data; CS4, AF4x real-time; CS5 to CS7; VOICE-ADMIT, EF.
        4 | 18 | 20 | 22 | 32 | 34 | 36 | 38 | 40 | 44 | 46 | 48 | 56 => Some(Class::Latency),
        // LE; throughput (RFC 1349); CS1; AF1x high-throughput data.
        1 | 2 | 8 | 10 | 12 | 14 => Some(Class::Throughput),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_particular_hint_decides() {
        let mut hints = Hints::default();
        assert_eq!(classify(&hints), (Class::Throughput, Source::Default));
        hints.observed = Some(Class::Latency);
        assert_eq!(classify(&hints), (Class::Latency, Source::Observed));
        hints.tenant = Some(Class::Throughput);
        assert_eq!(classify(&hints), (Class::Throughput, Source::Tenant));
        hints.run = Some(Class::Latency);
        assert_eq!(classify(&hints), (Class::Latency, Source::Run));
        hints.dscp = 8;
        assert_eq!(classify(&hints), (Class::Throughput, Source::Dscp));
        hints.priority = 6;
        assert_eq!(classify(&hints), (Class::Latency, Source::Priority));
        hints.option = Some(Class::Throughput);
        assert_eq!(classify(&hints), (Class::Throughput, Source::Option));
        hints.enforced = Some(Class::Latency);
        assert_eq!(classify(&hints), (Class::Latency, Source::Enforced));
    }

    #[test]
    fn values_that_say_nothing_leave_it_to_the_next() {
        let hints = Hints {
            dscp: 26,
            run: Some(Class::Latency),
            ..Hints::default()
        };
        assert_eq!(classify(&hints), (Class::Latency, Source::Run));
        assert_eq!(of_priority(0), None);
        assert_eq!(of_dscp(0), None);
        assert!((64..=255).all(|dscp| of_dscp(dscp).is_none()));
    }
}
