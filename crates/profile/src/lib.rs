//! Which part of the network stack takes the processor: samples any program, or the whole host, and classifies call chains.
//!
//! It changes nothing in what it measures except by its own load: no breakpoint, no library, no eBPF. The category of a
//! function is decided by the taxonomy (`netchannel-taxonomy`), and unsafe code is in `events/kernel.rs`.
//!
//! ```text
//!  kernel --rings--> events (records in order of time) --> recording (each chain once, counted by thread)
//!                                                              |  symbols of the kernel, of programs
//!                                                              v
//!                       named (functions, judged by taxonomy) --> tally --> Report --> table, JSON, diff
//!                                                              \-> folded --> flame graph
//! ```

mod arguments;
mod error;
mod events;
mod named;
mod notes;
mod output;
mod recording;
mod report;
#[cfg(test)]
mod scale_tests;
mod session;
mod tally;
mod work;

pub use arguments::Arguments;
pub use error::Error;
pub use report::{ByChain, Counts, Report};
pub use work::{Source, Work};
