//! Signals that interrupt calls, or are caught and let them go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netchannel_testkit::support::Random;
use netchannel_testkit::sys;

/// The signal that interrupts calls, and the one that restarts them.
pub const SIGNALS: [libc::c_int; 2] = [libc::SIGUSR1, libc::SIGUSR2];

extern "C" fn on_signal(_: libc::c_int) {}

/// Catches the signals, in the calling process and its children.
pub fn prepare() {
    let [interrupts, restarts] = SIGNALS;
    sys::handle_signal(interrupts, on_signal, 0).expect("sigaction");
    sys::handle_signal(restarts, on_signal, libc::SA_RESTART).expect("sigaction");
}

/// A thread that signals the others of its process, each time a drawn one.
pub struct Interrupter {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Interrupter {
    /// Begins.
    pub fn start(seed: u64) -> Self {
        prepare();
        let is_over = Arc::new(AtomicBool::new(false));
        let sees_end = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut random = Random::new(seed);
            while !sees_end.load(Ordering::Relaxed) {
                let pause = Duration::from_micros(random.below(1_000) as u64);
                thread::sleep(pause);
                let threads = threads_of_process();
                if !threads.is_empty() {
                    let chosen = threads[random.below(threads.len())];
                    // It may have ended meanwhile.
                    let _ = sys::signal_thread(chosen, SIGNALS[random.below(2)]);
                }
            }
        });
        Self { is_over, thread }
    }

    /// Ends when the thread has.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a panic ends the process");
    }
}

fn threads_of_process() -> Vec<libc::pid_t> {
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}
