//! The stack module `local`: a connection between two programs of this host goes through the daemon, from lane to lane. For tenants
//! whose traffic is capped, and to prove the service library without a network (`netchannel daemon --relay`).
//!
//! Never: trusts a word that a program wrote, looks at a byte of a stream, or waits for a program.
//!
//! ```text
//!  program A ==link, role server==> Lane --copy--> Lane ==link, role client==> program B
//!                                     Local (a thread): Cells, Pairs
//!                                        |  ^
//!                               asks     v  |  links
//!                                    CoreEngine
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "programs are hostile"
    )
)]

mod passes;
mod routing;
mod stack;
mod worker;

#[cfg(test)]
mod tests;

pub use stack::LocalStack;
