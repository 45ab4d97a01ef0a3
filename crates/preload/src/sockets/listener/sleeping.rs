//! Threads of this process that sleep for connections, in any kind of call: clients that announce a connection ring for
//! them.

use super::links::{awake, listen_for_jobs};
use super::wake_ups;

/// Announces that a thread will sleep for connections: clients ring from now on. The thread looks once more.
pub fn begin_sleep() {
    wake_ups::begin_sleep();
    let _ = listen_for_jobs();
}

/// Ends the sleep of a thread, which looks for connections again soon if it `loops`. As long as other threads sleep,
/// clients go on ringing.
pub fn end_sleep(loops: bool) {
    if wake_ups::end_sleep() {
        if loops {
            awake(wake_ups::accepts_soon());
        }
    } else {
        let _ = listen_for_jobs();
    }
}
