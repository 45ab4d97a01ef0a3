//! Listeners that no program holds for now: a message brings their socket to one. Connections that wait in their accept
//! channel wait for it, as long as the socket exists.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When the kernel is first asked whether the socket still listens. Each delay is twice the last one,
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// up to this one,
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// for this long: a program without the library never takes what waits.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// These listeners, and when each is proved again.
#[derive(Debug, Default)]
pub struct Unheld {
    listeners: BTreeMap<u32, Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    /// The time of the next look, and of the last one. `None` until the time is first known.
    times: Option<(Instant, Instant)>,
    pause: Duration,
}

impl Unheld {
    /// The last holder of a listener has left it.
    pub fn add(&mut self, listener: u32) {
        let look = Look {
            times: None,
            pause: FIRST_LOOK,
        };
        self.listeners.insert(listener, look);
    }

    /// A program holds it again, or it is gone.
    pub fn remove(&mut self, listener: u32) {
        self.listeners.remove(&listener);
    }

    /// Those that are to be proved now, and are due again after a longer pause; and those that have waited too long.
    pub fn due(&mut self, now: Instant) -> (Vec<u32>, Vec<u32>) {
        let (mut due, mut over) = (Vec::new(), Vec::new());
        for (listener, look) in &mut self.listeners {
            let first = (now + look.pause, now + LONGEST_WAIT);
            let (at, end) = *look.times.get_or_insert(first);
            if end <= now {
                over.push(*listener);
            } else if at <= now {
                look.pause = LONGEST_PAUSE.min(look.pause * 2);
                look.times = Some((now + look.pause, end));
                due.push(*listener);
            }
        }
        (due, over)
    }

    /// The time of the next proof.
    pub fn next(&self) -> Option<Instant> {
        let looks = self.listeners.values();
        looks.filter_map(|look| Some(look.times?.0)).min()
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
        assert_eq!(unheld.due(now), (vec![], vec![]));
        assert_eq!(unheld.next(), Some(now + FIRST_LOOK));
        assert_eq!(unheld.due(now + FIRST_LOOK), (vec![1], vec![]));
        assert_eq!(unheld.due(now + FIRST_LOOK), (vec![], vec![]));
        let mut at = unheld.next().unwrap();
        assert_eq!(at, now + FIRST_LOOK + 2 * FIRST_LOOK);
        for _ in 0..20 {
            assert_eq!(unheld.due(at), (vec![1], vec![]));
            let next = unheld.next().unwrap();
            assert!(next - at <= LONGEST_PAUSE);
            at = next;
        }
        assert_eq!(unheld.due(now + LONGEST_WAIT), (vec![], vec![1]));
        unheld.remove(1);
        assert_eq!(unheld.next(), None);
    }
}
