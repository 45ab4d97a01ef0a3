//! Loom models: every order in which two or three parties can interleave, and every value that a
//! relaxed load may return, at the smallest capacities.
//!
//! A sleeper that goes to sleep is a model that ends with `asleep` set; that nobody then owes it a
//! token is the failure. So no model has to block, and a lost wake-up is an assertion, not a hang.
//!
//! Each model names the orderings it guards. Every one of them was weakened by hand, one at a time,
//! and the model named beside it in this table then fails:
//!
//! MUTATIONS

mod bytes;
mod cell;
mod queue;
mod switch;
mod waiter;

/// Explores with at most `preemptions` involuntary switches of thread, which keeps three-party
/// models within seconds; two-party models are explored in full.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
