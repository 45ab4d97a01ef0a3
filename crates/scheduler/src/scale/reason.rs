//! Why the number of channels changes, or stays.

use core::fmt;

use crate::time::MILLISECOND;

/// Times in nanoseconds, utilisations 0 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Fewer than the least.
    TooFew {
        /// The present number.
        count: u16,
        /// The minimum.
        least: u16,
    },
    /// More than the most, after a change of the configuration.
    TooMany {
        /// The present number.
        count: u16,
        /// The maximum.
        most: u16,
    },
    /// Workers have been busy for long, and the transport would take more.
    Busy {
        /// Mean of the workers.
        utilisation: u16,
        /// Since when.
        lasted: u64,
    },
    /// Workers have been idle for long, and the other channels can take their traffic.
    Idle {
        /// Mean of the workers.
        utilisation: u16,
        /// Since when.
        lasted: u64,
    },
    /// Busy, not long enough yet.
    BusyNotLong {
        /// For how long.
        lasted: u64,
    },
    /// Idle, not long enough yet.
    IdleNotLong {
        /// For how long.
        lasted: u64,
        /// The required duration.
        wanted: u64,
    },
    /// Busy, but the network is what is slow: another channel would only take from others.
    CongestionLimited,
    /// Busy, but the maximum is reached.
    AtMost {
        /// The maximum.
        most: u16,
    },
    /// Idle, but the minimum is reached.
    AtLeast {
        /// The minimum.
        least: u16,
    },
    /// Idle, but one fewer would be busy.
    OthersWouldBeBusy {
        /// The resulting mean.
        utilisation: u16,
    },
    /// The last change is too recent.
    JustChanged {
        /// The time since then.
        ago: u64,
    },
    /// Neither busy nor idle.
    Steady {
        /// Mean of the workers.
        utilisation: u16,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |utilisation: u16| utilisation / 10;
        match *self {
            Self::TooFew { count, least } => write!(formatter, "{count} of at least {least}"),
            Self::TooMany { count, most } => write!(formatter, "{count} of at most {most}"),
            Self::Busy {
                utilisation,
                lasted,
            } => write!(
                formatter,
                "workers busy ({} %) for {} ms, the transport is not congestion-limited",
                percent(utilisation),
                lasted / MILLISECOND
            ),
            Self::Idle {
                utilisation,
                lasted,
            } => write!(
                formatter,
                "workers idle ({} %) for {} ms",
                percent(utilisation),
                lasted / MILLISECOND
            ),
            Self::BusyNotLong { lasted } => {
                write!(formatter, "busy for {} ms only", lasted / MILLISECOND)
            }
            Self::IdleNotLong { lasted, wanted } => write!(
                formatter,
                "idle for {} of {} ms",
                lasted / MILLISECOND,
                wanted / MILLISECOND
            ),
            Self::CongestionLimited => {
                formatter.write_str("busy, but the transport is congestion-limited")
            }
            Self::AtMost { most } => write!(formatter, "busy, but {most} is the most"),
            Self::AtLeast { least } => write!(formatter, "idle, but {least} is the least"),
            Self::OthersWouldBeBusy { utilisation } => write!(
                formatter,
                "idle, but without one the others would be busy ({} %)",
                percent(utilisation)
            ),
            Self::JustChanged { ago } => {
                write!(formatter, "changed {} ms ago", ago / MILLISECOND)
            }
            Self::Steady { utilisation } => {
                write!(
                    formatter,
                    "workers neither busy nor idle ({} %)",
                    percent(utilisation)
                )
            }
        }
    }
}
