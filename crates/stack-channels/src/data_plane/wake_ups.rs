//! Programs that are to be woken, and when. Whoever is woken may take the processor, so all are woken at the end of a pass. Where
//! several streams share a worker that has more to do, a stream's program sleeps on until much waits for it: otherwise each of them
//! takes its turn for a few kilobytes, and what the processor's cache holds is another's every time.

use super::connection::{Connection, State};
use netchannel_scheduler::Class;
use std::sync::Arc;

/// So many streams are several.
const SEVERAL: u32 = 3;
/// A stream's program sleeps on for this long at most, in nanoseconds.
const LONGEST: u64 = 200_000;

/// The wake-ups of a worker.
#[derive(Debug)]
pub struct WakeUps {
    due: Vec<WakeUp>,
    /// The present window of time.
    window: u32,
    /// Streams in it so far.
    streams: u32,
    /// There were several in the last one.
    several: bool,
}

#[derive(Debug)]
struct WakeUp {
    connection: Arc<Connection>,
    /// It is rung by then.
    until: u64,
}

impl Default for WakeUps {
    fn default() -> Self {
        Self {
            due: Vec::new(),
            // Sockets begin with 0, which is no window.
            window: 1,
            streams: 0,
            several: false,
        }
    }
}

impl WakeUps {
    /// A socket's program is to be woken.
    pub fn push(&mut self, connection: &Arc<Connection>, state: &mut State, now: u64) {
        let late = self.several && state.class().0 == Class::Throughput;
        if std::mem::replace(&mut state.wake_up_waits, true) {
            return;
        }
        let until = if late { now + LONGEST } else { now };
        self.due.push(WakeUp {
            connection: Arc::clone(connection),
            until,
        });
    }

    /// A large segment of a socket goes or has come; `last` is the window of the one before. Whether its program is to sleep on
    /// until the pass ends.
    pub fn note_large(&mut self, last: &mut u32, class: Class) -> bool {
        if class == Class::Latency {
            return false;
        }
        if std::mem::replace(last, self.window) != self.window {
            self.streams += 1;
        }
        self.several
    }

    /// A window of time has ended.
    pub fn turn(&mut self) {
        self.several = self.streams >= SEVERAL;
        self.streams = 0;
        self.window = self.window.wrapping_add(1).max(1);
    }

    /// Wakes the programs that have news. If the worker is `busy`, those of streams sleep on while little waits for them.
    pub fn ring(&mut self, busy: bool, now: u64) {
        self.due.retain(|wake_up| {
            let mut state = wake_up.connection.lock();
            let Some(lane) = &mut state.lane else {
                return false;
            };
            if busy && now < wake_up.until && !lane.is_pressing() {
                return true;
            }
            lane.send_wake_up();
            state.wake_up_waits = false;
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{SEVERAL, WakeUps};
    use netchannel_scheduler::Class;

    fn window(wake_ups: &mut WakeUps, sockets: &mut [u32], class: Class) {
        for _ in 0..3 {
            for last in sockets.iter_mut() {
                wake_ups.note_large(last, class);
            }
        }
        wake_ups.turn();
    }

    #[test]
    fn several_streams_in_one_window_of_time_are_woken_late_in_the_next() {
        let mut wake_ups = WakeUps::default();
        let mut few = [0; SEVERAL as usize - 1];
        window(&mut wake_ups, &mut few, Class::Throughput);
        assert!(!wake_ups.note_large(&mut 0, Class::Throughput));
        window(&mut wake_ups, &mut [0; SEVERAL as usize], Class::Throughput);
        assert!(wake_ups.note_large(&mut 0, Class::Throughput));
        // One goes on alone.
        window(&mut wake_ups, &mut [0], Class::Throughput);
        assert!(!wake_ups.note_large(&mut 0, Class::Throughput));
    }

    #[test]
    fn large_segments_of_who_is_in_a_hurry_are_no_streams() {
        let mut wake_ups = WakeUps::default();
        window(&mut wake_ups, &mut [0; 8], Class::Latency);
        assert!(!wake_ups.note_large(&mut 0, Class::Throughput));
        window(&mut wake_ups, &mut [0; 8], Class::Throughput);
        assert!(!wake_ups.note_large(&mut 0, Class::Latency));
        assert!(wake_ups.note_large(&mut 0, Class::Throughput));
    }
}
