//! The pending wake-ups of programs. A woken program may take the processor, so all are woken at the end of a pass.
//! Where several streams share a busy worker, the wake-up of a stream's program waits until many bytes wait for it:
//! otherwise each program runs for a few kilobytes, and the processor's cache holds another one's data every time.

use super::connection::{Connection, State};
use netchannel_scheduler::Class;
use std::sync::Arc;

/// The number of streams that count as several.
const SEVERAL: u32 = 3;
/// The longest delay of a stream's wake-up, in nanoseconds.
const LONGEST: u64 = 200_000;

/// The wake-ups of a worker.
#[derive(Debug)]
pub struct WakeUps {
    due: Vec<WakeUp>,
    /// The number of the present window of time.
    window: u32,
    /// The streams of this window so far.
    streams: u32,
    /// The last window had several streams.
    several: bool,
}

#[derive(Debug)]
struct WakeUp {
    connection: Arc<Connection>,
    /// The latest time of the wake-up.
    until: u64,
}

impl Default for WakeUps {
    fn default() -> Self {
        Self {
            due: Vec::new(),
            // Sockets begin with 0, which is the number of no window.
            window: 1,
            streams: 0,
            several: false,
        }
    }
}

impl WakeUps {
    /// Queues the wake-up of a socket's program.
    pub fn push(&mut self, connection: &Arc<Connection>, state: &mut State, now: u64) {
        let late = self.several && state.class().0 == Class::Throughput;
        if std::mem::replace(&mut state.wake_up_queued, true) {
            return;
        }
        let until = if late { now + LONGEST } else { now };
        self.due.push(WakeUp {
            connection: Arc::clone(connection),
            until,
        });
    }

    /// A large segment of a socket was sent or received; `last` is the window of the one before. Returns whether the
    /// wake-up of its program shall be deferred to the end of the pass.
    pub fn note_large(&mut self, last: &mut u32, class: Class) -> bool {
        if class == Class::Latency {
            return false;
        }
        if std::mem::replace(last, self.window) != self.window {
            self.streams += 1;
        }
        self.several
    }

    /// Begins the next window.
    pub fn turn(&mut self) {
        self.several = self.streams >= SEVERAL;
        self.streams = 0;
        self.window = self.window.wrapping_add(1).max(1);
    }

    /// Wakes the programs that have news. If the worker is `busy`, wake-ups of streams wait while few bytes wait for
    /// their programs.
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
            state.wake_up_queued = false;
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
