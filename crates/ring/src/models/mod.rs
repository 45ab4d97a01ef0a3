//! Loom models: every order in which two or three parties can interleave, and every value that a
//! relaxed load may return, at the smallest capacities.
//!
//! A model ends with `asleep` set where a sleeper goes to sleep; the failure is that no party owes it a token then. So
//! no model has to block, and a lost wake-up is an assertion, not a hang.
//!
//! Each ordering was tested by weakening the code, one line at a time (a fence removed, an ordering made relaxed). The
//! models fail as follows:
//!
//! | weakened | model that fails |
//! |---|---|
//! | `queue`: release of the tail, acquire of the tail | `queue` |
//! | `bytes`: release of the tail, acquire of the tail | `bytes` |
//! | `parts`: release or acquire of the claims, of the done parts; no number in the claims | `every_part_is_of_the_transfer_that_it_was_claimed_for` |
//! | `switch`: release or acquire of the tail; a move when the head is *at* the last one; adopting a move of which no byte is published | `switch` |
//! | `waiter`: fence in `arm` | three of `waiter` |
//! | `waiter`: fence in `announce_data` | `data_never_meets_a_sleeper_unannounced`, `attaching_to_a_cell_misses_nothing` |
//! | `waiter`: fence in `announce_space` | `space_never_meets_a_sleeper_unannounced` |
//! | `waiter`: a cell bit taken but not acted upon | `a_taken_bit_is_always_acted_upon` |
//! | `cell`: fence in `mark`, fence in `sleep` | all of `cell` |
//! | `cell`: fence in `take` | `a_bit_that_is_already_set_is_enough`, `two_peers_mark_one_slot` |
//! | `cell`: ordering of either read-modify-write of `ready` | `two_peers_mark_two_slots` |
//! | `cell`: summary not set | all of `cell` |
//! | `held`: published after the tail; not announced when it begins | `nothing_is_seen_that_is_held_back`, `what_was_let_go_stays_seen`, `who_sleeps_knows_of_the_time_or_is_woken` |
//! | `admission`: no generation in the word | `each_connection_of_a_slot_goes_one_way` |
//! | `side`: the generation after the flags; release in `begin`; acquire of the generation, of the flags | `side` |
//! | `departure`: fence in `leave`; fence of the producer; release in `finish`; `LOOKS_AGAIN` overwritten | `departure` |
//!
//! Loom runs each thread in program order and lets every read-modify-write read the last value. So it can not see the
//! pair on the *head* of a queue or a byte ring (a read of an element delayed behind the store that frees it), and the
//! orderings on `summary` and the swap of `asleep`. Their comments argue for them.

mod admission;
mod bytes;
mod cell;
mod departure;
mod held;
mod parts;
mod queue;
mod side;
mod switch;
mod urgent;
mod waiter;

/// Explores with at most `preemptions` involuntary switches of thread, which keeps three-party
/// models within seconds; two-party models are explored in full.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
