//! The copy policy in the directory, where programs read it.

use netchannel_abi::copying::Rules;
use netchannel_scheduler::copy::CopyParameters;
use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Registry, Settings};

/// The directory's words for a policy. Where nothing is to be split there are no workers. A program that got workers
/// from `netchannel run` then splits by the defaults.
#[must_use]
pub fn rules(settings: &Settings) -> Rules {
    let parameters = Registry::builtin().copy_parameters(settings.get(Kind::Copy));
    let parameters = parameters.ok().flatten();
    let CopyParameters {
        pick: _,
        workers,
        threshold,
        least,
        local,
        part,
        in_flight_send,
        in_flight_receive,
    } = parameters.unwrap_or_default();
    let word = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Rules {
        workers: if parameters.is_some() { workers } else { 0 },
        least: word(least),
        local: word(local),
        part: word(part),
        threshold: word(threshold),
        in_flight_send: word(in_flight_send),
        in_flight_receive: word(in_flight_receive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_what_the_policy_says() {
        let mut settings = Settings::default();
        let usual = rules(&settings);
        assert_eq!((usual.workers, usual.threshold), (3, 640 << 10));
        assert_eq!((usual.part, usual.in_flight_receive), (62_620, 250_480));
        let registry = Registry::builtin();
        let mut told = |text: &str| {
            settings.set(registry.parse(text).unwrap());
            rules(&settings)
        };
        let set = told("copy-round-robin workers=1 least=1MB part=128KB");
        assert_eq!((set.workers, set.least, set.part), (1, 1 << 20, 128 << 10));
        assert_eq!(
            told("copy-local"),
            Rules {
                workers: 0,
                ..usual
            }
        );
    }
}
