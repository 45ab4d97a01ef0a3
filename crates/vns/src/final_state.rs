//! The frames that are still sent for an ended connection.

use crate::types::{Reason, Transmit, Window};

/// The remaining state of an ended connection, kept until its handle is used again (as in TIME_WAIT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalState {
    /// It ended in order. The peer may not know that its Fin was received.
    Finished {
        /// As in [`Window`].
        filled: u64,
        /// As in [`Window`].
        limit: u64,
    },
    /// It was reset or refused.
    Reset(Reason),
}

/// A frame that arrived for an ended connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// NCSYN_ACK.
    Answer,
    /// DATA.
    Data,
    /// FIN.
    Fin,
    /// WINDOW.
    Window {
        /// As in [`Window`].
        ask: bool,
    },
    /// RST, NCRST or NO_SOCKET.
    Reset,
}

impl FinalState {
    /// The answer, if any. No answer of one side is answered by the other, so two sides never answer each other
    /// endlessly.
    #[must_use]
    pub const fn answer_to(self, arrived: Arrived) -> Option<Transmit> {
        match (self, arrived) {
            (_, Arrived::Reset) | (Self::Finished { .. }, Arrived::Window { ask: false }) => None,
            (
                Self::Finished { filled, limit },
                // The Answer may be a late repetition: a Reset would undo a connection that ended in order.
                Arrived::Answer | Arrived::Data | Arrived::Fin | Arrived::Window { ask: true },
            ) => Some(Transmit::Window(Window {
                filled,
                limit,
                fin: true,
                ask: false,
                again: false,
            })),
            (Self::Reset(reason), _) => Some(Transmit::Reset { reason }),
        }
    }

    /// The answer for an unknown handle.
    #[must_use]
    pub const fn answer_for_unknown(arrived: Arrived) -> Option<Transmit> {
        Self::Reset(Reason::NoSocket).answer_to(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVED: [Arrived; 6] = [
        Arrived::Answer,
        Arrived::Data,
        Arrived::Fin,
        Arrived::Window { ask: false },
        Arrived::Window { ask: true },
        Arrived::Reset,
    ];

    fn as_arrived(transmit: Transmit) -> Arrived {
        match transmit {
            Transmit::Window(window) => Arrived::Window { ask: window.ask },
            Transmit::Reset { .. } => Arrived::Reset,
            _ => unreachable!("a final state says nothing else"),
        }
    }

    #[test]
    fn a_late_answer_does_not_reset_what_ended_in_order() {
        let final_state = FinalState::Finished {
            filled: 1,
            limit: 2,
        };
        let answer = final_state.answer_to(Arrived::Answer);
        assert!(matches!(answer, Some(Transmit::Window(window)) if window.fin));
        assert_eq!(answer, final_state.answer_to(Arrived::Fin));
    }

    #[test]
    fn two_farewells_do_not_talk_for_ever() {
        let states = [
            FinalState::Finished {
                filled: 1,
                limit: 2,
            },
            FinalState::Reset(Reason::Aborted),
        ];
        for first in states {
            for second in states {
                for arrived in ARRIVED {
                    let answer = first.answer_to(arrived);
                    let reply = answer.and_then(|said| second.answer_to(as_arrived(said)));
                    let further = reply.and_then(|said| first.answer_to(as_arrived(said)));
                    assert_eq!(further, None);
                }
            }
        }
    }
}
