//! The channels that a connection used lately.

use netchannel_scheduler::{ChannelId, Class};

/// A channel counts as used for this long, in nanoseconds, and for at most twice as long.
const RECENT: u64 = 1_000_000_000;

/// The channels that a connection used lately, in either direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelsUsed {
    /// A bit for each channel number, by class: used since `since`, and used before.
    now: [u32; 2],
    before: [u32; 2],
    since: u64,
}

impl ChannelsUsed {
    /// Notes that the connection uses a channel.
    pub fn note(&mut self, channel: ChannelId, now: u64) {
        if now.saturating_sub(self.since) > RECENT {
            self.before = self.now;
            self.now = [0; 2];
            self.since = now;
        }
        if let Some(word) = self.now.get_mut(channel.class.index()) {
            *word |= 1_u32.checked_shl(channel.number).unwrap_or(0);
        }
    }

    /// The channels, by class and number.
    pub fn channels(&self) -> Vec<ChannelId> {
        let mut used = Vec::new();
        for class in Class::ALL {
            let word = |words: &[u32; 2]| words.get(class.index()).copied().unwrap_or(0);
            let bits = word(&self.now) | word(&self.before);
            let numbers = (0..u32::BITS).filter(|number| bits >> number & 1 != 0);
            used.extend(numbers.map(|number| ChannelId { class, number }));
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_long_ago_is_forgotten() {
        let channel = |class, number| ChannelId { class, number };
        let (first, second) = (channel(Class::Throughput, 3), channel(Class::Latency, 0));
        let mut used = ChannelsUsed::default();
        used.note(first, 0);
        used.note(channel(Class::Throughput, 40), 0);
        assert_eq!(used.channels(), [first]);
        used.note(second, RECENT + 1);
        assert_eq!(used.channels(), [second, first]);
        used.note(second, 3 * RECENT);
        assert_eq!(used.channels(), [second]);
    }
}
