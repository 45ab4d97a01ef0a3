//! Which part of a network stack a call chain belongs to: eight categories of the kernel's stack, NetChannel's own, and the program's.
//!
//! Never: I/O, clocks, unsafe code. The owner of the chains gives each function its [`Meaning`] once, and judges chains
//! of meanings.
//!
//! ```text
//!  taxonomy.toml (+ the user's) --Taxonomy::kernel/user/source(name)--> Meaning of each function
//!  chain of meanings, innermost first ------------classify()---------> Judgement: category, side, late
//! ```
#![forbid(unsafe_code)]

mod category;
mod chain;
mod pattern;
mod taxonomy;

pub use category::{Category, Side};
pub use chain::{Chain, Judgement, Meaning, Word, classify};
pub use taxonomy::{Problem, Taxonomy};
