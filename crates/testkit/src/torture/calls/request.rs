//! A word of the board with which the conductor asks the runner of the other host for an actor.

/// A request for an actor. `fresh` asks for an executed program. The count makes each request a different number.
pub fn request(count: u32, actor: usize, fresh: bool) -> u32 {
    let actor = u32::try_from(actor).unwrap_or(0);
    // The word is neither 0 nor `END`.
    (count % (1 << 24)) << 5 | u32::from(fresh) << 4 | (actor + 1)
}

/// The actor that a request asks for, and whether it is an executed program.
pub fn requested(command: u32) -> (usize, bool) {
    let actor = (command & 0xf).saturating_sub(1) as usize;
    (actor, command >> 4 & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::{request, requested};

    #[test]
    fn what_is_asked_for_is_understood() {
        for (count, actor, fresh) in [(0, 0, false), (1, 7, true), (1 << 24, 3, false)] {
            assert_eq!(requested(request(count, actor, fresh)), (actor, fresh));
            assert_ne!(
                request(count, actor, fresh),
                request(count + 1, actor, fresh)
            );
        }
    }
}
