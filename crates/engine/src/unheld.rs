//! Listeners that no program holds for now: a message brings their socket to one. Connections that wait in their accept
//! channel wait for it, as long as the socket exists.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When the kernel is first asked whether the socket still listens. Each delay is twice the last one,
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// up to this one.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// These listeners, and when each is proved again.
#[derive(Debug, Default)]
pub struct Unheld {
    listeners: BTreeMap<u32, Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    /// `None` until the time is first known.
    at: Option<Instant>,
    pause: Duration,
}

impl Unheld {
    /// The last holder of a listener has left it.
    pub fn add(&mut self, listener: u32) {
        let look = Look {
            at: None,
            pause: FIRST_LOOK,
        };
        self.listeners.insert(listener, look);
    }

    /// A program holds it again, or it is gone.
    pub fn remove(&mut self, listener: u32) {
        self.listeners.remove(&listener);
    }

    /// Those that are to be proved now. They are due again after a longer pause.
    pub fn due(&mut self, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        for (listener, look) in &mut self.listeners {
            let at = *look.at.get_or_insert(now + look.pause);
            if at <= now {
                look.pause = LONGEST_PAUSE.min(look.pause * 2);
                look.at = Some(now + look.pause);
                due.push(*listener);
            }
        }
        due
    }

    /// The time of the next proof.
    pub fn next(&self) -> Option<Instant> {
        self.listeners.values().filter_map(|look| look.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_proved_after_longer_and_longer_pauses() {
        let mut unheld = Unheld::default();
        let now = Instant::now();
        unheld.add(1);
        assert!(unheld.due(now).is_empty());
        assert_eq!(unheld.next(), Some(now + FIRST_LOOK));
        assert_eq!(unheld.due(now + FIRST_LOOK), [1]);
        assert!(unheld.due(now + FIRST_LOOK).is_empty());
        let mut at = unheld.next().unwrap();
        assert_eq!(at, now + FIRST_LOOK + 2 * FIRST_LOOK);
        for _ in 0..20 {
            assert_eq!(unheld.due(at), [1]);
            let next = unheld.next().unwrap();
            assert!(next - at <= LONGEST_PAUSE);
            at = next;
        }
        unheld.remove(1);
        assert_eq!(unheld.next(), None);
    }
}
