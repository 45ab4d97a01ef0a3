//! Threads of this process that sleep for connections, in whatever way: clients that announce one ring for them.

use super::links::{awake, listen_for_jobs};
use super::wake_ups;

/// A thread is about to sleep for connections: clients ring from now on. It looks once more.
pub fn lie_down() {
    wake_ups::begin_sleep();
    let _ = listen_for_jobs();
}

/// It is awake, and, if it `loops`, looks for connections again soon. As long as others sleep,
/// clients go on ringing.
pub fn rise(loops: bool) {
    if wake_ups::end_sleep() {
        if loops {
            awake(wake_ups::accepts_soon());
        }
    } else {
        let _ = listen_for_jobs();
    }
}
