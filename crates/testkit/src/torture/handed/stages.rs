//! The stages of an end, one after the other.

use super::end::{End, script};
use crate::{blocking, hand_over};

/// Plays stages until the connection is over, here and in the processes that it is handed to.
pub fn go_on(mut end: End) {
    loop {
        let mut random = end.random(0);
        end.play_stage(&mut random);
        if end.is_over() {
            end.wait.close();
            return blocking::close(end.socket, &script(end.seed), end.role);
        }
        end.stage += 1;
        match hand_over::hand_on(end, &mut random, go_on) {
            Some(next) => end = next,
            None => return,
        }
    }
}
